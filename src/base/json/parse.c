/* parse.c: one strict pass over untrusted bytes (J1). */
#include "base/json/text.h"

#include <stdio.h>
#include <stdlib.h>

/* The length of the UTF-8 sequence at `at`. 0 when it is invalid: cut short, overlong, a surrogate,
 * or above U+10FFFF. */
static size_t count_utf8(const char *at, const char *end)
{
    static const uint32_t code_min[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char lead = (unsigned char)*at;
    size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;

    if (lead < 0xC2 || lead > 0xF4 || (size_t)(end - at) < bytes)
        return 0;
    uint32_t code = lead & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        unsigned char next = (unsigned char)at[i];
        if ((next & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (next & 0x3F);
    }
    if (code < code_min[bytes] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return 0;
    return bytes;
}

/* Keys of all open objects, innermost last: an object removes its own when it ends. */
enum { INLINE_KEYS = 64, COMPARED_KEYS_MAX = 64 };

struct json_parser {
    const char *text, *at, *end;
    int depth, depth_max;
    struct ol_json_key *keys; /* inline_keys until that is full */
    size_t key_count, key_capacity;
    outlog_err *err;
    struct ol_json_key inline_keys[INLINE_KEYS];
};

static int parse_value(struct json_parser *p);

static int refuse_at(struct json_parser *p, const char *at, const char *what)
{
    return ol_fail(p->err, OUTLOG_INVALID_JSON, "%s at byte %zu", what, (size_t)(at - p->text));
}

static int parse_within(const char *text, size_t bytes, int depth_max, struct ol_json *out,
                        outlog_err *err)
{
    struct json_parser p;
    int rc = -1;

    p.text = p.at = text;
    p.end = text + bytes;
    p.depth = 0;
    p.depth_max = depth_max;
    p.keys = p.inline_keys;
    p.key_count = 0;
    p.key_capacity = INLINE_KEYS;
    p.err = err;

    p.at = ol_json_skip_space(p.at, p.end);
    const char *from = p.at;
    if (parse_value(&p) < 0)
        goto out;
    const char *to = p.at;
    p.at = ol_json_skip_space(p.at, p.end);
    if (p.at < p.end) {
        refuse_at(&p, p.at, "more text after the value");
        goto out;
    }
    *out = (struct ol_json){.type = ol_json_type_of(*from),
                            .text = from,
                            .bytes = (size_t)(to - from)};
    rc = 0;
out:
    if (p.keys != p.inline_keys)
        free(p.keys);
    return rc;
}

int ol_json_parse(const char *text, size_t bytes, struct ol_json *out, outlog_err *err)
{
    return parse_within(text, bytes, OL_JSON_DEPTH, out, err);
}

int ol_json_parse_wrapped(const char *text, size_t bytes, struct ol_json *out, outlog_err *err)
{
    return parse_within(text, bytes, OL_JSON_DEPTH + OL_JSON_WRAPPING, out, err);
}

/* While an error is returned, each level prepends its own token to the pointer, so the path costs
 * nothing while there is no error. When it gets too long, whole tokens are cut from its end. */
static int prepend_token(struct json_parser *p, const char *token, size_t bytes)
{
    if (!p->err)
        return -1;
    char *pointer = p->err->pointer;
    size_t keep = strlen(pointer), capacity = sizeof p->err->pointer - 1;

    if (bytes == 0 || bytes > capacity) {
        pointer[0] = '\0';
        return -1;
    }
    if (keep > capacity - bytes)
        for (keep = capacity - bytes; keep > 0 && pointer[keep] != '/'; keep--)
            ;
    memmove(pointer + bytes, pointer, keep);
    memcpy(pointer, token, bytes);
    pointer[bytes + keep] = '\0';
    return -1;
}

static int prepend_member(struct json_parser *p, const struct ol_json_key *key)
{
    char token[sizeof p->err->pointer];
    return prepend_token(p, token, ol_json_key_token(key, token, sizeof token));
}

static int prepend_index(struct json_parser *p, size_t index)
{
    char token[24];
    return prepend_token(p, token, (size_t)snprintf(token, sizeof token, "/%zu", index));
}

static int parse_escape(struct json_parser *p)
{
    const char *from = p->at++; // the backslash
    if (p->at == p->end)
        return refuse_at(p, p->at, "unexpected end");
    char c = *p->at++;
    if (c != 'u') {
        if (c != '\0' && strchr("\"\\/bfnrt", c))
            return 0;
        return refuse_at(p, from, "unknown escape");
    }
    int32_t code = ol_json_hex4(p->at, p->end);
    if (code < 0)
        return refuse_at(p, from, "\\u without four hex digits");
    if (code == 0)
        return refuse_at(p, from, "U+0000");
    p->at += 4;
    if (!ol_json_is_high_surrogate(code))
        return ol_json_is_low_surrogate(code) ? refuse_at(p, from, "lone surrogate") : 0;
    if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u' ||
        !ol_json_is_low_surrogate(ol_json_hex4(p->at + 2, p->end)))
        return refuse_at(p, from, "lone surrogate");
    p->at += 6;
    return 0;
}

static int parse_string(struct json_parser *p, bool *is_escaped)
{
    const char *from = p->at++; // the quote
    *is_escaped = false;
    for (;;) {
        p->at = ol_json_skip_plain(p->at, p->end);
        if (p->at == p->end)
            return refuse_at(p, from, "string without end");
        unsigned char c = (unsigned char)*p->at;
        if (c == '"') {
            p->at++;
            return 0;
        }
        if (c == '\\') {
            *is_escaped = true;
            if (parse_escape(p) < 0)
                return -1;
        } else if (c < 0x20) {
            return refuse_at(p, p->at, "control character");
        } else {
            size_t bytes = count_utf8(p->at, p->end);
            if (!bytes)
                return refuse_at(p, p->at, "invalid UTF-8");
            p->at += bytes;
        }
    }
}

/* At code_min one digit. */
static bool parse_digits(struct json_parser *p)
{
    const char *from = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > from;
}

static bool take_char(struct json_parser *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static int parse_number(struct json_parser *p)
{
    const char *from = p->at;

    take_char(p, '-');
    if (!take_char(p, '0') && !parse_digits(p))
        return refuse_at(p, from, "invalid number");
    if (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        return refuse_at(p, from, "number with a leading zero");
    if (take_char(p, '.') && !parse_digits(p))
        return refuse_at(p, from, "invalid number");
    if (take_char(p, 'e') || take_char(p, 'E')) {
        if (!take_char(p, '+'))
            take_char(p, '-');
        if (!parse_digits(p))
            return refuse_at(p, from, "invalid number");
    }
    return 0;
}

static int parse_word(struct json_parser *p, const char *word, size_t bytes)
{
    if ((size_t)(p->end - p->at) < bytes || memcmp(p->at, word, bytes) != 0)
        return refuse_at(p, p->at, "unknown word");
    p->at += bytes;
    return 0;
}

/* The next byte that is not white space, if it is `c`. */
static bool take_token(struct json_parser *p, char c)
{
    p->at = ol_json_skip_space(p->at, p->end);
    return take_char(p, c);
}

static int refuse_next(struct json_parser *p, const char *what)
{
    p->at = ol_json_skip_space(p->at, p->end);
    return refuse_at(p, p->at, p->at == p->end ? "unexpected end" : what);
}

static int parse_array(struct json_parser *p)
{
    size_t index = 0;

    if (++p->depth > p->depth_max)
        return refuse_at(p, p->at, "nesting too deep");
    p->at++;
    if (!take_token(p, ']')) {
        do {
            if (parse_value(p) < 0)
                return prepend_index(p, index);
            index++;
        } while (take_token(p, ','));
        if (!take_token(p, ']'))
            return refuse_next(p, "',' or ']' missing");
    }
    p->depth--;
    return 0;
}

static int push_key(struct json_parser *p, struct ol_json_key key)
{
    if (p->key_count == p->key_capacity) {
        size_t capacity = p->key_capacity * 4;
        struct ol_json_key *inlined = p->keys == p->inline_keys ? p->inline_keys : NULL;
        struct ol_json_key *keys = realloc(inlined ? NULL : p->keys, capacity * sizeof *keys);
        if (!keys)
            return ol_fail(p->err, OUTLOG_NO_MEMORY, "no memory for %zu keys", capacity);
        if (inlined)
            memcpy(keys, inlined, p->key_count * sizeof *keys);
        p->keys = keys;
        p->key_capacity = capacity;
    }
    p->keys[p->key_count++] = key;
    return 0;
}

static bool same_key(const struct ol_json_key *a, const struct ol_json_key *b)
{
    if (a->prefix != b->prefix)
        return false;
    if (!a->is_escaped && !b->is_escaped)
        return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
    return ol_json_key_compare(a, b) == 0;
}

/* The first key that repeats an earlier one, or NULL. Reorders the keys of a large object, which
 * are not needed any more. */
static const struct ol_json_key *find_duplicate(struct ol_json_key *keys, size_t count)
{
    const struct ol_json_key *found = NULL;

    if (count <= COMPARED_KEYS_MAX) {
        for (size_t i = 1; i < count; i++)
            for (size_t j = 0; j < i; j++)
                if (same_key(&keys[i], &keys[j]))
                    return &keys[i];
        return NULL;
    }
    qsort(keys, count, sizeof *keys, ol_json_key_compare);
    for (size_t i = 1; i < count; i++) {
        if (!same_key(&keys[i], &keys[i - 1]))
            continue;
        const struct ol_json_key *later = keys[i].text > keys[i - 1].text ? &keys[i] : &keys[i - 1];
        if (!found || later->text < found->text)
            found = later;
    }
    return found;
}

static int parse_member(struct json_parser *p)
{
    bool is_escaped;

    p->at = ol_json_skip_space(p->at, p->end);
    if (p->at == p->end || *p->at != '"')
        return refuse_next(p, "key missing");
    const char *text = p->at + 1;
    if (parse_string(p, &is_escaped) < 0)
        return -1;
    struct ol_json_key key = ol_json_key_make(text, (size_t)(p->at - 1 - text), is_escaped);
    if (push_key(p, key) < 0)
        return -1;
    if (!take_token(p, ':'))
        return refuse_next(p, "':' missing");
    return parse_value(p) < 0 ? prepend_member(p, &key) : 0;
}

static int parse_object(struct json_parser *p)
{
    size_t first = p->key_count;

    if (++p->depth > p->depth_max)
        return refuse_at(p, p->at, "nesting too deep");
    p->at++;
    if (!take_token(p, '}')) {
        do {
            if (parse_member(p) < 0)
                return -1;
        } while (take_token(p, ','));
        if (!take_token(p, '}'))
            return refuse_next(p, "',' or '}' missing");
    }
    const struct ol_json_key *twice = find_duplicate(p->keys + first, p->key_count - first);
    if (twice) {
        refuse_at(p, twice->text - 1, "duplicate key");
        return prepend_member(p, twice);
    }
    p->key_count = first;
    p->depth--;
    return 0;
}

static int parse_value(struct json_parser *p)
{
    bool is_escaped;

    p->at = ol_json_skip_space(p->at, p->end);
    if (p->at == p->end)
        return refuse_at(p, p->at, "unexpected end");
    switch (*p->at) {
    case '{':
        return parse_object(p);
    case '[':
        return parse_array(p);
    case '"':
        return parse_string(p, &is_escaped);
    case 'n':
        return parse_word(p, "null", 4);
    case 't':
        return parse_word(p, "true", 4);
    case 'f':
        return parse_word(p, "false", 5);
    default:
        if (*p->at == '-' || (*p->at >= '0' && *p->at <= '9'))
            return parse_number(p);
        return refuse_at(p, p->at, "value missing");
    }
}
