/* json.c: one strict pass over the text, then cheap walks over what is known to be right.
 *
 * J1  Only ol_json_parse takes foreign bytes. Everything after it trusts that pass and looks at
 *     no more than it needs to find its way.
 * J2  Cost grows with the text, not with its square: keys of a large object are sorted, not
 *     compared each with each, and no walk that goes deep visits a byte once per level.
 * J3  Recursion is as deep as the nesting, which J1 bounds by OL_JSON_DEPTH (and
 *     OL_JSON_WRAPPING). */
#include "base/json.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A key by its unescaped bytes. `prefix` is the first eight of them, big-endian and padded with
 * zeros: as no key holds U+0000, two keys compare by it first and mostly by it alone. */
struct key {
    uint64_t prefix;
    const char *text; /* raw, between the quotes */
    size_t bytes;
    bool is_escaped;
};

static struct key make_key(const char *text, size_t bytes, bool is_escaped);
static int compare_keys(const void *left, const void *right);

/* --- bytes -------------------------------------------------------------------------------- */

static bool is_plain(char c)
{
    unsigned char byte = (unsigned char)c;
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

/* Past the run of ASCII that a string may hold as it is, eight bytes at a time. A borrow in the
 * subtractions can only spoil bytes above the first special one, and that one is all we want. */
static const char *skip_plain(const char *at, const char *end)
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

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* How many bytes the UTF-8 sequence at `at` has, 0 when it is none: cut short, overlong, a
 * surrogate, or beyond U+10FFFF. */
static size_t utf8_bytes(const char *at, const char *end)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
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
    if (code < least[bytes] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return 0;
    return bytes;
}

/* The four hex digits at `at`, or -1. */
static int32_t hex4(const char *at, const char *end)
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

static bool is_high_surrogate(int32_t code)
{
    return code >= 0xD800 && code <= 0xDBFF;
}

static bool is_low_surrogate(int32_t code)
{
    return code >= 0xDC00 && code <= 0xDFFF;
}

/* --- parsing ------------------------------------------------------------------------------ */

/* Keys of all open objects, innermost last: an object takes its own from the top when it ends. */
enum { KEYS_INSIDE = 64, KEYS_COMPARED = 64 };

struct parser {
    const char *text, *at, *end;
    int depth, depth_most;
    struct key *keys; /* `inside` until that is full */
    size_t key_count, key_room;
    outlog_err *err;
    struct key inside[KEYS_INSIDE];
};

static int parse_value(struct parser *p);
static enum ol_json_type type_of(char first);
static size_t write_token(const struct key *key, char *out, size_t room);

static int refuse(struct parser *p, const char *at, const char *what)
{
    return ol_fail(p->err, OUTLOG_INVALID_JSON, "%s at byte %zu", what, (size_t)(at - p->text));
}

static int parse_within(const char *text, size_t bytes, int depth_most, struct ol_json *out,
                        outlog_err *err)
{
    struct parser p;
    int rc = -1;

    p.text = p.at = text;
    p.end = text + bytes;
    p.depth = 0;
    p.depth_most = depth_most;
    p.keys = p.inside;
    p.key_count = 0;
    p.key_room = KEYS_INSIDE;
    p.err = err;

    p.at = skip_space(p.at, p.end);
    const char *from = p.at;
    if (parse_value(&p) < 0)
        goto out;
    const char *to = p.at;
    p.at = skip_space(p.at, p.end);
    if (p.at < p.end) {
        refuse(&p, p.at, "more text after the value");
        goto out;
    }
    *out = (struct ol_json){.type = type_of(*from), .text = from, .bytes = (size_t)(to - from)};
    rc = 0;
out:
    if (p.keys != p.inside)
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

/* While an error travels up, every level puts its own name before the pointer: the path costs
 * nothing as long as all is well. What does not fit falls off at the deep end, whole tokens. */
static int inside_of(struct parser *p, const char *token, size_t bytes)
{
    if (!p->err)
        return -1;
    char *pointer = p->err->pointer;
    size_t keep = strlen(pointer), room = sizeof p->err->pointer - 1;

    if (bytes == 0 || bytes > room) {
        pointer[0] = '\0';
        return -1;
    }
    if (keep > room - bytes)
        for (keep = room - bytes; keep > 0 && pointer[keep] != '/'; keep--)
            ;
    memmove(pointer + bytes, pointer, keep);
    memcpy(pointer, token, bytes);
    pointer[bytes + keep] = '\0';
    return -1;
}

static int inside_member(struct parser *p, const struct key *key)
{
    char token[sizeof p->err->pointer];
    return inside_of(p, token, write_token(key, token, sizeof token));
}

static int inside_element(struct parser *p, size_t index)
{
    char token[24];
    return inside_of(p, token, (size_t)snprintf(token, sizeof token, "/%zu", index));
}

static int parse_escape(struct parser *p)
{
    const char *from = p->at++; // the backslash
    if (p->at == p->end)
        return refuse(p, p->at, "unexpected end");
    char c = *p->at++;
    if (c != 'u') {
        if (c != '\0' && strchr("\"\\/bfnrt", c))
            return 0;
        return refuse(p, from, "unknown escape");
    }
    int32_t code = hex4(p->at, p->end);
    if (code < 0)
        return refuse(p, from, "\\u without four hex digits");
    if (code == 0)
        return refuse(p, from, "U+0000");
    p->at += 4;
    if (!is_high_surrogate(code))
        return is_low_surrogate(code) ? refuse(p, from, "lone surrogate") : 0;
    if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u' ||
        !is_low_surrogate(hex4(p->at + 2, p->end)))
        return refuse(p, from, "lone surrogate");
    p->at += 6;
    return 0;
}

static int parse_string(struct parser *p, bool *is_escaped)
{
    const char *from = p->at++; // the quote
    *is_escaped = false;
    for (;;) {
        p->at = skip_plain(p->at, p->end);
        if (p->at == p->end)
            return refuse(p, from, "string without end");
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
            return refuse(p, p->at, "control character");
        } else {
            size_t bytes = utf8_bytes(p->at, p->end);
            if (!bytes)
                return refuse(p, p->at, "invalid UTF-8");
            p->at += bytes;
        }
    }
}

