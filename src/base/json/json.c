/* json.c: cheap walks over text that one strict pass (parse.c) has validated.
 *
 * J1  Only ol_json_parse takes untrusted bytes. Everything after it relies on that pass and reads
 *     only what it needs.
 * J2  Cost grows with the text, not with its square: keys of a large object are sorted, not
 *     compared pair by pair, and no walk into nested values reads a byte once per level.
 * J3  Recursion is as deep as the nesting, which J1 bounds by OL_JSON_DEPTH (and
 *     OL_JSON_WRAPPING). */
#include "base/json/text.h"

#include <stdio.h>

static const char *skip_value(const char *at, const char *end)
{
    int depth = 0;

    if (*at == '"')
        return ol_json_skip_string(at, end);
    if (*at != '{' && *at != '[')
        return ol_json_skip_scalar(at, end);
    for (;;) {
        char c = *at;
        if (c == '"') {
            at = ol_json_skip_string(at, end);
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
    return (
        struct ol_json){.type = ol_json_type_of(*at), .text = at, .bytes = (size_t)(*after - at)};
}

bool ol_json_next(const struct ol_json *container, struct ol_json_iter *it)
{
    if (container->type != OL_JSON_OBJECT && container->type != OL_JSON_ARRAY)
        return false;
    const char *end = container->text + container->bytes;
    const char *at = container->text + (it->at ? it->at : 1);

    at = ol_json_skip_space(at, end);
    if (it->at && *at == ',')
        at = ol_json_skip_space(at + 1, end);
    if (at == end - 1) { // the closing bracket
        it->at = (size_t)(at - container->text);
        return false;
    }
    if (container->type == OL_JSON_OBJECT) {
        it->key = take_value(at, end, &at);
        at = ol_json_skip_space(at, end) + 1; // the colon
        at = ol_json_skip_space(at, end);
    }
    it->value = take_value(at, end, &at);
    it->at = (size_t)(at - container->text);
    return true;
}

static bool equals_bytes(const struct ol_json *string, const char *text, size_t bytes)
{
    const char *raw = string->text + 1;
    size_t raw_bytes = string->bytes - 2;

    if (!memchr(raw, '\\', raw_bytes))
        return raw_bytes == bytes && memcmp(raw, text, bytes) == 0;
    struct ol_json_reader r = ol_json_read_string(raw, raw_bytes);
    for (size_t i = 0; i < bytes; i++)
        if (ol_json_read_byte(&r) != (unsigned char)text[i])
            return false;
    return ol_json_read_byte(&r) < 0;
}

bool ol_json_equals(const struct ol_json *string, const char *text)
{
    return string->type == OL_JSON_STRING && equals_bytes(string, text, strlen(text));
}

struct ol_json ol_json_get(const struct ol_json *object, const char *key)
{
    struct ol_json_iter it = {0};
    size_t bytes = strlen(key);

    if (object->type == OL_JSON_OBJECT)
        while (ol_json_next(object, &it))
            if (equals_bytes(&it.key, key, bytes))
                return it.value;
    return (struct ol_json){0};
}

/* --- pointers --- */

/* Whether a key is the pointer token of `bytes` bytes, in which ~0 is ~ and ~1 is /. */
static bool equals_token(const struct ol_json *key, const char *token, size_t bytes)
{
    struct ol_json_reader r = ol_json_read_string(key->text + 1, key->bytes - 2);

    for (size_t i = 0; i < bytes; i++) {
        int c = (unsigned char)token[i];
        if (c == '~') {
            i++;
            if (i == bytes || (token[i] != '0' && token[i] != '1'))
                return false;
            c = token[i] == '0' ? '~' : '/';
        }
        if (ol_json_read_byte(&r) != c)
            return false;
    }
    return ol_json_read_byte(&r) < 0;
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

/* The member or element that a pointer token names. */
static struct ol_json find_child(const struct ol_json *parent, const char *token, size_t bytes)
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
        found = find_child(&found, token, bytes);
        pointer = token + bytes;
    }
    return *pointer == '\0' ? found : (struct ol_json){0};
}

char *ol_json_pointer(const struct ol_json *root, const char *at, char *out, size_t size)
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
            struct ol_json_key key = {.text = it.key.text + 1, .bytes = it.key.bytes - 2};
            bytes = ol_json_key_token(&key, out + used, size - used);
        } else {
            bytes = (size_t)snprintf(out + used, size - used, "/%zu", index - 1);
        }
        if (bytes == 0 || bytes >= size - used) {
            out[used] = '\0'; // too long: an ancestor is named instead
            break;
        }
        used += bytes;
        value = it.value;
        it = (struct ol_json_iter){0};
        index = 0;
    }
    return out;
}

/* --- values --- */

char *ol_json_string(const struct ol_json *string, struct ol_arena *arena, size_t *bytes)
{
    if (string->type != OL_JSON_STRING)
        return NULL;
    char *out = ol_arena_alloc(arena, string->bytes - 1);
    if (!out)
        return NULL;
    size_t length = ol_json_decode(string->text + 1, string->bytes - 2, out);
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
        if (c < '0' || c > '9') // 1.0 and 1e2 are not integers, as in SQL
            return false;
        int digit = is_negative ? '0' - c : c - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}
