/* broker_message.h: a message as brokers take it: where to, headers, body. Pure. */
#ifndef OL_PUBLISH_BROKER_BROKER_MESSAGE_H
#define OL_PUBLISH_BROKER_BROKER_MESSAGE_H

#include "base/arena.h"
#include "destinations/settings.h"

/* How a broker's names and headers differ from those of others. */
struct ol_broker_naming {
    const char *name;      /* the template: subject, topic, stream, routing key */
    const char *forbidden; /* bytes that a value must not bring into a name: they become _ */
    size_t name_max;       /* 0: any length */
    const char *ce_prefix; /* before the attributes of binary CloudEvents */
};

/* Everything lives in the arena, but for `id` of a message that stays. */
struct ol_broker_message {
    const char *name;         /* the template, filled in */
    const char *id;           /* event_id: what receivers tell repeats by */
    const char *key;          /* partition_key, else ordering_key, else NULL */
    const char *event_type;   /* as property, where a broker has one */
    const char *content_type; /* of the body */
    const char *correlation_id;
    const char *body;
    size_t body_bytes;
    const struct outlog_header *headers;
    size_t header_count;
    int64_t created_at;
};

/* What is sent of `message`. Ours come first: outlog-event-id, outlog-event-type, idempotency-key,
 * outlog-org-id, outlog-attempt, outlog-replay, traceparent, and the ce… attributes; then the
 * destination's headers, then the message's. A name is there once, the first wins.
 *
 * OUTLOG_INVALID_FIELD: a header with a control byte, a name too long: it can never be sent. */
int ol_broker_message_make(const struct ol_settings *settings, const struct ol_broker_naming *form,
                           const struct outlog_delivery *message, struct ol_arena *arena,
                           struct ol_broker_message *out, outlog_err *err);

#endif
