/* batch.c: messages on the wire: one at a time within a key, side by side across keys (rule 11). */
#include "relay/internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "sessions/outbox_push.h"
#include "telemetry/report.h"

#include <stdlib.h>
#include <string.h>

void ol_batch_free(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        ol_claimed_message_clear(&batch->items[i]);
    ol_arena_clear(&batch->arena);
    free(batch);
}

static bool is_over(const struct ol_batch *batch)
{
    return batch->done == batch->count;
}

/* --- queues --- */

static void stand_in_line(struct ol_claimed_message *item)
{
    struct ol_destination_queue *queue = item->queue;
    if (queue->last)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
}

/* Who goes next, past those that have ended since they stood in line; NULL: nobody. */
static struct ol_claimed_message *next_in_line(struct ol_destination_queue *queue)
{
    while (queue->first && queue->first->state != OL_CLAIMED_WAITING)
        queue->first = queue->first->next;
    if (!queue->first)
        queue->last = NULL;
    return queue->first;
}

void ol_batch_unqueue(struct ol_worker *worker, struct ol_claimed_message *item)
{
    struct ol_destination_queue *queue = item->queue;
    if (!queue)
        return; // memory was out when it should have been put in one
    queue->waiting--;
    worker->waiting--;
}

/* The queue of a destination; NULL when memory is out. */
static struct ol_destination_queue *find_queue(struct ol_worker *worker, struct ol_batch *batch,
                                               const char *destination)
{
    size_t count = batch->queue_count;
    if (count && strcmp(batch->queues[count - 1].destination, destination) == 0)
        return &batch->queues[count - 1]; // most batches have one
    int64_t number = ol_map_get(&worker->queues, destination);
    if (number)
        return &batch->queues[number - 1];
    if (!ol_map_add(&worker->queues, destination, (int64_t)batch->queue_count + 1))
        return NULL;
    batch->queues[batch->queue_count] = (struct ol_destination_queue){.destination = destination};
    return &batch->queues[batch->queue_count++];
}

/* The next message of a key may go when the one before it got through. */
static bool link_key(struct ol_worker *worker, struct ol_batch *batch, size_t i)
{
    struct ol_claimed_message *item = &batch->items[i];
    item->is_first = true;
    if (!item->key)
        return true;
    int64_t before = ol_map_get(&worker->chain, item->key);
    if (before) {
        item->is_first = false;
        batch->items[before - 1].behind = item;
    }
    return ol_map_add(&worker->chain, item->key, (int64_t)i + 1 - before);
}

bool ol_batch_link(struct ol_worker *worker, struct ol_batch *batch)
{
    ol_map_clear(&worker->chain);
    ol_map_clear(&worker->queues);
    batch->queues = ol_arena_array(&batch->arena, batch->count, sizeof *batch->queues);
    if (!batch->queues)
        return false;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_claimed_message *item = &batch->items[i];
        item->batch = batch;
        struct ol_destination_queue *queue = find_queue(worker, batch, item->message.destination);
        if (!queue)
            return false;
        item->queue = queue;
        queue->waiting++;
        worker->waiting++;
        if (!link_key(worker, batch, i))
            return false;
        if (item->is_first)
            stand_in_line(item);
    }
    return true;
}

/* --- outcomes --- */

/* R4: every failure, and successes where the publisher and the destination ask for it. */
static bool keeps_attempt(const struct ol_target *target, const struct outlog_outcome *outcome)
{
    if (outcome->kind == OUTLOG_PUBLISH_RELEASED)
        return false;
    return outcome->kind != OUTLOG_PUBLISH_OK ||
           (ol_sender_channel_publisher(target->outlet)->keeps_attempts &&
            target->settings->keep == OL_KEEP_ALL);
}

/* It is DONE for whoever looks at it. */
static void land(struct ol_claimed_message *item)
{
    struct ol_batch *batch = item->batch;
    item->state = OL_CLAIMED_DONE;
    if (item->outcome.kind == OUTLOG_PUBLISH_OK && item->behind) {
        item->behind->is_first = true;
        stand_in_line(item->behind);
    }
    ((struct ol_destination_queue *)item->queue)->flying--;
    batch->flying--;
    batch->done++;
    batch->lane->has_finished = true;
    item->is_kept = keeps_attempt(item->target, &item->outcome);
    item->target = NULL; // it may be closed before this is recorded
}

