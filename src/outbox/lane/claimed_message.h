/* claimed_message.h: a message that a relay has claimed, and the outcome of its last attempt. */
#ifndef OL_OUTBOX_LANE_CLAIMED_MESSAGE_H
#define OL_OUTBOX_LANE_CLAIMED_MESSAGE_H

#include "outbox/retry.h"
#include "outlog_publisher.h"
#include "store/store.h"

/* One message. It lives in the arena it was read into; `message` points there too. */
struct ol_claimed_message {
    int64_t seq;
    struct outlog_delivery message;
    const char *key; /* "destination 0x1f ordering_key": what must stay in order, or NULL */
    const char *metadata;
    int64_t available_at; /* 0: at once */
    int max_attempts;     /* 0: not set */
    bool at_most_once;
    enum ol_retry_class retry_class; /* as stored: rendering changes the content type */

    /* Of a parked message. */
    bool is_parked; /* and its row is still to be finished by us */
    int attempts, unsent, budget_from;
    bool is_orphan; /* its row was made by the relay that took the lane from us (rule 30) */

    /* The last attempt, set by the relay. */
    int64_t started_at; /* wall clock */
    struct outlog_outcome outcome;
    char *error, *response; /* malloc'ed, or NULL: ol_claimed_message_clear */
    char *condemned;        /* the same: why its outcome, or its claim, cannot be stored (L8) */
};

/* How many attempts of its current budget the message has used, this one included. */
int ol_claimed_message_used(const struct ol_claimed_message *message);

/* Read the current row of outbox_read (or parked_marked, which has more columns) into the arena. */
int ol_claimed_message_read(const struct ol_rows *rows, bool is_parked, struct ol_arena *arena,
                            struct ol_claimed_message *out, outlog_err *err);

/* Append one message to an array in the arena, which grows; start from NULL, 0, 0. NULL: out of
 * memory. */
struct ol_claimed_message *ol_claimed_message_add(struct ol_claimed_message **messages,
                                                  size_t *count, size_t *capacity,
                                                  struct ol_arena *arena);

/* Read all rows of outbox_read, and end them. */
int ol_claimed_message_read_all(struct ol_rows *rows, struct ol_arena *arena,
                                struct ol_claimed_message **messages, size_t *count,
                                outlog_err *err);

/* Free the texts of the outcome. */
void ol_claimed_message_clear(struct ol_claimed_message *message);

#endif