/* At least one digit. */
static bool parse_digits(struct parser *p)
{
    const char *from = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > from;
}

static bool take_char(struct parser *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static int parse_number(struct parser *p)
{
    const char *from = p->at;

    take_char(p, '-');
    if (!take_char(p, '0') && !parse_digits(p))
        return refuse(p, from, "invalid number");
    if (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        return refuse(p, from, "number with a leading zero");
    if (take_char(p, '.') && !parse_digits(p))
        return refuse(p, from, "invalid number");
    if (take_char(p, 'e') || take_char(p, 'E')) {
        if (!take_char(p, '+'))
            take_char(p, '-');
        if (!parse_digits(p))
            return refuse(p, from, "invalid number");
    }
    return 0;
}

static int parse_word(struct parser *p, const char *word, size_t bytes)
{
    if ((size_t)(p->end - p->at) < bytes || memcmp(p->at, word, bytes) != 0)
        return refuse(p, p->at, "unknown word");
    p->at += bytes;
    return 0;
}

/* The next byte that is not white space, if it is `c`. */
static bool take_token(struct parser *p, char c)
{
    p->at = skip_space(p->at, p->end);
    return take_char(p, c);
}

static int expected(struct parser *p, const char *what)
{
    p->at = skip_space(p->at, p->end);
    return refuse(p, p->at, p->at == p->end ? "unexpected end" : what);
}

static int parse_array(struct parser *p)
{
    size_t index = 0;

    if (++p->depth > p->depth_most)
        return refuse(p, p->at, "nesting too deep");
    p->at++;
    if (!take_token(p, ']')) {
        do {
            if (parse_value(p) < 0)
                return inside_element(p, index);
            index++;
        } while (take_token(p, ','));
        if (!take_token(p, ']'))
            return expected(p, "',' or ']' missing");
    }
    p->depth--;
    return 0;
}

static int push_key(struct parser *p, struct key key)
{
    if (p->key_count == p->key_room) {
        size_t room = p->key_room * 4;
        struct key *inside = p->keys == p->inside ? p->inside : NULL;
        struct key *keys = realloc(inside ? NULL : p->keys, room * sizeof *keys);
        if (!keys)
            return ol_fail(p->err, OUTLOG_NO_MEMORY, "no memory for %zu keys", room);
        if (inside)
            memcpy(keys, inside, p->key_count * sizeof *keys);
        p->keys = keys;
        p->key_room = room;
    }
    p->keys[p->key_count++] = key;
    return 0;
}

static bool same_key(const struct key *a, const struct key *b)
{
    if (a->prefix != b->prefix)
        return false;
    if (!a->is_escaped && !b->is_escaped)
        return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
    return compare_keys(a, b) == 0;
}

/* The first key that was there before, or NULL. Sorts large objects: the keys are done with. */
static const struct key *find_duplicate(struct key *keys, size_t count)
{
    const struct key *found = NULL;

    if (count <= KEYS_COMPARED) {
        for (size_t i = 1; i < count; i++)
            for (size_t j = 0; j < i; j++)
                if (same_key(&keys[i], &keys[j]))
                    return &keys[i];
        return NULL;
    }
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++) {
        if (!same_key(&keys[i], &keys[i - 1]))
            continue;
        const struct key *later = keys[i].text > keys[i - 1].text ? &keys[i] : &keys[i - 1];
        if (!found || later->text < found->text)
            found = later;
    }
    return found;
}

static int parse_member(struct parser *p)
{
    bool is_escaped;

    p->at = skip_space(p->at, p->end);
    if (p->at == p->end || *p->at != '"')
        return expected(p, "key missing");
    const char *text = p->at + 1;
    if (parse_string(p, &is_escaped) < 0)
        return -1;
    struct key key = make_key(text, (size_t)(p->at - 1 - text), is_escaped);
    if (push_key(p, key) < 0)
        return -1;
    if (!take_token(p, ':'))
        return expected(p, "':' missing");
    return parse_value(p) < 0 ? inside_member(p, &key) : 0;
}

static int parse_object(struct parser *p)
{
    size_t first = p->key_count;

    if (++p->depth > p->depth_most)
        return refuse(p, p->at, "nesting too deep");
    p->at++;
    if (!take_token(p, '}')) {
        do {
            if (parse_member(p) < 0)
                return -1;
        } while (take_token(p, ','));
        if (!take_token(p, '}'))
            return expected(p, "',' or '}' missing");
    }
    const struct key *twice = find_duplicate(p->keys + first, p->key_count - first);
    if (twice) {
        refuse(p, twice->text - 1, "duplicate key");
        return inside_member(p, twice);
    }
    p->key_count = first;
    p->depth--;
    return 0;
}

static int parse_value(struct parser *p)
{
    bool is_escaped;

    p->at = skip_space(p->at, p->end);
    if (p->at == p->end)
        return refuse(p, p->at, "unexpected end");
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
        return refuse(p, p->at, "value missing");
    }
}

