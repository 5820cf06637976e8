/* internal.h: what the files of a worker share. Data flows down this list:
 *
 *   ownership        which lanes are ours: heartbeat, leases, taking and releasing lanes
 *   maintenance      removing what is too old
 *   lane_loop        one lane: record the open batch and claim the next, in one transaction
 *   multi_lane_turn  the same for several lanes in one transaction
 *   side_loop        the same for the side cursors of a lane
 *   plan             which messages to claim, which to park and which to leave to a side cursor
 *   poison           a turn that the store refuses, message by message
 *   outcomes         what became of the claimed messages
 *   batch            messages on the wire, also while the store works on a turn
 *   idle             when there is nothing to do
 *
 *   open   the claimed batch: the next turn records all of its messages
 *   loose  batches whose messages are recorded one by one: stragglers, and parked ones */
#ifndef OL_RELAY_INTERNAL_H
#define OL_RELAY_INTERNAL_H

#include "notify/render.h"
#include "outbox/lane/multi_lane.h"
#include "outbox/lane/side_cursor.h"
#include "relay/delivery_span.h"
#include "relay/item.h"
#include "relay/policy.h"
#include "relay/side_effects.h"
#include "relay/target/target.h"
#include "relay/worker.h"
#include "store/owner.h"
#include "store/wake.h"

enum {
    OL_RELAY_LANES_MAX = 256,
    OL_RELAY_LINGER_US = 20000, /* how long a batch that went well may wait to be recorded */
};

/* Messages of a batch for one destination. The list holds those that may go as soon as the
 * destination has capacity, and not those behind their key. Some in the list may have ended. */
struct ol_destination_queue {
    const char *destination;
    struct ol_relay_item *first, *last;
    size_t waiting; /* in the list or behind their key */
    size_t in_flight;
};

struct ol_batch {
    struct ol_batch *next;
    struct ol_relay_lane *lane;
    struct ol_arena arena;
    struct ol_claimed_message *messages;
    struct ol_relay_item *items; /* one per message: ol_batch_wrap */
    size_t count, in_flight, done;
    struct ol_destination_queue *queues;
    size_t queue_count;
    int64_t claimed_at; /* boot clock */
    struct ol_delivery_span_claim claim;
    struct ol_side_cursor *side; /* while it is the open batch of this one */
    bool is_side;                /* a side cursor claimed it */
    int64_t lease_end; /* of parked messages, whose rows have their own leases; 0: the lane's */
};

struct ol_relay_lane {
    struct ol_worker *worker;
    struct ol_lane outbox; /* the lane as the outbox protocol knows it */
    bool is_owned, is_releasing;
    bool is_in_turn;                 /* what is known of its messages must not change now */
    int first_lane, generation_size; /* of the generation it belongs to */
    struct ol_batch *open, *loose;
    bool wants_read, wants_due, has_expired_claims, has_finished;
    int64_t reap_after;       /* not before: claims that we ourselves hold may look expired */
    bool is_full;             /* the last read returned as many messages as its limit */
    int64_t read_after;       /* read no new messages before: all that were found must wait */
    size_t read_below;        /* or, if not 0: until at most this many claimed messages wait */
    int64_t seen_to, seen_at; /* how far a read came, and when: holes below old_to are not young */
    int64_t old_to;
    int64_t retry_at; /* after a store error */
    int64_t pause_us; /* the pause before retry_at, while the lane is stuck; 0: it is not */
    bool is_suspect;  /* the store refused a turn: the next one is careful (poison.c) */
    const struct ol_batch *claiming;                /* the new batch of a careful turn */
    const struct ol_batch *recording;               /* the open one that it records */
    char trouble[sizeof((outlog_err *)0)->message]; /* why it is stuck; "": it is not */
    size_t limit;                                   /* messages per read */
    size_t wanted; /* messages that the next read should return, by the free capacity */
    int64_t pruned_to, prune_at; /* how far old messages were removed, and when to begin again */
    size_t bytes;                /* of the last read */
    struct { /* is there a message behind those that must wait, for another destination? */
        uint64_t stuck;    /* a hash of the destinations that must wait */
        int64_t after;     /* not again before this time */
        int64_t to, other; /* searched up to here; the first other one that was found, or 0 */
    } search;
};

/* A lane in a turn of several lanes. */
struct ol_multi_lane_entry {
    struct ol_relay_lane *lane;
    struct ol_batch *fresh; /* read and planned, not claimed yet */
    struct ol_turn turn;
    bool is_read, is_written;
};

/* --- the worker --- */

