/* item.h: a claimed message while the relay sends it. */
#ifndef OL_RELAY_ITEM_H
#define OL_RELAY_ITEM_H

#include "outbox/lane/claimed_message.h"

struct ol_batch;
struct ol_destination_queue;
struct ol_notification;
struct ol_target;

enum ol_relay_item_state {
    OL_ITEM_WAITING,   /* not sent yet: its destination is full, or its key is busy */
    OL_ITEM_IN_FLIGHT, /* on the wire */
    OL_ITEM_DONE,      /* the outcome is known */
};

/* Points to a message of the batch; both live in the batch's arena. */
struct ol_relay_item {
    struct ol_claimed_message *claimed;
    struct ol_batch *batch;
    struct ol_destination_queue *queue;   /* NULL: memory ran out before it was queued */
    struct ol_relay_item *next;           /* in that queue */
    struct ol_relay_item *behind;         /* the next one of the same key in this batch */
    struct ol_target *target;             /* while it is in flight */
    struct ol_relay_item *next_completed; /* its outcome waits for the lane's turn to end */
    enum ol_relay_item_state state;
    bool is_first; /* no message of the same key is before it */
    bool is_push;  /* it becomes an effect of a session when it is published */
    bool is_kept;  /* its attempt is stored as a row of its own (R4) */
    const struct ol_notification *notification; /* once it is rendered into `payload` */
};

#endif
