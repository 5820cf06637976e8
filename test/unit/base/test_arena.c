/* test_arena.c: memory, byte strings and errors: what everything else stands on. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void arena_memory_is_zeroed_and_aligned(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t bytes = 0; bytes < 5000; bytes += 37) {
            unsigned char *at = ol_arena_alloc(&arena, bytes);
            assert_non_null(at);
            assert_int_equal((uintptr_t)at % alignof(max_align_t), 0);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(at[i], 0);
            memset(at, 0xAA, bytes); // what the next round finds unless it is cleared
        }
        ol_arena_reset(&arena);
        assert_int_equal(arena.used, 0);
    }
    ol_arena_clear(&arena);
    ol_arena_clear(&arena);
}

static void arena_pieces_do_not_overlap(void **state)
{
    struct ol_arena arena = {0};
    char *pieces[300];
    (void)state;
    for (size_t i = 0; i < COUNT(pieces); i++) {
        pieces[i] = ol_arena_alloc(&arena, 1000);
        memset(pieces[i], (int)(i % 251), 1000);
    }
    for (size_t i = 0; i < COUNT(pieces); i++)
        for (size_t j = 0; j < 1000; j++)
            assert_int_equal((unsigned char)pieces[i][j], i % 251);
    ol_arena_clear(&arena);
}

static void arena_refuses_beyond_its_ceiling(void **state)
{
    struct ol_arena arena = {.ceiling = 1000};
    (void)state;
    assert_non_null(ol_arena_alloc(&arena, 600));
    assert_null(ol_arena_alloc(&arena, 600));
    assert_non_null(ol_arena_alloc(&arena, 300));
    ol_arena_reset(&arena);
    assert_non_null(ol_arena_alloc(&arena, 900));
    ol_arena_clear(&arena);
}

static void arena_refuses_absurd_sizes(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    assert_null(ol_arena_alloc(&arena, SIZE_MAX));
    assert_null(ol_arena_alloc(&arena, SIZE_MAX - 8));
    assert_null(ol_arena_array(&arena, SIZE_MAX / 2, 4));
    assert_non_null(ol_arena_array(&arena, 10, 4));
    ol_arena_clear(&arena);
}

static void arena_keeps_one_block_but_no_huge_one(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    ol_arena_alloc(&arena, 100);
    ol_arena_reset(&arena);
    assert_non_null(arena.block);
    ol_arena_alloc(&arena, 64 * 1024 * 1024);
    ol_arena_reset(&arena);
    assert_null(arena.block);
    ol_arena_clear(&arena);
}

static void arena_copies_and_prints(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    assert_string_equal(ol_arena_copy(&arena, "abcdef", 3), "abc");
    assert_string_equal(ol_arena_copy(&arena, NULL, 0), "");
    assert_string_equal(ol_arena_print(&arena, "%d-%s", 7, "x"), "7-x");
    ol_arena_clear(&arena);
}

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

static void buf_escapes_only_what_json_demands(void **state)
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

static void error_says_code_message_and_pointer(void **state)
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
    assert_int_equal(ol_fail(NULL, OUTLOG_MISUSE, "nobody listens"), -1);
    ol_err_prefix(NULL, "nobody listens");
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

static void every_code_has_a_name_that_leads_back(void **state)
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

static void sha256_is_lower_case_hex(void **state)
{
    char out[OL_SHA256_TEXT];
    (void)state;
    ol_sha256_hex("abc", 3, out);
    assert_string_equal(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ol_sha256_hex("", 0, out);
    assert_string_equal(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_memory_is_zeroed_and_aligned),
        cmocka_unit_test(arena_pieces_do_not_overlap),
        cmocka_unit_test(arena_refuses_beyond_its_ceiling),
        cmocka_unit_test(arena_refuses_absurd_sizes),
        cmocka_unit_test(arena_keeps_one_block_but_no_huge_one),
        cmocka_unit_test(arena_copies_and_prints),
        cmocka_unit_test(buf_grows_and_stays_terminated),
        cmocka_unit_test(buf_that_failed_stays_failed),
        cmocka_unit_test(buf_escapes_only_what_json_demands),
        cmocka_unit_test(error_says_code_message_and_pointer),
        cmocka_unit_test(error_message_is_cut_between_characters),
        cmocka_unit_test(error_pointer_is_cut_at_a_token),
        cmocka_unit_test(every_code_has_a_name_that_leads_back),
        cmocka_unit_test(sha256_is_lower_case_hex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
