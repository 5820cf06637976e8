/* test_duration.c: durations with units. */
#include "base/duration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define SECOND INT64_C(1000000)

static void duration_is_parsed(void **state)
{
    static const struct {
        const char *text;
        int64_t us;
    } cases[] = {
        {"0s", 0},
        {"1us", 1},
        {"250ms", 250000},
        {"5s", 5 * SECOND},
        {"1m", 60 * SECOND},
        {"24h", 86400 * SECOND},
        {"7d", 7 * 86400 * SECOND},
        {"1.5s", 1500000},
        {"0.25h", 900 * SECOND},
        {"1.5us", 1},
        {"1.0000019s", 1000001},
        {"106751991d", INT64_C(106751991) * 86400 * SECOND},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t us = -1;
        if (ol_duration_parse(cases[i].text, &us) < 0)
            fail_msg("refused: %s", cases[i].text);
        assert_int_equal(us, cases[i].us);
    }
}

static void invalid_duration_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "5",
        "s",
        "5 s",
        "-5s",
        "+5s",
        "5x",
        "5S",
        "5sec",
        "1e3s",
        "0x10s",
        "1,5s",
        "1.s",
        ".5s",
        "5s ",
        "inf",
        "nan",
        "106751992d",
        "99999999999999999999s",
        "1..5s",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        int64_t us;
        if (ol_duration_parse(texts[i], &us) == 0)
            fail_msg("accepted: %s", texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duration_is_parsed),
        cmocka_unit_test(invalid_duration_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
