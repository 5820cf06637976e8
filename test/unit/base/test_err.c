/* test_err.c: filling, cutting and prefixing errors; the table of codes. */
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void error_has_code_message_and_pointer(void **state)
{
    outlog_err err;
    (void)state;
    memset(&err, 0xAA, sizeof err);
    assert_int_equal(ol_fail(&err, OUTLOG_NOT_FOUND, "no event %d", 7), -1);
    assert_int_equal(err.code, OUTLOG_NOT_FOUND);
    assert_string_equal(err.message, "no event 7");
    assert_string_equal(err.pointer, "");
    assert_int_equal(err.index, -1);
    assert_int_equal(ol_fail_at(&err, OUTLOG_INVALID_FIELD, "/a/b", "%s", "wrong"), -1);
    assert_string_equal(err.pointer, "/a/b");
    ol_err_prefix(&err, "event %d", 3);
    assert_string_equal(err.message, "event 3: wrong");
    assert_int_equal(ol_fail(NULL, OUTLOG_MISUSE, "no error wanted"), -1);
    ol_err_prefix(NULL, "no error wanted");
}

/* A message is cut between characters, so that it can always be written as JSON. */
static void error_message_is_cut_between_characters(void **state)
{
    static const char *const chars[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "x"};
    char text[1024];
    outlog_err err;
    (void)state;
    for (size_t c = 0; c < COUNT(chars); c++)
        for (size_t shift = 0; shift < 4; shift++) {
            size_t bytes = strlen(chars[c]);
            memset(text, 'a', shift);
            for (size_t at = shift; at + 4 < sizeof text; at += bytes)
                memcpy(text + at, chars[c], bytes + 1);
            ol_fail(&err, OUTLOG_MISUSE, "%s", text);
            size_t kept = strlen(err.message);
            assert_int_equal((kept - shift) % bytes, 0);
            assert_true(kept + 4 >= sizeof err.message - 1);
            ol_err_prefix(&err, "pre");
            assert_int_equal((strlen(err.message) - 5 - shift) % bytes, 0);
            assert_true(strlen(err.message) + 4 >= sizeof err.message - 1);
            ol_err_prefix(&err, "%s", text);
            assert_true(strlen(err.message) < sizeof err.message);
        }
}

static void error_pointer_is_cut_at_a_token(void **state)
{
    char pointer[400] = "";
    outlog_err err;
    (void)state;
    for (int i = 0; i < 40; i++)
        strcat(pointer, "/abcdef");
    ol_fail_at(&err, OUTLOG_INVALID_FIELD, pointer, "wrong");
    assert_int_equal(strlen(err.pointer), 22 * 7);
    assert_memory_equal(err.pointer, pointer, 22 * 7);
}

/* R7: a name cut by %.*s left half a character in the problem of an HTTP answer. */
static void r7_error_is_utf8_whatever_is_formatted(void **state)
{
    outlog_err err;
    (void)state;
    ol_fail_at(&err, OUTLOG_UNKNOWN_FIELD, "/a\xc3", "no field %.*s here", 2, "a\xc3\xa9");
    assert_string_equal(err.message, "no field a? here");
    assert_string_equal(err.pointer, "/a?");
    ol_err_prefix(&err, "%.*s", 1, "\xc3\xa9");
    assert_string_equal(err.message, "?: no field a? here");
}

static void error_pointer_below_another_is_cut_at_a_token(void **state)
{
    char name[100];
    outlog_err err;
    (void)state;
    memset(name, 'n', sizeof name - 1);
    name[0] = '/';
    name[sizeof name - 1] = '\0';
    ol_fail_at(&err, OUTLOG_INVALID_FIELD, name, "wrong");
    ol_err_point_below(&err, "/events/0");
    assert_memory_equal(err.pointer, "/events/0/nnn", 13);
    assert_int_equal(strlen(err.pointer), 9 + sizeof name - 1);
    ol_err_point_below(&err, name);
    assert_int_equal(strlen(err.pointer), sizeof name - 1 + 9);
    ol_err_point_below(NULL, "/x");
}

static void every_code_is_found_by_its_name(void **state)
{
    (void)state;
    for (int code = 1; code < OUTLOG_CODE_COUNT; code++) {
        const char *name = outlog_code_name((enum outlog_code)code);
        assert_non_null(name);
        assert_int_equal(ol_err_code_by_name(name, strlen(name)), code);
        assert_true(ol_err_http_status((enum outlog_code)code) >= 400);
    }
    assert_int_equal(ol_err_code_by_name("nope", 4), OUTLOG_OK);
    assert_string_equal(outlog_code_name((enum outlog_code)999), "unknown_code");
    assert_true(outlog_code_is_retryable(OUTLOG_UNAVAILABLE));
    assert_false(outlog_code_is_retryable(OUTLOG_INVALID_JSON));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_has_code_message_and_pointer),
        cmocka_unit_test(error_message_is_cut_between_characters),
        cmocka_unit_test(error_pointer_is_cut_at_a_token),
        cmocka_unit_test(every_code_is_found_by_its_name),
        cmocka_unit_test(r7_error_is_utf8_whatever_is_formatted),
        cmocka_unit_test(error_pointer_below_another_is_cut_at_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
