/* broker_message.c: fills in the name, orders the headers, wraps the body in its envelope. */
#include "publish/broker/broker_message.h"

#include "base/traceparent.h"
#include "destinations/name_template.h"
#include "net/headers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { BROKER_HEADERS_OURS = 10 };

/* --- headers ---------------------------------------------------------------------------------- */

struct header_list {
    struct outlog_header *items;
    size_t count;
};

static bool has_header(const struct header_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcasecmp(list->items[i].name, name) == 0)
            return true;
    return false;
}

static void add_header(struct header_list *list, const char *name, const char *value)
{
    if (value)
        list->items[list->count++] = (struct outlog_header){name, value};
}

/* Names with our prefixes, or those that a broker's client reads, are never taken from outside. */
static bool is_ours(const char *name)
{
    static const char *const ours[] = {"outlog-", "nats-", "ce-", "ce_"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strncasecmp(name, ours[i], strlen(ours[i])) == 0)
            return true;
    return false;
}

static int add_foreign(struct header_list *list, const struct outlog_header *headers, size_t count,
                       struct ol_arena *arena, outlog_err *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name, *value = headers[i].value;
        if (!ol_headers_name_is_valid(name) || !ol_headers_value_is_valid(value))
            return ol_fail(err, OUTLOG_INVALID_FIELD,
                           "header %.60s: its name or value holds a byte that cannot be sent",
                           name);
        if (is_ours(name) || has_header(list, name))
            continue;
        name = ol_arena_copy(arena, name, strlen(name));
        value = ol_arena_copy(arena, value, strlen(value));
        if (!name || !value)
            return ol_no_memory(err);
        add_header(list, name, value);
    }
    return 0;
}

static const char *copy_text(struct ol_arena *arena, const char *text, bool *failed)
{
    const char *copy = text ? ol_arena_copy(arena, text, strlen(text)) : NULL;
    *failed = *failed || (text && !copy);
    return copy;
}

/* outlog's own headers. A value that brings a line break must not start another header. */
static int add_ours(struct header_list *list, const struct outlog_delivery *message,
                    const struct ol_broker_message *out, struct ol_arena *arena, outlog_err *err)
{
    char trace[OL_TRACEPARENT_TEXT], number[16];
    bool failed = false;

    snprintf(number, sizeof number, "%d", message->attempt);
    add_header(list, "outlog-event-id", out->id);
    add_header(list, "outlog-event-type", out->event_type);
    add_header(list, "idempotency-key",
               message->idempotency_key ? copy_text(arena, message->idempotency_key, &failed)
                                        : out->id);
    add_header(list, "outlog-org-id", copy_text(arena, message->org_id, &failed));
    add_header(list, "outlog-attempt", copy_text(arena, number, &failed));
    add_header(list, "outlog-replay", message->is_replay ? "true" : NULL);
    add_header(list, "outlog-correlation-id", out->correlation_id);
    add_header(list, "outlog-causation-id", copy_text(arena, message->causation_id, &failed));
    if (ol_traceparent_next(message->traceparent, message->event_id, message->attempt, trace))
        add_header(list, "traceparent", copy_text(arena, trace, &failed));
    return failed ? ol_no_memory(err) : 0;
}

static int check_values(const struct header_list *list, outlog_err *err)
{
    for (size_t i = 0; i < list->count; i++)
        if (!ol_headers_value_is_valid(list->items[i].value))
            return ol_fail(err, OUTLOG_INVALID_FIELD,
                           "header %s: the value holds a byte that cannot be sent",
                           list->items[i].name);
    return 0;
}

static int make_headers(const struct ol_settings *settings, const struct ol_broker_naming *naming,
                        const struct outlog_delivery *message, struct ol_arena *arena,
                        struct ol_broker_message *out, outlog_err *err)
{
    const struct ol_broker_settings *broker = settings->own;
    struct header_list list = {0};
    struct outlog_header *ce = NULL;
    size_t ce_count = 0;

    if (broker->envelope == OL_ENVELOPE_CLOUDEVENTS_BINARY &&
        ol_cloudevents_list(message, broker->source, naming->ce_prefix, arena, &ce, &ce_count,
                            err) < 0)
        return -1;
    list.items = ol_arena_array(arena,
                                BROKER_HEADERS_OURS + ce_count + settings->header_count +
                                    message->header_count,
                                sizeof *list.items);
    if (!list.items)
        return ol_no_memory(err);
    if (add_ours(&list, message, out, arena, err) < 0)
        return -1;
    for (size_t i = 0; i < ce_count; i++)
        if (!has_header(&list, ce[i].name))
            list.items[list.count++] = ce[i];
    if (check_values(&list, err) < 0 ||
        add_foreign(&list, settings->headers, settings->header_count, arena, err) < 0 ||
        add_foreign(&list, message->headers, message->header_count, arena, err) < 0)
        return -1;
    out->headers = list.items;
    out->header_count = list.count;
    return 0;
}

/* --- the message ------------------------------------------------------------------------------ */

static int make_body(const struct ol_broker_settings *broker, const struct outlog_delivery *message,
                     struct ol_arena *arena, struct ol_broker_message *out)
{
    struct ol_buf body = {0};
    if (broker->envelope != OL_ENVELOPE_CLOUDEVENTS) {
        out->body = ol_arena_copy(arena, message->payload, message->payload_bytes);
        out->body_bytes = message->payload_bytes;
        return out->body ? 0 : -1;
    }
    if (ol_cloudevents_structured(message, broker->source, &body) == 0) {
        out->body = ol_arena_copy(arena, body.data, body.bytes);
        out->body_bytes = body.bytes;
        out->content_type = OL_CLOUDEVENTS_JSON;
    }
    ol_buf_clear(&body);
    return out->body ? 0 : -1;
}

int ol_broker_message_make(const struct ol_settings *settings,
                           const struct ol_broker_naming *naming,
                           const struct outlog_delivery *message, struct ol_arena *arena,
                           struct ol_broker_message *out, outlog_err *err)
{
    const struct ol_broker_settings *broker = settings->own;
    char escaped[OL_HEADER_ESCAPED];
    bool failed = false;
    const char *key = message->partition_key ? message->partition_key : message->ordering_key;

    *out = (struct ol_broker_message){
        .id = copy_text(arena, message->event_id, &failed),
        .key = copy_text(arena, key, &failed),
        .event_type = copy_text(arena, message->event_type, &failed),
        .content_type = message->content_type ? copy_text(arena, message->content_type, &failed)
                                              : "application/json",
        .correlation_id =
            copy_text(arena, ol_headers_escape(message->correlation_id, escaped), &failed),
        .created_at = message->created_at,
    };
    if (failed || make_body(broker, message, arena, out) < 0)
        return ol_no_memory(err);
    if (ol_name_template_fill(broker->name, message, naming->forbidden, naming->name_max, arena,
                              &out->name, err) < 0)
        return -1;
    return make_headers(settings, naming, message, arena, out, err);
}
