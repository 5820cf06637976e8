/* canonical.c: the canonical form, in which equal values have equal bytes. */
#include "base/json/text.h"

#include <stdlib.h>

/* A member already written, in the order of the input, at `from` in the output. */
struct canonical_member {
    struct ol_json_key key; /* first, so that ol_json_key_compare sorts members too */
    size_t from, bytes;
};

/* Members of all open objects, innermost last, like the keys of the parser. */
struct canonicalizer {
    const char *at, *end;
    struct ol_buf *out, scratch;
    struct canonical_member *members;
    size_t count, capacity;
    bool failed;
};

static void write_value(struct canonicalizer *n);

int ol_json_canonical(const struct ol_json *value, struct ol_buf *out)
{
    struct canonicalizer n = {.at = value->text, .end = value->text + value->bytes, .out = out};

    if (value->type != OL_JSON_NONE)
        write_value(&n);
    bool failed = n.failed || n.scratch.failed || out->failed;
    ol_buf_clear(&n.scratch);
    free(n.members);
    return failed ? -1 : 0;
}

static struct ol_json_key write_string(struct canonicalizer *n)
{
    const char *from = n->at;
    n->at = ol_json_skip_string(n->at, n->end);
    size_t raw_bytes = (size_t)(n->at - from);
    bool is_escaped = memchr(from, '\\', raw_bytes) != NULL;

    if (!is_escaped) {
        ol_buf_add(n->out, from, raw_bytes);
    } else {
        ol_buf_reset(&n->scratch);
        ol_buf_add(&n->scratch, from, raw_bytes); // only to reserve the memory
        if (!n->scratch.failed)
            ol_buf_json(n->out, n->scratch.data,
                        ol_json_decode(from + 1, raw_bytes - 2, n->scratch.data));
    }
    return ol_json_key_make(from + 1, raw_bytes - 2, is_escaped);
}

static bool push_member(struct canonicalizer *n, struct canonical_member member)
{
    if (n->count == n->capacity) {
        size_t capacity = n->capacity ? n->capacity * 2 : 32;
        struct canonical_member *members = realloc(n->members, capacity * sizeof *members);
        if (!members) {
            n->failed = true;
            return false;
        }
        n->members = members;
        n->capacity = capacity;
    }
    n->members[n->count++] = member;
    return true;
}

/* Sort the members written since `first`. Each object is sorted when it ends, so a byte is moved
 * once per level, by memcpy. */
static void sort_members(struct canonicalizer *n, size_t first)
{
    struct canonical_member *members = n->members + first;
    size_t count = n->count - first, from = members[0].from;

    qsort(members, count, sizeof *members, ol_json_key_compare);
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

static void write_object(struct canonicalizer *n)
{
    size_t first = n->count;
    bool is_sorted = true;

    ol_buf_char(n->out, '{');
    n->at = ol_json_skip_space(n->at + 1, n->end);
    while (*n->at != '}') {
        struct canonical_member member = {.from = n->out->bytes};
        member.key = write_string(n);
        ol_buf_char(n->out, ':');
        n->at = ol_json_skip_space(n->at, n->end) + 1; // the colon
        write_value(n);
        if (n->failed)
            return;
        member.bytes = n->out->bytes - member.from;
        if (n->count > first && ol_json_key_compare(&n->members[n->count - 1], &member) > 0)
            is_sorted = false;
        if (!push_member(n, member))
            return;
        n->at = ol_json_skip_space(n->at, n->end);
        if (*n->at == ',') {
            ol_buf_char(n->out, ',');
            n->at = ol_json_skip_space(n->at + 1, n->end);
        }
    }
    n->at++;
    if (!is_sorted)
        sort_members(n, first);
    n->count = first;
    ol_buf_char(n->out, '}');
}

static void write_array(struct canonicalizer *n)
{
    ol_buf_char(n->out, '[');
    n->at = ol_json_skip_space(n->at + 1, n->end);
    while (*n->at != ']') {
        write_value(n);
        if (n->failed)
            return;
        n->at = ol_json_skip_space(n->at, n->end);
        if (*n->at == ',') {
            ol_buf_char(n->out, ',');
            n->at++;
        }
    }
    n->at++;
    ol_buf_char(n->out, ']');
}

static void write_value(struct canonicalizer *n)
{
    n->at = ol_json_skip_space(n->at, n->end);
    if (*n->at == '{') {
        write_object(n);
    } else if (*n->at == '[') {
        write_array(n);
    } else if (*n->at == '"') {
        write_string(n);
    } else {
        const char *from = n->at;
        n->at = ol_json_skip_scalar(n->at, n->end);
        ol_buf_add(n->out, from, (size_t)(n->at - from));
    }
}
