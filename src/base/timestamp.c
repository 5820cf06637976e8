/* timestamp.c: RFC 3339. Dates are computed here and not by libc, which would need the locale, the
 * time zone database and a lock. */
#include "base/timestamp.h"

#include <stdbool.h>
#include <stdio.h>

#define DAY_US INT64_C(86400000000)

/* Days since 1970-01-01 of a proleptic Gregorian date, counted in eras of 400 years that begin
 * in March, so that the leap day is the last of its year. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

static void civil_from_days(int64_t days, int *year, int *month, int *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t doe = days - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    *day = (int)(doy - (153 * mp + 2) / 5 + 1);
    *month = (int)(mp < 10 ? mp + 3 : mp - 9);
    *year = (int)(yoe + era * 400 + (*month <= 2));
}

static char *write_two(char *at, int number)
{
    *at++ = (char)('0' + number / 10 % 10);
    *at++ = (char)('0' + number % 10);
    return at;
}

char *ol_timestamp_format(int64_t time_us, char out[OL_TIMESTAMP_TEXT])
{
    int64_t days = time_us / DAY_US, rest = time_us % DAY_US;
    if (rest < 0) {
        rest += DAY_US;
        days--;
    }
    int year, month, day;
    civil_from_days(days, &year, &month, &day);
    if (year < 0 || year > 9999) { // beyond what RFC 3339 can write
        snprintf(out, OL_TIMESTAMP_TEXT, "%s",
                 year < 0 ? "0000-01-01T00:00:00.000000Z" : "9999-12-31T23:59:59.999999Z");
        return out;
    }
    int seconds = (int)(rest / 1000000), micros = (int)(rest % 1000000);
    char *at = write_two(write_two(out, year / 100), year % 100);
    *at++ = '-';
    at = write_two(at, month);
    *at++ = '-';
    at = write_two(at, day);
    *at++ = 'T';
    at = write_two(at, seconds / 3600);
    *at++ = ':';
    at = write_two(at, seconds / 60 % 60);
    *at++ = ':';
    at = write_two(at, seconds % 60);
    *at++ = '.';
    at = write_two(write_two(write_two(at, micros / 10000), micros / 100), micros);
    *at++ = 'Z';
    *at = '\0';
    return out;
}

/* Reads exactly `count` digits. */
static bool read_digits(const char **at, const char *end, int count, int *out)
{
    *out = 0;
    for (; count > 0; count--, (*at)++) {
        if (*at >= end || **at < '0' || **at > '9')
            return false;
        *out = *out * 10 + (**at - '0');
    }
    return true;
}

static bool read_char(const char **at, const char *end, char c)
{
    if (*at >= end || **at != c)
        return false;
    (*at)++;
    return true;
}

static bool parse_fraction(const char **at, const char *end, int *micros)
{
    int scale = 100000;
    if (*at >= end || **at != '.')
        return true;
    (*at)++;
    if (*at >= end || **at < '0' || **at > '9')
        return false;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++, scale /= 10)
        *micros += (**at - '0') * scale;
    return true;
}

static bool parse_zone(const char **at, const char *end, int *offset_s)
{
    if (*at >= end)
        return true; // no zone: UTC
    char sign = *(*at)++;
    if (sign == 'Z' || sign == 'z')
        return true;
    int hours, minutes = 0;
    if ((sign != '+' && sign != '-') || !read_digits(at, end, 2, &hours))
        return false;
    bool has_colon = read_char(at, end, ':');
    if ((has_colon || *at < end) && !read_digits(at, end, 2, &minutes))
        return false;
    if (hours > 23 || minutes > 59)
        return false;
    *offset_s = (hours * 60 + minutes) * 60 * (sign == '-' ? -1 : 1);
    return true;
}

int ol_timestamp_parse(const char *text, size_t bytes, int64_t *out)
{
    static const int month_days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const char *at = text, *end = text + bytes;
    int year, month, day, hour = 0, minute = 0, second = 0, micros = 0, offset_s = 0;

    if (!read_digits(&at, end, 4, &year) || !read_char(&at, end, '-') ||
        !read_digits(&at, end, 2, &month) || !read_char(&at, end, '-') ||
        !read_digits(&at, end, 2, &day))
        return -1;
    if (at < end) {
        if (*at != 'T' && *at != 't' && *at != ' ')
            return -1;
        at++;
        if (!read_digits(&at, end, 2, &hour) || !read_char(&at, end, ':') ||
            !read_digits(&at, end, 2, &minute))
            return -1;
        if (read_char(&at, end, ':') &&
            (!read_digits(&at, end, 2, &second) || !parse_fraction(&at, end, &micros)))
            return -1;
        if (!parse_zone(&at, end, &offset_s))
            return -1;
    }
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (at != end || month < 1 || month > 12 || day < 1 || day > month_days[month - 1] ||
        (month == 2 && day == 29 && !leap) || hour > 23 || minute > 59 || second > 60)
        return -1;
    int64_t seconds = days_from_civil(year, month, day) * 86400 + hour * 3600 + minute * 60 +
                      second - offset_s;
    *out = seconds * 1000000 + micros;
    // A leap second or a zone may lead beyond what can be written again.
    return seconds >= days_from_civil(0, 1, 1) * 86400 &&
                   seconds < days_from_civil(10000, 1, 1) * 86400
               ? 0
               : -1;
}
