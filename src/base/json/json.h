/* json.h: a strict JSON reader that validates once and returns slices of the input.
 *
 * It never copies or changes the input: a payload is stored and delivered as it came. It refuses
 * what stores or peers might read differently: invalid UTF-8, lone surrogates,
 * U+0000, duplicate keys (compared after unescaping), nesting deeper than OL_JSON_DEPTH, leading
 * zeros, anything after the value. */
#ifndef OL_BASE_JSON_JSON_H
#define OL_BASE_JSON_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum { OL_JSON_DEPTH = 64, OL_JSON_WRAPPING = 4 };

enum ol_json_type {
    OL_JSON_NONE, /* no value: the result of a lookup of an absent key */
    OL_JSON_NULL,
    OL_JSON_FALSE,
    OL_JSON_TRUE,
    OL_JSON_NUMBER,
    OL_JSON_STRING,
    OL_JSON_ARRAY,
    OL_JSON_OBJECT,
};

/* A value inside a validated text: its raw bytes, without surrounding white space. */
struct ol_json {
    enum ol_json_type type;
    const char *text;
    size_t bytes;
};

/* Validate the whole text; on success *out is the one value in it.
 *
 * OUTLOG_INVALID_JSON: the message has the problem and its byte ("duplicate key at byte 17"), and
 * err->pointer the place where it is known. The message repeats nothing of the value. */
int ol_json_parse(const char *text, size_t bytes, struct ol_json *out, outlog_err *err);

/* The same for a text of ours with payloads inside, such as {"events":[{"payload":…}]}: a payload
 * may be nested as deep as if it came alone. */
int ol_json_parse_wrapped(const char *text, size_t bytes, struct ol_json *out, outlog_err *err);

/* Walk the members of an object or the elements of an array. Start with a zeroed iterator.
 *
 *     struct ol_json_iter it = {0};
 *     while (ol_json_next(&object, &it)) … it.key (raw, with quotes) … it.value …
 */
struct ol_json_iter {
    size_t at;          /* private */
    struct ol_json key; /* objects only */
    struct ol_json value;
};
bool ol_json_next(const struct ol_json *container, struct ol_json_iter *it);

/* The member `key` of an object (NUL-terminated, unescaped); type OL_JSON_NONE when it is absent,
 * or when the value is not an object. */
struct ol_json ol_json_get(const struct ol_json *object, const char *key);

/* The value at a JSON pointer (RFC 6901) such as "/a/b/0"; "" is the value itself. */
struct ol_json ol_json_at(const struct ol_json *value, const char *pointer);

/* The JSON pointer, from `root` down, of the innermost value that contains the byte `at`; a key
 * belongs to its object. When the pointer is longer than `size`, whole tokens are left off, so that
 * `out` names the value or an ancestor. Returns `out`. */
char *ol_json_pointer(const struct ol_json *root, const char *at, char *out, size_t size);

/* Whether a JSON string equals `text` after unescaping. */
bool ol_json_equals(const struct ol_json *string, const char *text);

/* A JSON string unescaped into the arena, NUL-terminated; *bytes (may be NULL) gets the length.
 * NULL when it is not a string or memory is out. */
char *ol_json_string(const struct ol_json *string, struct ol_arena *arena, size_t *bytes);

/* The character of the escape at *at, inside a string, as UTF-8; *at moves past it. Returns its
 * length in bytes. For code that reads strings without copying them. */
size_t ol_json_unescape(const char **at, char out[4]);

/* The number as int64; false when it is not a whole number in range. */
bool ol_json_int(const struct ol_json *number, int64_t *out);

/* Append the canonical form: keys sorted by their UTF-8 bytes, no white space, numbers as written,
 * strings with the fewest escapes (as ol_buf_json writes them). Returns 0, or -1 when out of
 * memory. */
int ol_json_canonical(const struct ol_json *value, struct ol_buf *out);

#endif
