/* append_request.h: one command of POST /v1/events: events and messages, all or none. */
#ifndef OL_SERVER_RESOURCES_APPEND_REQUEST_H
#define OL_SERVER_RESOURCES_APPEND_REQUEST_H

#include "server/http/request.h"

struct ol_batcher;

struct ol_append_request {
    struct outlog_new_event *events;
    struct outlog_new_message *messages;
    size_t event_count, message_count;
    struct outlog_idempotency idempotency; /* .key NULL: may be repeated */
    struct ol_batcher_command *submitted;
    struct ol_buf answer; /* {"events":[…],"messages":[…]}, or a problem */
    int status;           /* 201, or the problem's */
    bool is_replayed;
    void (*done)(struct ol_append_request *draft); /* on the group's thread */
    struct ol_request *request;
};

/* Read a command; defaults come from the request (who asks, its id). `key` is its Idempotency-Key,
 * or NULL. -1: `answer` and `status` hold the problem. */
int ol_append_request_parse(struct ol_request *request, const char *text, size_t bytes,
                            const char *key, struct ol_append_request *out);

/* Hand it to the group; `done` is called with the answer, perhaps before this returns. */
void ol_append_request_submit(struct ol_batcher *group, struct ol_append_request *draft);

#endif
