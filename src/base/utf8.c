/* utf8.c: a strict UTF-8 check, and what makes a text pass it. */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* How many continuation bytes follow `lead`, and which values the first of them may have. The
 * bounds exclude overlong forms, surrogates and code points that are too large. */
static int read_lead(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 1;
    if (lead >= 0xE0 && lead <= 0xEF) {
        *low = lead == 0xE0 ? 0xA0 : 0x80;
        *high = lead == 0xED ? 0x9F : 0xBF;
        return 2;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        *low = lead == 0xF0 ? 0x90 : 0x80;
        *high = lead == 0xF4 ? 0x8F : 0xBF;
        return 3;
    }
    return -1;
}

/* How many of the first bytes are ASCII without NUL, eight at a time; perhaps a few less. */
static size_t count_plain(const char *text, size_t bytes)
{
    const uint64_t high = UINT64_C(0x8080808080808080), low = UINT64_C(0x0101010101010101);
    size_t i = 0;
    for (uint64_t word; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        if ((word | (word - low)) & high) // a byte of 0x80 or more, or a zero byte, which borrows
            break;
    }
    return i;
}

/* The length of the character at `text`, or 0 when it is invalid or cut short. */
static size_t count_char(const char *text, size_t bytes)
{
    unsigned char lead = (unsigned char)text[0], low, high;
    if (lead < 0x80)
        return lead != 0;
    int more = read_lead(lead, &low, &high);
    if (more < 0 || bytes - 1 < (size_t)more)
        return 0;
    for (int i = 1; i <= more; i++, low = 0x80, high = 0xBF)
        if ((unsigned char)text[i] < low || (unsigned char)text[i] > high)
            return 0;
    return (size_t)more + 1;
}

bool ol_utf8_is_valid(const char *text, size_t bytes)
{
    for (size_t i = count_plain(text, bytes), length; i < bytes; i += length)
        if ((length = count_char(text + i, bytes - i)) == 0)
            return false;
    return true;
}

void ol_utf8_repair(char *text, size_t bytes)
{
    for (size_t i = count_plain(text, bytes), length; i < bytes; i += length ? length : 1)
        if ((length = count_char(text + i, bytes - i)) == 0)
            text[i] = '?';
}
