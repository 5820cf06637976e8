/* parcel.c: names by template, headers by precedence, the body perhaps in an envelope. */
#include "publish/parcel.h"

#include "base/traceparent.h"
#include "publish/cloudevents.h"
#include "publish/headers.h"
#include "publish/publisher.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { OURS_MAX = 8 };

/* --- names ---------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    {"{event_type}", offsetof(struct outlog_message, event_type)},
    {"{org_id}", offsetof(struct outlog_message, org_id)},
    {"{ordering_key}", offsetof(struct outlog_message, ordering_key)},
    {"{partition_key}", offsetof(struct outlog_message, partition_key)},
};

/* The field that begins here, or -1. */
static int field_at(const char *at)
{
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++)
        if (strncmp(at, fields[i].name, strlen(fields[i].name)) == 0)
            return i;
    return -1;
}

const char *ol_parcel_unknown_field(const char *name)
{
    for (const char *at = strchr(name, '{'); at; at = strchr(at + 1, '{'))
        if (field_at(at) < 0)
            return at;
    return NULL;
}

/* A value that a name cannot hold as it is: a wildcard from outside must not reach a broker. A value
 * that is absent leaves a mark, so that the name keeps its parts. */
static void add_value(struct ol_buf *out, const char *value, const char *forbidden)
{
    if (!value || !*value)
        value = "_";
    for (; *value; value++)
        ol_buf_char(out, strchr(forbidden, *value) || (unsigned char)*value < ' ' || *value == 0x7f
                             ? '_'
                             : *value);
}

static int make_name(const struct ol_parcel_form *form, const struct outlog_message *message,
                     struct ol_arena *arena, const char **out, outlog_err *err)
{
    struct ol_buf name = {0};
    int result = -1, field;

    if (!strchr(form->name, '{')) {
        *out = form->name; // it belongs to the settings, which outlive every parcel
        return 0;
    }
    for (const char *at = form->name; *at;) {
        if (*at != '{' || (field = field_at(at)) < 0) {
            ol_buf_char(&name, *at++);
            continue;
        }
        const char *const *value = (const void *)((const char *)message + fields[field].offset);
        add_value(&name, *value, form->forbidden);
        at += strlen(fields[field].name);
    }
    *out = name.failed ? NULL : ol_arena_copy(arena, name.data, name.bytes);
    if (!*out)
        ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    else if (form->name_max && name.bytes > form->name_max)
        ol_fail(err, OUTLOG_INVALID_FIELD, "%.60s… is longer than the %zu bytes allowed", *out,
                form->name_max);
    else
        result = 0;
    ol_buf_clear(&name);
    return result;
}

/* --- headers -------------------------------------------------------------------------------------- */

struct list {
    struct outlog_header *items;
    size_t count;
};

static bool has(const struct list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcasecmp(list->items[i].name, name) == 0)
            return true;
    return false;
}

static void add(struct list *list, const char *name, const char *value)
{
    if (value)
        list->items[list->count++] = (struct outlog_header){name, value};
}

/* Names that begin like ours, or that a broker's client reads, are never taken from outside. */
static bool is_ours(const char *name)
{
    static const char *const ours[] = {"outlog-", "nats-", "ce-", "ce_"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strncasecmp(name, ours[i], strlen(ours[i])) == 0)
            return true;
    return false;
}

static int offer(struct list *list, const struct outlog_header *headers, size_t count,
                 struct ol_arena *arena, outlog_err *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name, *value = headers[i].value;
        if (!ol_header_name_is_valid(name) || !ol_header_value_is_valid(value))
            return ol_fail(err, OUTLOG_INVALID_FIELD,
                           "header %.60s: its name or value holds a byte that cannot be sent",
                           name);
        if (is_ours(name) || has(list, name))
            continue;
        name = ol_arena_copy(arena, name, strlen(name));
        value = ol_arena_copy(arena, value, strlen(value));
        if (!name || !value)
            return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
        add(list, name, value);
    }
    return 0;
}

