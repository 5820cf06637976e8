/* duration.c: parsing durations, without the host's locale. */
#include "base/duration.h"

#include <string.h>

/* Whole digits times the unit, then each digit of a fraction times a tenth of the one before:
 * strtod would use the decimal point of the host's locale. */
int ol_duration_parse(const char *text, int64_t *out_us)
{
    static const struct {
        const char *unit;
        int64_t us;
    } units[] = {{"us", 1},
                 {"ms", 1000},
                 {"s", 1000000},
                 {"m", 60 * 1000000},
                 {"h", INT64_C(3600000000)},
                 {"d", INT64_C(86400000000)}};
    size_t whole = strspn(text, "0123456789");
    size_t fraction = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
    const char *unit = text + whole + (fraction ? fraction + 1 : 0);
    int64_t us = 0, total = 0;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].unit) == 0)
            us = units[i].us;
    if (us == 0 || whole == 0)
        return -1;
    for (size_t i = 0; i < whole; i++)
        if (__builtin_mul_overflow(total, 10, &total) ||
            __builtin_add_overflow(total, text[i] - '0', &total))
            return -1;
    if (__builtin_mul_overflow(total, us, &total))
        return -1;
    for (size_t i = 1; i <= fraction; i++) {
        us /= 10;
        if (__builtin_add_overflow(total, (text[whole + i] - '0') * us, &total))
            return -1;
    }
    *out_us = total;
    return 0;
}
