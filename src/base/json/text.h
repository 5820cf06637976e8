/* text.h: the tokens of JSON text, for the files of this folder: space, strings, escapes, keys. */
#ifndef OL_BASE_JSON_TEXT_H
#define OL_BASE_JSON_TEXT_H

#include "base/json/json.h"

#include <stdint.h>
#include <string.h>

static inline const char *ol_json_skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* Skip ASCII characters that need no escape in a string. */
const char *ol_json_skip_plain(const char *at, const char *end);

/* Skip the string, or the number or word, that begins at `at`, in validated text. */
const char *ol_json_skip_string(const char *at, const char *end);
const char *ol_json_skip_scalar(const char *at, const char *end);

/* The type of a value that begins with this byte. */
enum ol_json_type ol_json_type_of(char first);

/* The four hex digits at `at`, or -1. */
int32_t ol_json_hex4(const char *at, const char *end);

static inline bool ol_json_is_high_surrogate(int32_t code)
{
    return code >= 0xD800 && code <= 0xDBFF;
}

static inline bool ol_json_is_low_surrogate(int32_t code)
{
    return code >= 0xDC00 && code <= 0xDFFF;
}

/* Unescape raw bytes (without quotes) into `out`. The result is never longer than the input. */
size_t ol_json_decode(const char *text, size_t bytes, char *out);

/* The unescaped bytes of a string one by one, for comparing without a copy. */
struct ol_json_reader {
    const char *at, *end;
    char rest[4];
    size_t rest_at, rest_bytes;
};

/* The next byte, or -1 at the end. */
static inline int ol_json_read_byte(struct ol_json_reader *r)
{
    if (r->rest_at < r->rest_bytes)
        return (unsigned char)r->rest[r->rest_at++];
    if (r->at == r->end)
        return -1;
    if (*r->at != '\\')
        return (unsigned char)*r->at++;
    r->rest_bytes = ol_json_unescape(&r->at, r->rest);
    r->rest_at = 1;
    return (unsigned char)r->rest[0];
}

static inline struct ol_json_reader ol_json_read_string(const char *text, size_t bytes)
{
    return (struct ol_json_reader){.at = text, .end = text + bytes};
}

/* A key by its unescaped bytes. `prefix` is the first eight of them, big-endian and padded with
 * zeros: as no key contains U+0000, it decides most comparisons of two keys. */
struct ol_json_key {
    uint64_t prefix;
    const char *text; /* raw, between the quotes */
    size_t bytes;
    bool is_escaped;
};

struct ol_json_key ol_json_key_make(const char *text, size_t bytes, bool is_escaped);
int ol_json_key_compare(const void *left, const void *right); /* for qsort */

/* "/key" with ~ and / escaped; returns its length, 0 when it does not fit. */
size_t ol_json_key_token(const struct ol_json_key *key, char *out, size_t size);

#endif
