/* cursor.h: updating a lane's row, the write that records a batch and claims the next (rules 2, 6,
 * 7). ol_turn_write() does it for one lane, ol_multi_lane_write() for several. */
#ifndef OL_OUTBOX_LANE_CURSOR_H
#define OL_OUTBOX_LANE_CURSOR_H

#include "outbox/lane/lane.h"

/* The statement that updates a lane's row. Start from {0}; its values point into itself. */
struct ol_cursor_update {
    struct ol_buf gaps, claim;
    char location[32];
    struct ol_value params[9];
    enum ol_query_id query;
};

/* By the row's location if that is known; by its key from time to time, because only that lets the
 * server clean up the page. */
int ol_cursor_update_begin(struct ol_cursor_update *update, struct ol_lane *lane,
                           const struct ol_turn *turn, outlog_err *err);
void ol_cursor_update_clear(struct ol_cursor_update *update);

/* Read the result. *is_ours = false: nothing was written. */
int ol_cursor_update_end(struct ol_lane *lane, struct ol_rows *rows, bool *is_ours,
                         outlog_err *err);

/* All of it for one lane; searches by key if the row's location has changed. */
int ol_lane_advance(struct ol_conn *conn, struct ol_lane *lane, const struct ol_turn *turn,
                    bool *is_ours, outlog_err *err);

/* The turn is stored: update the lane in memory. `before` is when the statement was sent. */
void ol_lane_move(struct ol_lane *lane, struct ol_turn *turn, int64_t before);

/* No row matched: does another relay have the lane, or did parked rows change? */
int ol_lane_explain_refusal(struct ol_conn *conn, const struct ol_lane *lane,
                            enum ol_turn_result *result, outlog_err *err);

/* A write has failed with `err`. If that leaves open whether it was stored, the lane's row decides:
 * 0 if it was stored, and the lane is updated. 0 and FENCED: it cannot be decided, so we behave as
 * after a crash (rule 6). -1: nothing was stored. */
int ol_lane_resolve(struct ol_conn *conn, struct ol_lane *lane, struct ol_turn *turn,
                    int64_t before, enum ol_turn_result *result, const outlog_err *err);

/* Read the lane's row. */
int ol_lane_read_row(struct ol_conn *conn, const struct ol_lane *lane, int64_t *epoch,
                     int64_t *claim_no, int64_t *parked_gen, outlog_err *err);

/* '{[1,4),[7,8)}'. */
void ol_lane_ranges_write(const struct ol_range *ranges, size_t count, struct ol_buf *out);

#endif
