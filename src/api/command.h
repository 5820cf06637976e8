/* command.h: one command of POST /v1/events: events and messages, all or none. */
#ifndef OL_API_COMMAND_H
#define OL_API_COMMAND_H

#include "api/request.h"

struct ol_command_draft {
    struct outlog_event *events;
    struct outlog_message_draft *messages;
    size_t event_count, message_count;
    const char *key; /* idempotency, or NULL */
    struct outlog_appended *appended;
    struct outlog_enqueued *enqueued;
    bool is_replayed;
};

/* Read a command; defaults come from the request (who asks, its id, its key). 403 is err->code
 * OUTLOG_OK: the token is of another org. */
int ol_command_parse(struct ol_request *request, const char *text, size_t bytes, const char *key,
                     struct ol_arena *arena, struct ol_command_draft *out, outlog_err *err);

/* Do it as a transaction of its own. */
int ol_command_run(outlog *log, struct ol_command_draft *command, outlog_err *err);

/* {"events":[…],"messages":[…]} */
void ol_command_json(const struct ol_command_draft *command, struct ol_buf *out);

#endif