static const char *keep(struct ol_arena *arena, const char *text, bool *failed)
{
    const char *copy = text ? ol_arena_copy(arena, text, strlen(text)) : NULL;
    *failed = *failed || (text && !copy);
    return copy;
}

static int make_headers(const struct ol_settings *settings, const struct ol_parcel_form *form,
                        const struct outlog_message *message, struct ol_arena *arena,
                        struct ol_parcel *out, outlog_err *err)
{
    struct list list = {0};
    struct outlog_header *ce = NULL;
    size_t ce_count = 0;
    char trace[OL_TRACEPARENT_TEXT], number[16];
    bool failed = false;

    if (settings->envelope == OL_ENVELOPE_CLOUDEVENTS_BINARY &&
        ol_cloudevents_list(message, settings->source, form->ce_prefix, arena, &ce, &ce_count,
                            err) < 0)
        return -1;
    list.items =
        ol_arena_array(arena, OURS_MAX + ce_count + settings->header_count + message->header_count,
                       sizeof *list.items);
    if (!list.items)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    snprintf(number, sizeof number, "%d", message->attempt);
    add(&list, "outlog-event-id", out->id);
    add(&list, "outlog-event-type", out->event_type);
    add(&list, "idempotency-key",
        message->idempotency_key ? keep(arena, message->idempotency_key, &failed) : out->id);
    add(&list, "outlog-org-id", keep(arena, message->org_id, &failed));
    add(&list, "outlog-attempt", keep(arena, number, &failed));
    add(&list, "outlog-replay", message->is_replay ? "true" : NULL);
    if (ol_traceparent_next(message->traceparent, message->event_id, message->attempt, trace))
        add(&list, "traceparent", keep(arena, trace, &failed));
    for (size_t i = 0; i < ce_count; i++)
        if (!has(&list, ce[i].name))
            list.items[list.count++] = ce[i];
    if (failed)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < list.count; i++) // a key or an org with a line break starts no header
        if (!ol_header_value_is_valid(list.items[i].value))
            return ol_fail(err, OUTLOG_INVALID_FIELD,
                           "header %s: the value holds a byte that cannot be sent",
                           list.items[i].name);
    if (offer(&list, settings->headers, settings->header_count, arena, err) < 0 ||
        offer(&list, message->headers, message->header_count, arena, err) < 0)
        return -1;
    out->headers = list.items;
    out->header_count = list.count;
    return 0;
}

/* --- the whole ------------------------------------------------------------------------------------- */

static int make_body(const struct ol_settings *settings, const struct outlog_message *message,
                     struct ol_arena *arena, struct ol_parcel *out)
{
    struct ol_buf body = {0};
    if (settings->envelope != OL_ENVELOPE_CLOUDEVENTS) {
        out->body = ol_arena_copy(arena, message->payload, message->payload_bytes);
        out->body_bytes = message->payload_bytes;
        return out->body ? 0 : -1;
    }
    if (ol_cloudevents_structured(message, settings->source, &body) == 0) {
        out->body = ol_arena_copy(arena, body.data, body.bytes);
        out->body_bytes = body.bytes;
        out->content_type = OL_CLOUDEVENTS_JSON;
    }
    ol_buf_clear(&body);
    return out->body ? 0 : -1;
}

int ol_parcel_make(const struct ol_settings *settings, const struct ol_parcel_form *form,
                   const struct outlog_message *message, struct ol_arena *arena,
                   struct ol_parcel *out, outlog_err *err)
{
    bool failed = false;
    const char *key = message->partition_key ? message->partition_key : message->ordering_key;

    *out = (struct ol_parcel){
        .id = keep(arena, message->event_id, &failed),
        .key = keep(arena, key, &failed),
        .event_type = keep(arena, message->event_type, &failed),
        .content_type = message->content_type ? keep(arena, message->content_type, &failed)
                                              : "application/json",
        .correlation_id = keep(arena, message->correlation_id, &failed),
        .created_at = message->created_at,
    };
    if (failed || make_body(settings, message, arena, out) < 0)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    if (make_name(form, message, arena, &out->name, err) < 0)
        return -1;
    return make_headers(settings, form, message, arena, out, err);
}
