/* test_definition.c: definitions of projections: what is read, refused and stored (P2). */
#include "projections/checkpoint.h"
#include "projections/definition.h"
#include "stores.h"

static int read_text(const char *name, const char *text, struct ol_arena *arena,
                     struct ol_projection *out, outlog_err *err)
{
    struct ol_json value;
    if (ol_json_parse(text, strlen(text), &value, err) < 0)
        return -1;
    return ol_projection_read(name, &value, arena, out, err);
}

static void p2_a_definition_is_read_into_tables_and_handlers(void **state)
{
    static const char text[] =
        "{\"version\": 3, \"tables\": [\"totals\", \"lines\"], \"create\": \"create table totals\","
        " \"on\": {\"order.created\": \"insert into totals values (:payload.n)\","
        " \"order.created@2\": [\"delete from totals\", \"insert into lines values (:org_id)\"]}}";
    struct ol_arena arena = {0};
    struct ol_projection read;
    outlog_err err = {0};
    bool is_typed;
    (void)state;

    OK(read_text("totals", text, &arena, &read, &err));
    assert_int_equal(read.version, 3);
    assert_int_equal(read.table_count, 2);
    assert_string_equal(read.tables[1], "lines");
    assert_string_equal(read.tables_json, "[\"totals\", \"lines\"]");
    assert_string_equal(read.create, "create table totals");
    assert_string_equal(read.source, text);
    assert_int_equal(read.template_count, 3);
    const struct ol_projection_handler *any = ol_projection_find(&read, "order.created", 1, NULL);
    const struct ol_projection_handler *second =
        ol_projection_find(&read, "order.created", 2, &is_typed);
    assert_true(is_typed);
    assert_int_equal(any->event_version, 0);
    assert_int_equal(any->count, 1);
    assert_int_equal(second->event_version, 2);
    assert_int_equal(second->count, 2);
    assert_null(ol_projection_find(&read, "order.paid", 1, &is_typed));
    assert_false(is_typed);
    ol_arena_clear(&arena);
}

static void p2_a_version_without_handler_is_not_an_unknown_type(void **state)
{
    struct ol_arena arena = {0};
    struct ol_projection read;
    outlog_err err = {0};
    bool is_typed = false;
    (void)state;

    OK(read_text("t", "{\"tables\":[\"t\"],\"on\":{\"a@2\":\"delete from t\"}}", &arena, &read,
                 &err));
    assert_int_equal(read.version, 1);
    assert_string_equal(read.create, "");
    assert_null(ol_projection_find(&read, "a", 1, &is_typed));
    assert_true(is_typed);
    ol_arena_clear(&arena);
}

static void p2_a_wrong_definition_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *name, *text, *pointer;
        int code;
    } cases[] = {
        {"a b", "{\"tables\":[\"t\"],\"on\":{}}", "", OUTLOG_INVALID_FIELD},
        {"t", "[]", "", OUTLOG_INVALID_FIELD},
        {"t", "{\"tables\":[\"t\"],\"on\":{},\"table\":1}", "", OUTLOG_UNKNOWN_FIELD},
        {"t", "{\"version\":0,\"tables\":[\"t\"],\"on\":{}}", "/version", OUTLOG_INVALID_FIELD},
        {"t", "{\"on\":{}}", "/tables", OUTLOG_INVALID_FIELD},
        {"t", "{\"tables\":[],\"on\":{}}", "/tables", OUTLOG_INVALID_FIELD},
        {"t", "{\"tables\":[\"s.t\"],\"on\":{}}", "/tables", OUTLOG_INVALID_FIELD},
        {"t", "{\"tables\":[\"t\"],\"create\":1,\"on\":{}}", "/create", OUTLOG_INVALID_FIELD},
        {"t", "{\"tables\":[\"t\"]}", "/on", OUTLOG_INVALID_FIELD},
        {"t", "{\"tables\":[\"t\"],\"on\":{\"a\":1}}", "/on/a", OUTLOG_INVALID_FIELD},
        {"t", "{\"tables\":[\"t\"],\"on\":{\"a@0\":\"select 1\"}}", "/on/a@0",
         OUTLOG_INVALID_FIELD},
        {"t", "{\"tables\":[\"t\"],\"on\":{\"a\":[\"drop table t\"]}}", "/on/a",
         OUTLOG_INVALID_FIELD},
    };
    struct ol_arena arena = {0};
    struct ol_projection read;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        outlog_err err = {0};
        if (read_text(cases[i].name, cases[i].text, &arena, &read, &err) == 0)
            fail_msg("taken: %s", cases[i].text);
        assert_int_equal(err.code, cases[i].code);
        assert_string_equal(err.pointer, cases[i].pointer);
    }
    ol_arena_clear(&arena);
}

static void p3_a_new_projection_is_filled_in_place(void **state)
{
    static const char text[] = "{\"tables\":[\"t\"],\"on\":{\"a\":\"delete from t\"}}";
    struct fixture *fixture = *state;
    struct ol_checkpoint row;
    outlog_err err = {0};

    OK(ol_projection_put(fixture->conn, "fresh", text, &err));
    OK(ol_checkpoint_get(fixture->conn, "fresh", &row, &err));
    assert_string_equal(row.shown.rebuild, "in_place");
    assert_int_equal(row.shown.version, 0); // nothing is live yet
    assert_true(row.is_free);
    OK(ol_projection_delete(fixture->conn, "fresh", &err));
    assert_int_equal(ol_checkpoint_get(fixture->conn, "fresh", &row, &err), -1);
    assert_int_equal(err.code, OUTLOG_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest before[] = {
        cmocka_unit_test(p2_a_definition_is_read_into_tables_and_handlers),
        cmocka_unit_test(p2_a_version_without_handler_is_not_an_unknown_type),
        cmocka_unit_test(p2_a_wrong_definition_is_refused_with_its_place),
    };
    const struct CMUnitTest suite[] = {
        cmocka_unit_test(p3_a_new_projection_is_filled_in_place),
    };
    return run_with_stores("projections/definition", before, COUNT(before), suite, COUNT(suite));
}
