/* batch.c: messages on the wire: one at a time within a key, side by side across keys (rule 11).
 *
 * Sending continues while the store works on a turn. A turn with attempts takes milliseconds, in
 * which the connections of a fast receiver would be idle.
 *
 * I1  A turn is built from what is known of its lane's messages, written, and applied to the same
 *     knowledge. So a lane in a turn sends nothing, and outcomes of its messages wait for the end
 *     of the turn.
 * I2  During such an overlap the store is not used: it is busy.
 * I3  The overlap leaves clock.now as it was: leases count from before a statement was sent. */
#include "relay/internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "destinations/publisher_type.h"
#include "sessions/outbox_push.h"
#include "telemetry/report.h"

#include <stdlib.h>
#include <string.h>

void ol_batch_free(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        ol_claimed_message_clear(&batch->messages[i]);
    ol_arena_clear(&batch->arena);
    free(batch);
}

/* --- queues --- */

static void enqueue_item(struct ol_relay_item *item)
{
    struct ol_destination_queue *queue = item->queue;
    if (queue->last)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
}

/* The item to send next; NULL: none. Drops those that have ended since they were queued. */
static struct ol_relay_item *peek_queue(struct ol_destination_queue *queue)
{
    while (queue->first && queue->first->state != OL_ITEM_WAITING)
        queue->first = queue->first->next;
    if (!queue->first)
        queue->last = NULL;
    return queue->first;
}

static size_t *find_waiting(struct ol_worker *worker, const struct ol_batch *batch)
{
    return batch->is_side ? &worker->sending.side_waiting : &worker->sending.waiting;
}

void ol_batch_unqueue(struct ol_worker *worker, struct ol_relay_item *item)
{
    if (!item->queue)
        return; // memory was out when it should have been queued
    item->queue->waiting--;
    --*find_waiting(worker, item->batch);
}

/* An outcome is to be recorded. That of a side cursor's open batch waits for the whole batch. */
static void note_finished(struct ol_batch *batch)
{
    if (!batch->side)
        batch->lane->has_finished = true;
}

/* The queue of a destination; NULL when memory is out. */
static struct ol_destination_queue *find_queue(struct ol_worker *worker, struct ol_batch *batch,
                                               const char *destination)
{
    size_t count = batch->queue_count;
    if (count && strcmp(batch->queues[count - 1].destination, destination) == 0)
        return &batch->queues[count - 1]; // most batches have one
    int64_t number = ol_counter_map_get(&worker->scratch.queues, destination);
    if (number)
        return &batch->queues[number - 1];
    if (!ol_counter_map_add(&worker->scratch.queues, destination, (int64_t)batch->queue_count + 1))
        return NULL;
    batch->queues[batch->queue_count] = (struct ol_destination_queue){.destination = destination};
    return &batch->queues[batch->queue_count++];
}

/* The next message of a key may go when the one before it was published. */
static bool link_key(struct ol_worker *worker, struct ol_batch *batch, size_t i)
{
    struct ol_relay_item *item = &batch->items[i];
    const char *key = item->claimed->key;
    item->is_first = true;
    if (!key)
        return true;
    int64_t before = ol_counter_map_get(&worker->scratch.chain, key);
    if (before) {
        item->is_first = false;
        batch->items[before - 1].behind = item;
    }
    return ol_counter_map_add(&worker->scratch.chain, key, (int64_t)i + 1 - before);
}

bool ol_batch_wrap(struct ol_batch *batch)
{
    batch->items = ol_arena_array(&batch->arena, batch->count, sizeof *batch->items);
    batch->queues = ol_arena_array(&batch->arena, batch->count, sizeof *batch->queues);
    if (batch->count && (!batch->items || !batch->queues))
        return false;
    for (size_t i = 0; i < batch->count; i++)
        batch->items[i] = (struct ol_relay_item){.claimed = &batch->messages[i], .batch = batch};
    return true;
}

bool ol_batch_link(struct ol_worker *worker, struct ol_batch *batch)
{
    ol_counter_map_clear(&worker->scratch.chain);
    ol_counter_map_clear(&worker->scratch.queues);
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_relay_item *item = &batch->items[i];
        struct ol_destination_queue *queue =
            find_queue(worker, batch, item->claimed->message.destination);
        if (!queue)
            return false;
        item->queue = queue;
        queue->waiting++;
        ++*find_waiting(worker, batch);
        if (!link_key(worker, batch, i))
            return false;
        if (item->is_first)
            enqueue_item(item);
    }
    return true;
}

