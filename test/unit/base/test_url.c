/* test_url.c: percent decoding. */
#include "base/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void escapes_are_decoded_in_place(void **state)
{
    char path[] = "a%20b%2Fc%c3%a9+d", query[] = "a+b%2Bc";
    (void)state;
    assert_true(ol_url_decode(path, false));
    assert_string_equal(path, "a b/c\xc3\xa9+d");
    assert_true(ol_url_decode(query, true));
    assert_string_equal(query, "a b+c");
}

static void broken_escapes_nul_and_other_bytes_are_refused(void **state)
{
    static const char *const texts[] = {"%", "a%2", "%zz", "%2z", "a%00b", "%c3", "%ff"};
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        char text[16];
        snprintf(text, sizeof text, "%s", texts[i]);
        assert_false(ol_url_decode(text, false));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_are_decoded_in_place),
        cmocka_unit_test(broken_escapes_nul_and_other_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
