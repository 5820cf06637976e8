/* publisher.h: what outlog's own publishers get when they are opened. */
#ifndef OL_PUBLISH_PUBLISHER_H
#define OL_PUBLISH_PUBLISHER_H

#include "destinations/publisher_type.h"
#include "net/http_pool.h"
#include "outlog_publisher.h"

/* What `host->own` is for outlog's own publishers. */
struct ol_publisher_own {
    const struct ol_settings *settings;
    struct ol_http_client *http; /* of the sender's thread */
};

/* The key that goes to the receiver (I4). */
const char *ol_publisher_message_key(const struct outlog_delivery *message);

/* The bytes of an error text that are kept: R4. */
enum { OL_ERROR_KEPT = 400 };

#endif