void ol_batch_done(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct ol_worker *worker = user;
    struct ol_claimed_message *item = tag;
    struct ol_batch *batch = item->batch;
    struct ol_target *target = item->target;

    item->outcome = *outcome;
    item->outcome.response = item->outcome.error = NULL;
    if (outcome->error)
        item->error = strdup(outcome->error);
    if (outcome->response)
        item->response = strndup(outcome->response, outcome->response_bytes);
    ol_quota_give(&target->quota, item->message.payload_bytes);
    ol_target_note(target, &item->outcome, worker->now);
    ol_delivery_span_attempt(worker->options->tracer, &batch->claim, item);
    if (!batch->lane->is_in_turn) {
        land(item);
        return;
    }
    item->landed = worker->landed;
    worker->landed = item;
}

void ol_batch_land(struct ol_worker *worker)
{
    while (worker->landed) {
        struct ol_claimed_message *item = worker->landed;
        worker->landed = item->landed;
        land(item);
    }
}

/* --- sending --- */

/* What cannot be rendered, now or ever, ends without an attempt on the wire. */
static void refuse(struct ol_worker *worker, struct ol_batch *batch,
                   struct ol_claimed_message *item, const outlog_err *why)
{
    item->state = OL_CLAIMED_DONE;
    item->started_at = ol_clock_wall_us();
    item->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED, .is_permanent = true};
    item->error = strdup(why->message);
    item->is_kept = true;
    batch->done++;
    batch->lane->has_finished = true;
    ol_batch_unqueue(worker, item);
}

/* A notification gets its words before it leaves. False: the store did not say, or it is over. */
static bool has_words(struct ol_worker *worker, struct ol_batch *batch,
                      struct ol_claimed_message *item, const struct ol_target *target)
{
    outlog_err err;
    if (item->notice || !ol_render_is_needed(&item->message))
        return true;
    if (worker->is_interlude)
        return false; // its words stand in the store, which has something else to do
    ol_sender_flush(worker->targets.sender); // the others need not wait for them
    bool is_feed = strcmp(target->settings->type, "in_app") == 0;
    if (ol_render_prepare(&worker->notices, worker->conn, is_feed, &batch->arena, item, &err) ==
        0) {
        if (!worker->options->quiet)
            ol_report_move(OL_LOGLINE_INFO, &item->message, "PENDING", "CLAIMED", NULL);
        return true;
    }
    if (ol_render_is_final(&err))
        refuse(worker, batch, item, &err);
    return false;
}

/* What goes to a session must name it. False: it is over. */
static bool has_session(struct ol_worker *worker, struct ol_batch *batch,
                        struct ol_claimed_message *item, const struct ol_target *target)
{
    outlog_err err;
    item->is_push = strcmp(target->settings->type, "websocket") == 0;
    if (!item->is_push || ol_outbox_push_check(&item->message, &err) == 0)
        return true;
    refuse(worker, batch, item, &err);
    return false;
}

/* Rule 4: a byte leaves only while the lease surely outlasts the attempt: the lane's, and that of
 * the message's own row, which nobody renews. The clock is read here and now: a process that was
 * stopped in between must not send on an old look at it. False: none of its destination can go now.
 */
static bool send(struct ol_worker *worker, struct ol_batch *batch, struct ol_target *target,
                 struct ol_claimed_message *item)
{
    struct ol_destination_queue *queue = item->queue;
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
        ol_delivery_span_join(item, &batch->arena);
    if (!worker->options->quiet && !item->notice) // a notification told it when it got its words
        ol_report_move(OL_LOGLINE_DEBUG, &item->message, "PENDING", "CLAIMED", NULL);
    item->state = OL_CLAIMED_IN_FLIGHT;
    ol_batch_unqueue(worker, item);
    queue->flying++;
    if (ol_sender_channel_in_flight(target->outlet) == 0)
        ol_target_begin(target, worker->now);
    item->started_at = ol_clock_wall_us();
    item->target = target;
    batch->flying++;
    ol_fault("publish.sent");
    ol_sender_channel_submit(target->outlet, &item->message, end, item);
    return true;
}

