/* lane_loop.c: a lane's step: record what was claimed, claim what comes next.
 *
 * A turn is built without changing anything, written in one transaction, and applied to memory only
 * when it is known to be stored. So a turn can be built again after a lost connection, and a fenced
 * one leaves no trace. */
#include "relay/internal.h"

#include "base/clock.h"

#include <stdlib.h>

/* Forget a lane that is not ours any more. Whatever is on the wire ends by its own token, if it has
 * one; the rest was parked by whoever took the lane. */
void ol_lane_loop_lose(struct ol_relay_lane *wl)
{
    struct ol_worker *worker = wl->worker;
    wl->is_owned = false;
    worker->owned--;
    if (wl->open) {
        for (size_t i = 0; i < wl->open->count; i++)
            wl->open->items[i].is_parked = false; // outcomes of these are dropped
        wl->open->next = wl->loose;
        wl->loose = wl->open;
        wl->open = NULL;
    }
    for (struct ol_batch *batch = wl->loose; batch; batch = batch->next)
        ol_batch_drop_unsent(batch);
    wl->has_finished = true; // what ended already is recorded by its own token, or dropped
}

int ol_lane_loop_reload(struct ol_relay_lane *wl, outlog_err *err)
{
    wl->worker->wants_settings = true;
    return ol_lane_reload(wl->worker->conn, &wl->lane, err);
}

static bool claims_parked(const struct ol_relay_lane *wl)
{
    return wl->wants_due && !wl->gives_back && !wl->worker->wants_settings &&
           atomic_load(wl->worker->stop) == 0;
}

/* Leases of rows count from `before` their claim was sent, and not from when the round began: other
 * lanes' turns may have taken long, and then these would have no time left to be sent. */
static int start_parked(struct ol_relay_lane *wl, struct ol_batch *holder,
                        struct ol_claimed_message *items, size_t count, int64_t before,
                        outlog_err *err)
{
    holder->items = items;
    holder->count = count;
    holder->claimed_at = before;
    holder->claim = ol_delivery_span_since(before);
    holder->lease_end = before + wl->worker->turn.row_lease_us;
    if (!ol_batch_link(wl->worker, holder))
        return ol_no_memory(err);
    for (size_t i = 0; i < count; i++)
        ol_outcomes_if_spent(wl, &items[i]);
    holder->next = wl->loose;
    wl->loose = holder;
    return 0;
}

static int build(struct ol_relay_lane *wl, struct ol_batch **fresh, struct ol_buf *rooms,
                 outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    struct ol_turn *turn = &worker->turn;
    bool may_claim = !wl->gives_back && atomic_load(worker->stop) == 0;

    ol_turn_begin(turn, &wl->lane);
    ol_side_effects_reset(&worker->record);
    turn->row_lease_us = wl->lane.lease_us;
    turn->reap = wl->wants_reap;
    if (wl->open)
        ol_outcomes_open(worker, wl->open);
    for (struct ol_batch *batch = wl->loose; batch; batch = batch->next)
        ol_outcomes_loose(worker, batch);
    ol_map_clear(&worker->parked);
    ol_map_clear(&worker->parked_to);
    if (may_claim && ol_plan_may_read(wl)) {
        if (ol_plan_claim(wl, fresh, err) < 0)
            return -1;
    }
    if (claims_parked(wl)) {
        ol_plan_capacity(wl, rooms);
        turn->rooms = rooms->data;
    }
    ol_side_effects_attach(&worker->record, turn);
    return 0;
}

/* Keys that failed in the batch being recorded must block the plan made beside it. */
static void block_failed_keys(struct ol_relay_lane *wl, int64_t by)
{
    for (size_t i = 0; wl->open && i < wl->open->count; i++) {
        struct ol_claimed_message *item = &wl->open->items[i];
        if (item->state != OL_CLAIMED_DONE || item->outcome.kind != OUTLOG_PUBLISH_OK)
            ol_outcomes_count_key(wl, item, by);
    }
}