/* --- outcomes --- */

/* R4: every failure, and successes if the publisher and the destination ask for them. */
static bool keeps_attempt(const struct ol_target *target, const struct outlog_outcome *outcome)
{
    if (outcome->kind == OUTLOG_PUBLISH_RELEASED)
        return false;
    return outcome->kind != OUTLOG_PUBLISH_OK ||
           (ol_sender_channel_publisher(target->channel)->keeps_attempts &&
            target->settings->keep == OL_KEEP_ALL);
}

/* From here on the outcome may be recorded, and the next message of the key may go. */
static void complete_item(struct ol_relay_item *item)
{
    struct ol_batch *batch = item->batch;
    const struct outlog_outcome *outcome = &item->claimed->outcome;
    item->state = OL_ITEM_DONE;
    if (outcome->kind == OUTLOG_PUBLISH_OK && item->behind) {
        item->behind->is_first = true;
        enqueue_item(item->behind);
    }
    item->queue->in_flight--;
    batch->in_flight--;
    batch->done++;
    note_finished(batch);
    item->is_kept = keeps_attempt(item->target, outcome);
    item->target = NULL; // it may be closed before this is recorded
}

void ol_batch_done(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct ol_worker *worker = user;
    struct ol_relay_item *item = tag;
    struct ol_batch *batch = item->batch;
    struct ol_claimed_message *claimed = item->claimed;

    claimed->outcome = *outcome;
    claimed->outcome.response = claimed->outcome.error = NULL;
    if (outcome->error)
        claimed->error = strdup(outcome->error);
    if (outcome->response)
        claimed->response = strndup(outcome->response, outcome->response_bytes);
    ol_quota_give(&item->target->quota, claimed->message.payload_bytes);
    ol_target_note(item->target, &claimed->outcome, worker->clock.now);
    ol_delivery_span_attempt(worker->options->tracer, &batch->claim, claimed);
    if (!batch->lane->is_in_turn) {
        complete_item(item);
        return;
    }
    item->next_completed = worker->sending.completed; // I1
    worker->sending.completed = item;
}

static void complete_deferred(struct ol_worker *worker)
{
    while (worker->sending.completed) {
        struct ol_relay_item *item = worker->sending.completed;
        worker->sending.completed = item->next_completed;
        complete_item(item);
    }
}

/* --- sending --- */

/* A message that can never be sent ends without an attempt on the wire. */
static void refuse_item(struct ol_worker *worker, struct ol_relay_item *item, const outlog_err *why)
{
    struct ol_claimed_message *claimed = item->claimed;
    item->state = OL_ITEM_DONE;
    item->is_kept = true;
    claimed->started_at = ol_clock_wall_us();
    claimed->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED, .is_permanent = true};
    claimed->error = strdup(why->message);
    item->batch->done++;
    note_finished(item->batch);
    ol_batch_unqueue(worker, item);
}

/* A notification is rendered before it is sent. False: the store failed, or the item has ended. */
static bool render_item(struct ol_worker *worker, struct ol_relay_item *item,
                        const struct ol_target *target)
{
    outlog_err err;
    struct outlog_delivery *message = &item->claimed->message;
    if (item->notification || !ol_render_is_needed(message))
        return true;
    if (worker->sending.is_overlapped)
        return false;                        // I2: the template is in the store
    ol_sender_flush(worker->targets.sender); // the others need not wait for it
    if (ol_render_prepare(&worker->templates, worker->conn,
                          target->settings->publisher_type->is_feed, &item->batch->arena, message,
                          &item->notification, &err) == 0) {
        if (!worker->options->quiet)
            ol_report_move(OL_LOGLINE_INFO, message, "PENDING", "CLAIMED", NULL);
        return true;
    }
    if (ol_render_is_final(&err))
        refuse_item(worker, item, &err);
    return false;
}

/* A message to a session must name the session. False: the item has ended. */
static bool check_session(struct ol_worker *worker, struct ol_relay_item *item,
                          const struct ol_target *target)
{
    outlog_err err;
    item->is_push = target->settings->publisher_type->is_push;
    if (!item->is_push || ol_outbox_push_check(&item->claimed->message, &err) == 0)
        return true;
    refuse_item(worker, item, &err);
    return false;
}

