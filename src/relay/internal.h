/* internal.h: what the files of a worker share. Data flows down this list:
 *
 *   share    which lanes are ours
 *   step     a lane's step: record, claim, in one transaction
 *   joint    the same for several lanes at once
 *   plan     which messages to claim
 *   settle   what became of those that were claimed
 *   batch    messages on the wire
 *   interlude   the same while the store works on a turn
 *   sleep    when there is nothing to do
 *
 *   open   the batch that is claimed: all of its messages are recorded by the next turn
 *   loose  batches of messages that are recorded one by one: stragglers, and parked ones */
#ifndef OL_RELAY_INTERNAL_H
#define OL_RELAY_INTERNAL_H

#include "notify/render.h"
#include "outbox/lane/multi_lane.h"
#include "relay/delivery_span.h"
#include "relay/policy.h"
#include "relay/side_effects.h"
#include "relay/target/target.h"
#include "relay/worker.h"
#include "store/wake.h"

enum {
    OL_RELAY_LANES_MAX = 256,
    OL_RELAY_LINGER_US = 20000, /* how long a batch that went well may wait to be recorded */
};

enum ol_idle_state { OL_IDLE_AWAKE, OL_IDLE_ARMING, OL_IDLE_LISTENING };

/* Messages of a batch for one destination. In line are those that may go as soon as it has a place:
 * not those behind their key. Some in line may have ended meanwhile. */
struct ol_destination_queue {
    const char *destination;
    struct ol_claimed_message *first, *last;
    size_t waiting; /* in line or behind their key */
    size_t flying;
};

struct ol_batch {
    struct ol_batch *next;
    struct ol_relay_lane *lane;
    struct ol_arena arena;
    struct ol_claimed_message *items;
    size_t count, flying, done;
    struct ol_destination_queue *queues;
    size_t queue_count;
    int64_t claimed_at; /* boot clock */
    struct ol_delivery_span_claim claim;
    int64_t lease_end; /* of parked messages, whose rows have leases of their own; 0: the lane's */
};

struct ol_relay_lane {
    struct ol_worker *worker;
    struct ol_lane lane;
    bool is_owned, gives_back;
    bool is_in_turn;                 /* what is known of its messages must not change now */
    int first_lane, generation_size; /* of the generation it belongs to */
    struct ol_batch *open, *loose;
    bool wants_read, wants_due, wants_reap, has_finished;
    bool is_full;             /* the last read brought as many as it may */
    int64_t read_after;       /* do not look for new messages before: all that is there must wait */
    size_t read_below;        /* or, if not 0: before no more claimed messages than this wait */
    int64_t seen_to, seen_at; /* how far a read came, and when: holes below old_to are not young */
    int64_t old_to;
    int64_t retry_at; /* after a store error */
    size_t limit;     /* messages a read */
    size_t wanted;    /* messages that the next read had better bring, by what there is room for */
    int64_t pruned_to, prune_at; /* how far old messages were removed, and when to begin again */
    size_t bytes;                /* of the last read */
};

/* A lane in a joint turn. */
struct ol_multi_lane_entry {
    struct ol_relay_lane *wl;
    struct ol_batch *fresh; /* read and planned, not claimed yet */
    struct ol_turn turn;
    bool is_read, is_written;
};

