/* lane.h: the lane protocol (docs/lanes.md): which relay may send what, and what is written when.
 *
 * L1  A lane's row is its only lock; claims and records carry the epoch (rules 1, 2).
 * L2  A claim is durable before any byte leaves, and covers exactly what one snapshot showed (7).
 * L3  A message that is not to be sent now is parked in the claim's own transaction (8).
 * L4  A key waits while one of its messages is parked and open (9).
 * L5  A batch is always the first attempt of its messages (3).
 *
 * This module knows the store. Of publishers it knows nothing, and of clocks only the lease's. */
#ifndef OL_OUTBOX_LANE_LANE_H
#define OL_OUTBOX_LANE_LANE_H

#include "base/buf.h"
#include "base/counter_map.h"
#include "outbox/lane/claimed_message.h"

enum { OL_LANE_GAPS = 1000 };

struct ol_range {
    int64_t from, to; /* both included */
};

/* Add numbers at the end: ranges grow in ascending order. */
void ol_range_add(struct ol_range *ranges, size_t *count, int64_t from, int64_t to);

struct ol_side_cursor;

/* A lane as its owner knows it. Start from {0} with `number` and `run` set. */
struct ol_lane {
    int number;
    const char *run; /* the owner's random id */
    int64_t lease_us;
    bool has_gaps; /* the store hands out numbers before commit (PostgreSQL) */

    /* Called inside the transaction with messages whose outcome will never be known: they became
     * DEAD or PENDING. May be NULL. */
    int (*abandoned)(struct ol_conn *conn, void *context, struct ol_claimed_message *messages,
                     size_t count, bool is_dead, outlog_err *err);
    void *context;

    int64_t epoch, head, parked_gen, claim_no;
    char location[32];          /* where the last turn left the lane's row; "": not known */
    int turns;                  /* turns since the row was last found by its key */
    int64_t lease_end;          /* boot clock; counts from before the claim was sent (rule 4) */
    struct ol_counter_map keys; /* open parked messages by key (rule 9) */
    struct ol_counter_map older_keys;  /* the same in older generations of lanes: these block too */
    struct ol_counter_map waiting;     /* open parked messages by destination */
    struct ol_side_cursor *sides;      /* side_cursor.h */
    struct ol_counter_map older_sides; /* destinations with one in older generations of lanes */
    bool is_reaped;        /* claims were reaped by the last turn: the keys must be loaded again */
    int64_t *parked_above; /* messages above the head that an operator has parked, ascending */
    size_t parked_above_count;

    struct ol_range gaps[OL_LANE_GAPS]; /* numbers at or below head that were not seen */
    size_t gap_count;
    struct { /* evidence that a gap is dead (rule 20) */
        struct ol_range gaps[OL_LANE_GAPS];
        size_t gap_count;
        uint64_t *
            holders; /* transactions that could fill them, listed after the read that missed them */
        size_t holder_count;
        bool is_listed, is_over; /* over: all of them have ended, and the next read decides */
        int64_t listed_at;
    } proof;
};

void ol_lane_clear(struct ol_lane *lane);

/* Rule 5: a session of ours that hangs must not hold a lane's row for longer than a third of the
 * lease. To be called for every new connection, also after a reconnect. */
int ol_lane_set_timeouts(struct ol_conn *conn, int64_t lease_us, outlog_err *err);

/* OUTLOG_STORE_ERROR: the store hands out numbers of this lane a second time. Then it must not be
 * taken, because messages would be lost. */
int ol_lane_check(struct ol_conn *conn, const struct ol_lane *lane, outlog_err *err);

/* What a relay that takes a lane knows. */
struct ol_lane_taker {
    const char *name;
    bool knows_server;    /* the clock that ends leases can be trusted */
    const char *timeouts; /* how long attempts may take: JSON for parked_hasten */
};

/* Take the lane if it is free. *taken = false: it is not. What the former owner had claimed is
 * parked in the same transaction; *parked is their number. If he died before his lease ended they
 * stay his for as long as they may be on their way (rules 24, 25). */
int ol_lane_take(struct ol_conn *conn, struct ol_lane *lane, const struct ol_lane_taker *taker,
                 bool *taken, int64_t *parked, outlog_err *err);

