/* test_utf8.c: strict UTF-8, at every offset of the fast path. */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool is_valid_behind(size_t offset, const char *text, size_t bytes)
{
    char padded[64];
    memset(padded, 'a', offset);
    memcpy(padded + offset, text, bytes);
    memset(padded + offset + bytes, 'z', 9);
    return ol_utf8_is_valid(padded, offset + bytes + 9);
}

static void characters_of_each_length_are_valid(void **state)
{
    static const char *const texts[] = {"",
                                        "a",
                                        "\x7f",
                                        "\xc2\x80",
                                        "\xdf\xbf",
                                        "\xe0\xa0\x80",
                                        "\xed\x9f\xbf",
                                        "\xee\x80\x80",
                                        "\xef\xbf\xbf",
                                        "\xf0\x90\x80\x80",
                                        "\xf4\x8f\xbf\xbf"};
    (void)state;
    for (size_t offset = 0; offset < 17; offset++)
        for (size_t i = 0; i < COUNT(texts); i++)
            assert_true(is_valid_behind(offset, texts[i], strlen(texts[i])));
}

static void overlong_surrogate_and_broken_text_is_invalid(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {
        {"\0", 1},       // NUL
        {"\x80", 1},     // a continuation byte alone
        {"\xc0\xaf", 2}, // overlong
        {"\xc1\xbf", 2},
        {"\xe0\x9f\xbf", 3},
        {"\xf0\x8f\xbf\xbf", 4},
        {"\xed\xa0\x80", 3},
        {"\xed\xbf\xbf", 3}, // surrogates
        {"\xf4\x90\x80\x80", 4},
        {"\xf5\x80\x80\x80", 4}, // above U+10FFFF
        {"\xff", 1},
        {"\xc3", 1},
        {"\xe2\x82", 2},
        {"\xf0\x9f\x98", 3}, // cut
    };
    (void)state;
    for (size_t offset = 0; offset < 17; offset++)
        for (size_t i = 0; i < COUNT(cases); i++)
            assert_false(is_valid_behind(offset, cases[i].text, cases[i].bytes));
}

static void repaired_text_is_valid_and_as_long(void **state)
{
    static const char *const texts[][2] = {{"plain \xc3\xa9", "plain \xc3\xa9"},
                                           {"cut \xe2\x82", "cut ??"},
                                           {"\xc3: \xe9\xff", "?: ??"},
                                           {"12345678\xed\xa0\x80z", "12345678???z"}};
    char text[32];
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        strcpy(text, texts[i][0]);
        ol_utf8_repair(text, strlen(text));
        assert_string_equal(text, texts[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_of_each_length_are_valid),
        cmocka_unit_test(overlong_surrogate_and_broken_text_is_invalid),
        cmocka_unit_test(repaired_text_is_valid_and_as_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
