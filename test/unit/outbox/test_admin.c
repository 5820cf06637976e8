/* Errors of dead letters as groups, and the result of a change of many messages. */
#include "base/arena.h"
#include "outbox/admin.h"
#include "outbox/bulk_result.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void errors_that_differ_in_numbers_have_one_pattern(void **state)
{
    static const char *const cases[][2] = {
        {"connect 10.0.0.7:4222: timed out after 5000 ms",
         "connect #.#.#.#:#: timed out after # ms"},
        {"HTTP 503: retry in 30 s", "HTTP 503: retry in # s"},
        {"HTTP 404", "HTTP 404"},
        {"no number", "no number"},
        {"", ""},
    };
    struct ol_arena arena = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ol_admin_error_pattern(cases[i][0], &arena), cases[i][1]);
    ol_arena_clear(&arena);
}

static void a_bulk_result_lists_a_bounded_number_of_ids(void **state)
{
    struct ol_bulk_result result = {.verb = "requeued", .ids_max = 2, .skipped = 3};
    struct ol_buf out = {0};
    (void)state;
    ol_bulk_result_note(&result, "a");
    ol_bulk_result_note(&result, "b");
    ol_bulk_result_note(&result, "c");
    ol_bulk_result_json(&result, &out);
    assert_string_equal(out.data, "{\"requeued\":3,\"skipped\":3,\"dry_run\":false,"
                                  "\"event_ids\":[\"a\",\"b\"]}");
    ol_bulk_result_clear(&result);
    ol_buf_clear(&out);
}

static void a_dry_run_only_counts(void **state)
{
    struct ol_bulk_result result = {.verb = "killed", .ids_max = 2, .is_dry = true};
    struct ol_buf out = {0};
    (void)state;
    ol_bulk_result_note(&result, "a");
    ol_bulk_result_json(&result, &out);
    assert_string_equal(out.data, "{\"killed\":1,\"skipped\":0,\"dry_run\":true,\"event_ids\":[]}");
    ol_bulk_result_clear(&result);
    ol_buf_clear(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_that_differ_in_numbers_have_one_pattern),
        cmocka_unit_test(a_bulk_result_lists_a_bounded_number_of_ids),
        cmocka_unit_test(a_dry_run_only_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
