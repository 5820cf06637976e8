/* text.c: scanning strings, decoding escapes, comparing keys. */
#include "base/json/text.h"

static bool is_plain(char c)
{
    unsigned char byte = (unsigned char)c;
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

/* Eight bytes at a time. A borrow in the subtractions can only corrupt bytes above the first
 * special one, and only the first one matters. */
const char *ol_json_skip_plain(const char *at, const char *end)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;

    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        uint64_t special = (word | (word - ones * 0x20) | ((word ^ (ones * '"')) - ones) |
                            ((word ^ (ones * '\\')) - ones)) &
                           tops;
        if (special && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
            return at + (__builtin_ctzll(special) >> 3);
        if (special)
            break;
    }
    while (at < end && is_plain(*at))
        at++;
    return at;
}

const char *ol_json_skip_string(const char *at, const char *end)
{
    at = ol_json_skip_plain(at + 1, end);
    while (*at != '"')
        at = ol_json_skip_plain(at + (*at == '\\' ? 2 : 1), end);
    return at + 1;
}

const char *ol_json_skip_scalar(const char *at, const char *end)
{
    while (at < end && *at != ',' && *at != '}' && *at != ']' && *at != ' ' && *at != '\n' &&
           *at != '\r' && *at != '\t')
        at++;
    return at;
}

enum ol_json_type ol_json_type_of(char first)
{
    switch (first) {
    case '{':
        return OL_JSON_OBJECT;
    case '[':
        return OL_JSON_ARRAY;
    case '"':
        return OL_JSON_STRING;
    case 'n':
        return OL_JSON_NULL;
    case 't':
        return OL_JSON_TRUE;
    case 'f':
        return OL_JSON_FALSE;
    default:
        return OL_JSON_NUMBER;
    }
}

/* --- escapes --- */

int32_t ol_json_hex4(const char *at, const char *end)
{
    int32_t code = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        if (c >= '0' && c <= '9')
            code = code << 4 | (c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            code = code << 4 | ((c | 0x20) - 'a' + 10);
        else
            return -1;
    }
    return code;
}

size_t ol_json_unescape(const char **at, char out[4])
{
    static const char letters[128] = {['b'] = '\b', ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r',
                                      ['t'] = '\t', ['"'] = '"',  ['\\'] = '\\', ['/'] = '/'};
    char c = (*at)[1];
    if (c != 'u') {
        out[0] = letters[c & 0x7F];
        *at += 2;
        return 1;
    }
    uint32_t code = (uint32_t)ol_json_hex4(*at + 2, *at + 6);
    *at += 6;
    if (ol_json_is_high_surrogate((int32_t)code)) {
        code = 0x10000 + ((code - 0xD800) << 10) +
               ((uint32_t)ol_json_hex4(*at + 2, *at + 6) - 0xDC00);
        *at += 6;
    }
    size_t bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[bytes] | code);
    return bytes;
}

size_t ol_json_decode(const char *text, size_t bytes, char *out)
{
    const char *at = text, *end = text + bytes;
    char *to = out;

    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        size_t run = (size_t)((escape ? escape : end) - at);
        memcpy(to, at, run);
        to += run;
        at += run;
        if (escape)
            to += ol_json_unescape(&at, to);
    }
    return (size_t)(to - out);
}

/* --- keys --- */

struct ol_json_key ol_json_key_make(const char *text, size_t bytes, bool is_escaped)
{
    struct ol_json_key key = {.text = text, .bytes = bytes, .is_escaped = is_escaped};
    struct ol_json_reader r = ol_json_read_string(text, bytes);

    if (!is_escaped && bytes >= 8) {
        for (int i = 0; i < 8; i++)
            key.prefix = key.prefix << 8 | (unsigned char)text[i];
        return key;
    }
    for (int i = 0; i < 8; i++) {
        int c = ol_json_read_byte(&r);
        key.prefix = key.prefix << 8 | (unsigned char)(c < 0 ? 0 : c);
    }
    return key;
}

int ol_json_key_compare(const void *left, const void *right)
{
    const struct ol_json_key *a = left, *b = right;

    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    if (!a->is_escaped && !b->is_escaped) {
        size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
        int order = memcmp(a->text, b->text, shorter);
        return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
    }
    struct ol_json_reader ra = ol_json_read_string(a->text, a->bytes),
                          rb = ol_json_read_string(b->text, b->bytes);
    int ca, cb;
    do {
        ca = ol_json_read_byte(&ra);
        cb = ol_json_read_byte(&rb);
    } while (ca == cb && ca >= 0);
    return ca - cb;
}

size_t ol_json_key_token(const struct ol_json_key *key, char *out, size_t size)
{
    struct ol_json_reader r = ol_json_read_string(key->text, key->bytes);
    size_t bytes = 0;
    int c;

    if (size < 2)
        return 0;
    out[bytes++] = '/';
    while ((c = ol_json_read_byte(&r)) >= 0) {
        if (bytes + 3 > size)
            return 0;
        if (c == '~' || c == '/')
            out[bytes++] = '~';
        out[bytes++] = (char)(c == '~' ? '0' : c == '/' ? '1' : c);
    }
    out[bytes] = '\0';
    return bytes;
}