/* --- unescaping --------------------------------------------------------------------------- */

size_t ol_json_unescape(const char **at, char out[4])
{
    static const char shorts[128] = {['b'] = '\b', ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r',
                                     ['t'] = '\t', ['"'] = '"',  ['\\'] = '\\', ['/'] = '/'};
    char c = (*at)[1];
    if (c != 'u') {
        out[0] = shorts[c & 0x7F];
        *at += 2;
        return 1;
    }
    uint32_t code = (uint32_t)hex4(*at + 2, *at + 6);
    *at += 6;
    if (is_high_surrogate((int32_t)code)) {
        code = 0x10000 + ((code - 0xD800) << 10) + ((uint32_t)hex4(*at + 2, *at + 6) - 0xDC00);
        *at += 6;
    }
    size_t bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[bytes] | code);
    return bytes;
}

/* The unescaped bytes of a string one by one, for comparing without a copy. */
struct reader {
    const char *at, *end;
    char rest[4];
    size_t rest_at, rest_bytes;
};

/* The next byte, or -1 at the end. */
static int read_byte(struct reader *r)
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

static struct reader read_string(const char *text, size_t bytes)
{
    return (struct reader){.at = text, .end = text + bytes};
}

/* Unescape raw bytes (without quotes) into `out`, which never needs more room than they took. */
static size_t decode(const char *text, size_t bytes, char *out)
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

static struct key make_key(const char *text, size_t bytes, bool is_escaped)
{
    struct key key = {.text = text, .bytes = bytes, .is_escaped = is_escaped};
    struct reader r = read_string(text, bytes);

    if (!is_escaped && bytes >= 8) {
        for (int i = 0; i < 8; i++)
            key.prefix = key.prefix << 8 | (unsigned char)text[i];
        return key;
    }
    for (int i = 0; i < 8; i++) {
        int c = read_byte(&r);
        key.prefix = key.prefix << 8 | (unsigned char)(c < 0 ? 0 : c);
    }
    return key;
}

