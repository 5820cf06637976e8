/* lane_loop.c: one step of a lane: record what was claimed, claim what comes next.
 *
 * A turn is built without changing anything, written in one transaction, and applied to memory only
 * when it is known to be stored. So a turn can be built again after a lost connection, and a fenced
 * one leaves no trace. */
#include "relay/internal.h"

#include "base/clock.h"
#include "telemetry/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANE_RETRY_US = 100000, LANE_RETRY_MAX_US = 5000000 }; /* pause after a store error */

static void lose_batch(struct ol_relay_lane *lane, struct ol_batch **open)
{
    struct ol_batch *batch = *open;
    if (!batch)
        return;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_claimed_message *message = &batch->messages[i];
        message->is_parked = message->is_orphan = true;
        message->attempts = 1;
    }
    batch->side = NULL;
    batch->next = lane->loose;
    lane->loose = batch;
    *open = NULL;
}

/* What was sent ends by its own token: the new owner has parked the open batches as ours, unless he
 * waited for the lease (rule 30). What was not sent must not be sent any more. */
void ol_lane_loop_lose(struct ol_relay_lane *lane)
{
    lane->is_owned = false;
    lane->worker->lanes.owned_count--;
    lose_batch(lane, &lane->open);
    for (struct ol_side_cursor *side = lane->outbox.sides; side; side = side->next)
        lose_batch(lane, &side->open);
    ol_side_cursor_clear_all(&lane->outbox);
    for (struct ol_batch *batch = lane->loose; batch; batch = batch->next)
        ol_batch_drop_unsent(batch);
    lane->has_finished = true; // what ended already is recorded by its own token, or dropped
}

int ol_lane_loop_reload(struct ol_relay_lane *lane, outlog_err *err)
{
    lane->worker->wants_settings = true;
    return ol_lane_reload(lane->worker->conn, &lane->outbox, err);
}

/* --- building a turn --- */

bool ol_lane_loop_may_claim(const struct ol_relay_lane *lane)
{
    return !lane->is_releasing && atomic_load(lane->worker->stop) == 0;
}

/* What is still on the wire here ends by its own outcome, whatever the clock says of its lease. */
static void plan_reaping(struct ol_relay_lane *lane, struct ol_turn *turn)
{
    const struct ol_worker_clock *clock = &lane->worker->clock;
    turn->reap = lane->has_expired_claims;
    turn->as_of = clock->now + clock->ahead_us;
    for (const struct ol_batch *batch = turn->reap ? lane->loose : NULL; batch; batch = batch->next)
        for (size_t i = 0; i < batch->count; i++)
            if (batch->messages[i].is_parked)
                ol_buf_print(&turn->held, "%s%lld", turn->held.bytes ? "," : "[",
                             (long long)batch->messages[i].seq);
    ol_buf_text(&turn->held, turn->held.bytes ? "]" : "[]");
}

/* A careful turn closes nothing. */
static int add_lane_claims(struct ol_relay_lane *lane, struct ol_batch **fresh, outlog_err *err)
{
    if ((!lane->is_suspect && ol_plan_close_sides(lane, NULL)) || !ol_lane_loop_may_claim(lane) ||
        !ol_plan_may_read(lane))
        return 0;
    return ol_plan_claim(lane, fresh, err);
}

static int add_side_claims(struct ol_relay_lane *lane, struct ol_side_cursor *side,
                           struct ol_batch **fresh, outlog_err *err)
{
    if ((!lane->is_suspect && ol_plan_close_sides(lane, side)) ||
        !ol_plan_side_may_read(lane, side))
        return 0;
    return ol_plan_side(lane, side, fresh, err);
}

static void add_capacity(struct ol_relay_lane *lane, const struct ol_side_cursor *side,
                         struct ol_buf *capacity)
{
    struct ol_worker *worker = lane->worker;
    if (!ol_lane_loop_may_claim(lane) || !(side || lane->wants_due) || worker->wants_settings)
        return;
    ol_plan_capacity(lane, side, capacity);
    worker->turn.capacity = side && capacity->bytes <= 2 ? NULL : capacity->data;
}

