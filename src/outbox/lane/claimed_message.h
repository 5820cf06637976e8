/* claimed_message.h: a message in the relay's hands, and what became of it. */
#ifndef OL_OUTBOX_LANE_CLAIMED_MESSAGE_H
#define OL_OUTBOX_LANE_CLAIMED_MESSAGE_H

#include "outlog_publisher.h"
#include "store/store.h"

/* Where an item of a batch stands. */
enum ol_claimed_message_state {
    OL_CLAIMED_WAITING,   /* claimed, not sent yet: a place or its key's turn is missing */
    OL_CLAIMED_IN_FLIGHT, /* on the wire */
    OL_CLAIMED_DONE,      /* its outcome is known */
};

struct ol_notification; /* notify/render.h */

/* One message. It lives in the arena it was read into; `message` points there too. */
struct ol_claimed_message {
    int64_t seq;
    struct outlog_delivery message;
    const char *key; /* "destination 0x1f ordering_key": what must stay in order, or NULL */
    const char *metadata;
    int64_t available_at; /* 0: at once */
    int max_attempts;     /* 0: not said */
    bool at_most_once;

    /* of a parked message */
    bool is_parked;
    int attempts, unsent, budget_from;

    /* while it is being sent */
    enum ol_claimed_message_state state;
    int64_t started_at;                /* wall clock */
    struct ol_claimed_message *behind; /* the next one of the same key in this batch */
    bool is_first;                     /* none of the same key stands before it */
    void *batch, *target;              /* the relay's: where it belongs and where it goes */
    void *queue;                       /* the relay's: with whom it waits for a place */
    struct ol_claimed_message *next;   /* in that queue */
    struct ol_claimed_message
        *landed;  /* the relay's: among those whose outcome waits for a turn to end */
    bool is_push; /* it becomes an effect of a session when it is published */
    const struct ol_notification
        *notice; /* a notification, once it is rendered: `payload` is what leaves */

    /* what came of it: set when DONE */
    struct outlog_outcome outcome;
    bool is_kept;           /* as an attempt of its own (R4) */
    char *error, *response; /* malloc'ed, or NULL: ol_claimed_message_clear */
};

/* How many attempts of its current budget the item has used, this one included. */
int ol_claimed_message_used(const struct ol_claimed_message *item);

/* Read the current row of outbox_read (or parked_marked, which has more columns) into the arena. */
int ol_claimed_message_read(const struct ol_rows *rows, bool is_parked, struct ol_arena *arena,
                            struct ol_claimed_message *out, outlog_err *err);

/* One more item at the end of an array in the arena, which grows; start from NULL, 0, 0. NULL: out
 * of memory. */
struct ol_claimed_message *ol_claimed_message_add(struct ol_claimed_message **items, size_t *count,
                                                  size_t *room, struct ol_arena *arena);

/* Free what an outcome left. */
void ol_claimed_message_clear(struct ol_claimed_message *item);

#endif