/* Keys of the messages that the plan parked with attempts 0. */
static void apply_parked_keys(struct ol_relay_lane *wl)
{
    struct ol_map *parked = &wl->worker->parked;
    for (size_t i = 0; i < parked->capacity; i++)
        if (parked->entries[i].key)
            ol_map_add(&wl->lane.keys, parked->entries[i].key, parked->entries[i].count);
    parked = &wl->worker->parked_to;
    for (size_t i = 0; i < parked->capacity; i++)
        if (parked->entries[i].key)
            ol_map_add(&wl->lane.waiting, parked->entries[i].key, parked->entries[i].count);
}

/* What was claimed is on its way. */
int ol_lane_loop_open(struct ol_relay_lane *wl, struct ol_batch *fresh, outlog_err *err)
{
    fresh->claimed_at = wl->worker->now;
    fresh->claim = ol_delivery_span_since(wl->worker->now);
    wl->open = fresh;
    return ol_batch_link(wl->worker, fresh) ? 0 : ol_no_memory(err);
}

static int take_turn(struct ol_relay_lane *wl, outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    struct ol_batch *fresh = NULL, *holder = calloc(1, sizeof *holder);
    struct ol_buf rooms = {0};
    struct ol_claimed_message *items;
    size_t count;
    enum ol_turn_result result;
    int outcome = -1;

    if (!holder)
        return ol_no_memory(err);
    holder->lane = wl;
    block_failed_keys(wl, 1);
    int built = build(wl, &fresh, &rooms, err);
    block_failed_keys(wl, -1);
    if (built < 0)
        goto out;
    struct ol_turn *t = &worker->turn;
    bool is_empty = !wl->open && !t->finished_count && !t->planned_count && !t->sent_count &&
                    t->head == wl->lane.head && !t->rooms && !t->reap;
    if (is_empty) {
        outcome = 0;
        goto out;
    }
    int64_t before = ol_clock_boot_us();
    if (ol_turn_write(worker->conn, &wl->lane, t, &holder->arena, &items, &count, &result, err) < 0)
        goto out;
    outcome = 0;
    worker->stats->recorded_at = ol_clock_boot_us();
    if (result == OL_TURN_STALE) {
        outcome = ol_lane_loop_reload(wl, err);
        wl->wants_read = true; // what was read must be read again
        goto out;
    }
    if (result == OL_TURN_FENCED) {
        worker->stats->fenced++;
        ol_lane_loop_lose(wl);
        goto out;
    }
    wl->wants_reap = false;
    wl->wants_due = count > 0;
    if (wl->open)
        ol_outcomes_apply_open(wl);
    ol_outcomes_apply_loose(wl);
    apply_parked_keys(wl);
    // What is claimed is claimed, also when the store cannot be read now: were it forgotten here,
    // the next turn would record it as published.
    if (wl->lane.is_reaped && ol_lane_reload(worker->conn, &wl->lane, err) < 0)
        ol_lane_invalidate(&wl->lane);
    if (fresh && fresh->count) {
        outcome = ol_lane_loop_open(wl, fresh, err);
        fresh = NULL;
        if (outcome < 0)
            goto out;
    }
    if (count) {
        outcome = start_parked(wl, holder, items, count, before, err);
        holder = outcome == 0 ? NULL : holder;
    }
out:
    if (fresh)
        ol_batch_free(fresh);
    if (holder)
        ol_batch_free(holder);
    ol_buf_clear(&rooms);
    return outcome;
}

static int turn(struct ol_relay_lane *wl, outlog_err *err)
{
    wl->is_in_turn = true;
    ol_overlap_begin(wl->worker);
    int result = take_turn(wl, err);
    ol_overlap_end(wl->worker);
    return result;
}

/* --- a lane's step --- */

/* Rows that are due may all stand behind their keys or a closed destination: look before writing.
 * Where all of them are for one that hangs there is no need to look. */
bool ol_lane_loop_finds_due(struct ol_relay_lane *wl, outlog_err *err)
{
    struct ol_buf rooms = {0};
    bool has = false;
    for (struct ol_target *t = wl->worker->targets.first; t; t = t->next)
        t->planned = 0;
    ol_plan_capacity(wl, &rooms);
    if (rooms.bytes > 2 && ol_lane_has_due(wl->worker->conn, &wl->lane, rooms.data, &has, err) < 0)
        has = false;
    wl->wants_due = has;
    ol_buf_clear(&rooms);
    return has;
}