/* A careful turn records, or it claims: what it parks must not be claimed beside its key. */
static int build_careful_turn(struct ol_relay_lane *lane, struct ol_side_cursor *side,
                              struct ol_batch **fresh, struct ol_buf *capacity, outlog_err *err)
{
    if (!ol_poison_must_record(lane, side)) {
        if ((side ? add_side_claims(lane, side, fresh, err) : add_lane_claims(lane, fresh, err)) <
            0)
            return -1;
        add_capacity(lane, side, capacity);
    }
    ol_poison_attach(lane, side, *fresh, &lane->worker->turn);
    return 0;
}

static int build_lane_turn(struct ol_relay_lane *lane, struct ol_batch **fresh, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    if (lane->open)
        ol_outcomes_open(worker, lane->open);
    for (struct ol_batch *batch = lane->loose; batch; batch = batch->next)
        ol_outcomes_loose(worker, batch);
    return add_lane_claims(lane, fresh, err);
}

static int build_side_turn(struct ol_relay_lane *lane, struct ol_side_cursor *side,
                           struct ol_batch **fresh, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    if (side->open)
        ol_outcomes_open(worker, side->open);
    return add_side_claims(lane, side, fresh, err);
}

static int build_turn(struct ol_relay_lane *lane, struct ol_side_cursor *side,
                      struct ol_batch **fresh, struct ol_buf *capacity, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    struct ol_turn *turn = &worker->turn;

    ol_turn_begin(turn, &lane->outbox);
    ol_side_effects_reset(&worker->effects);
    turn->row_lease_us = lane->outbox.lease_us;
    turn->side = side;
    turn->side_head = side ? side->place : 0;
    if (!side)
        plan_reaping(lane, turn);
    ol_counter_map_clear(&worker->scratch.parked);
    ol_counter_map_clear(&worker->scratch.parked_to);
    if (lane->is_suspect)
        return build_careful_turn(lane, side, fresh, capacity, err);
    if ((side ? build_side_turn(lane, side, fresh, err) : build_lane_turn(lane, fresh, err)) < 0)
        return -1;
    add_capacity(lane, side, capacity);
    ol_side_effects_attach(&worker->effects, turn);
    return 0;
}

/* A side cursor that has gone over much that is not its own stores where it is. */
static bool is_empty_turn(const struct ol_relay_lane *lane, const struct ol_batch *open)
{
    const struct ol_turn *turn = &lane->worker->turn;
    bool has_moved = turn->side ? turn->side_head - turn->side->head > OL_SIDE_STRETCH
                                : turn->head != lane->outbox.head;
    return !open && !turn->finished_count && !turn->planned_count && !turn->sent_count &&
           !has_moved && !turn->capacity && !turn->reap && !turn->opening && !turn->is_closing &&
           !(lane->is_suspect && !turn->side && lane->has_finished);
}

/* Keys that failed in the batch being recorded must block the plan of the same turn. */
static void block_failed_keys(struct ol_relay_lane *lane, const struct ol_batch *open, int64_t by)
{
    for (size_t i = 0; open && i < open->count; i++) {
        struct ol_claimed_message *message = &open->messages[i];
        if (open->items[i].state != OL_ITEM_DONE || message->outcome.kind != OUTLOG_PUBLISH_OK)
            ol_outcomes_count_key(lane, message, by);
    }
}

/* --- applying a turn --- */

static void add_counts(const struct ol_counter_map *from, struct ol_counter_map *to)
{
    for (size_t i = 0; i < from->capacity; i++)
        if (from->entries[i].key)
            ol_counter_map_add(to, from->entries[i].key, from->entries[i].count);
}

int ol_lane_loop_open(struct ol_relay_lane *lane, struct ol_side_cursor *side,
                      struct ol_batch *fresh, outlog_err *err)
{
    fresh->claimed_at = lane->worker->clock.now;
    fresh->claim = ol_delivery_span_since(lane->worker->clock.now);
    fresh->side = side;
    fresh->is_side = side != NULL;
    *(side ? &side->open : &lane->open) = fresh;
    return ol_batch_link(lane->worker, fresh) ? 0 : ol_no_memory(err);
}

/* Leases of rows count from `before` their claim was sent, and not from the start of the round: the
 * turns of other lanes may have taken long, and then no time would be left to send these. */
static int start_parked(struct ol_relay_lane *lane, struct ol_batch *parked, int64_t before,
                        outlog_err *err)
{
    parked->claimed_at = before;
    parked->claim = ol_delivery_span_since(before);
    parked->lease_end = before + lane->worker->turn.row_lease_us;
    if (!ol_batch_wrap(parked) || !ol_batch_link(lane->worker, parked))
        return ol_no_memory(err);
    for (size_t i = 0; i < parked->count; i++)
        ol_outcomes_if_spent(lane, &parked->items[i]);
    parked->next = lane->loose;
    lane->loose = parked;
    return 0;
}

