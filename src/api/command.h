/* command.h: one command of POST /v1/events: events and messages, all or none. */
#ifndef OL_API_COMMAND_H
#define OL_API_COMMAND_H

#include "api/request.h"

struct ol_group;

struct ol_command_draft {
    struct outlog_event *events;
    struct outlog_message_draft *messages;
    size_t event_count, message_count;
    struct outlog_idempotency idempotency; /* .key NULL: may be repeated */
    struct ol_command *submitted;
    struct ol_buf answer; /* {"events":[…],"messages":[…]}, or a problem */
    int status;           /* 201, or the problem's */
    bool is_replayed;
    void (*done)(struct ol_command_draft *draft); /* on the group's thread */
    struct ol_request *request;
};

/* Read a command; defaults come from the request (who asks, its id). `key` is its Idempotency-Key, or
 * NULL. -1: `answer` and `status` hold the problem. */
int ol_command_parse(struct ol_request *request, const char *text, size_t bytes, const char *key,
                     struct ol_command_draft *out);

/* Hand it to the group; `done` is called with the answer, perhaps before this returns. */
void ol_command_submit(struct ol_group *group, struct ol_command_draft *draft);

#endif