static int end_orphan(struct ol_relay_lane *wl, struct ol_claimed_message *item, outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    bool is_ours;
    ol_turn_begin(&worker->turn, &wl->lane);
    ol_side_effects_reset(&worker->record);
    ol_outcomes_one(worker, item);
    ol_side_effects_attach(&worker->record, &worker->turn);
    if (ol_turn_finish_orphan(worker->conn, &wl->lane, &worker->turn, &is_ours, err) < 0)
        return -1;
    if (is_ours)
        ol_outcomes_apply_one(wl, item);
    item->is_parked = false;
    return 0;
}

/* Stragglers of a lane that somebody else has now still end by their own token (rule 13), each for
 * itself: one may have been given to somebody else, and the others not. */
static int end_orphans(struct ol_relay_lane *wl, outlog_err *err)
{
    for (struct ol_batch *batch = wl->loose; batch; batch = batch->next)
        for (size_t i = 0; i < batch->count; i++) {
            struct ol_claimed_message *item = &batch->items[i];
            if (item->state != OL_CLAIMED_DONE || !item->is_parked ||
                end_orphan(wl, item, err) == 0)
                continue;
            wl->retry_at = wl->worker->now + 100000;
            return -1;
        }
    ol_outcomes_apply_loose(wl);
    return 0;
}

bool ol_lane_loop_is_plain(const struct ol_relay_lane *wl)
{
    if (wl->loose || wl->wants_due || wl->wants_reap || wl->gives_back ||
        atomic_load(wl->worker->stop))
        return false;
    for (size_t i = 0; wl->open && i < wl->open->count; i++) {
        const struct ol_claimed_message *item = &wl->open->items[i];
        if (item->state != OL_CLAIMED_DONE || item->outcome.kind != OUTLOG_PUBLISH_OK ||
            item->is_kept || item->at_most_once || item->notice || item->is_push ||
            ol_effect_is_message(item))
            return false;
    }
    return true;
}

/* A batch that went well can wait a moment to be recorded: at a steady pace the next claim of the
 * lane comes within milliseconds and records it in the same commit. Not what a crash meanwhile
 * would condemn, nor what others wait for. */
static bool lingers(struct ol_relay_lane *wl)
{
    struct ol_worker *worker = wl->worker;
    int64_t until = wl->open ? wl->open->claimed_at + OL_RELAY_LINGER_US : 0;

    if (until <= worker->now || !ol_lane_loop_is_plain(wl))
        return false;
    if (until < worker->linger_until)
        worker->linger_until = until;
    return true;
}

int ol_lane_loop_step(struct ol_relay_lane *wl, bool *moved, outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    if (worker->now < wl->retry_at)
        return 0;
    if (!wl->is_owned)
        return wl->has_finished ? end_orphans(wl, err) : 0;
    if (wl->open)
        ol_batch_pump(worker, wl->open);
    for (struct ol_batch *batch = wl->loose; batch; batch = batch->next) {
        ol_batch_pump(worker, batch);
        if (worker->now - batch->claimed_at > worker->options->patience_us || wl->gives_back ||
            atomic_load(worker->stop))
            ol_batch_release_unsent(batch);
    }
    if (wl->open && !ol_batch_is_ready(worker, wl->open))
        return 0;
    bool reads = ol_plan_may_read(wl);
    if (!reads && lingers(wl))
        return 0;
    if (!wl->open && !wl->has_finished && !reads && !wl->wants_reap &&
        (!wl->wants_due || !ol_lane_loop_finds_due(wl, err)))
        return 0;
    int64_t claim_no = wl->lane.claim_no;
    if (turn(wl, err) < 0) {
        wl->retry_at = worker->now + 100000;
        if (worker->now > wl->lane.lease_end)
            ol_lane_loop_lose(wl);
        return -1;
    }
    *moved |= wl->lane.claim_no != claim_no || ol_plan_may_read(wl);
    if (wl->open)
        ol_batch_pump(worker, wl->open);
    return 0;
}