/* Times of the boot clock. */
struct ol_worker_clock {
    int64_t now;            /* of this round */
    int64_t ahead_us;       /* database clock minus boot clock: at least this much, */
    int64_t ahead_max_us;   /* and at most this much, at the last heartbeat */
    int64_t trusted_at;     /* until then the database's clock ends nobody's lease: it was set */
    bool is_known;          /* it has been read once */
    bool has_stepped;       /* it was set, and not everything has followed yet */
    int64_t heartbeat_at;   /* when the next heartbeat is due */
    int64_t maintenance_at; /* when the next chunk of maintenance is due */
    int64_t sweep_at;
    int64_t polled_at;    /* the last poll */
    int64_t read_at;      /* when all lanes were last read without a poll */
    int64_t reported_at;  /* the last store error that was logged */
    int64_t linger_until; /* when a batch that waits to be recorded may wait no longer */
};

/* AWAKE: polls. ARMING: holds the lock that asks writers to notify, and still polls. LISTENING: all
 * writers notify. See idle.c. */
enum ol_idle_state { OL_IDLE_AWAKE, OL_IDLE_ARMING, OL_IDLE_LISTENING };

struct ol_worker_idle {
    enum ol_idle_state state;
    uint64_t *holders; /* ARMING: the transactions that were inserting when we got the lock */
    size_t holder_count;
    bool has_no_holders;  /* ARMING: all of them have ended */
    int64_t pause_us;     /* between polls while nothing happens */
    int64_t next_us;      /* until something is due by its time, according to the last poll */
    bool wants_read_all;  /* somebody committed, or may have: read all lanes */
    bool has_unread_wake; /* somebody committed, and no read has found what: poll soon */
    int empty_reads;      /* reads in a row that found nothing */
};

/* Maps that are only used while a turn is planned or a batch is linked. */
struct ol_worker_scratch {
    struct ol_counter_map chain;     /* keys of the batch */
    struct ol_counter_map queues;    /* destinations of the batch */
    struct ol_counter_map parked;    /* keys of what the plan parks */
    struct ol_counter_map parked_to; /* destinations of the same */
    struct ol_counter_map single;    /* keys of at_most_once messages that the plan sends */
};

struct ol_worker_sending {
    size_t waiting;                  /* messages that lanes have claimed and not sent yet */
    size_t side_waiting;             /* the same of side cursors, which keep no lane from reading */
    bool is_overlapped;              /* the store works on a turn and must not be used */
    struct ol_relay_item *completed; /* with an outcome, in lanes that are in a turn */
};

struct ol_worker_lanes {
    struct ol_relay_lane *all;
    size_t count, owned_count;
    size_t next;      /* the lane that the next round starts with */
    size_t pruned;    /* the lane that is pruned next */
    int newest_first; /* first lane of the newest generation; those below are to be emptied */
};

struct ol_worker {
    const struct ol_worker_options *options;
    struct ol_worker_stats *stats;
    atomic_int *stop;
    struct ol_owner owner;
    int64_t margin_us;
    bool has_begun; /* counted in options->begun */
    struct ol_conn *conn;
    struct ol_waiter waiter;

    struct ol_targets targets;
    struct ol_policy policy;
    struct ol_template_cache templates;
    bool wants_settings; /* a lane of ours was touched: refresh the settings before any claim */

    struct ol_worker_lanes lanes;
    struct ol_turn turn, part;           /* part: one message of a careful turn */
    struct ol_multi_lane_entry *entries; /* of a turn of several lanes */
    size_t planned_entries;              /* those that are planned already */
    struct ol_side_effects effects;

    struct ol_worker_clock clock;
    struct ol_worker_idle idle;
    struct ol_worker_sending sending;
    struct ol_worker_scratch scratch;
};

/* --- batch.c --- */

void ol_batch_free(struct ol_batch *batch);

/* Make an item for each message; false when memory is out. Before a turn is written, so that what
 * it claims can always be recorded. */
bool ol_batch_wrap(struct ol_batch *batch);

/* Put the items into the queues of their destinations, those of one key behind each other; false
 * when memory is out. */
bool ol_batch_link(struct ol_worker *worker, struct ol_batch *batch);

/* Send what may go now. */
void ol_batch_pump(struct ol_worker *worker, struct ol_batch *batch);

/* Never send what was not sent yet. */
void ol_batch_drop_unsent(struct ol_batch *batch);

/* The item no longer waits: it is being sent, or this batch will never send it. */
void ol_batch_unqueue(struct ol_worker *worker, struct ol_relay_item *item);

/* Hand back parked messages that were claimed and not sent. */
void ol_batch_release_unsent(struct ol_batch *batch);

/* May it be recorded: can nothing more happen to it now, or is patience over? */
bool ol_batch_is_ready(struct ol_worker *worker, const struct ol_batch *batch);

