/* post.h: one message as one signed HTTP request; what webhook and sor have in common. */
#ifndef OL_PUBLISH_POST_H
#define OL_PUBLISH_POST_H

#include "publish/http.h"
#include "publish/publisher.h"
#include "publish/settings.h"
#include "publish/sign.h"

/* The part of an instance that does the sending. */
struct ol_post {
    const struct outlog_publisher_host *host;
    const struct ol_settings *settings;
    struct ol_link *link;
    struct ol_sign *sign; /* NULL: no secret, no signature */
    struct ol_headers headers;
    struct ol_buf signature, memory;
};

/* What differs from message to message. */
struct ol_post_request {
    const char *url, *method;
    const char *content_type; /* of `body` */
    const char *body;
    size_t body_bytes;
    const char *key;                     /* the idempotency key that is sent */
    const struct outlog_header *headers; /* more, that lose against ours and the destination's */
    size_t header_count;
    enum ol_envelope envelope; /* binary CloudEvents become headers here */
};

int ol_post_open(struct ol_post *post, const struct outlog_publisher_host *host, outlog_err *err);

/* Abandons what is in flight, and frees. */
void ol_post_close(struct ol_post *post);

/* Send it; exactly one outcome follows. */
void ol_post_send(struct ol_post *post, const struct outlog_message *message,
                  const struct ol_post_request *request, int64_t deadline_us, void *tag);

/* The message itself cannot be sent: a permanent failure, surely not sent. */
void ol_post_refuse(struct ol_post *post, void *tag, const outlog_err *err);

void ol_post_abandon(struct ol_post *post, void *tag);

#endif
