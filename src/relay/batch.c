/* batch.c: messages on the wire: one at a time within a key, side by side across keys (rule 11). */
#include "relay/work.h"

#include "base/clock.h"
#include "base/fault.h"
#include "relay/report.h"

#include <stdlib.h>
#include <string.h>

void ol_batch_free(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        ol_item_clear(&batch->items[i]);
    ol_arena_clear(&batch->arena);
    free(batch);
}

static bool is_over(const struct ol_batch *batch)
{
    return batch->done == batch->count;
}

/* The next message of a key may go when the one before it got through. */
static bool is_next(const struct ol_item *item)
{
    return item->state == OL_ITEM_WAITING && item->is_first;
}

/* R4: every failure, and successes where the publisher and the destination ask for it. */
static bool keeps_attempt(const struct ol_target *target, const struct outlog_outcome *outcome)
{
    if (outcome->kind == OUTLOG_PUBLISH_RELEASED)
        return false;
    return outcome->kind != OUTLOG_PUBLISH_OK ||
           (ol_outlet_publisher(target->outlet)->keeps_attempts &&
            target->settings->keep == OL_KEEP_ALL);
}

void ol_batch_done(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct ol_worker *worker = user;
    struct ol_item *item = tag;
    struct ol_batch *batch = item->batch;
    struct ol_target *target = item->target;

    item->state = OL_ITEM_DONE;
    item->outcome = *outcome;
    item->outcome.response = item->outcome.error = NULL;
    if (outcome->error)
        item->error = strdup(outcome->error);
    if (outcome->response)
        item->response = strndup(outcome->response, outcome->response_bytes);
    if (outcome->kind == OUTLOG_PUBLISH_OK && item->behind)
        item->behind->is_first = true;
    batch->flying--;
    batch->done++;
    batch->lane->has_finished = true;
    item->is_kept = keeps_attempt(target, outcome);
    item->target = NULL; // it may be closed before this is recorded
    ol_quota_give(&target->quota, item->message.payload_bytes);
    ol_target_note(target, &item->outcome, worker->now);
    ol_tracing_attempt(worker->options->tracer, &batch->claim, item);
}

/* --- sending --- */

/* What cannot be rendered, now or ever, ends without an attempt on the wire. */
static void refuse(struct ol_worker *worker, struct ol_batch *batch, struct ol_item *item,
                   const outlog_err *why)
{
    item->state = OL_ITEM_DONE;
    item->started_at = ol_clock_wall_us();
    item->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED, .is_permanent = true};
    item->error = strdup(why->message);
    item->is_kept = true;
    batch->done++;
    batch->lane->has_finished = true;
    worker->waiting--;
}

/* A notification gets its words before it leaves. False: not now, or it is over. */
static bool has_words(struct ol_worker *worker, struct ol_batch *batch, struct ol_item *item,
                      const struct ol_target *target)
{
    outlog_err err;
    if (item->notice || !ol_notice_is(&item->message))
        return true;
    bool is_feed = strcmp(target->settings->type, "in_app") == 0;
    if (ol_notice_prepare(&worker->notices, worker->conn, is_feed, &batch->arena, item, &err) ==
        0) {
        if (!worker->options->quiet)
            ol_report_move(OL_LINE_INFO, &item->message, "PENDING", "CLAIMED", NULL);
        return true;
    }
    if (ol_notice_is_final(&err))
        refuse(worker, batch, item, &err);
    return false;
}

/* Rule 4: a byte leaves only while the lease surely outlasts the attempt: the lane's, and that of the
 * message's own row, which nobody renews. The clock is read here and now: a process that was stopped in
 * between must not send on an old look at it. */