static int compare_keys(const void *left, const void *right)
{
    const struct key *a = left, *b = right;

    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    if (!a->is_escaped && !b->is_escaped) {
        size_t least = a->bytes < b->bytes ? a->bytes : b->bytes;
        int order = memcmp(a->text, b->text, least);
        return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
    }
    struct reader ra = read_string(a->text, a->bytes), rb = read_string(b->text, b->bytes);
    int ca, cb;
    do {
        ca = read_byte(&ra);
        cb = read_byte(&rb);
    } while (ca == cb && ca >= 0);
    return ca - cb;
}

/* --- walking ------------------------------------------------------------------------------ */

static enum ol_json_type type_of(char first)
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

static const char *skip_string(const char *at, const char *end)
{
    at = skip_plain(at + 1, end);
    while (*at != '"')
        at = skip_plain(at + (*at == '\\' ? 2 : 1), end);
    return at + 1;
}

static const char *skip_scalar(const char *at, const char *end)
{
    while (at < end && *at != ',' && *at != '}' && *at != ']' && *at != ' ' && *at != '\n' &&
           *at != '\r' && *at != '\t')
        at++;
    return at;
}

static const char *skip_value(const char *at, const char *end)
{
    int depth = 0;

    if (*at == '"')
        return skip_string(at, end);
    if (*at != '{' && *at != '[')
        return skip_scalar(at, end);
    for (;;) {
        char c = *at;
        if (c == '"') {
            at = skip_string(at, end);
            continue;
        }
        at++;
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            return at;
    }
}

/* The value at `at`; *after moves past it. */
static struct ol_json take_value(const char *at, const char *end, const char **after)
{
    *after = skip_value(at, end);
    return (struct ol_json){.type = type_of(*at), .text = at, .bytes = (size_t)(*after - at)};
}

bool ol_json_next(const struct ol_json *container, struct ol_json_iter *it)
{
    if (container->type != OL_JSON_OBJECT && container->type != OL_JSON_ARRAY)
        return false;
    const char *end = container->text + container->bytes;
    const char *at = container->text + (it->at ? it->at : 1);

    at = skip_space(at, end);
    if (it->at && *at == ',')
        at = skip_space(at + 1, end);
    if (at == end - 1) { // the closing bracket
        it->at = (size_t)(at - container->text);
        return false;
    }
    if (container->type == OL_JSON_OBJECT) {
        it->key = take_value(at, end, &at);
        at = skip_space(at, end) + 1; // the colon
        at = skip_space(at, end);
    }
    it->value = take_value(at, end, &at);
    it->at = (size_t)(at - container->text);
    return true;
}

static bool equals(const struct ol_json *string, const char *text, size_t bytes)
{
    const char *raw = string->text + 1;
    size_t raw_bytes = string->bytes - 2;

    if (!memchr(raw, '\\', raw_bytes))
        return raw_bytes == bytes && memcmp(raw, text, bytes) == 0;
    struct reader r = read_string(raw, raw_bytes);
    for (size_t i = 0; i < bytes; i++)
        if (read_byte(&r) != (unsigned char)text[i])
            return false;
    return read_byte(&r) < 0;
}

bool ol_json_equals(const struct ol_json *string, const char *text)
{
    return string->type == OL_JSON_STRING && equals(string, text, strlen(text));
}

struct ol_json ol_json_get(const struct ol_json *object, const char *key)
{
    struct ol_json_iter it = {0};
    size_t bytes = strlen(key);

    if (object->type == OL_JSON_OBJECT)
        while (ol_json_next(object, &it))
            if (equals(&it.key, key, bytes))
                return it.value;
    return (struct ol_json){0};
}

/* --- pointers ----------------------------------------------------------------------------- */

/* Whether a key is the pointer token of `bytes` bytes, in which ~0 is ~ and ~1 is /. */
static bool equals_token(const struct ol_json *key, const char *token, size_t bytes)
{
    struct reader r = read_string(key->text + 1, key->bytes - 2);

    for (size_t i = 0; i < bytes; i++) {
        int c = (unsigned char)token[i];
        if (c == '~') {
            i++;
            if (i == bytes || (token[i] != '0' && token[i] != '1'))
                return false;
            c = token[i] == '0' ? '~' : '/';
        }
        if (read_byte(&r) != c)
            return false;
    }
    return read_byte(&r) < 0;
}

