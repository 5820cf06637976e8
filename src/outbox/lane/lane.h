/* lane.h: the lane protocol (docs/lanes.md): who may send what, and what is written when.
 *
 * L1  A lane's row is its only lock; claims and records carry the epoch (rules 1, 2).
 * L2  A claim is durable before any byte leaves, and covers exactly what one snapshot showed (7).
 * L3  What is not meant to be sent now is parked in the claim's own transaction (8).
 * L4  A key waits while one of its messages is parked and open (9).
 * L5  A batch is always the first attempt of its messages (3).
 *
 * This file knows the store and nothing of publishers or clocks but the lease's. */
#ifndef OL_OUTBOX_LANE_LANE_H
#define OL_OUTBOX_LANE_LANE_H

#include "base/buf.h"
#include "base/map.h"
#include "outbox/lane/claimed_message.h"

enum { OL_LANE_GAPS = 1000 };

struct ol_range {
    int64_t from, to; /* both included */
};

/* Add numbers at the end: ranges grow in order. */
void ol_range_add(struct ol_range *ranges, size_t *count, int64_t from, int64_t to);

/* A lane as its owner knows it. Start from {0} with `number` and `run` set. */
struct ol_lane {
    int number;
    const char *run; /* the owner's random id */
    int64_t lease_us;
    bool has_gaps; /* the store hands out numbers before commit (PostgreSQL) */

    /* Told, inside the transaction, of messages whose outcome nobody will ever know: they became
     * DEAD or PENDING. May be NULL. */
    int (*fallen)(struct ol_conn *conn, void *context, struct ol_claimed_message *items,
                  size_t count, bool is_dead, outlog_err *err);
    void *context;

    int64_t epoch, head, parked_gen, claim_no;
    char place[32];        /* where the last turn left the lane's row; \"\": not known */
    int turns;             /* since it was last found by its key */
    int64_t lease_end;     /* boot clock, counted from before the claim was sent (rule 4) */
    struct ol_map keys;    /* open parked messages by key (rule 9) */
    struct ol_map elders;  /* the same of older generations of lanes: they block too */
    struct ol_map waiting; /* open parked messages by destination */
    bool is_reaped;        /* claims were reaped by the last turn: the keys must be loaded again */
    int64_t *ahead;        /* messages above the head that an operator has parked, ascending */
    size_t ahead_count;

    struct ol_range gaps[OL_LANE_GAPS]; /* numbers at or below head that were not seen */
    size_t gap_count;
    struct { /* evidence that a gap is dead (rule 20) */
        struct ol_range gaps[OL_LANE_GAPS];
        size_t gap_count;
        uint64_t *holders; /* who could fill them, listed after the read that missed them */
        size_t holder_count;
        bool is_listed, is_over; /* over: all of them have ended; one more read decides */
        int64_t listed_at;
    } proof;
};

void ol_lane_clear(struct ol_lane *lane);

/* Rule 5: a session of ours that hangs must not hold a lane's row for longer than a third of the
 * lease. Every new connection has to be told, also a revived one. */
int ol_lane_set_timeouts(struct ol_conn *conn, int64_t lease_us, outlog_err *err);

/* OUTLOG_STORE_ERROR: the store hands out numbers of this lane a second time, so it must not be
 * taken: messages would be lost. */
int ol_lane_check(struct ol_conn *conn, const struct ol_lane *lane, outlog_err *err);

/* Take the lane if it is free. *taken = false: it is not. What the former owner had claimed is
 * parked in the same transaction; *parked (may be NULL) tells how many. */
int ol_lane_take(struct ol_conn *conn, struct ol_lane *lane, const char *name, bool *taken,
                 int64_t *parked, outlog_err *err);