static bool send(struct ol_worker *worker, struct ol_batch *batch, struct ol_item *item)
{
    struct ol_target *target = ol_target_find(&worker->targets, item->message.destination);
    if (!target || !target->outlet || target->is_paused || !has_words(worker, batch, item, target))
        return false;
    worker->now = ol_clock_boot_us();
    int64_t lease_end = batch->lane->lane.lease_end;
    if (batch->lease_end && batch->lease_end < lease_end)
        lease_end = batch->lease_end;
    int64_t left = lease_end - worker->margin_us - worker->now;
    int64_t half = worker->options->lease_us / 2, timeout = target->settings->timeout_us;
    if (left < (timeout < half ? timeout : half))
        return false;
    int64_t end = worker->now + (timeout < left ? timeout : left);
    if (!ol_quota_take(&target->quota, item->message.payload_bytes, worker->now))
        return false;
    if (!ol_breaker_admit(&target->breaker, worker->now)) {
        ol_quota_give(&target->quota, item->message.payload_bytes);
        return false;
    }
    if (worker->options->tracer)
        ol_tracing_join(item, &batch->arena);
    if (!worker->options->quiet && !item->notice) // a notification told it when it got its words
        ol_report_move(OL_LINE_DEBUG, &item->message, "PENDING", "CLAIMED", NULL);
    item->state = OL_ITEM_FLYING;
    worker->waiting--;
    if (ol_outlet_in_flight(target->outlet) == 0)
        target->moved_at = worker->now;
    item->started_at = ol_clock_wall_us();
    item->target = target;
    batch->flying++;
    ol_fault("publish.sent");
    ol_outlet_submit(target->outlet, &item->message, end, item);
    return true;
}

void ol_batch_pump(struct ol_worker *worker, struct ol_batch *batch)
{
    bool moved = atomic_load(worker->stop) == 0; // when we stop, what was not sent is handed back
    while (moved && batch->flying + batch->done < batch->count) {
        moved = false;
        for (size_t i = 0; i < batch->count; i++)
            if (is_next(&batch->items[i]) && send(worker, batch, &batch->items[i]))
                moved = true; // an outcome that came at once may have freed the next of its key
    }
}

/* What was not sent is not ours to send any more: its row says who may. */
void ol_batch_drop_unsent(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state == OL_ITEM_WAITING) {
            batch->items[i].state = OL_ITEM_DONE;
            batch->items[i].is_parked = false;
            batch->done++;
            batch->lane->worker->waiting--;
        }
}

/* Parked messages that could not be sent in time go back, as if never tried. */
void ol_batch_release_unsent(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_item *item = &batch->items[i];
        if (item->state != OL_ITEM_WAITING || !item->is_parked)
            continue;
        item->state = OL_ITEM_DONE;
        item->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_RELEASED};
        batch->done++;
        batch->lane->worker->waiting--;
        batch->lane->has_finished = true;
    }
}

/* Put the messages of one key behind each other. */
bool ol_batch_link(struct ol_worker *worker, struct ol_batch *batch)
{
    worker->waiting += batch->count;
    ol_map_clear(&worker->chain);
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_item *item = &batch->items[i];
        item->batch = batch;
        item->is_first = true;
        if (!item->key)
            continue;
        int64_t before = ol_map_get(&worker->chain, item->key);
        if (before) {
            item->is_first = false;
            batch->items[before - 1].behind = item;
        }
        if (!ol_map_add(&worker->chain, item->key, (int64_t)i + 1 - before))
            return false;
    }
    return true;
}

/* Would a message of it leave by itself soon? Not one behind its key: how long that takes is not ours. */
static bool waits_for_place(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct ol_item *item = &batch->items[i];
        struct ol_target *target =
            is_next(item) ? ol_target_find(&worker->targets, item->message.destination) : NULL;
        if (target && ol_target_is_quick(target, worker->options->patience_us, worker->now))
            return true;
    }
    return false;
}

/* The open batch is recorded when nothing more can happen to it now, or patience is over. It is
 * longer for what waits for a place where places come free: on a machine that is short of time to
 * park such messages would take more of it. */
bool ol_batch_is_ready(struct ol_worker *worker, const struct ol_batch *batch)
{
    enum { LONGER = 8 };
    int64_t waited = worker->now - batch->claimed_at, patience = worker->options->patience_us;
    if (is_over(batch) || waited >= patience * LONGER)
        return true;
    if (waited >= patience)
        return atomic_load(worker->stop) != 0 || !waits_for_place(worker, batch);
    if (batch->flying)
        return false;
    for (size_t i = 0; i < batch->count && atomic_load(worker->stop) == 0; i++)
        if (is_next(&batch->items[i]))
            return false; // waits for a place
    return true;
}