/* An array index is written in one way only: no sign, no leading zero. */
static bool parse_index(const char *token, size_t bytes, size_t *out)
{
    if (bytes == 0 || bytes > 18 || (bytes > 1 && token[0] == '0'))
        return false;
    *out = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (token[i] < '0' || token[i] > '9')
            return false;
        *out = *out * 10 + (size_t)(token[i] - '0');
    }
    return true;
}

/* One step down. */
static struct ol_json child(const struct ol_json *parent, const char *token, size_t bytes)
{
    struct ol_json_iter it = {0};
    size_t index;

    if (parent->type == OL_JSON_OBJECT) {
        while (ol_json_next(parent, &it))
            if (equals_token(&it.key, token, bytes))
                return it.value;
    } else if (parent->type == OL_JSON_ARRAY && parse_index(token, bytes, &index)) {
        while (ol_json_next(parent, &it))
            if (index-- == 0)
                return it.value;
    }
    return (struct ol_json){0};
}

struct ol_json ol_json_at(const struct ol_json *value, const char *pointer)
{
    struct ol_json found = *value;

    while (*pointer == '/' && found.type != OL_JSON_NONE) {
        const char *token = pointer + 1;
        size_t bytes = strcspn(token, "/");
        found = child(&found, token, bytes);
        pointer = token + bytes;
    }
    return *pointer == '\0' ? found : (struct ol_json){0};
}

/* "/key" with ~ and / escaped; returns its length, 0 when it does not fit. */
static size_t write_token(const struct key *key, char *out, size_t room)
{
    struct reader r = read_string(key->text, key->bytes);
    size_t bytes = 0;
    int c;

    if (room < 2)
        return 0;
    out[bytes++] = '/';
    while ((c = read_byte(&r)) >= 0) {
        if (bytes + 3 > room)
            return 0;
        if (c == '~' || c == '/')
            out[bytes++] = '~';
        out[bytes++] = (char)(c == '~' ? '0' : c == '/' ? '1' : c);
    }
    out[bytes] = '\0';
    return bytes;
}

char *ol_json_pointer(const struct ol_json *root, const char *at, char *out, size_t room)
{
    struct ol_json value = *root;
    struct ol_json_iter it = {0};
    size_t used = 0, index = 0;

    out[0] = '\0';
    while (ol_json_next(&value, &it)) {
        if (at < it.value.text)
            break; // in the key, or in the space before it
        index++;
        if (at >= it.value.text + it.value.bytes)
            continue;
        size_t bytes;
        if (value.type == OL_JSON_OBJECT) {
            struct key key = {.text = it.key.text + 1, .bytes = it.key.bytes - 2};
            bytes = write_token(&key, out + used, room - used);
        } else {
            bytes = (size_t)snprintf(out + used, room - used, "/%zu", index - 1);
        }
        if (bytes == 0 || bytes >= room - used) {
            out[used] = '\0'; // an ancestor is named instead
            break;
        }
        used += bytes;
        value = it.value;
        it = (struct ol_json_iter){0};
        index = 0;
    }
    return out;
}

/* --- taking values out -------------------------------------------------------------------- */

char *ol_json_string(const struct ol_json *string, struct ol_arena *arena, size_t *bytes)
{
    if (string->type != OL_JSON_STRING)
        return NULL;
    char *out = ol_arena_alloc(arena, string->bytes - 1);
    if (!out)
        return NULL;
    size_t length = decode(string->text + 1, string->bytes - 2, out);
    out[length] = '\0';
    if (bytes)
        *bytes = length;
    return out;
}

