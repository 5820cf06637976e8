/* Lines for people: no byte of a payload may control the terminal. */
#include "cli/cli.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_safe(const char *text, size_t bytes, const char *expected)
{
    struct ol_buf out = {0};
    ol_cli_put_safe(&out, text, bytes);
    assert_string_equal(out.data, expected);
    ol_buf_clear(&out);
}

static void control_bytes_are_escaped(void **state)
{
    (void)state;
    assert_safe("plain ä €", strlen("plain ä €"), "plain ä €");
    assert_safe("a\033[31mb", 7, "a\\x1b[31mb");
    assert_safe("a\nb\tc\x7f", 6, "a\\x0ab\\x09c\\x7f");
    assert_safe("a\0b", 3, "a\\x00b");
    assert_safe("\xc2\x9b"
                "31m",
                5, "\\x9b31m");             // U+009B, an escape sequence of one character
    assert_safe("\xc2\xa0", 2, "\xc2\xa0"); // U+00A0 is text
    assert_safe("x\xc2", 2, "x\xc2");       // cut off in the middle of a character
}

static void text_is_padded_and_never_cut(void **state)
{
    struct ol_buf out = {0};
    (void)state;
    ol_cli_put_wide(&out, "ab", 5);
    assert_string_equal(out.data, "ab   ");
    ol_buf_reset(&out);
    ol_cli_put_wide(&out, "abcdef", 5);
    assert_string_equal(out.data, "abcdef");
    ol_buf_clear(&out);
}

static void numbers_have_separators(void **state)
{
    char text[32];
    (void)state;
    assert_string_equal(ol_cli_thousands(0, text), "0");
    assert_string_equal(ol_cli_thousands(999, text), "999");
    assert_string_equal(ol_cli_thousands(1000, text), "1,000");
    assert_string_equal(ol_cli_thousands(1234567, text), "1,234,567");
    assert_string_equal(ol_cli_thousands(-999, text), "-999");
    assert_string_equal(ol_cli_thousands(-123456, text), "-123,456");
    assert_string_equal(ol_cli_thousands(INT64_MIN, text), "-9,223,372,036,854,775,808");
}

static void an_age_has_one_unit(void **state)
{
    const int64_t second = 1000000, now = ol_clock_wall_us();
    char text[32];
    (void)state;
    assert_string_equal(ol_cli_age(0, text), "-");
    assert_string_equal(ol_cli_age(now - 30 * 60 * second, text), "30 min");
    assert_string_equal(ol_cli_age(now - 5 * 3600 * second, text), "5 h");
}

static void colours_are_for_terminals(void **state)
{
    const struct ol_cli terminal = {.color = true}, file = {0};
    (void)state;
    assert_string_equal(ol_cli_bad(&terminal), "\033[31m");
    assert_string_equal(ol_cli_plain(&terminal), "\033[0m");
    assert_string_equal(ol_cli_bad(&file), "");
    assert_string_equal(ol_cli_plain(&file), "");
}

static struct outlog_event make_event(const char *payload)
{
    return (struct outlog_event){.event_id = 7,
                                 .occurred_at = INT64_C(1767225600123456), // 2026-01-01
                                 .org_id = "acme",
                                 .aggregate_type = "order",
                                 .aggregate_id = "o-1",
                                 .aggregate_seq = 3,
                                 .event_type = "order.created",
                                 .payload = payload,
                                 .payload_bytes = strlen(payload)};
}

static void an_event_is_one_line(void **state)
{
    const struct ol_cli cli = {0};
    struct outlog_event event = make_event("{\"a\":\n1}");
    struct ol_buf out = {0};
    (void)state;
    ol_cli_put_event(&cli, &event, &out);
    assert_string_equal(out.data, "       7  2026-01-01T00:00:00.123  acme         "
                                  "order.created            order/o-1#3           {\"a\":\\x0a1}");
    ol_buf_clear(&out);
}

static void a_long_payload_is_cut_between_characters(void **state)
{
    const struct ol_cli cli = {0};
    char payload[202] = "x";
    struct ol_buf out = {0};
    (void)state;
    for (size_t i = 1; i + 1 < sizeof payload; i += 2)
        memcpy(payload + i, "ä", 2); // byte 100 is the second one of a character
    struct outlog_event event = make_event(payload);
    ol_cli_put_event(&cli, &event, &out);
    const char *shown = strchr(out.data, 'x');
    assert_non_null(shown);
    assert_int_equal(strlen(shown), 99 + strlen("…"));
    assert_string_equal(shown + 99, "…");
    ol_buf_clear(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_bytes_are_escaped),
        cmocka_unit_test(text_is_padded_and_never_cut),
        cmocka_unit_test(numbers_have_separators),
        cmocka_unit_test(an_age_has_one_unit),
        cmocka_unit_test(colours_are_for_terminals),
        cmocka_unit_test(an_event_is_one_line),
        cmocka_unit_test(a_long_payload_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
