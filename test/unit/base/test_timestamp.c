/* test_timestamp.c: RFC 3339, written and parsed. */
#include "base/timestamp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define SECOND INT64_C(1000000)

static void timestamp_has_microseconds(void **state)
{
    static const struct {
        int64_t time;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000000Z"},
        {1, "1970-01-01T00:00:00.000001Z"},
        {-1, "1969-12-31T23:59:59.999999Z"},
        {INT64_C(1767528300) * SECOND + 1, "2026-01-04T12:05:00.000001Z"},
        {INT64_C(951782400) * SECOND, "2000-02-29T00:00:00.000000Z"},
        {INT64_C(4102444799) * SECOND + 999999, "2099-12-31T23:59:59.999999Z"},
        {INT64_MAX, "9999-12-31T23:59:59.999999Z"}, // RFC 3339 has four digits for the year
        {INT64_MIN, "0000-01-01T00:00:00.000000Z"},
    };
    char text[OL_TIMESTAMP_TEXT];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(ol_timestamp_format(cases[i].time, text), cases[i].text);
}

/* libc computes the same calendar. */
static void days_agree_with_libc(void **state)
{
    (void)state;
    for (int64_t day = -200000; day < 200000; day += 37) {
        time_t seconds = (time_t)(day * 86400 + 4711);
        struct tm tm;
        char expect[OL_TIMESTAMP_TEXT], text[OL_TIMESTAMP_TEXT];
        int64_t back;
        gmtime_r(&seconds, &tm);
        strftime(expect, sizeof expect, "%Y-%m-%dT%H:%M:%S.000000Z", &tm);
        assert_string_equal(ol_timestamp_format(seconds * SECOND, text), expect);
        assert_int_equal(ol_timestamp_parse(text, strlen(text), &back), 0);
        assert_int_equal(back, seconds * SECOND);
    }
}

static void timestamp_is_parsed(void **state)
{
    static const int64_t noon = INT64_C(1767528300) * SECOND; // 2026-01-04T12:05:00Z
    const struct {
        const char *text;
        int64_t time;
    } cases[] = {
        {"2026-01-04T12:05:00Z", noon},
        {"2026-01-04t12:05:00z", noon},
        {"2026-01-04 12:05:00", noon},
        {"2026-01-04T12:05Z", noon},
        {"2026-01-04T12:05:00.5Z", noon + 500000},
        {"2026-01-04T12:05:00.000001Z", noon + 1},
        {"2026-01-04T12:05:00.0000019Z", noon + 1},
        {"2026-01-04T14:05:00.5+02:00", noon + 500000},
        {"2026-01-04T14:05:00+0200", noon},
        {"2026-01-04T14:05:00+02", noon},
        {"2026-01-04T06:35:00-05:30", noon},
        {"2026-01-04", noon - (12 * 60 + 5) * 60 * SECOND},
        {"2024-02-29", INT64_C(1709164800) * SECOND},
        {"2016-12-31T23:59:60Z", INT64_C(1483228800) * SECOND}, // a leap second
        {"1969-12-31T23:59:59.999999Z", -1},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t time = 0;
        if (ol_timestamp_parse(cases[i].text, strlen(cases[i].text), &time) < 0)
            fail_msg("refused: %s", cases[i].text);
        assert_int_equal(time, cases[i].time);
    }
}

static void invalid_timestamp_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "2026",
        "2026-01",
        "2026-1-4",
        "26-01-04",
        "2026-13-01",
        "2026-00-01",
        "2026-01-32",
        "2026-01-00",
        "2026-02-29",
        "2100-02-29",
        "2026-04-31",
        "2026-01-04T",
        "2026-01-04T12",
        "2026-01-04T12:",
        "2026-01-04T24:00:00Z",
        "9999-12-31T23:59:60Z",
        "9999-12-31T23:59:59-00:01",
        "0000-01-01T00:00:00+00:01",
        "2026-01-04T12:60:00Z",
        "2026-01-04T12:05:61Z",
        "2026-01-04T12:05:00.Z",
        "2026-01-04T12:05:",
        "2026-01-04T12:05.5Z",
        "2026-01-04T12:05:00+",
        "2026-01-04T12:05:00+2",
        "2026-01-04T12:05:00+02:",
        "2026-01-04T12:05:00+02:0",
        "2026-01-04T12:05:00+24:00",
        "2026-01-04T12:05:00+02:60",
        "2026-01-04T12:05:00ZZ",
        "2026-01-04T12:05:00Z ",
        "2026-01-04x12:05:00Z",
        "now",
        " 2026-01-04",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        int64_t time;
        size_t bytes = strlen(texts[i]);
        char *copy = malloc(bytes ? bytes : 1); // no byte after it, so that ASan sees a read
        memcpy(copy, texts[i], bytes);
        if (ol_timestamp_parse(copy, bytes, &time) == 0)
            fail_msg("accepted: %s", texts[i]);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timestamp_has_microseconds),
        cmocka_unit_test(days_agree_with_libc),
        cmocka_unit_test(timestamp_is_parsed),
        cmocka_unit_test(invalid_timestamp_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