/* Give it back: only without an open claim. */
int ol_lane_release(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* Lengthen the lease. *held = false: somebody else has the lane. */
int ol_lane_renew(struct ol_conn *conn, struct ol_lane *lane, bool *held, outlog_err *err);

/* At most `limit` messages after the head and all that have appeared in gaps, in seq order. Also
 * gathers the evidence that lets gaps die. */
int ol_lane_read(struct ol_conn *conn, struct ol_lane *lane, size_t limit, struct ol_arena *arena,
                 struct ol_claimed_message **items, size_t *count, outlog_err *err);

/* Has this message above the head a parked row already? Then it is passed by. */
bool ol_lane_is_parked_ahead(const struct ol_lane *lane, int64_t seq);

/* Must messages of this key wait? */
bool ol_lane_is_blocked(const struct ol_lane *lane, const char *key);

/* Look again which keys wait for messages in older lanes. Does nothing when none did. */
int ol_lane_reload_older_keys(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* Reload which keys wait, after somebody else changed parked rows. */
int ol_lane_reload(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* That failed: whatever is known of parked rows may be wrong, and the next turn is told to reload.
 */
void ol_lane_invalidate(struct ol_lane *lane);

/* --- a turn: record the open batch, park, finish, and claim the next: one transaction --- */

/* What a turn writes. The buffers hold JSON arrays in the making; ol_turn_* add to them. */
struct ol_turn {
    int64_t head;
    struct ol_range claim[OL_LANE_GAPS]; /* may hold parked messages too: their rows say so */
    size_t claim_count, sent_count;
    struct ol_range gaps[OL_LANE_GAPS];
    size_t gap_count;
    struct ol_buf parked, planned, finished, attempts, plain_attempts;
    size_t parked_count, planned_count, finished_count, attempt_count, plain_attempt_count;
    size_t ahead;      /* the lane will be read again at once, this many: the store may begin */
    const char *rooms; /* JSON: claim due parked messages too; NULL: do not look */
    bool reap;         /* end claims whose own lease is over */
    int64_t row_lease_us;
    /* More to write in the same transaction: effects, alerts. Gets the parked messages claimed. */
    int (*also)(struct ol_conn *conn, void *context, struct ol_claimed_message *items, size_t count,
                outlog_err *err);
    void *context;
};

/* Begin with nothing to claim. */
void ol_turn_begin(struct ol_turn *turn, const struct ol_lane *lane);
void ol_turn_clear(struct ol_turn *turn);

/* Cover a message that was read, in seq order: it will be sent, or it is parked in this turn. */
void ol_turn_cover(struct ol_turn *turn, const struct ol_lane *lane, int64_t seq, bool is_sent);

/* May the turn go on to `seq`, or would it need more ranges than it has room for? */
bool ol_turn_has_room(const struct ol_turn *turn, const struct ol_lane *lane, int64_t seq);

struct ol_park_entry {
    const char *state; /* PENDING, CLAIMED, DEAD */
    bool held;
    int attempts, unsent;
    int64_t wait_us;      /* PENDING: due after this */
    int64_t available_at; /* or at this time */
    int64_t lease_us;     /* CLAIMED */
    const char *last_error;
};

/* The lane's gaps as they are now: a read may have buried some. */
void ol_turn_gaps(struct ol_turn *turn, const struct ol_lane *lane);

/* Park a message of the batch that is recorded, or (is_planned) one that was read and must wait.
 * The latter come last: this very turn must not claim them beside the batch of their key (rule 15).
 */
void ol_turn_park(struct ol_turn *turn, const struct ol_claimed_message *item,
                  const struct ol_park_entry *how, bool is_planned);

/* End the claim of a parked message: PUBLISHED, PENDING after wait_us, or DEAD. */
void ol_turn_finish(struct ol_turn *turn, const struct ol_claimed_message *item,
                    const struct ol_park_entry *how);

/* Keep an attempt (R4). */
void ol_turn_attempt(struct ol_turn *turn, const struct ol_claimed_message *item);

enum ol_turn_result {
    OL_TURN_DONE,
    OL_TURN_FENCED, /* the lane is not ours any more: nothing was written */
    OL_TURN_STALE, /* parked rows were changed by somebody else: reload, plan again; nothing written
                    */
};

/* Write the turn. On DONE the lane's head, gaps and keys are moved on, and *items holds the parked
 * messages that were claimed (in `arena`). */
int ol_turn_write(struct ol_conn *conn, struct ol_lane *lane, struct ol_turn *turn,
                  struct ol_arena *arena, struct ol_claimed_message **items, size_t *count,
                  enum ol_turn_result *result, outlog_err *err);

/* One straggler of a lane that is no longer ours ends by its own token (rule 13). *is_ours false:
 * its row was given to somebody else, and nothing is written, for what follows is theirs to tell.
 */
int ol_turn_finish_orphan(struct ol_conn *conn, const struct ol_lane *lane, struct ol_turn *turn,
                          bool *is_ours, outlog_err *err);

/* --- looking --- */

/* Would a turn with these rooms find a parked message to claim? Locks nothing. */
int ol_lane_has_due(struct ol_conn *conn, const struct ol_lane *lane, const char *rooms, bool *has,
                    outlog_err *err);

/* --- gap.c --- */

/* Move the evidence on that lets gaps die: list who could fill them, then wait until all of those
 * have ended. The read that comes after that decides. */
int ol_gap_prove(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* After that read: what it still missed of the proven gaps is dead. */
void ol_gap_close(struct ol_lane *lane, const struct ol_claimed_message *items, size_t count);

/* Who is inserting messages now: transactions, as numbers. *out is malloc'ed, also on failure. */
int ol_lane_holders(struct ol_conn *conn, uint64_t **out, size_t *count, outlog_err *err);

/* Is one of those before still there? */
bool ol_lane_holds(const uint64_t *before, size_t before_count, const uint64_t *now, size_t count);

struct ol_lane_status {
    int number;
    int64_t newest, epoch, parked_gen;
    int64_t due_us;    /* until the next parked message; INT64_MAX: none */
    int64_t expiry_us; /* until the next claim of a parked message is over; INT64_MAX: none */
};

/* One look at several lanes; `numbers` is a JSON array. */
int ol_lane_poll(struct ol_conn *conn, const char *numbers, struct ol_lane_status *news,
                 size_t room, size_t *count, outlog_err *err);

#endif
