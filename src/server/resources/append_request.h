/* append_request.h: one command of POST /v1/events: events and messages, all or none. */
#ifndef OL_SERVER_RESOURCES_APPEND_REQUEST_H
#define OL_SERVER_RESOURCES_APPEND_REQUEST_H

#include "server/http/request.h"

struct ol_batcher;

struct ol_append_request {
    struct outlog_new_event *events;
    struct outlog_new_message *messages;
    size_t event_count, message_count;
    struct outlog_idempotency idempotency; /* .key NULL: it is not idempotent */
    struct ol_batcher_command *submitted;
    struct ol_buf answer; /* {"events":[…],"messages":[…]}, or a problem */
    int status;           /* 201, or the problem's */
    bool is_replayed;
    void (*done)(struct ol_append_request *append); /* in the batcher's thread */
    struct ol_request *request;
};

/* Read a command; defaults come from the request (its token, its id). `key` is its Idempotency-Key,
 * or NULL. -1: `answer` and `status` hold the problem. */
int ol_append_request_parse(struct ol_request *request, const char *text, size_t bytes,
                            const char *key, struct ol_append_request *out);

/* Submit it to the batcher; `done` is called with the answer, perhaps before this returns. */
void ol_append_request_submit(struct ol_batcher *batcher, struct ol_append_request *append);

#endif
