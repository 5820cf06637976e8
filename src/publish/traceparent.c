/* traceparent.c: 00-<32 hex>-<16 hex>-<2 hex>, lower case. */
#include "publish/traceparent.h"

#include "base/uuid.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_hex(const char *text, size_t bytes)
{
    return strspn(text, "0123456789abcdef") >= bytes;
}

static bool is_zero(const char *text, size_t bytes)
{
    return strspn(text, "0") >= bytes;
}

static bool is_valid(const char *text)
{
    if (strlen(text) < 55 || !is_hex(text, 2) || memcmp(text, "ff", 2) == 0)
        return false;
    /* A later version may go on after the flags; ours may not. */
    if (text[55] != '\0' && (text[55] != '-' || memcmp(text, "00", 2) == 0))
        return false;
    return text[2] == '-' && is_hex(text + 3, 32) && !is_zero(text + 3, 32) && text[35] == '-' &&
           is_hex(text + 36, 16) && !is_zero(text + 36, 16) && text[52] == '-' &&
           is_hex(text + 53, 2);
}

bool ol_traceparent_next(const char *from, char out[OL_TRACEPARENT_TEXT])
{
    uint64_t span = 0;
    if (!from || !is_valid(from))
        return false;
    while (span == 0)
        ol_random(&span, sizeof span);
    snprintf(out, OL_TRACEPARENT_TEXT, "00-%.32s-%016llx-%.2s", from + 3, (unsigned long long)span,
             from + 53);
    return true;
}