struct ol_worker {
    const struct ol_worker_options *options;
    struct ol_conn *conn;
    struct ol_waiter waiter;
    struct ol_targets targets;
    struct ol_policy policy;
    struct ol_notification_cache notices;
    char run[OL_UUID_TEXT];
    struct ol_relay_lane *lanes;
    size_t lane_count, owned, first_lane;
    bool has_begun;
    int newest_first; /* where the newest generation of lanes begins: those below are to be emptied
                       */
    size_t waiting;   /* messages that are claimed and not sent yet */
    bool is_interlude;
    struct ol_claimed_message *landed; /* whose outcomes are here, of lanes that are in a turn */
    struct ol_turn turn;
    struct ol_multi_lane_entry *joint;
    size_t joint_count;
    struct ol_side_effects record;
    struct ol_map chain;     /* keys of the batch being planned or linked */
    struct ol_map queues;    /* destinations of the batch being linked */
    struct ol_map parked;    /* keys of what the plan parks */
    struct ol_map parked_to; /* destinations of the same */
    struct ol_map single;    /* keys of at_most_once messages that the plan sends */
    struct ol_worker_stats *stats;
    atomic_int *stop;
    int64_t now, beat_at, polled_at, told_at, sweep_at, tidy_at;
    bool wants_settings; /* somebody touched a lane of ours: claim nothing before they are looked at
                          */
    size_t pruned_lane;  /* whose turn it is to be pruned */
    int64_t looked_at;   /* when all lanes were last read, without a poll */
    bool wants_look;     /* somebody committed, or may have: read all lanes */
    int vain_looks;      /* in a row that have found nothing */
    bool is_told;        /* somebody committed, and no look has found what: poll soon */
    int64_t margin_us;
    int64_t ahead_us;     /* the database's clock, counted from the boot clock */
    int64_t linger_until; /* when a batch that waits to be recorded may wait no longer */
    int64_t pause_us;     /* between polls while nothing happens */
    int64_t next_us;      /* until something is due by its time, as the last poll said */
    enum ol_idle_state mood;
    uint64_t *holders; /* DOZING: who inserted when we lay down */
    size_t holder_count;
    bool is_quiet; /* DOZING: all of them have ended */
};

/* --- batch.c --- */

void ol_batch_free(struct ol_batch *batch);

/* Put messages into the queues of their destinations, those of one key behind each other; false
 * when memory is out. */
bool ol_batch_link(struct ol_worker *worker, struct ol_batch *batch);

/* Send what may go now. */
void ol_batch_pump(struct ol_worker *worker, struct ol_batch *batch);

/* Never send what was not sent yet. */
void ol_batch_drop_unsent(struct ol_batch *batch);

/* It waits no more: it is being sent, or never will be by this batch. */
void ol_batch_unqueue(struct ol_worker *worker, struct ol_claimed_message *item);

/* Hand back parked messages that were claimed and not sent. */
void ol_batch_release_unsent(struct ol_batch *batch);

/* May it be recorded: can nothing more happen to it now, or is patience over? */
bool ol_batch_is_ready(struct ol_worker *worker, const struct ol_batch *batch);

/* Where outcomes arrive: an outlog_publish_done. */
void ol_batch_done(void *worker, void *item, const struct outlog_outcome *outcome);

/* Take note of the outcomes that had to wait for a turn's end. */
void ol_batch_land(struct ol_worker *worker);

/* --- overlap.c --- */

/* From here on the store's waits are used to go on sending, in all lanes that are not in a turn;
 * until the end, which takes them all out of it. */
void ol_overlap_begin(struct ol_worker *worker);
void ol_overlap_end(struct ol_worker *worker);

/* --- outcomes.c --- */

/* Add to the worker's turn what became of the open batch, of a loose one (parked messages and
 * stragglers whose outcome is here), or of one message of that. Changes nothing else. */
void ol_outcomes_open(struct ol_worker *worker, const struct ol_batch *batch);
void ol_outcomes_loose(struct ol_worker *worker, const struct ol_batch *batch);
void ol_outcomes_one(struct ol_worker *worker, const struct ol_claimed_message *item);

/* After the turn is stored: carry it over into memory. */
void ol_outcomes_apply_open(struct ol_relay_lane *wl);
void ol_outcomes_apply_one(struct ol_relay_lane *wl, struct ol_claimed_message *item);
void ol_outcomes_apply_loose(struct ol_relay_lane *wl);

/* Count the key of a message as waiting, or not any more. */
void ol_outcomes_count_key(struct ol_relay_lane *wl, const struct ol_claimed_message *item,
                           int64_t by);

/* Count a message as parked and open, or not any more. */
void ol_outcomes_count_parked(struct ol_relay_lane *wl, const struct ol_claimed_message *item,
                              int64_t by);