/* The turn is stored: memory follows. Takes *fresh and *parked as far as they are used. */
static int apply_turn(struct ol_relay_lane *lane, struct ol_side_cursor *side,
                      struct ol_batch **fresh, struct ol_batch **parked, int64_t before,
                      outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    struct ol_batch **open = side ? &side->open : &lane->open;
    if (*open)
        ol_outcomes_apply_open(lane, open);
    if (side) {
        side->has_due = (*parked)->count > 0;
    } else {
        lane->has_expired_claims = false;
        lane->wants_due = (*parked)->count > 0;
        ol_outcomes_apply_loose(lane);
    }
    add_counts(&worker->scratch.parked, &lane->outbox.keys);
    add_counts(&worker->scratch.parked_to, &lane->outbox.waiting);
    // The claim is stored, even if the store cannot be read now. If it were forgotten here, the
    // next turn would record its messages as published.
    if (lane->outbox.is_reaped && ol_lane_reload(worker->conn, &lane->outbox, err) < 0)
        ol_lane_invalidate(&lane->outbox);
    if (lane->is_suspect && *fresh)
        ol_poison_drop_condemned(*fresh);
    if (lane->is_suspect)
        ol_poison_drop_condemned(*parked);
    if (*fresh && worker->turn.sent_count) { // also without a message, to close the claim
        struct ol_batch *claimed = *fresh;
        *fresh = NULL;
        if (ol_lane_loop_open(lane, side, claimed, err) < 0)
            return -1;
    }
    if ((*parked)->count) {
        if (start_parked(lane, *parked, before, err) < 0)
            return -1;
        *parked = NULL;
    }
    return 0;
}

static int apply_result(struct ol_relay_lane *lane, struct ol_side_cursor *side,
                        enum ol_turn_result result, struct ol_batch **fresh,
                        struct ol_batch **parked, int64_t before, outlog_err *err)
{
    switch (result) {
    case OL_TURN_STALE:
        lane->wants_read = true; // what was read must be read again
        return ol_lane_loop_reload(lane, err);
    case OL_TURN_FENCED:
        lane->worker->stats->fenced++;
        ol_lane_loop_lose(lane);
        return 0;
    default:
        return apply_turn(lane, side, fresh, parked, before, err);
    }
}

static int take_turn(struct ol_relay_lane *lane, struct ol_side_cursor *side, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    struct ol_batch *fresh = NULL, *parked = calloc(1, sizeof *parked);
    const struct ol_batch *open = side ? side->open : lane->open;
    struct ol_buf capacity = {0};
    enum ol_turn_result result;
    int outcome = -1;

    if (!parked)
        return ol_no_memory(err);
    parked->lane = lane;
    block_failed_keys(lane, open, 1);
    outcome = build_turn(lane, side, &fresh, &capacity, err);
    block_failed_keys(lane, open, -1);
    if (outcome < 0)
        goto out;
    if (is_empty_turn(lane, open)) {
        if (side)
            side->place = worker->turn.side_head; // nothing up to there is its own
        lane->is_suspect = false;
        goto out;
    }
    int64_t before = ol_clock_boot_us();
    outcome = ol_turn_write(worker->conn, &lane->outbox, &worker->turn, &parked->arena,
                            &parked->messages, &parked->count, &result, err);
    if (outcome < 0)
        goto out;
    worker->stats->recorded_at = ol_clock_boot_us();
    bool has_recorded = ol_poison_must_record(lane, side);
    outcome = apply_result(lane, side, result, &fresh, &parked, before, err);
    if (result == OL_TURN_DONE)
        lane->is_suspect &= has_recorded; // a careful claim follows
out:
    if (fresh)
        ol_batch_free(fresh);
    if (parked)
        ol_batch_free(parked);
    ol_buf_clear(&capacity);
    return outcome;
}

/* --- a lane's step --- */

/* Others see it in the lane's row, as far as the store takes it. */
static void show_trouble(struct ol_relay_lane *lane)
{
    outlog_err ignored;
    ol_store_exec(lane->worker->conn, OL_Q_LANE_TROUBLE,
                  OL_PARAMS(ol_value_int(lane->outbox.number),
                            ol_value_text(*lane->trouble ? lane->trouble : NULL)),
                  NULL, &ignored);
}

