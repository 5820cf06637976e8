/* message_count.h: how many messages wait, are claimed or dead, per destination. */
#ifndef OL_OUTBOX_MESSAGE_COUNT_H
#define OL_OUTBOX_MESSAGE_COUNT_H

#include "store/store.h"

struct ol_message_count {
    const char *destination;
    int64_t pending, retrying, claimed, dead, held;
    int64_t oldest_pending_at; /* 0: none */
    bool is_estimate;          /* `pending` is projected from the first and last of each lane */
};

struct ol_message_counts {
    struct ol_message_count *all; /* by destination */
    size_t count;
    struct ol_message_count total;
};

/* Count messages by destination and state. Reads at most 20,000 parked messages per state, the
 * lanes, and a few thousand messages of each lane's and side cursor's backlog; never the whole
 * outbox. If there are more, is_estimate is true, also of the total: then a destination that is
 * not listed may have some too. */
int ol_message_counts_read(struct ol_conn *conn, struct ol_arena *arena,
                           struct ol_message_counts *out, outlog_err *err);

#endif
