/* multi_lane.h: several lanes in one read and one commit.
 *
 * At a steady pace messages come one at a time and each is in a random lane: if each lane claimed
 * by itself, there would be as many waits for the disk as lanes. Each lane's row is updated by its
 * own statement and on its own conditions, so a lane that is not ours any more changes nothing and
 * does not delay the others (rule 2); rows are locked in ascending order (rule 1); all of it is one
 * pipeline that ends in the commit (rule 5).
 *
 * Only turns that write nothing but the lane's row go this way. */
#ifndef OL_OUTBOX_LANE_MULTI_LANE_H
#define OL_OUTBOX_LANE_MULTI_LANE_H

#include "outbox/lane/lane.h"

enum { OL_MULTI_LANE_MAX = 32 };

struct ol_multi_lane {
    struct ol_lane *lane;
    struct ol_arena *arena; /* holds what is read */
    struct ol_claimed_message *messages;
    size_t count;
    struct ol_turn *turn;
    enum ol_turn_result result;
};

/* What ol_lane_read() does, for lanes in ascending order and from one snapshot; `limit` for
 * each. */
int ol_multi_lane_read(struct ol_conn *conn, struct ol_multi_lane *lanes, size_t count,
                       size_t limit, outlog_err *err);

/* Write the turns of lanes in ascending order. Each lane has a result of its own, also when this
 * fails: then STALE means that nothing of it was stored, FENCED that it is not known (rule 6). */
int ol_multi_lane_write(struct ol_conn *conn, struct ol_multi_lane *lanes, size_t count,
                        outlog_err *err);

#endif
