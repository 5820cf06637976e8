/* publisher.h: the publishers that come with outlog. */
#ifndef OL_PUBLISH_PUBLISHER_H
#define OL_PUBLISH_PUBLISHER_H

#include "net/http_client.h"
#include "outlog_publisher.h"

struct ol_http_client;
struct ol_settings;

/* What `host->own` is for our own publishers: the parsed settings, and the thread's engine. */
struct ol_publisher_own {
    const struct ol_settings *settings;
    struct ol_http_client *http;
};

extern const struct outlog_publisher ol_publisher_webhook;
extern const struct outlog_publisher ol_publisher_smtp;
extern const struct outlog_publisher ol_publisher_sor;
extern const struct outlog_publisher ol_publisher_exec;
extern const struct outlog_publisher ol_publisher_stdout;
extern const struct outlog_publisher ol_publisher_null;
extern const struct outlog_publisher ol_publisher_in_app;
extern const struct outlog_publisher ol_publisher_websocket;

/* Each is there when its client library was there at build time: OL_WITH_KAFKA and so on. */
extern const struct outlog_publisher ol_publisher_kafka;
extern const struct outlog_publisher ol_publisher_mqtt;
extern const struct outlog_publisher ol_publisher_nats;
extern const struct outlog_publisher ol_publisher_rabbitmq;
extern const struct outlog_publisher ol_publisher_redis;

/* The publisher of a destination's type, or NULL. "plugin" is none: see plugin.h. */
const struct outlog_publisher *ol_publisher_by_name(const char *name);

/* The key that goes to the receiver (I4). */
const char *ol_publisher_message_key(const struct outlog_delivery *message);

/* The content type of a message that a notification rule has made. */
#define OL_NOTIFICATION_CONTENT_TYPE "application/vnd.outlog.notification+json"

/* What kept text is bounded to: R4. */
enum { OL_ERROR_KEPT = 400 };

#endif