/* Send until the destination takes no more. Outcomes that come at once lengthen the line. */
static void pump_queue(struct ol_worker *worker, struct ol_batch *batch,
                       struct ol_destination_queue *queue)
{
    struct ol_claimed_message *item = next_in_line(queue);
    struct ol_target *target = item ? ol_target_find(&worker->targets, queue->destination) : NULL;
    if (!target || !target->outlet || target->is_paused)
        return;
    for (; item; item = next_in_line(queue)) {
        bool may_go = has_words(worker, batch, item, target) &&
                      has_session(worker, batch, item, target);
        if (item->state == OL_CLAIMED_WAITING && (!may_go || !send(worker, batch, target, item)))
            return;
    }
}

void ol_batch_pump(struct ol_worker *worker, struct ol_batch *batch)
{
    if (atomic_load(worker->stop)) // what was not sent is handed back
        return;
    for (size_t i = 0; i < batch->queue_count; i++)
        pump_queue(worker, batch, &batch->queues[i]);
}

/* What was not sent is not ours to send any more: its row says who may. */
void ol_batch_drop_unsent(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state == OL_CLAIMED_WAITING) {
            batch->items[i].state = OL_CLAIMED_DONE;
            batch->items[i].is_parked = false;
            batch->done++;
            ol_batch_unqueue(batch->lane->worker, &batch->items[i]);
        }
}

/* Parked messages that could not be sent in time go back, as if never tried. */
void ol_batch_release_unsent(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_claimed_message *item = &batch->items[i];
        if (item->state != OL_CLAIMED_WAITING || !item->is_parked)
            continue;
        item->state = OL_CLAIMED_DONE;
        item->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_RELEASED};
        batch->done++;
        ol_batch_unqueue(batch->lane->worker, item);
        batch->lane->has_finished = true;
    }
}

/* Would a message of it leave by itself soon? Not one behind its key: how long that takes is not
 * ours. */
static bool waits_for_place(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->queue_count; i++) {
        const struct ol_target *target =
            next_in_line(&batch->queues[i])
                ? ol_target_find(&worker->targets, batch->queues[i].destination)
                : NULL;
        if (target && ol_target_is_quick(target, worker->options->patience_us, worker->now))
            return true;
    }
    return false;
}

/* Is a message of it on the wire to somebody who answers, if not quite within our patience? */
static bool waits_for_answer(struct ol_worker *worker, const struct ol_batch *batch)
{
    int64_t patience = worker->options->patience_us;
    for (size_t i = 0; i < batch->count; i++) {
        const struct ol_target *target = batch->items[i].target;
        if (batch->items[i].state == OL_CLAIMED_IN_FLIGHT && target->has_answered &&
            target->latency_us < (double)(patience * 2) &&
            ol_target_is_quick(target, patience, worker->now))
            return true;
    }
    return false;
}

/* Is all that is left of it for destinations that hang? */
static bool waits_in_vain(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->queue_count; i++) {
        struct ol_destination_queue *queue = &batch->queues[i];
        if (!queue->flying && !queue->waiting)
            continue;
        const struct ol_target *target = ol_target_find(&worker->targets, queue->destination);
        if (!target || !ol_target_is_passed_by(target, worker->options->patience_us, worker->now))
            return false;
    }
    return true;
}

/* The open batch is recorded when nothing more can happen to it now, or patience is over. It is
 * longer for what waits for a place where places come free, and twice as long for answers of who
 * answers: on a machine that is short of time to park such messages would take more of it. */
bool ol_batch_is_ready(struct ol_worker *worker, const struct ol_batch *batch)
{
    enum { LONGER = 8 };
    int64_t waited = worker->now - batch->claimed_at, patience = worker->options->patience_us;
    if (is_over(batch) || waited >= patience * LONGER)
        return true;
    if (waited >= patience)
        return atomic_load(worker->stop) != 0 ||
               (!waits_for_place(worker, batch) &&
                (waited >= patience * 2 || !waits_for_answer(worker, batch)));
    if (batch->flying)
        return waits_in_vain(worker, batch);
    for (size_t i = 0; i < batch->queue_count && atomic_load(worker->stop) == 0; i++)
        if (next_in_line(&batch->queues[i]))
            return false; // waits for a place
    return true;
}
