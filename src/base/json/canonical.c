/* canonical.c: the normal form, in which equal requests have equal bytes. */
#include "base/json/text.h"

#include <stdlib.h>

/* A member already written, in the order of the input, at `from` in the output. */
struct member {
    struct ol_json_key key; /* first, so that ol_json_key_compare sorts members too */
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

int ol_json_canonical(const struct ol_json *value, struct ol_buf *out)
{
    struct normalizer n = {.at = value->text, .end = value->text + value->bytes, .out = out};

    if (value->type != OL_JSON_NONE)
        normal_value(&n);
    bool failed = n.failed || n.scratch.failed || out->failed;
    ol_buf_clear(&n.scratch);
    free(n.members);
    return failed ? -1 : 0;
}

static struct ol_json_key normal_string(struct normalizer *n)
{
    const char *from = n->at;
    n->at = ol_json_skip_string(n->at, n->end);
    size_t raw_bytes = (size_t)(n->at - from);
    bool is_escaped = memchr(from, '\\', raw_bytes) != NULL;

    if (!is_escaped) {
        ol_buf_add(n->out, from, raw_bytes);
    } else {
        ol_buf_reset(&n->scratch);
        ol_buf_add(&n->scratch, from, raw_bytes); // only to have the room
        if (!n->scratch.failed)
            ol_buf_json(n->out, n->scratch.data,
                        ol_json_decode(from + 1, raw_bytes - 2, n->scratch.data));
    }
    return ol_json_key_make(from + 1, raw_bytes - 2, is_escaped);
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

static void normal_object(struct normalizer *n)
{
    size_t first = n->count;
    bool is_sorted = true;

    ol_buf_char(n->out, '{');
    n->at = ol_json_skip_space(n->at + 1, n->end);
    while (*n->at != '}') {
        struct member member = {.from = n->out->bytes};
        member.key = normal_string(n);
        ol_buf_char(n->out, ':');
        n->at = ol_json_skip_space(n->at, n->end) + 1; // the colon
        normal_value(n);
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

static void normal_array(struct normalizer *n)
{
    ol_buf_char(n->out, '[');
    n->at = ol_json_skip_space(n->at + 1, n->end);
    while (*n->at != ']') {
        normal_value(n);
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

static void normal_value(struct normalizer *n)
{
    n->at = ol_json_skip_space(n->at, n->end);
    if (*n->at == '{') {
        normal_object(n);
    } else if (*n->at == '[') {
        normal_array(n);
    } else if (*n->at == '"') {
        normal_string(n);
    } else {
        const char *from = n->at;
        n->at = ol_json_skip_scalar(n->at, n->end);
        ol_buf_add(n->out, from, (size_t)(n->at - from));
    }
}