/* End a parked message whose budget was used up by relays that went away (rule 14). */
void ol_outcomes_if_spent(struct ol_relay_lane *wl, struct ol_claimed_message *item);

/* --- plan.c --- */

/* Read new messages and add to the turn which are claimed and which are parked. *fresh holds those
 * to send; NULL and -1 on failure. */
int ol_plan_claim(struct ol_relay_lane *wl, struct ol_batch **fresh, outlog_err *err);

/* The same with what was read already, at most `limit` messages. */
int ol_plan_batch(struct ol_relay_lane *wl, struct ol_turn *turn, struct ol_batch *batch,
                  size_t limit, outlog_err *err);

/* Is it time to look for new messages? Not while so many claimed ones wait for a place that more of
 * them would only outlast their patience. */
bool ol_plan_may_read(const struct ol_relay_lane *wl);

/* Destinations that can take parked messages of this lane now, as JSON; "[]" when there are none.
 */
void ol_plan_capacity(struct ol_relay_lane *wl, struct ol_buf *out);

/* --- idle.c --- */

/* Get ready to be woken: for each new connection. */
int ol_idle_listen(struct ol_worker *worker, outlog_err *err);

/* Around each poll; has_work: something is to be done, or waits for what no writer will tell. */
int ol_idle_before_poll(struct ol_worker *worker, outlog_err *err);
int ol_idle_after_poll(struct ol_worker *worker, bool has_work, outlog_err *err);
int ol_idle_wake(struct ol_worker *worker, outlog_err *err);

/* How long until the next poll. */
int64_t ol_idle_pause_us(const struct ol_worker *worker);

/* --- lane_loop.c --- */

/* Do what can be done for a lane now. *moved: there may be more to do at once. */
int ol_lane_loop_step(struct ol_relay_lane *wl, bool *moved, outlog_err *err);

/* Would recording what is open write nothing but the lane's row? */
bool ol_lane_loop_is_plain(const struct ol_relay_lane *wl);

/* Begin to send what was claimed. Takes `fresh`, also on failure. */
int ol_lane_loop_open(struct ol_relay_lane *wl, struct ol_batch *fresh, outlog_err *err);

/* Is there a parked message that could be claimed now? Sets wants_due. */
bool ol_lane_loop_finds_due(struct ol_relay_lane *wl, outlog_err *err);

/* Somebody touched the lane: read what is parked in it again, and look at the settings before the
 * next claim. */
int ol_lane_loop_reload(struct ol_relay_lane *wl, outlog_err *err);

/* Forget a lane that is not ours any more. */
void ol_lane_loop_lose(struct ol_relay_lane *wl);

/* --- multi_lane_turn.c --- */

/* Not behind a pooler: what makes the planner read several lanes well are settings of a session. */
bool ol_multi_lane_turn_is_possible(const struct ol_worker *worker);

/* Do for all lanes at once what can be done in one read and one commit. *moved: something was. */
int ol_multi_lane_turn_step(struct ol_worker *worker, bool *moved, outlog_err *err);
void ol_multi_lane_turn_clear(struct ol_worker *worker);

/* --- ownership.c --- */

/* Once a second: tell that we live, renew leases, take and hand over lanes, look at settings. These
 * also when they are wanted: whoever changes a destination touches all lanes. */
int ol_ownership_heartbeat(struct ol_worker *worker, outlog_err *err);
int ol_ownership_load_settings(struct ol_worker *worker, outlog_err *err);

/* Between turns: remove a chunk of what is too old, if it is time for one. */
int ol_maintenance_step(struct ol_worker *worker, outlog_err *err);

/* Give a lane back, once nothing of it is open. */
int ol_ownership_release(struct ol_relay_lane *wl, outlog_err *err);

/* Tell whoever asks when each destination last took a message, by the database's clock. Each beat
 * does. */
int ol_ownership_write_successes(struct ol_worker *worker, outlog_err *err);

#endif
