/* message_list.h: what is in the outbox, without changing anything. */
#ifndef OL_OUTBOX_MESSAGE_LIST_H
#define OL_OUTBOX_MESSAGE_LIST_H

#include "log/log.h"

enum { OL_LANE_MAX = 256 };

/* Where a message is, for ever. */
struct ol_message_location {
    char event_id[OL_UUID_TEXT];
    int lane;
    int64_t seq;
};

/* The numbers of all lanes, ascending. */
int ol_message_list_lanes(struct ol_conn *conn, int lanes[OL_LANE_MAX], size_t *count,
                          outlog_err *err);

/* Find messages by id; those that do not exist are left out. */
int ol_message_list_locate(struct ol_conn *conn, const char *const *ids, size_t count,
                           struct ol_arena *arena, struct ol_message_location **out, size_t *found,
                           outlog_err *err);

/* A message as it stands now, for somebody who wants to change it. */
struct ol_message_state {
    struct outlog_message view;
    int lane;
    int64_t seq;
    bool is_parked;  /* it has a row of its own */
    bool is_unknown; /* DEAD, and nobody knows whether it arrived */
};

/* The messages at these places, in the same order; one that is gone is left out. */
int ol_message_list_states(struct ol_conn *conn, const struct ol_message_location *places,
                           size_t count, bool with_payload, struct ol_arena *arena,
                           struct ol_message_state **out, size_t *found, outlog_err *err);

/* The lowest number of a lane that a message created at `time` can have; times of different writers
 * are not exactly in order, so this is a little too low. */
int ol_message_list_seq_at(struct ol_conn *conn, int lane, int64_t time, int64_t *seq,
                           outlog_err *err);

/* The first thousand messages of one correlation_id, the oldest first. */
int ol_message_list_trace(outlog *log, const char *correlation_id, struct outlog_message_page *page,
                          outlog_err *err);

/* --- counts --- */

struct ol_message_count {
    const char *destination;
    int64_t pending, retrying, claimed, dead, held;
    int64_t oldest_pending_at; /* 0: none */
    bool is_estimate;          /* `pending` is projected from the first messages of each lane */
};

struct ol_message_counts {
    struct ol_message_count *all; /* by destination */
    size_t count;
    struct ol_message_count total;
};

/* How many messages there are by destination and state. Reads at most 20,000 parked messages of a
 * state, the lanes, and a few thousand messages of each lane's backlog; never the whole outbox.
 * Where there are more it says so: is_estimate. */
int ol_message_counts_read(struct ol_conn *conn, struct ol_arena *arena,
                           struct ol_message_counts *out, outlog_err *err);

#endif