/* Rule 4: a byte leaves only while the lease surely outlasts the attempt: the lane's lease, and
 * that of the message's own row, which nobody renews. 0: there is not enough time left. */
static int64_t find_deadline(const struct ol_worker *worker, const struct ol_batch *batch,
                             const struct ol_target *target)
{
    int64_t lease_end = batch->lane->outbox.lease_end;
    if (batch->lease_end && batch->lease_end < lease_end)
        lease_end = batch->lease_end;
    int64_t left = lease_end - worker->margin_us - worker->clock.now;
    int64_t half = worker->options->lease_us / 2, timeout = target->settings->timeout_us;
    if (left < (timeout < half ? timeout : half) ||
        !ol_owner_is_confident(&worker->owner, worker->clock.now)) // rule 28
        return 0;
    return worker->clock.now + (timeout < left ? timeout : left);
}

/* The clock is read here: a process that was stopped in between must not send by an old reading.
 * False: nothing can be sent to this destination now. */
static bool send_item(struct ol_worker *worker, struct ol_target *target,
                      struct ol_relay_item *item)
{
    struct ol_batch *batch = item->batch;
    struct outlog_delivery *message = &item->claimed->message;
    worker->clock.now = ol_clock_boot_us();
    int64_t deadline = find_deadline(worker, batch, target);
    if (!deadline || !ol_quota_take(&target->quota, message->payload_bytes, worker->clock.now))
        return false;
    if (!ol_breaker_admit(&target->breaker, worker->clock.now)) {
        ol_quota_give(&target->quota, message->payload_bytes);
        return false;
    }
    if (!worker->options->quiet && !item->notification) // a notification was logged when rendered
        ol_report_move(OL_LOGLINE_DEBUG, message, "PENDING", "CLAIMED", NULL);
    item->state = OL_ITEM_IN_FLIGHT;
    ol_batch_unqueue(worker, item);
    item->queue->in_flight++;
    if (ol_sender_channel_in_flight(target->channel) == 0)
        ol_target_begin(target, worker->clock.now);
    item->claimed->started_at = ol_clock_wall_us();
    item->target = target;
    batch->in_flight++;
    ol_fault("publish.sent");
    ol_sender_channel_submit(target->channel, message, deadline, item);
    return true;
}

/* Send until the destination takes no more. Outcomes that come at once lengthen the queue. */
static void pump_queue(struct ol_worker *worker, struct ol_destination_queue *queue)
{
    struct ol_relay_item *item = peek_queue(queue);
    struct ol_target *target = item ? ol_target_find(&worker->targets, queue->destination) : NULL;
    if (!target || !target->channel || target->is_paused)
        return;
    for (; item; item = peek_queue(queue)) {
        bool may_go = render_item(worker, item, target) && check_session(worker, item, target);
        if (item->state == OL_ITEM_WAITING && (!may_go || !send_item(worker, target, item)))
            return;
    }
}

void ol_batch_pump(struct ol_worker *worker, struct ol_batch *batch)
{
    if (atomic_load(worker->stop)) // what was not sent is handed back
        return;
    for (size_t i = 0; i < batch->queue_count; i++)
        pump_queue(worker, &batch->queues[i]);
}

/* --- while the store works on a turn --- */

static void pump_lanes(void *user)
{
    struct ol_worker *worker = user;
    int64_t now = worker->clock.now;
    worker->sending.is_overlapped = true;
    ol_sender_drive(worker->targets.sender, 0);
    for (size_t i = 0; i < worker->lanes.count; i++) {
        const struct ol_relay_lane *lane = &worker->lanes.all[i];
        if (lane->is_in_turn || !lane->is_owned)
            continue;
        if (lane->open)
            ol_batch_pump(worker, lane->open);
        for (const struct ol_side_cursor *side = lane->outbox.sides; side; side = side->next)
            if (side->open)
                ol_batch_pump(worker, side->open);
        for (struct ol_batch *batch = lane->loose; batch; batch = batch->next)
            ol_batch_pump(worker, batch);
    }
    ol_sender_flush(worker->targets.sender);
    worker->sending.is_overlapped = false;
    worker->clock.now = now; // I3
}

