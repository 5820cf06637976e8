/* Masking of responses and errors (E13). */
#include "publish/mask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *in, const char *const *secrets, const char *expected)
{
    struct ol_buf out = {0};
    ol_mask_add(&out, in, strlen(in), secrets, 4096);
    assert_string_equal(out.data ? out.data : "", expected);
    ol_buf_clear(&out);
}

static void e13_header_lines_are_masked(void **state)
{
    (void)state;
    check("Authorization: Bearer abc.def\r\nX: 1", NULL, "Authorization: ***\r\nX: 1");
    check("set-cookie: a=b; Path=/\nCookie: x=y", NULL, "set-cookie: ***\nCookie: ***");
    check("webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=", NULL,
          "webhook-signature: ***");
}

static void e13_named_values_are_masked(void **state)
{
    (void)state;
    check("{\"password\":\"hunter2\",\"user\":\"bob\"}", NULL,
          "{\"password\":\"***\",\"user\":\"bob\"}");
    check("{\"access_token\" : \"a\\\"b\", \"n\": 1}", NULL,
          "{\"access_token\" : \"***\", \"n\": 1}");
    check("{\"Authorization\":\"Basic Zm9v\"}", NULL, "{\"Authorization\":\"***\"}");
    check("?api_key=123456&page=2", NULL, "?api_key=***&page=2");
    check("clientSecret=abc;x", NULL, "clientSecret=***;x");
    check("\"{\\\"token\\\":\\\"abc\\\",\\\"a\\\":1}\"", NULL,
          "\"{\\\"token\\\":\\\"***\\\",\\\"a\\\":1}\"");
    check("{\"secret\":{\"token\":\"x1\",\"id\":7}}", NULL,
          "{\"secret\":{\"token\":\"***\",\"id\":7}}");
    check("{\"token_count\":3,\"id\":\"t\"}", NULL, "{\"token_count\":3,\"id\":\"t\"}");
    check("secret_version_id v42", NULL, "secret_version_id v42");
}

static void e13_tokens_of_known_shapes_are_masked(void **state)
{
    (void)state;
    check("got Bearer eyJhbGciOiJIUzI1NiJ9.e30.x", NULL, "got Bearer ***");
    check("key whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw!", NULL, "key whsec_***!");
    check("ghp_0123456789abcdefghij0123456789abcdef", NULL, "ghp_***");
    check("AKIAIOSFODNN7EXAMPLE", NULL, "AKIA***");
    check("smtp://bob:pw@mail.example:25 down", NULL, "smtp://***@mail.example:25 down");
    check("see https://a.example/x@y", NULL, "see https://a.example/x@y");
    check("a -----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY----- b", NULL,
          "a -----BEGIN EC PRIVATE KEY***-----END EC PRIVATE KEY----- b");
}

static void e13_own_secrets_are_masked_wherever_they_stand(void **state)
{
    static const char *const secrets[] = {"s3cr3t-value", "ab", NULL};
    static const char *const odd[] = {"sword,fish", NULL};
    (void)state;
    check("xxs3cr3t-valueyy ab", secrets, "xx***yy ab"); // "ab" is too short to be a secret
    check("xs3cr3t-value-token: 1", secrets, "x***-token: ***");
    check("token=sword,fish,7", odd, "token=***,7"); // though a comma ends other values
}

static void r4_bytes_that_are_no_text_are_replaced(void **state)
{
    struct ol_buf out = {0};
    (void)state;
    ol_mask_add(&out, "a\0b\xff\xc3\xa9\x1b[2J\xc2\x9b\x7f\xe2\x82", 15, NULL, 4096);
    assert_string_equal(out.data, "a\xef\xbf\xbd"
                                  "b\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd[2J\xef\xbf\xbd\xef\xbf\xbd"
                                  "\xef\xbf\xbd\xef\xbf\xbd");
    ol_buf_clear(&out);
    check("\xed\xa0\x80", NULL, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); // a surrogate
    check("\xc0\xaf", NULL, "\xef\xbf\xbd\xef\xbf\xbd");                 // overlong
}

static void r4_length_is_bounded_at_a_whole_character(void **state)
{
    struct ol_buf out = {0};
    (void)state;
    ol_mask_add(&out, "aaa\xc3\xa9zzz", 8, NULL, 4);
    assert_string_equal(out.data, "aaa");
    ol_buf_clear(&out);
}

static void r4_errors_are_one_line(void **state)
{
    static const char text[] = "\r\n one\r\n\ttwo  three \n";
    struct ol_buf out = {0};
    (void)state;
    ol_mask_line(&out, text, sizeof text - 1, NULL, 100);
    assert_string_equal(out.data, "one two three");
    ol_buf_clear(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e13_header_lines_are_masked),
        cmocka_unit_test(e13_named_values_are_masked),
        cmocka_unit_test(e13_tokens_of_known_shapes_are_masked),
        cmocka_unit_test(e13_own_secrets_are_masked_wherever_they_stand),
        cmocka_unit_test(r4_bytes_that_are_no_text_are_replaced),
        cmocka_unit_test(r4_length_is_bounded_at_a_whole_character),
        cmocka_unit_test(r4_errors_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