bool ol_json_int(const struct ol_json *number, int64_t *out)
{
    if (number->type != OL_JSON_NUMBER)
        return false;
    bool is_negative = number->text[0] == '-';
    int64_t value = 0;

    for (size_t i = is_negative; i < number->bytes; i++) {
        char c = number->text[i];
        if (c < '0' || c > '9') // 1.0 and 1e2 are not read as whole: SQL would not either
            return false;
        int digit = is_negative ? '0' - c : c - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

/* --- the normal form ---------------------------------------------------------------------- */

/* A member already written, in the order of the input, at `from` in the output. */
struct member {
    struct key key; /* first, so that compare_keys sorts members too */
    size_t from, bytes;
};

/* Members of all open objects, as the parser keeps its keys. */
struct normalizer {
    const char *at, *end;
    struct ol_buf *out, scratch;
    struct member *members;
    size_t count, room;
    bool failed;
};

static void normal_value(struct normalizer *n);

int ol_json_normalize(const struct ol_json *value, struct ol_buf *out)
{
    struct normalizer n = {.at = value->text, .end = value->text + value->bytes, .out = out};

    if (value->type != OL_JSON_NONE)
        normal_value(&n);
    bool failed = n.failed || n.scratch.failed || out->failed;
    ol_buf_clear(&n.scratch);
    free(n.members);
    return failed ? -1 : 0;
}

static struct key normal_string(struct normalizer *n)
{
    const char *from = n->at;
    n->at = skip_string(n->at, n->end);
    size_t raw_bytes = (size_t)(n->at - from);
    bool is_escaped = memchr(from, '\\', raw_bytes) != NULL;

    if (!is_escaped) {
        ol_buf_add(n->out, from, raw_bytes);
    } else {
        ol_buf_reset(&n->scratch);
        ol_buf_add(&n->scratch, from, raw_bytes); // only to have the room
        if (!n->scratch.failed)
            ol_buf_json(n->out, n->scratch.data, decode(from + 1, raw_bytes - 2, n->scratch.data));
    }
    return make_key(from + 1, raw_bytes - 2, is_escaped);
}

static bool push_member(struct normalizer *n, struct member member)
{
    if (n->count == n->room) {
        size_t room = n->room ? n->room * 2 : 32;
        struct member *members = realloc(n->members, room * sizeof *members);
        if (!members) {
            n->failed = true;
            return false;
        }
        n->members = members;
        n->room = room;
    }
    n->members[n->count++] = member;
    return true;
}

/* Put the members written since `first` in order. The output only grows by one object at a time,
 * so what is moved here is moved once a level, by memcpy. */
static void sort_members(struct normalizer *n, size_t first)
{
    struct member *members = n->members + first;
    size_t count = n->count - first, from = members[0].from;

    qsort(members, count, sizeof *members, compare_keys);
    ol_buf_reset(&n->scratch);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            ol_buf_char(&n->scratch, ',');
        ol_buf_add(&n->scratch, n->out->data + members[i].from, members[i].bytes);
    }
    if (n->scratch.failed || n->out->failed)
        return;
    n->out->bytes = from;
    ol_buf_add(n->out, n->scratch.data, n->scratch.bytes);
}

static void normal_object(struct normalizer *n)
{
    size_t first = n->count;
    bool is_sorted = true;

    ol_buf_char(n->out, '{');
    n->at = skip_space(n->at + 1, n->end);
    while (*n->at != '}') {
        struct member member = {.from = n->out->bytes};
        member.key = normal_string(n);
        ol_buf_char(n->out, ':');
        n->at = skip_space(n->at, n->end) + 1; // the colon
        normal_value(n);
        if (n->failed)
            return;
        member.bytes = n->out->bytes - member.from;
        if (n->count > first && compare_keys(&n->members[n->count - 1], &member) > 0)
            is_sorted = false;
        if (!push_member(n, member))
            return;
        n->at = skip_space(n->at, n->end);
        if (*n->at == ',') {
            ol_buf_char(n->out, ',');
            n->at = skip_space(n->at + 1, n->end);
        }
    }
    n->at++;
    if (!is_sorted)
        sort_members(n, first);
    n->count = first;
    ol_buf_char(n->out, '}');
}

static void normal_array(struct normalizer *n)
{
    ol_buf_char(n->out, '[');
    n->at = skip_space(n->at + 1, n->end);
    while (*n->at != ']') {
        normal_value(n);
        if (n->failed)
            return;
        n->at = skip_space(n->at, n->end);
        if (*n->at == ',') {
            ol_buf_char(n->out, ',');
            n->at++;
        }
    }
    n->at++;
    ol_buf_char(n->out, ']');
}

static void normal_value(struct normalizer *n)
{
    n->at = skip_space(n->at, n->end);
    if (*n->at == '{') {
        normal_object(n);
    } else if (*n->at == '[') {
        normal_array(n);
    } else if (*n->at == '"') {
        normal_string(n);
    } else {
        const char *from = n->at;
        n->at = skip_scalar(n->at, n->end);
        ol_buf_add(n->out, from, (size_t)(n->at - from));
    }
}