void ol_lane_loop_note_trouble(struct ol_relay_lane *lane, const outlog_err *why)
{
    int64_t pause_us = lane->pause_us ? lane->pause_us * 2 : LANE_RETRY_US;
    lane->pause_us = pause_us < LANE_RETRY_MAX_US ? pause_us : LANE_RETRY_MAX_US;
    lane->retry_at = lane->worker->clock.now + lane->pause_us;
    if (strcmp(lane->trouble, why->message) == 0)
        return;
    memcpy(lane->trouble, why->message, sizeof lane->trouble);
    ol_report_lane(lane->outbox.number, why);
    show_trouble(lane);
}

void ol_lane_loop_end_trouble(struct ol_relay_lane *lane)
{
    lane->pause_us = 0;
    if (!*lane->trouble)
        return;
    lane->trouble[0] = '\0';
    ol_report_lane(lane->outbox.number, NULL);
    show_trouble(lane);
}

/* A turn failed. -1: the store is away, for all lanes. */
static int handle_failure(struct ol_relay_lane *lane, const outlog_err *why)
{
    int64_t now = lane->worker->clock.now;
    bool is_poison = ol_poison_is_suspected(why);
    if (!is_poison)
        lane->retry_at = now + LANE_RETRY_US;
    else if (lane->is_suspect)
        ol_lane_loop_note_trouble(lane, why);
    lane->is_suspect |= is_poison;
    if (now > lane->outbox.lease_end)
        ol_lane_loop_lose(lane);
    return is_poison ? 0 : -1;
}

int ol_lane_loop_turn(struct ol_relay_lane *lane, struct ol_side_cursor *side, bool *moved,
                      outlog_err *err)
{
    lane->is_in_turn = true;
    ol_batch_overlap_begin(lane->worker);
    int result = take_turn(lane, side, err);
    ol_batch_overlap_end(lane->worker);
    if (result < 0) {
        *moved |= !lane->is_suspect && ol_poison_is_suspected(err); // be careful at once
        return handle_failure(lane, err);
    }
    ol_lane_loop_end_trouble(lane);
    return 0;
}

/* Rows that are due may all be behind their keys or for a closed destination: check before writing.
 * If all of them are for a destination that hangs, no query is needed. */
bool ol_lane_loop_finds_due(struct ol_relay_lane *lane, outlog_err *err)
{
    struct ol_buf capacity = {0};
    bool has = false;
    for (struct ol_target *t = lane->worker->targets.first; t; t = t->next)
        t->planned = 0;
    ol_plan_capacity(lane, NULL, &capacity);
    if (capacity.bytes > 2 &&
        ol_lane_has_due(lane->worker->conn, &lane->outbox, capacity.data, &has, err) < 0)
        has = false;
    lane->wants_due = has;
    ol_buf_clear(&capacity);
    return has;
}

static int end_orphan(struct ol_relay_lane *lane, struct ol_relay_item *item, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    bool is_ours;
    ol_turn_begin(&worker->turn, &lane->outbox);
    ol_side_effects_reset(&worker->effects);
    ol_outcomes_one(worker, item);
    ol_side_effects_attach(&worker->effects, &worker->turn);
    if (ol_turn_finish_orphan(worker->conn, &lane->outbox, &worker->turn, &is_ours, err) < 0) {
        if (!ol_poison_is_suspected(err))
            return -1;
        ol_side_effects_omit(&worker->effects, item->claimed, "outcome", err);
        is_ours = false; // the lane's new owner ends it when its lease is over
    }
    if (is_ours)
        ol_outcomes_apply_one(lane, item);
    item->claimed->is_parked = false;
    return 0;
}

