/* delivery_span.c: append ◀ claim ◀ publish ◀ the receiver's own span. */
#include "relay/delivery_span.h"

#include "base/clock.h"
#include "base/traceparent.h"

#include <stdio.h>
#include <string.h>

struct ol_delivery_span_claim ol_delivery_span_since(int64_t boot_us)
{
    int64_t now = ol_clock_wall_us();
    return (struct ol_delivery_span_claim){.from = now - (ol_clock_boot_us() - boot_us), .to = now};
}

/* What both spans of an attempt have in common. */
static struct ol_span make_span(const struct outlog_delivery *message, const char *name,
                                const char *parent_id)
{
    struct ol_span span = {.name = name, .attempt = message->attempt};
    ol_traceparent_make_span_id(name, message->event_id, message->attempt, span.span_id);
    snprintf(span.trace_id, sizeof span.trace_id, "%.32s", message->traceparent + 3);
    OL_SPAN_TEXT(span.parent_id, parent_id);
    OL_SPAN_TEXT(span.org_id, message->org_id);
    OL_SPAN_TEXT(span.correlation_id, message->correlation_id);
    OL_SPAN_TEXT(span.message_id, message->event_id);
    OL_SPAN_TEXT(span.event_type, message->event_type);
    OL_SPAN_TEXT(span.destination, message->destination);
    return span;
}

/* The span that appended the message; "" when it came without one, and we generated its trace. */
static void find_origin(const struct outlog_delivery *message, char out[OL_TRACEPARENT_SPAN_TEXT])
{
    char made_up[OL_TRACEPARENT_SPAN_TEXT];
    ol_traceparent_make_span_id("origin", message->event_id, 0, made_up);
    snprintf(out, OL_TRACEPARENT_SPAN_TEXT, "%.16s", message->traceparent + 36);
    if (strcmp(out, made_up) == 0)
        out[0] = '\0';
}

void ol_delivery_span_attempt(struct ol_span_exporter *tracer,
                              const struct ol_delivery_span_claim *claim,
                              const struct ol_claimed_message *item)
{
    struct outlog_delivery message = item->message;
    const struct outlog_outcome *outcome = &item->outcome;
    char made[OL_TRACEPARENT_TEXT], origin[OL_TRACEPARENT_SPAN_TEXT];

    if (!tracer || outcome->kind == OUTLOG_PUBLISH_RELEASED)
        return;
    message.traceparent = ol_traceparent_of(message.traceparent, message.correlation_id,
                                            message.event_id, made); // as it was sent
    if (!ol_traceparent_is_sampled(message.traceparent))
        return;
    find_origin(&message, origin);
    struct ol_span span = make_span(&message, "claim", origin);
    span.kind = OL_SPAN_INTERNAL;
    span.start_us = claim->from;
    span.end_us = claim->to;
    ol_span_exporter_add(tracer, &span);
    char parent[OL_TRACEPARENT_SPAN_TEXT];
    memcpy(parent, span.span_id, sizeof parent);
    span = make_span(&message, "publish", parent);
    span.kind = OL_SPAN_PRODUCER;
    span.start_us = item->started_at;
    span.end_us = item->started_at + outcome->duration_us;
    span.status = outcome->status;
    span.is_error = outcome->kind != OUTLOG_PUBLISH_OK;
    OL_SPAN_TEXT(span.error, span.is_error ? item->error : NULL);
    ol_span_exporter_add(tracer, &span);
}
