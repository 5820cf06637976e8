/* test_row.c: rows of runs as JSON text: values, keys and printing. */
#include "runs/row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_value_is_json_text_or_null(void **state)
{
    struct ol_arena arena = {0};
    struct ol_json object, absent;
    (void)state;
    assert_string_equal(ol_row_value_text(&arena, "a \"b\"\n"), "\"a \\\"b\\\"\\n\"");
    assert_null(ol_row_value_text(&arena, NULL));
    assert_string_equal(ol_row_value_int(&arena, INT64_MIN), "-9223372036854775808");
    assert_string_equal(ol_row_value_time(&arena, 1000000), "\"1970-01-01T00:00:01.000000Z\"");
    assert_null(ol_row_value_time(&arena, 0));
    assert_int_equal(ol_json_parse("{\"n\": 1.0}", 10, &object, NULL), 0);
    assert_string_equal(ol_row_value_json(&arena, &object), "{\"n\": 1.0}");
    absent = ol_json_get(&object, "x");
    assert_null(ol_row_value_json(&arena, &absent));
    ol_arena_clear(&arena);
}

static void a_row_is_found_by_its_id_and_a_checkpoint_by_its_index(void **state)
{
    struct ol_arena arena = {0};
    struct ol_row_list steps = {0}, checkpoints = {0};
    (void)state;
    struct ol_row *one = ol_row_add(&steps, &ol_table_step, &arena);
    struct ol_row *two = ol_row_add(&steps, &ol_table_step, &arena);
    struct ol_row *checkpoint = ol_row_add(&checkpoints, &ol_table_checkpoint, &arena);
    assert_null(ol_row_find(&steps, "\"one\"")); // rows without an id yet
    one->values[OL_IN_STEP_ID] = "\"one\"";
    two->values[OL_IN_STEP_ID] = "\"two\"";
    checkpoint->values[OL_IN_CHECKPOINT_RUN] = "\"run\"";
    checkpoint->values[OL_IN_CHECKPOINT_INDEX] = "7";
    assert_ptr_equal(ol_row_find(&steps, "\"one\""), one);
    assert_ptr_equal(ol_row_find(&steps, "\"two\""), two);
    assert_null(ol_row_find(&steps, "\"three\""));
    assert_null(ol_row_find(&steps, NULL));
    assert_ptr_equal(ol_row_find(&checkpoints, "7"), checkpoint);
    assert_null(ol_row_find(&checkpoints, "\"run\""));
    ol_arena_clear(&arena);
}

static void a_column_is_read_as_text_or_number(void **state)
{
    struct ol_arena arena = {0};
    struct ol_row_list runs = {0};
    (void)state;
    struct ol_row *run = ol_row_add(&runs, &ol_table_run, &arena);
    run->values[OL_IN_RUN_STATUS] = "\"RUNNING\"";
    run->values[OL_IN_RUN_TOTAL] = "12";
    assert_string_equal(ol_row_text(run, OL_IN_RUN_STATUS, &arena), "RUNNING");
    assert_null(ol_row_text(run, OL_IN_RUN_SIGNAL, &arena));
    assert_int_equal(ol_row_int(run, OL_IN_RUN_TOTAL), 12);
    assert_int_equal(ol_row_int(run, OL_IN_RUN_FAILED), 0);
    assert_true(ol_row_is(run, OL_IN_RUN_STATUS, "RUNNING"));
    assert_false(ol_row_is(run, OL_IN_RUN_STATUS, "RUN"));
    assert_false(ol_row_is(run, OL_IN_RUN_STATUS, "RUNNINGS"));
    assert_false(ol_row_is(run, OL_IN_RUN_SIGNAL, ""));
    ol_arena_clear(&arena);
}

static void e13_a_row_is_printed_with_its_columns_and_the_spec_masked(void **state)
{
    struct ol_arena arena = {0};
    struct ol_row_list list = {0};
    struct ol_buf out = {0};
    (void)state;
    ol_row_json(NULL, &out);
    assert_string_equal(out.data, "null");
    ol_buf_reset(&out);
    ol_row_list_json(&list, &out);
    assert_string_equal(out.data, "[]");
    ol_buf_reset(&out);
    struct ol_row *checkpoint = ol_row_add(&list, &ol_table_checkpoint, &arena);
    checkpoint->values[OL_IN_CHECKPOINT_INDEX] = "1";
    checkpoint->values[OL_IN_CHECKPOINT_DATA] = "{\"n\":2}";
    ol_row_list_json(&list, &out);
    assert_string_equal(out.data, "[{\"run_id\":null,\"checkpoint_index\":1,"
                                  "\"checkpoint_data\":{\"n\":2},\"event_id\":null,"
                                  "\"created_at\":null}]");
    ol_buf_reset(&out);
    struct ol_row *effect = ol_row_add(&list, &ol_table_effect, &arena);
    effect->values[OL_IN_EFFECT_SPEC] = "{\"password\":\"hunter2\",\"n\":1}";
    ol_row_json(effect, &out);
    assert_null(strstr(out.data, "hunter2"));
    assert_non_null(strstr(out.data, "\"n\":1"));
    ol_buf_clear(&out);
    ol_arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_json_text_or_null),
        cmocka_unit_test(a_row_is_found_by_its_id_and_a_checkpoint_by_its_index),
        cmocka_unit_test(a_column_is_read_as_text_or_number),
        cmocka_unit_test(e13_a_row_is_printed_with_its_columns_and_the_spec_masked),
    };
    return cmocka_run_group_tests_name("runs/row", tests, NULL, NULL);
}
