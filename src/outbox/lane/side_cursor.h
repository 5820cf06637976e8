/* side_cursor.h: a second cursor over a lane, for a destination that cannot take its messages as
 * fast as the lane comes to them (docs/lanes.md, rules 33 to 40).
 *
 * S1  A message belongs to the innermost side cursor of its destination (and org) whose `since` is
 *     below it, else to the lane. Nobody else claims it (33).
 * S2  A side cursor is opened and closed by a turn of its parent, which records the parent's claim:
 *     while a claim is open it is always the same messages (34, 36).
 * S3  It reads only what its parent has passed, and never a number in the lane's gaps (35). */
#ifndef OL_OUTBOX_LANE_SIDE_CURSOR_H
#define OL_OUTBOX_LANE_SIDE_CURSOR_H

#include "outbox/lane/lane.h"

struct ol_batch;

/* How many messages a read passes at most: some milliseconds of work. */
enum { OL_SIDE_STRETCH = 20000 };

struct ol_side_cursor {
    struct ol_side_cursor *next;
    char destination[101];
    char org_key[102]; /* "": all orgs, but for those with a cursor of their own; ":…": one org */
    int64_t since, head, claim_no;
    int64_t place; /* at or above head: it owns nothing up to here that is left */
    bool is_closing;

    /* The relay's. */
    struct ol_batch *open;
    int64_t read_after; /* its destination can take nothing before */
    size_t bytes;       /* of a message, on average of the last read */
    bool has_due;       /* its last turn found parked messages of its destination to send */
};

/* The side cursor of a destination, and of one org if `org_key` is not empty; NULL: there is
 * none. */
struct ol_side_cursor *ol_side_cursor_find(const struct ol_lane *lane, const char *destination,
                                           const char *org_key);

/* The key of a message's org. `out` has room for 102 bytes. */
const char *ol_side_cursor_org_key(const struct ol_claimed_message *message, char *out);

/* How far it may read: its parent has passed everything up to here. */
int64_t ol_side_cursor_limit(const struct ol_lane *lane, const struct ol_side_cursor *side);

/* Is `parent` (NULL: the lane) the cursor whose turns open and close this one? */
bool ol_side_cursor_is_within(const struct ol_side_cursor *side,
                              const struct ol_side_cursor *parent);

/* Is nothing left that it owns, and none open within it? Then its parent may close it. */
bool ol_side_cursor_is_done(const struct ol_lane *lane, const struct ol_side_cursor *side);

/* Forget the side cursors in memory. */
void ol_side_cursor_clear_all(struct ol_lane *lane);

/* Load the side cursors of a lane that is being taken. */
int ol_side_cursor_take_all(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* Read at most `limit` messages that it owns, from its place up to `upto`. */
int ol_side_cursor_read(struct ol_conn *conn, const struct ol_lane *lane,
                        const struct ol_side_cursor *side, int64_t upto, size_t limit,
                        struct ol_arena *arena, struct ol_claimed_message **messages, size_t *count,
                        outlog_err *err);

/* What ol_lane_read() does for a lane with side cursors: their messages are left out, and
 * turn->stretch says what was passed. */
int ol_lane_read_passing(struct ol_conn *conn, struct ol_lane *lane, size_t limit,
                         struct ol_stretch *stretch, struct ol_arena *arena,
                         struct ol_claimed_message **messages, size_t *count, outlog_err *err);

/* Beyond `after`: the first message for a destination that is none of `stuck` (a JSON array) and
 * has no side cursor. *other = 0: there is none up to *end. */
int ol_lane_find_other(struct ol_conn *conn, const struct ol_lane *lane, int64_t after,
                       const char *stuck, int64_t *other, int64_t *end, outlog_err *err);

/* The same for a side cursor, up to `upto`: the first message of another org than this one. */
int ol_side_cursor_find_other(struct ol_conn *conn, const struct ol_lane *lane,
                              const struct ol_side_cursor *side, int64_t after, int64_t upto,
                              const char *org_key, int64_t *other, outlog_err *err);

/* --- in a turn --- */

/* Write which side cursors this turn closes; before the cursor of their parent moves. *is_ours =
 * false: nothing may be written. */
int ol_side_cursor_close_all(struct ol_conn *conn, struct ol_lane *lane, const struct ol_turn *turn,
                             bool *is_ours, outlog_err *err);

/* Write which it opens; after that. */
int ol_side_cursor_open_all(struct ol_conn *conn, const struct ol_lane *lane,
                            const struct ol_turn *turn, outlog_err *err);

/* Move the side cursor of the turn. */
int ol_side_cursor_advance(struct ol_conn *conn, const struct ol_lane *lane,
                           const struct ol_turn *turn, bool *is_ours, outlog_err *err);

/* The turn is stored: forget what was closed, and take what was opened. */
void ol_side_cursor_move(struct ol_lane *lane, struct ol_turn *turn);

/* As ol_lane_explain_refusal() and ol_lane_resolve(), for a turn of a side cursor. */
int ol_side_cursor_explain_refusal(struct ol_conn *conn, const struct ol_lane *lane,
                                   const struct ol_side_cursor *side, enum ol_turn_result *result,
                                   outlog_err *err);
int ol_side_cursor_resolve(struct ol_conn *conn, struct ol_lane *lane, struct ol_turn *turn,
                           enum ol_turn_result *result, const outlog_err *err);

#endif
