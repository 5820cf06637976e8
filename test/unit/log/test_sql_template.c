/* test_sql_template.c: the parameters of a projection's statement, and their values (P2). */
#include "log/sql_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The statement with {} for each parameter. */
static void assert_read(const char *sql, const char *expect)
{
    struct ol_arena arena = {0};
    struct ol_sql_template template;
    struct ol_buf out = {0};
    outlog_err err = {0};
    if (ol_sql_template_read(sql, &arena, &template, &err) < 0)
        fail_msg("%s: %s", sql, err.message);
    for (int i = 0; i <= template.param_count; i++) {
        if (i)
            ol_buf_text(&out, "{}");
        ol_buf_text(&out, template.texts[i]);
    }
    assert_string_equal(out.data, expect);
    ol_buf_clear(&out);
    ol_arena_clear(&arena);
}

static void p2_only_parameters_are_found(void **state)
{
    static const char *const cases[][2] = {
        {"insert into t values (:event_id, :payload.a.0.b)", "insert into t values ({}, {})"},
        {"select :payload.n::numeric, a::text", "select {}::numeric, a::text"},
        {"select ':org_id', \":org_id\", `:org_id`", "select ':org_id', \":org_id\", `:org_id`"},
        {"select 'it''s :org_id', :org_id", "select 'it''s :org_id', {}"},
        {"select E'it\\':s :org_id', :org_id", "select E'it\\':s :org_id', {}"},
        {"select '\\', :org_id", "select '\\', {}"},
        {"select $$ :org_id $$, $a$ :org_id $b$ $a$, :org_id",
         "select $$ :org_id $$, $a$ :org_id $b$ $a$, {}"},
        {"select 1 -- :org_id ; ' \n, :org_id", "select 1 -- :org_id ; ' \n, {}"},
        {"select 1 /* :org_id ; */, :org_id", "select 1 /* :org_id ; */, {}"},
        {"/* why */ -- and how\n with x as (select 1) select :id from x;",
         "/* why */ -- and how\n with x as (select 1) select {} from x"},
        {"UPDATE t set a = b[1:2], c = d ? 'k'", "UPDATE t set a = b[1:2], c = d ? 'k'"},
        {"delete from t where a = :payload.x. ;\n", "delete from t where a = {}. "},
        {"select 'no end :org_id", "select 'no end :org_id"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_read(cases[i][0], cases[i][1]);
}

static void p2_other_statements_are_refused(void **state)
{
    static const char *const cases[] = {
        "",
        "commit",
        "drop table t",
        "create table t (a int)",
        "-- insert\n begin",
        "insert into t values (:nonsense)",
        "insert into t values (:event_id.x)",
        "insert into t values (:payloads.x)",
        "delete from t; delete from t",
        "inserted",
    };
    struct ol_arena arena = {0};
    struct ol_sql_template template;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        outlog_err err = {0};
        if (ol_sql_template_read(cases[i], &arena, &template, &err) == 0)
            fail_msg("taken: %s", cases[i]);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    }
    ol_arena_clear(&arena);
}

static const struct outlog_event event = {
    .event_id = 7,
    .id = "01a1e311-eb71-7701-8393-39d2f7ece8d0",
    .occurred_at = 1767528300000001,
    .aggregate_id = "o-1",
    .event_version = 2,
    .payload = "{\"i\":-12,\"r\":1.5,\"b\":true,\"f\":false,\"n\":null,\"s\":\"a\\u00e9\\n\","
               "\"o\":{\"k\":[1,\"x\"]}}",
    .payload_bytes = 72,
};

static struct ol_value value_of(const char *name, bool wants_json, bool has_types,
                                struct ol_arena *arena)
{
    char sql[100];
    struct ol_sql_template template;
    struct ol_value value;
    struct outlog_event whole = event;
    outlog_err err;
    whole.payload_bytes = strlen(whole.payload);
    snprintf(sql, sizeof sql, "select :%s", name);
    assert_int_equal(ol_sql_template_read(sql, arena, &template, &err), 0);
    assert_int_equal(ol_sql_template_values(&template, &whole, &wants_json, has_types, arena,
                                            &value, &err),
                     0);
    return value;
}

static void assert_text(struct ol_value value, const char *expect)
{
    assert_int_equal(value.type, OL_VALUE_TEXT);
    assert_int_equal(value.bytes, strlen(expect));
    assert_memory_equal(value.text, expect, value.bytes);
}

static void p2_values_keep_their_kind_where_the_store_has_no_types(void **state)
{
    struct ol_arena arena = {0};
    struct ol_arena *a = &arena;
    (void)state;
    assert_int_equal(value_of("payload.i", false, false, a).number, -12);
    assert_true(value_of("payload.r", false, false, a).real == 1.5);
    assert_int_equal(value_of("payload.b", false, false, a).number, 1);
    assert_int_equal(value_of("payload.f", false, false, a).type, OL_VALUE_INT);
    assert_int_equal(value_of("payload.n", false, false, a).type, OL_VALUE_NULL);
    assert_int_equal(value_of("payload.nowhere.x", false, false, a).type, OL_VALUE_NULL);
    assert_int_equal(value_of("metadata.x", false, false, a).type, OL_VALUE_NULL);
    assert_int_equal(value_of("org_id", false, false, a).type, OL_VALUE_NULL);
    assert_int_equal(value_of("causation_id", false, false, a).type, OL_VALUE_NULL);
    assert_text(value_of("payload.s", false, false, a), "aé\n");
    assert_text(value_of("payload.o", false, false, a), "{\"k\":[1,\"x\"]}");
    assert_text(value_of("payload.o.k.1", false, false, a), "x");
    assert_text(value_of("aggregate_id", false, false, a), "o-1");
    assert_text(value_of("id", false, false, a), event.id);
    assert_text(value_of("occurred_at", false, false, a), "2026-01-04T12:05:00.000001Z");
    assert_int_equal(value_of("event_id", false, false, a).number, 7);
    assert_int_equal(value_of("event_version", false, false, a).number, 2);
    ol_arena_clear(&arena);
}

static void p2_values_are_text_where_the_store_has_types(void **state)
{
    struct ol_arena arena = {0};
    struct ol_arena *a = &arena;
    (void)state;
    assert_text(value_of("payload.i", false, true, a), "-12");
    assert_text(value_of("payload.b", false, true, a), "true");
    assert_text(value_of("payload.s", false, true, a), "aé\n");
    assert_text(value_of("payload.s", true, true, a), "\"a\\u00e9\\n\"");
    assert_int_equal(value_of("payload.n", true, true, a).type, OL_VALUE_NULL);
    ol_arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p2_only_parameters_are_found),
        cmocka_unit_test(p2_other_statements_are_refused),
        cmocka_unit_test(p2_values_keep_their_kind_where_the_store_has_no_types),
        cmocka_unit_test(p2_values_are_text_where_the_store_has_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
