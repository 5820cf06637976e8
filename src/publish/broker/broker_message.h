/* broker_message.h: what a broker gets of a message: name, headers, body. Pure. */
#ifndef OL_PUBLISH_BROKER_BROKER_MESSAGE_H
#define OL_PUBLISH_BROKER_BROKER_MESSAGE_H

#include "publish/broker/broker_settings.h"

/* What a broker allows in names and headers. */
struct ol_broker_naming {
    const char *forbidden; /* bytes of a value that become _ in a name */
    size_t name_max;       /* 0: any length */
    const char *ce_prefix; /* before the attributes of binary CloudEvents */
};

/* All texts are in the arena of ol_broker_message_make, or constants. */
struct ol_broker_message {
    const char *name;         /* the template, filled in */
    const char *id;           /* event_id: receivers recognise repeats by it */
    const char *key;          /* partition_key, else ordering_key, else NULL */
    const char *event_type;   /* a property, where the broker has one */
    const char *content_type; /* of the body */
    const char *correlation_id;
    const char *body;
    size_t body_bytes;
    const struct outlog_header *headers;
    size_t header_count;
    int64_t created_at;
};

/* Make *out from `message`. settings->own begins with struct ol_broker_settings.
 *
 * Headers: ours come first, outlog-event-id, outlog-event-type, idempotency-key,
 * outlog-org-id, outlog-attempt, outlog-replay, traceparent, and the ce… attributes; then the
 * destination's headers, then the message's. Of headers with the
 * same name only the first is sent.
 *
 * OUTLOG_INVALID_FIELD: a header has a control byte, or the name is too long: the message can never
 * be sent. */
int ol_broker_message_make(const struct ol_settings *settings,
                           const struct ol_broker_naming *naming,
                           const struct outlog_delivery *message, struct ol_arena *arena,
                           struct ol_broker_message *out, outlog_err *err);

#endif
