/* url.c: percent decoding in place. */
#include "base/url.h"

#include "base/utf8.h"

static int decode_hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool ol_url_decode(char *text, bool plus_is_space)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '%') {
            *to++ = *from == '+' && plus_is_space ? ' ' : *from;
            continue;
        }
        int high = decode_hex(from[1]), low = high < 0 ? -1 : decode_hex(from[2]);
        if (low < 0 || high * 16 + low == 0)
            return false;
        *to++ = (char)(high * 16 + low);
        from += 2;
    }
    *to = '\0';
    return ol_utf8_is_valid(text, (size_t)(to - text));
}
