/* cursor.h: moving a lane's row, the write that records a batch and claims the next (rules 2, 6,
 * 7). ol_turn_write() does it for one lane, ol_multi_lane_write() for several. */
#ifndef OL_OUTBOX_LANE_CURSOR_H
#define OL_OUTBOX_LANE_CURSOR_H

#include "outbox/lane/lane.h"

/* What is asked of the store to move a lane. Start from {0}; its values point into itself. */
struct ol_cursor_update {
    struct ol_buf gaps, claim;
    char place[32];
    struct ol_value params[9];
    enum ol_query_id query;
};

/* By the row's place where that is known; by its key every so often, because only that lets the
 * server clean the page. */
int ol_cursor_update_begin(struct ol_cursor_update *advance, struct ol_lane *lane,
                           const struct ol_turn *turn, outlog_err *err);
void ol_cursor_update_clear(struct ol_cursor_update *advance);

/* Read the answer. *is_ours = false: nothing was written. */
int ol_cursor_update_end(struct ol_lane *lane, struct ol_rows *rows, bool *is_ours,
                         outlog_err *err);

/* All of it for one lane; asks by key where its place has changed. */
int ol_lane_advance(struct ol_conn *conn, struct ol_lane *lane, const struct ol_turn *turn,
                    bool *is_ours, outlog_err *err);

/* The turn is stored: the lane as its owner knows it moves on. `before` is when it was sent. */
void ol_lane_move(struct ol_lane *lane, const struct ol_turn *turn, int64_t before);

/* A row was not ours: is the lane somebody else's, or did parked rows change? */
int ol_lane_explain_refusal(struct ol_conn *conn, const struct ol_lane *lane,
                            enum ol_turn_result *result, outlog_err *err);

/* A write has failed with `err`. Where that leaves open if it was stored, the lane's row tells: 0
 * if it was, and the lane is moved on. 0 and FENCED: nobody can tell, so we behave as after a crash
 * (rule 6). -1: nothing was stored. */
int ol_lane_resolve(struct ol_conn *conn, struct ol_lane *lane, const struct ol_turn *turn,
                    int64_t before, enum ol_turn_result *result, const outlog_err *err);

/* What the lane's row says now. */
int ol_lane_read_row(struct ol_conn *conn, const struct ol_lane *lane, int64_t *epoch,
                     int64_t *claim_no, int64_t *parked_gen, outlog_err *err);

/* '{[1,4),[7,8)}'. */
void ol_lane_ranges_write(const struct ol_range *ranges, size_t count, struct ol_buf *out);

#endif
