/* test_buf.c: a buffer grows, stays terminated, and escapes JSON. */
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void buf_grows_and_stays_terminated(void **state)
{
    struct ol_buf buf = {0};
    (void)state;
    for (int i = 0; i < 1000; i++) {
        ol_buf_print(&buf, "%d,", i);
        assert_int_equal(strlen(buf.data), buf.bytes);
    }
    ol_buf_reset(&buf);
    assert_string_equal(buf.data, "");
    ol_buf_int(&buf, INT64_MIN);
    ol_buf_char(&buf, ' ');
    ol_buf_text(&buf, "x");
    assert_string_equal(buf.data, "-9223372036854775808 x");
    ol_buf_clear(&buf);
    assert_null(buf.data);
}

static void buf_that_failed_stays_failed(void **state)
{
    struct ol_buf buf = {0};
    (void)state;
    ol_buf_add(&buf, "", SIZE_MAX - 1);
    assert_true(buf.failed);
    ol_buf_text(&buf, "x");
    assert_int_equal(buf.bytes, 0);
    ol_buf_reset(&buf);
    ol_buf_text(&buf, "x");
    assert_string_equal(buf.data, "x");
    ol_buf_clear(&buf);
}

static void buf_escapes_only_what_json_requires(void **state)
{
    struct ol_buf buf = {0};
    (void)state;
    ol_buf_json_text(&buf, "a\"\\/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9");
    assert_string_equal(buf.data, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\"");
    ol_buf_reset(&buf);
    ol_buf_json(&buf, NULL, 0);
    ol_buf_json_text(&buf, NULL);
    ol_buf_json_time(&buf, 0);
    ol_buf_json_time(&buf, 1);
    assert_string_equal(buf.data, "\"\"nullnull\"1970-01-01T00:00:00.000001Z\"");
    ol_buf_clear(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_grows_and_stays_terminated),
        cmocka_unit_test(buf_that_failed_stays_failed),
        cmocka_unit_test(buf_escapes_only_what_json_requires),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
