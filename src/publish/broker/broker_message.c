/* broker_message.c: names by template, headers by precedence, the body perhaps in an envelope. */
#include "publish/broker/broker_message.h"

#include "base/traceparent.h"
#include "destinations/name_template.h"
#include "net/headers.h"
#include "publish/cloudevents.h"
#include "publish/publisher.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { OURS_MAX = 8 };

/* --- headers
 * -------------------------------------------------------------------------------------- */

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
        if (!ol_headers_name_is_valid(name) || !ol_headers_value_is_valid(value))
            return ol_fail(err, OUTLOG_INVALID_FIELD,
                           "header %.60s: its name or value holds a byte that cannot be sent",
                           name);
        if (is_ours(name) || has(list, name))
            continue;
        name = ol_arena_copy(arena, name, strlen(name));
        value = ol_arena_copy(arena, value, strlen(value));
        if (!name || !value)
            return ol_no_memory(err);
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

static int make_headers(const struct ol_settings *settings, const struct ol_broker_naming *form,
                        const struct outlog_delivery *message, struct ol_arena *arena,
                        struct ol_broker_message *out, outlog_err *err)
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
        return ol_no_memory(err);
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
        return ol_no_memory(err);
    for (size_t i = 0; i < list.count; i++) // a key or an org with a line break starts no header
        if (!ol_headers_value_is_valid(list.items[i].value))
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

/* --- the whole
 * ------------------------------------------------------------------------------------- */

static int make_body(const struct ol_settings *settings, const struct outlog_delivery *message,
                     struct ol_arena *arena, struct ol_broker_message *out)
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

int ol_broker_message_make(const struct ol_settings *settings, const struct ol_broker_naming *form,
                           const struct outlog_delivery *message, struct ol_arena *arena,
                           struct ol_broker_message *out, outlog_err *err)
{
    bool failed = false;
    const char *key = message->partition_key ? message->partition_key : message->ordering_key;

    *out = (struct ol_broker_message){
        .id = keep(arena, message->event_id, &failed),
        .key = keep(arena, key, &failed),
        .event_type = keep(arena, message->event_type, &failed),
        .content_type = message->content_type ? keep(arena, message->content_type, &failed)
                                              : "application/json",
        .correlation_id = keep(arena, message->correlation_id, &failed),
        .created_at = message->created_at,
    };
    if (failed || make_body(settings, message, arena, out) < 0)
        return ol_no_memory(err);
    if (ol_name_template_fill(form->name, message, form->forbidden, form->name_max, arena,
                              &out->name, err) < 0)
        return -1;
    return make_headers(settings, form, message, arena, out, err);
}