/* Where outcomes arrive: an outlog_publish_done. */
void ol_batch_done(void *worker, void *item, const struct outlog_outcome *outcome);

/* From begin to end, sending continues while the store is waited for, in all lanes that are not in
 * a turn. The end takes all lanes out of their turns. */
void ol_batch_overlap_begin(struct ol_worker *worker);
void ol_batch_overlap_end(struct ol_worker *worker);

/* --- outcomes.c --- */

/* Add to the worker's turn what became of the open batch, of a loose one (parked messages and
 * stragglers that have an outcome), or of one message of a loose one. Changes nothing else. */
void ol_outcomes_open(struct ol_worker *worker, const struct ol_batch *batch);
void ol_outcomes_loose(struct ol_worker *worker, const struct ol_batch *batch);
void ol_outcomes_one(struct ol_worker *worker, const struct ol_relay_item *item);

/* The same for one message of either batch, without its attempt, into `turn`. */
void ol_outcomes_record(struct ol_worker *worker, struct ol_turn *turn,
                        const struct ol_relay_item *item);

/* Has this message of a loose batch an outcome that is still to be recorded? */
bool ol_outcomes_is_due(const struct ol_relay_item *item);

/* What a condemned message becomes. */
struct ol_park_entry ol_outcomes_condemned(struct ol_worker *worker,
                                           const struct ol_claimed_message *message);

/* After the turn is stored: apply it to memory. */
void ol_outcomes_apply_open(struct ol_relay_lane *lane, struct ol_batch **open);
void ol_outcomes_apply_one(struct ol_relay_lane *lane, struct ol_relay_item *item);
void ol_outcomes_apply_loose(struct ol_relay_lane *lane);

/* Count the key of a message as waiting, or not any more. */
void ol_outcomes_count_key(struct ol_relay_lane *lane, const struct ol_claimed_message *message,
                           int64_t by);

/* Count a message as parked and open, or not any more. */
void ol_outcomes_count_parked(struct ol_relay_lane *lane, const struct ol_claimed_message *message,
                              int64_t by);

/* End a parked message whose budget was used up by relays that went away (rule 14). */
void ol_outcomes_if_spent(struct ol_relay_lane *lane, struct ol_relay_item *item);

/* --- poison.c --- */

/* Is this refusal about what the turn holds? Otherwise the store is away. */
bool ol_poison_is_suspected(const outlog_err *err);

/* Does a careful turn of this lane record outcomes? Then it claims nothing. */
bool ol_poison_must_record(const struct ol_relay_lane *lane, const struct ol_side_cursor *side);

/* Make this turn a careful one; `fresh` is what it claims, or NULL. */
void ol_poison_attach(struct ol_relay_lane *lane, const struct ol_side_cursor *side,
                      struct ol_batch *fresh, struct ol_turn *turn);

/* After it is stored: what it condemned is not sent. */
void ol_poison_drop_condemned(struct ol_batch *batch);

/* --- plan.c --- */

/* Read new messages and add to the turn which are claimed and which are parked. *fresh holds those
 * to send. On failure -1, and *fresh is NULL or the caller's to free. */
int ol_plan_claim(struct ol_relay_lane *lane, struct ol_batch **fresh, outlog_err *err);

/* The same with messages that were read already, at most `limit`. *must_be_alone (if not NULL) is
 * set when it should open side cursors, and this turn cannot. */
int ol_plan_batch(struct ol_relay_lane *lane, struct ol_turn *turn, struct ol_batch *batch,
                  size_t limit, bool *must_be_alone, outlog_err *err);

/* The same for a side cursor, whose turn this is. */
int ol_plan_side(struct ol_relay_lane *lane, struct ol_side_cursor *side, struct ol_batch **fresh,
                 outlog_err *err);

/* May this side cursor read on: can its destination take anything now? */
bool ol_plan_side_may_read(const struct ol_relay_lane *lane, const struct ol_side_cursor *side);

/* Has any side cursor within `parent` (NULL: the lane) nothing left to do? */
bool ol_plan_has_done_sides(const struct ol_relay_lane *lane, const struct ol_side_cursor *parent);

/* Let the turn of `parent` close those. True: there are any, and then the turn must read nothing,
 * because the read would leave out what their parent owns from then on. */
bool ol_plan_close_sides(struct ol_relay_lane *lane, struct ol_side_cursor *parent);

/* Is it time to read new messages? Not while so many claimed ones wait for capacity that more of
 * them would only exceed their patience. */
bool ol_plan_may_read(const struct ol_relay_lane *lane);

/* Does the open batch wait for slow destinations alone, while a message for another one waits
 * behind it? Then it is recorded now, and what is left of it is parked. */
