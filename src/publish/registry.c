/* registry.c: the list of publishers. A new publisher adds one line here. */
#include "publish/publisher.h"

/* The types of destinations, in the order in which errors list them. */
#define PUBLISHERS(X) \
    X(webhook)        \
    X(smtp)           \
    X(sor)            \
    X(exec)           \
    X(stdout)         \
    X(null)           \
    X(plugin)         \
    X(nats)           \
    X(kafka)          \
    X(rabbitmq)       \
    X(redis)          \
    X(mqtt)           \
    X(websocket)      \
    X(in_app)

#define DECLARE(name) extern const struct ol_publisher_type ol_publisher_type_##name;
#define LIST(name) &ol_publisher_type_##name,

PUBLISHERS(DECLARE)

const struct ol_publisher_type *const ol_publisher_types[] = {PUBLISHERS(LIST) NULL};

const char *ol_publisher_message_key(const struct outlog_delivery *message)
{
    return message->idempotency_key ? message->idempotency_key : message->event_id;
}