/* Give it back: only without an open claim. */
int ol_lane_release(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* After the clock of the store was set back: give the parked messages of a lane their waiting times
 * by the new clock. */
int ol_lane_rebase(struct ol_conn *conn, const struct ol_lane *lane, outlog_err *err);

/* Renew the lease. *held = false: another relay has the lane. */
int ol_lane_renew(struct ol_conn *conn, struct ol_lane *lane, bool *held, outlog_err *err);

/* Read at most `limit` messages after the head, and all that have appeared in gaps, in the order of
 * seq. Also gathers the evidence that gaps are dead. */
int ol_lane_read(struct ol_conn *conn, struct ol_lane *lane, size_t limit, struct ol_arena *arena,
                 struct ol_claimed_message **messages, size_t *count, outlog_err *err);

/* Is this message above the head parked already? Then it is skipped. */
bool ol_lane_is_parked_above(const struct ol_lane *lane, int64_t seq);

/* Is this one of the numbers that were not seen? */
bool ol_lane_is_gap(const struct ol_lane *lane, int64_t seq);

/* Must messages of this key wait? */
bool ol_lane_is_blocked(const struct ol_lane *lane, const char *key);

/* Reload the keys and destinations that wait for messages in older lanes. Does nothing when there
 * were none. */
int ol_lane_reload_older(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* Reload the keys that wait, after somebody else changed parked rows. */
int ol_lane_reload(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* The reload failed: what is known of parked rows may be wrong. The next turn becomes STALE, which
 * reloads. */
void ol_lane_invalidate(struct ol_lane *lane);

/* --- a turn: record the open batch, park, finish, and claim the next: one transaction --- */

/* New messages that a read went over, where a lane has side cursors: it returned only those that
 * the lane owns. */
struct ol_stretch {
    bool is_known, is_cut; /* cut: there may be more after it */
    int64_t end;
    struct ol_range holes[OL_LANE_GAPS]; /* numbers that were not seen, ascending */
    size_t hole_count;
};

/* What a turn writes. The buffers hold JSON arrays that are not closed yet; ol_turn_* append to
 * them. */
struct ol_turn {
    int64_t head;
    struct ol_range
        claim[OL_LANE_GAPS]; /* may include parked messages: their rows take precedence */
    size_t claim_count, sent_count;
    struct ol_stretch stretch;
    bool is_broken;              /* a gap was opened after the last message that was covered */
    struct ol_side_cursor *side; /* whose cursor moves instead of the lane's; NULL: the lane's */
    int64_t side_head;
    struct ol_side_cursor *opening; /* to be opened by this turn */
    bool is_closing;                /* some are to be closed */
    struct ol_range gaps[OL_LANE_GAPS];
    size_t gap_count;
    struct ol_buf parked, planned, finished, attempts, plain_attempts;
    size_t parked_count, planned_count, finished_count, attempt_count, plain_attempt_count;
    size_t prefetch; /* the lane will be read again at once, with this limit: the store may begin */
    const char
        *capacity; /* JSON: also claim due parked messages for these destinations; NULL: none */
    bool reap;     /* end claims whose own lease was over */
    int64_t as_of; /* at this time by the database's clock, */
    struct ol_buf held; /* except these, which are still on the wire here: a JSON array */
    int64_t row_lease_us;
    /* More to write in the same transaction: effects, alerts. Gets the parked messages that were
     * claimed. */
    int (*write_also)(struct ol_conn *conn, void *context, struct ol_claimed_message *messages,
                      size_t count, outlog_err *err);
    void *context;
};

/* Start from nothing to claim. */
void ol_turn_begin(struct ol_turn *turn, const struct ol_lane *lane);
void ol_turn_clear(struct ol_turn *turn);

/* Cover a message that was read, in the order of seq: it will be sent, or it is parked in this
 * turn. */
void ol_turn_cover(struct ol_turn *turn, const struct ol_lane *lane, int64_t seq, bool is_sent);

/* May the turn continue to `seq`, or would it need more ranges than it can hold? */
bool ol_turn_can_cover(const struct ol_turn *turn, int64_t seq);

/* Pass the messages of the stretch up to `upto`, which side cursors own, and add the holes to the
 * gaps. Only above the head. False: it stopped before, at a hole above `old_to`, which may close by
 * itself in a moment, or for want of room. */
bool ol_turn_pass(struct ol_turn *turn, const struct ol_lane *lane, int64_t upto, int64_t old_to);

/* Cover a message of the side cursor whose turn this is: it will be sent. False: no room. */
bool ol_turn_cover_side(struct ol_turn *turn, const struct ol_lane *lane, int64_t seq);

struct ol_park_entry {
    const char *state; /* PENDING, CLAIMED, DEAD */
    bool held;
    int attempts, unsent;
    int64_t wait_us;      /* PENDING: due after this time */
    int64_t available_at; /* or due at this time */
    int64_t lease_us;     /* CLAIMED */
    const char *last_error;
};

/* Take the lane's gaps as they are now: a read may have dropped some. */
void ol_turn_gaps(struct ol_turn *turn, const struct ol_lane *lane);

/* Park a message of the batch that is recorded, or (is_planned) one that was read and must wait.
 * Planned ones are written last: this turn must not claim them beside the batch of their key (rule
 * 15). */
void ol_turn_park(struct ol_turn *turn, const struct ol_claimed_message *message,
                  const struct ol_park_entry *entry, bool is_planned);

/* End the claim of a parked message: PUBLISHED, PENDING after wait_us, or DEAD. */
void ol_turn_finish(struct ol_turn *turn, const struct ol_claimed_message *message,
                    const struct ol_park_entry *entry);

/* Store an attempt (R4). */
void ol_turn_attempt(struct ol_turn *turn, const struct ol_claimed_message *message);

/* Write what was parked, finished and attempted, in the transaction of a turn that is under way.
 * *finished is the number of claims that ended. */
int ol_turn_write_rows(struct ol_conn *conn, const struct ol_lane *lane, struct ol_turn *turn,
                       int64_t *finished, outlog_err *err);

enum ol_turn_result {
    OL_TURN_DONE,
    OL_TURN_FENCED, /* the lane is not ours any more; nothing was written */
    OL_TURN_STALE,  /* somebody else changed parked rows: reload and plan again; nothing was
                     * written */
};

/* Write the turn. On DONE the lane's head, gaps and keys are updated, and *messages holds the
 * parked messages that were claimed (in `arena`). */
int ol_turn_write(struct ol_conn *conn, struct ol_lane *lane, struct ol_turn *turn,
                  struct ol_arena *arena, struct ol_claimed_message **messages, size_t *count,
                  enum ol_turn_result *result, outlog_err *err);

/* Finish one straggler of a lane that is no longer ours, by its own token (rule 13). *is_ours =
 * false: its row was claimed by another relay, which will record the outcome; nothing is
 * written. */
int ol_turn_finish_orphan(struct ol_conn *conn, const struct ol_lane *lane, struct ol_turn *turn,
                          bool *is_ours, outlog_err *err);

/* --- polling --- */

/* Would a turn with this capacity find a parked message to claim? Locks nothing. */
int ol_lane_has_due(struct ol_conn *conn, const struct ol_lane *lane, const char *capacity,
                    bool *has, outlog_err *err);

/* --- gap.c --- */

/* Advance the evidence that gaps are dead: list the transactions that could fill them, then wait
 * until all of those have ended. The next read after that decides. */
int ol_gap_prove(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err);

/* After that read: drop the proven gaps that it still missed. */
void ol_gap_close(struct ol_lane *lane, const struct ol_claimed_message *messages, size_t count);

/* The transactions that are inserting messages now, as numbers. *out is malloc'ed, also on
 * failure. */
int ol_lane_holders(struct ol_conn *conn, uint64_t **out, size_t *count, outlog_err *err);

/* Is one of `before` still running? */
bool ol_lane_holds(const uint64_t *before, size_t before_count, const uint64_t *now, size_t count);

struct ol_lane_status {
    int number;
    int64_t newest, epoch, parked_gen;
    int64_t due_us;    /* until the next parked message; INT64_MAX: none */
    int64_t expiry_us; /* until the next claim of a parked message expires; INT64_MAX: none */
};

/* Poll several lanes at once; `numbers` is a JSON array. */
int ol_lane_poll(struct ol_conn *conn, const char *numbers, struct ol_lane_status *out,
                 size_t out_max, size_t *count, outlog_err *err);

#endif