/* First fill the places that have become free: the turns of the other lanes may come late. */
void ol_batch_overlap_begin(struct ol_worker *worker)
{
    struct ol_sender *sender = worker->targets.sender;
    if (worker->sending.waiting || worker->sending.side_waiting || ol_sender_in_flight(sender))
        pump_lanes(worker);
    if (ol_sender_in_flight(sender))
        worker->conn->idle = (struct ol_idle_callback){.fd = ol_sender_fd(sender),
                                                       .call = pump_lanes,
                                                       .user = worker};
}

void ol_batch_overlap_end(struct ol_worker *worker)
{
    worker->conn->idle = (struct ol_idle_callback){0};
    for (size_t i = 0; i < worker->lanes.count; i++)
        worker->lanes.all[i].is_in_turn = false;
    complete_deferred(worker);
}

/* --- ending a batch --- */

/* The rows of these messages decide who may send them. */
void ol_batch_drop_unsent(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_relay_item *item = &batch->items[i];
        if (item->state != OL_ITEM_WAITING)
            continue;
        item->state = OL_ITEM_DONE;
        item->claimed->is_parked = false;
        batch->done++;
        ol_batch_unqueue(batch->lane->worker, item);
    }
}

/* Parked messages that could not be sent in time go back, as if never tried. */
void ol_batch_release_unsent(struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_relay_item *item = &batch->items[i];
        if (item->state != OL_ITEM_WAITING || !item->claimed->is_parked)
            continue;
        item->state = OL_ITEM_DONE;
        item->claimed->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_RELEASED};
        batch->done++;
        ol_batch_unqueue(batch->lane->worker, item);
        batch->lane->has_finished = true;
    }
}

/* Will a queued message be sent soon? One behind its key does not count: we cannot tell how long
 * that takes. */
static bool waits_for_capacity(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->queue_count; i++) {
        const struct ol_target *target =
            peek_queue(&batch->queues[i])
                ? ol_target_find(&worker->targets, batch->queues[i].destination)
                : NULL;
        if (target && ol_target_is_quick(target, worker->options->patience_us, worker->clock.now))
            return true;
    }
    return false;
}

/* Is a message on the wire to a destination that answers, if not quite within our patience? */
static bool waits_for_answer(struct ol_worker *worker, const struct ol_batch *batch)
{
    int64_t patience = worker->options->patience_us;
    for (size_t i = 0; i < batch->count; i++) {
        const struct ol_target *target = batch->items[i].target;
        if (batch->items[i].state == OL_ITEM_IN_FLIGHT && target->has_answered &&
            target->latency_us < (double)(patience * 2) &&
            ol_target_is_quick(target, patience, worker->clock.now))
            return true;
    }
    return false;
}

/* Is all that is left of the batch for destinations that hang? */
static bool waits_for_hanging(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->queue_count; i++) {
        struct ol_destination_queue *queue = &batch->queues[i];
        if (!queue->in_flight && !queue->waiting)
            continue;
        const struct ol_target *target = ol_target_find(&worker->targets, queue->destination);
        if (!target || !ol_target_hangs(target, worker->options->patience_us, worker->clock.now))
            return false;
    }
    return true;
}

/* The open batch is recorded when nothing more can happen to it now, or patience is over. Patience
 * is eight times as long for messages that wait for capacity which becomes free, and twice as long
 * for destinations that answer: on a busy machine, parking such messages would cost more. */
bool ol_batch_is_ready(struct ol_worker *worker, const struct ol_batch *batch)
{
    enum { CAPACITY_PATIENCE = 8, ANSWER_PATIENCE = 2 };
    int64_t patience = worker->options->patience_us;
    int64_t waited = worker->clock.now - batch->claimed_at;
    if (batch->done == batch->count || waited >= patience * CAPACITY_PATIENCE)
        return true;
    if (waited >= patience)
        return atomic_load(worker->stop) != 0 ||
               (!waits_for_capacity(worker, batch) &&
                (waited >= patience * ANSWER_PATIENCE || !waits_for_answer(worker, batch)));
    if (batch->in_flight)
        return waits_for_hanging(worker, batch);
    for (size_t i = 0; i < batch->queue_count && atomic_load(worker->stop) == 0; i++)
        if (peek_queue(&batch->queues[i]))
            return false; // waits for capacity
    return true;
}
