/* test_traceparent.c: W3C trace context (T4). */
#include "base/traceparent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char example[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

static void t4_traceparent_is_checked(void **state)
{
    static const char *const wrong[] = {
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
    };
    (void)state;
    assert_true(ol_traceparent_is_valid(example));
    assert_true(
        ol_traceparent_is_valid("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"));
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_false(ol_traceparent_is_valid(wrong[i]));
}

static void t4_sampled_is_the_lowest_flag(void **state)
{
    (void)state;
    assert_true(ol_traceparent_is_sampled(example));
    assert_false(
        ol_traceparent_is_sampled("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02"));
}

static void t4_trace_id_is_the_uuid_or_a_hash(void **state)
{
    char one[OL_TRACEPARENT_TRACE_TEXT], two[OL_TRACEPARENT_TRACE_TEXT];
    (void)state;
    ol_traceparent_make_trace_id("0198c1aa-0000-7000-8000-000000000001", one);
    assert_string_equal(one, "0198c1aa000070008000000000000001");
    ol_traceparent_make_trace_id("order 7", one);
    ol_traceparent_make_trace_id("order 8", two);
    assert_int_equal(strlen(one), 32);
    assert_string_not_equal(one, two);
}

static void t4_each_attempt_has_its_own_span_in_the_same_trace(void **state)
{
    char first[OL_TRACEPARENT_TEXT], second[OL_TRACEPARENT_TEXT], again[OL_TRACEPARENT_TEXT];
    (void)state;
    assert_true(ol_traceparent_next(example, "m-1", 1, first));
    assert_true(ol_traceparent_next(example, "m-1", 2, second));
    assert_true(ol_traceparent_next(example, "m-1", 1, again));
    assert_string_equal(first, again);
    assert_string_not_equal(first, second);
    assert_memory_equal(first, example, 36);
    assert_string_equal(first + 52, "-01");
    assert_false(ol_traceparent_next(NULL, "m-1", 1, first));
    assert_false(ol_traceparent_next("nonsense", "m-1", 1, first));
}

static void t4_traceparent_is_added_to_metadata_once(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    assert_string_equal(ol_traceparent_store(example, NULL, &arena),
                        "{\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
                        "01\"}");
    assert_string_equal(ol_traceparent_store(example, "{}", &arena),
                        "{\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
                        "01\"}");
    assert_string_equal(ol_traceparent_store(example, "{\"a\":1}", &arena),
                        "{\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
                        "01\",\"a\":1}");
    assert_string_equal(ol_traceparent_store(example, "{\"traceparent\":\"x\"}", &arena),
                        "{\"traceparent\":\"x\"}");
    assert_string_equal(ol_traceparent_store(example, "[1]", &arena), "[1]");
    ol_arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t4_traceparent_is_checked),
        cmocka_unit_test(t4_sampled_is_the_lowest_flag),
        cmocka_unit_test(t4_trace_id_is_the_uuid_or_a_hash),
        cmocka_unit_test(t4_each_attempt_has_its_own_span_in_the_same_trace),
        cmocka_unit_test(t4_traceparent_is_added_to_metadata_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
