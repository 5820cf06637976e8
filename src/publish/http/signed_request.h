/* signed_request.h: one message as one signed HTTP request, for webhook and sor. */
#ifndef OL_PUBLISH_HTTP_SIGNED_REQUEST_H
#define OL_PUBLISH_HTTP_SIGNED_REQUEST_H

#include "net/webhook_signature.h"
#include "publish/cloudevents.h"
#include "publish/publisher.h"

/* What sends the requests of one publisher's instance. Its settings->own begins with struct
 * ol_http_settings. */
struct ol_signed_request {
    const struct outlog_publisher_host *host;
    const struct ol_settings *settings;
    struct ol_http_pool *pool;
    struct ol_webhook_signature *sign; /* NULL: no secret, no signature */
    struct ol_headers headers;
    struct ol_buf signature, memory;
};

/* One request: what differs between messages. */
struct ol_signed_request_input {
    const char *url, *method;
    const char *content_type; /* of `body` */
    const char *body;
    size_t body_bytes;
    const char *key;                     /* the idempotency key that is sent */
    const struct outlog_header *headers; /* the weakest: ours and the destination's win */
    size_t header_count;
    enum ol_envelope envelope; /* binary CloudEvents become headers here */
};

int ol_signed_request_open(struct ol_signed_request *sender,
                           const struct outlog_publisher_host *host, outlog_err *err);

/* Abandons what is in flight, then frees it. */
void ol_signed_request_close(struct ol_signed_request *sender);

/* Send the message; exactly one outcome follows. */
void ol_signed_request_send(struct ol_signed_request *sender, const struct outlog_delivery *message,
                            const struct ol_signed_request_input *request, int64_t deadline_us,
                            void *tag);

/* Report that the message can never be sent: FAILED, permanent, surely not sent. */
void ol_signed_request_refuse(struct ol_signed_request *sender, void *tag, const outlog_err *err);

void ol_signed_request_abandon(struct ol_signed_request *sender, void *tag);

#endif
