/* message_list.h: reads the outbox without changing anything. */
#ifndef OL_OUTBOX_MESSAGE_LIST_H
#define OL_OUTBOX_MESSAGE_LIST_H

#include "log/log.h"

enum { OL_LANE_MAX = 256 };

/* Where a message is stored. This never changes. */
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

/* A message in its current state, for a caller that wants to change it. */
struct ol_message_state {
    struct outlog_message view;
    int lane;
    int64_t seq;
    bool is_parked;  /* it has a row in `parked` */
    bool is_unknown; /* DEAD, and it is not known whether it arrived */
};

/* The messages at these locations, in the same order; one that was removed is left out. */
int ol_message_list_states(struct ol_conn *conn, const struct ol_message_location *locations,
                           size_t count, bool with_payload, struct ol_arena *arena,
                           struct ol_message_state **out, size_t *found, outlog_err *err);

/* The lowest number of a lane that a message created at `time` can have. The clocks of writers
 * differ, so the result is a little too low. */
int ol_message_list_seq_at(struct ol_conn *conn, int lane, int64_t time, int64_t *seq,
                           outlog_err *err);

/* The first thousand messages of one correlation_id, the oldest first. */
int ol_message_list_trace(outlog *log, const char *correlation_id, struct outlog_message_page *page,
                          outlog_err *err);

#endif