bool ol_plan_is_held_up(struct ol_relay_lane *lane);

/* Destinations that can take parked messages of this lane now, as JSON; "[]": none. Only that of
 * `side`, if it is not NULL; else none with an open batch of a side cursor, which may hold a
 * message of the same key (rule 15). */
void ol_plan_capacity(struct ol_relay_lane *lane, const struct ol_side_cursor *side,
                      struct ol_buf *out);

/* --- idle.c --- */

/* Get ready to be notified: for each new connection. */
int ol_idle_listen(struct ol_worker *worker, outlog_err *err);

/* Around each poll. has_work: there is something to do, or something waits for an event that no
 * writer notifies. */
int ol_idle_before_poll(struct ol_worker *worker, outlog_err *err);
int ol_idle_after_poll(struct ol_worker *worker, bool has_work, outlog_err *err);
int ol_idle_wake(struct ol_worker *worker, outlog_err *err);

/* How long until the next poll. */
int64_t ol_idle_pause_us(const struct ol_worker *worker);

/* --- lane_loop.c --- */

/* Do what can be done for a lane now. *moved: there may be more to do at once. */
int ol_lane_loop_step(struct ol_relay_lane *lane, bool *moved, outlog_err *err);

/* Would recording the open batch write nothing but the lane's row? */
bool ol_lane_loop_is_plain(const struct ol_relay_lane *lane);

/* Begin to send what was claimed, as the open batch of the lane or of a side cursor. Takes `fresh`,
 * also on failure. */
int ol_lane_loop_open(struct ol_relay_lane *lane, struct ol_side_cursor *side,
                      struct ol_batch *fresh, outlog_err *err);

/* May the lane claim anything, or is it to be given back? */
bool ol_lane_loop_may_claim(const struct ol_relay_lane *lane);

/* Record the open batch of the lane, or of a side cursor if that is not NULL, and claim the
 * next. */
int ol_lane_loop_turn(struct ol_relay_lane *lane, struct ol_side_cursor *side, bool *moved,
                      outlog_err *err);

/* Is there a parked message that could be claimed now? Sets wants_due. */
bool ol_lane_loop_finds_due(struct ol_relay_lane *lane, outlog_err *err);

/* Somebody else touched the lane: read what is parked in it again, and refresh the settings before
 * the next claim. */
int ol_lane_loop_reload(struct ol_relay_lane *lane, outlog_err *err);

/* The store refuses what the lane must write: it waits, and says so once per reason. And it moves
 * again. */
void ol_lane_loop_note_trouble(struct ol_relay_lane *lane, const outlog_err *why);
void ol_lane_loop_end_trouble(struct ol_relay_lane *lane);

/* Forget a lane that is not ours any more. */
void ol_lane_loop_lose(struct ol_relay_lane *lane);

/* --- side_loop.c --- */

/* Do what can be done for the side cursors of a lane now. */
int ol_side_loop_step(struct ol_relay_lane *lane, bool *moved, outlog_err *err);

/* Does any of them have an open batch? */
bool ol_side_loop_is_open(const struct ol_relay_lane *lane);

/* Is there anything that one of them could send? */
bool ol_side_loop_is_busy(const struct ol_relay_lane *lane);

/* --- multi_lane_turn.c --- */

/* Not behind a pooler: the planner reads several lanes well only with settings of a session. */
bool ol_multi_lane_turn_is_possible(const struct ol_worker *worker);

/* Do for all lanes at once what can be done in one read and one commit. *moved: something was. */
int ol_multi_lane_turn_step(struct ol_worker *worker, bool *moved, outlog_err *err);
void ol_multi_lane_turn_clear(struct ol_worker *worker);

/* --- ownership.c --- */

/* Once a second: write our heartbeat, renew leases, take and release lanes, refresh the settings
 * and publish the state of the destinations. */
int ol_ownership_heartbeat(struct ol_worker *worker, outlog_err *err);

/* Refresh the settings if that is wanted before the next heartbeat: a change of a destination
 * touches all lanes. */
int ol_ownership_load_settings(struct ol_worker *worker, outlog_err *err);

/* Give a lane back, once nothing of it is open. */
int ol_ownership_release(struct ol_relay_lane *lane, outlog_err *err);

/* Store when each destination last accepted a message, by the database's clock. Every heartbeat
 * does this. */
int ol_ownership_write_successes(struct ol_worker *worker, outlog_err *err);

/* --- maintenance.c --- */

/* Between turns: remove a chunk of what is too old, if it is time for one. */
int ol_maintenance_step(struct ol_worker *worker, outlog_err *err);

#endif
