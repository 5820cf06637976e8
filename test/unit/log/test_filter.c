/* test_filter.c: filters as JSON, and against events. */
#include "log/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void e7_a_filter_survives_json(void **state)
{
    static const char *const texts[] = {
        "{}",
        "{\"org_id\":null}",
        "{\"org_id\":\"acme\",\"aggregate_type\":\"order\",\"event_type\":\"order.paid\"}",
        "{\"correlation_id\":\"c\",\"app_id\":\"a\",\"env_id\":\"e\",\"visibility\":\"v\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ol_arena arena = {0};
        struct ol_buf out = {0};
        struct outlog_filter filter;
        outlog_err err;
        assert_int_equal(ol_filter_read(texts[i], &arena, &filter, &err), 0);
        ol_filter_write(&filter, &out);
        ol_buf_char(&out, '\0');
        assert_string_equal(out.data, texts[i]);
        ol_buf_clear(&out);
        ol_arena_clear(&arena);
    }
}

static void e7_what_no_filter_has_is_refused(void **state)
{
    static const struct {
        const char *text;
        enum outlog_code code;
    } cases[] = {
        {"[]", OUTLOG_INVALID_FIELD},
        {"{\"payload\":\"x\"}", OUTLOG_UNKNOWN_FIELD},
        {"{\"actor_id\":\"x\"}", OUTLOG_UNKNOWN_FIELD},
        {"{\"event_type\":1}", OUTLOG_INVALID_FIELD},
        {"{\"event_type\":null}", OUTLOG_INVALID_FIELD},
        {"{", OUTLOG_INVALID_JSON},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ol_arena arena = {0};
        struct outlog_filter filter;
        outlog_err err;
        assert_int_equal(ol_filter_read(cases[i].text, &arena, &filter, &err), -1);
        assert_int_equal(err.code, cases[i].code);
        ol_arena_clear(&arena);
    }
}

static void e7_every_field_of_a_filter_counts(void **state)
{
    const struct outlog_event event = {.org_id = "acme",
                                       .aggregate_type = "order",
                                       .aggregate_id = "o-1",
                                       .event_type = "order.paid",
                                       .correlation_id = "c",
                                       .app_id = "a",
                                       .env_id = "e",
                                       .visibility = "v",
                                       .occurred_at = 1000};
    struct outlog_filter filter = {0};
    (void)state;
    assert_true(ol_filter_matches(&filter, &event));
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const struct ol_field *field = &ol_event_fields[i];
        if (field->filter == OL_FIELD_NONE)
            continue;
        ol_field_set_text(&filter, field->filter, "other");
        assert_false(ol_filter_matches(&filter, &event));
        ol_field_set_text(&filter, field->filter, ol_field_text(&event, field->stored));
        assert_true(ol_filter_matches(&filter, &event));
    }
    filter.since = 1000;
    filter.until = 1001;
    assert_true(ol_filter_matches(&filter, &event));
    filter.until = 1000;
    assert_false(ol_filter_matches(&filter, &event));
    filter = (struct outlog_filter){.is_infrastructure = true};
    assert_false(ol_filter_matches(&filter, &event));
    assert_true(ol_filter_matches(&filter, &(struct outlog_event){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e7_a_filter_survives_json),
        cmocka_unit_test(e7_what_no_filter_has_is_refused),
        cmocka_unit_test(e7_every_field_of_a_filter_counts),
    };
    return cmocka_run_group_tests_name("filter", tests, NULL, NULL);
}
