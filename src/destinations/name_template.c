/* name_template.c: finds the {…} in a name and puts the message's values in their place. */
#include "destinations/name_template.h"

#include "base/buf.h"
#include "base/err.h"

#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    {"{event_type}", offsetof(struct outlog_delivery, event_type)},
    {"{org_id}", offsetof(struct outlog_delivery, org_id)},
    {"{ordering_key}", offsetof(struct outlog_delivery, ordering_key)},
    {"{partition_key}", offsetof(struct outlog_delivery, partition_key)},
};

/* The number of the field that begins at `at`, or -1. */
static int find_field(const char *at)
{
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++)
        if (strncmp(at, fields[i].name, strlen(fields[i].name)) == 0)
            return i;
    return -1;
}

const char *ol_name_template_unknown_field(const char *name)
{
    for (const char *at = strchr(name, '{'); at; at = strchr(at + 1, '{'))
        if (find_field(at) < 0)
            return at;
    return NULL;
}

/* Add a value without the bytes that a name cannot hold: a wildcard in a message must not reach a
 * broker. An absent value becomes `_`, so that the name keeps its number of parts. */
static void add_value(struct ol_buf *out, const char *value, const char *forbidden)
{
    if (!value || !*value)
        value = "_";
    for (; *value; value++)
        ol_buf_char(out, strchr(forbidden, *value) || (unsigned char)*value < ' ' || *value == 0x7f
                             ? '_'
                             : *value);
}

int ol_name_template_fill(const char *template, const struct outlog_delivery *message,
                          const char *forbidden, size_t max_bytes, struct ol_arena *arena,
                          const char **out, outlog_err *err)
{
    struct ol_buf name = {0};
    int result = -1, field;

    if (!strchr(template, '{')) {
        *out = template; // a part of the settings, which outlive every message
        return 0;
    }
    for (const char *at = template; *at;) {
        if (*at != '{' || (field = find_field(at)) < 0) {
            ol_buf_char(&name, *at++);
            continue;
        }
        const char *const *value = (const void *)((const char *)message + fields[field].offset);
        add_value(&name, *value, forbidden);
        at += strlen(fields[field].name);
    }
    *out = name.failed ? NULL : ol_arena_copy(arena, name.data, name.bytes);
    if (!*out)
        ol_no_memory(err);
    else if (max_bytes && name.bytes > max_bytes)
        ol_fail(err, OUTLOG_INVALID_FIELD, "%.60s… is longer than the %zu bytes allowed", *out,
                max_bytes);
    else
        result = 0;
    ol_buf_clear(&name);
    return result;
}
