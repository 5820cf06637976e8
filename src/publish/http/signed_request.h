/* signed_request.h: one message as one signed HTTP request; what webhook and sor have in common. */
#ifndef OL_PUBLISH_HTTP_SIGNED_REQUEST_H
#define OL_PUBLISH_HTTP_SIGNED_REQUEST_H

#include "destinations/settings.h"
#include "net/http_client.h"
#include "net/webhook_signature.h"
#include "publish/publisher.h"

/* The part of an instance that does the sending. */
struct ol_signed_request {
    const struct outlog_publisher_host *host;
    const struct ol_settings *settings;
    struct ol_http_pool *link;
    struct ol_webhook_signature *sign; /* NULL: no secret, no signature */
    struct ol_headers headers;
    struct ol_buf signature, memory;
};

/* What differs from message to message. */
struct ol_signed_request_input {
    const char *url, *method;
    const char *content_type; /* of `body` */
    const char *body;
    size_t body_bytes;
    const char *key;                     /* the idempotency key that is sent */
    const struct outlog_header *headers; /* more, that lose against ours and the destination's */
    size_t header_count;
    enum ol_envelope envelope; /* binary CloudEvents become headers here */
};

int ol_signed_request_open(struct ol_signed_request *post, const struct outlog_publisher_host *host,
                           outlog_err *err);

/* Abandons what is in flight, and frees. */
void ol_signed_request_close(struct ol_signed_request *post);

/* Send it; exactly one outcome follows. */
void ol_signed_request_send(struct ol_signed_request *post, const struct outlog_delivery *message,
                            const struct ol_signed_request_input *request, int64_t deadline_us,
                            void *tag);

/* The message itself cannot be sent: a permanent failure, surely not sent. */
void ol_signed_request_refuse(struct ol_signed_request *post, void *tag, const outlog_err *err);

void ol_signed_request_abandon(struct ol_signed_request *post, void *tag);

#endif
