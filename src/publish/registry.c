/* registry.c: the table of publishers by the type of the destination. */
#include "publish/publisher.h"

#include <string.h>

static const struct outlog_publisher *const publishers[] = {
    &ol_publisher_webhook,  &ol_publisher_smtp, &ol_publisher_sor,    &ol_publisher_exec,
    &ol_publisher_stdout,   &ol_publisher_null, &ol_publisher_in_app, &ol_publisher_websocket,
#ifdef OL_WITH_KAFKA
    &ol_publisher_kafka,
#endif
#ifdef OL_WITH_MQTT
    &ol_publisher_mqtt,
#endif
#ifdef OL_WITH_NATS
    &ol_publisher_nats,
#endif
#ifdef OL_WITH_RABBITMQ
    &ol_publisher_rabbitmq,
#endif
#ifdef OL_WITH_REDIS
    &ol_publisher_redis,
#endif
};

const struct outlog_publisher *ol_publisher_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof publishers / sizeof *publishers; i++)
        if (strcmp(publishers[i]->name, name) == 0)
            return publishers[i];
    return NULL;
}

const char *ol_publisher_message_key(const struct outlog_delivery *message)
{
    return message->idempotency_key ? message->idempotency_key : message->event_id;
}