/* Forget outcomes for which the new owner did not wait: they have no row of ours. */
static int drop_unclaimed(struct ol_relay_lane *lane, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_counter_map ours = {0};
    char seq[24];
    int more;
    if (ol_store_query(lane->worker->conn, OL_Q_PARKED_OURS,
                       OL_PARAMS(ol_value_int(lane->outbox.number),
                                 ol_value_text(lane->worker->owner.run)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        ol_counter_map_add(&ours, ol_rows_text(&rows, 0, NULL), 1);
    ol_rows_end(&rows);
    for (struct ol_batch *batch = lane->loose; more == 0 && batch; batch = batch->next)
        for (size_t i = 0; i < batch->count; i++) {
            struct ol_claimed_message *message = &batch->messages[i];
            snprintf(seq, sizeof seq, "%lld", (long long)message->seq);
            if (message->is_orphan && !ol_counter_map_get(&ours, seq))
                message->is_parked = false;
        }
    ol_counter_map_clear(&ours);
    return more;
}

/* Stragglers of a lane that has another owner now still end by their own token (rule 13), one by
 * one: some of them may have been claimed by others since. */
static int end_orphans(struct ol_relay_lane *lane, outlog_err *err)
{
    if (drop_unclaimed(lane, err) < 0)
        return -1;
    for (struct ol_batch *batch = lane->loose; batch; batch = batch->next)
        for (size_t i = 0; i < batch->count; i++) {
            struct ol_relay_item *item = &batch->items[i];
            if (item->state != OL_ITEM_DONE || !item->claimed->is_parked ||
                end_orphan(lane, item, err) == 0)
                continue;
            lane->retry_at = lane->worker->clock.now + LANE_RETRY_US;
            return -1;
        }
    ol_outcomes_apply_loose(lane);
    return 0;
}

bool ol_lane_loop_is_plain(const struct ol_relay_lane *lane)
{
    if (lane->loose || lane->wants_due || lane->has_expired_claims || lane->is_releasing ||
        lane->is_suspect || atomic_load(lane->worker->stop))
        return false;
    for (size_t i = 0; lane->open && i < lane->open->count; i++) {
        const struct ol_relay_item *item = &lane->open->items[i];
        if (item->state != OL_ITEM_DONE || item->claimed->outcome.kind != OUTLOG_PUBLISH_OK ||
            item->is_kept || item->claimed->at_most_once || item->notification || item->is_push ||
            ol_effect_is_message(item->claimed))
            return false;
    }
    return true;
}

/* A batch that went well can wait a moment to be recorded: at a steady pace the next claim of the
 * lane comes within milliseconds and records it in the same commit. This does not apply to messages
 * that a crash meanwhile would make DEAD, nor to those that others wait for. */
static bool may_linger(struct ol_relay_lane *lane)
{
    struct ol_worker_clock *clock = &lane->worker->clock;
    int64_t until = lane->open ? lane->open->claimed_at + OL_RELAY_LINGER_US : 0;

    if (until <= clock->now || !ol_lane_loop_is_plain(lane))
        return false;
    if (until < clock->linger_until)
        clock->linger_until = until;
    return true;
}

static void pump_lane(struct ol_relay_lane *lane)
{
    struct ol_worker *worker = lane->worker;
    if (lane->open)
        ol_batch_pump(worker, lane->open);
    for (struct ol_batch *batch = lane->loose; batch; batch = batch->next) {
        ol_batch_pump(worker, batch);
        if (worker->clock.now - batch->claimed_at > worker->options->patience_us ||
            !ol_lane_loop_may_claim(lane))
            ol_batch_release_unsent(batch);
    }
}

/* Is there anything to record or to claim now? */
static bool needs_turn(struct ol_relay_lane *lane, outlog_err *err)
{
    if (lane->open && !ol_batch_is_ready(lane->worker, lane->open) && !ol_plan_is_held_up(lane))
        return false;
    bool may_read = ol_plan_may_read(lane);
    if (!may_read && may_linger(lane))
        return false;
    return lane->open || lane->has_finished || may_read || lane->is_suspect ||
           lane->has_expired_claims || ol_plan_has_done_sides(lane, NULL) ||
           (lane->wants_due && ol_lane_loop_finds_due(lane, err));
}

int ol_lane_loop_step(struct ol_relay_lane *lane, bool *moved, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    if (worker->clock.now < lane->retry_at)
        return 0;
    if (!lane->is_owned)
        return lane->has_finished ? end_orphans(lane, err) : 0;
    pump_lane(lane);
    if (lane->outbox.sides && ol_side_loop_step(lane, moved, err) < 0)
        return -1;
    if (!lane->is_owned || !needs_turn(lane, err))
        return 0;
    int64_t claim_no = lane->outbox.claim_no;
    if (ol_lane_loop_turn(lane, NULL, moved, err) < 0)
        return -1;
    *moved |= lane->is_suspect || lane->outbox.claim_no != claim_no || ol_plan_may_read(lane);
    if (lane->open)
        ol_batch_pump(worker, lane->open);
    return 0;
}
