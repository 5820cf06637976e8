/* plan.c: which messages to claim. A message is claimed only if it is to be sent now; one that must
 * wait is parked in the same turn, with attempts 0 (rule 8). */
#include "relay/internal.h"

#include <stdlib.h>

enum {
    PLAN_BATCH_MIN = 15,
    PLAN_BATCH_BYTES = 8 * 1024 * 1024,
    PLAN_PARKED_MAX = 100000,
    PLAN_WAITING_MAX = 1000,
    PLAN_BUSY_US = 20000
};

/* BUSY: its destination is full for a moment. SURPLUS: full, and it is not known for how long.
 * SKIP: an operator has parked it already. STOP: out of memory. */
enum plan_decision { PLAN_SEND, PLAN_PARK, PLAN_BUSY, PLAN_SURPLUS, PLAN_SKIP, PLAN_STOP };

/* A hole in the numbers that is only milliseconds old usually closes by itself. All holes of one
 * read have the same age, so a backlog waits once per read and not once per hole. */
static bool is_young_hole(const struct ol_relay_lane *lane, const struct ol_turn *turn, int64_t seq)
{
    return lane->outbox.has_gaps && seq > turn->head + 1 && seq > lane->old_to;
}

static void note_read(struct ol_relay_lane *lane, const struct ol_batch *batch)
{
    enum { YOUNG_US = 5000 };
    int64_t now = lane->worker->clock.now;
    if (batch->count == 0 || now - lane->seen_at < YOUNG_US)
        return;
    lane->old_to = lane->seen_to;
    lane->seen_to = batch->messages[batch->count - 1].seq;
    lane->seen_at = now;
}

/* A read that claims nothing costs milliseconds in which nothing is sent. So after a busy
 * destination stopped it, a lane waits until half of the queue is sent. */
bool ol_plan_may_read(const struct ol_relay_lane *lane)
{
    size_t waiting = lane->worker->sending.waiting;
    int64_t now = lane->worker->clock.now;
    return lane->wants_read && !lane->worker->wants_settings && waiting < PLAN_WAITING_MAX &&
           (lane->read_below ? waiting <= lane->read_below || now >= lane->read_after
                             : now >= lane->read_after);
}

static void count_queues(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; batch && i < batch->queue_count; i++) {
        struct ol_target *target = ol_target_find(&worker->targets, batch->queues[i].destination);
        if (target)
            target->planned += (int)batch->queues[i].waiting;
    }
}

/* The same for a batch that is planned and has no queues yet. */
static void count_batch(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; batch && i < batch->count; i++) {
        struct ol_target *target =
            ol_target_find(&worker->targets, batch->messages[i].message.destination);
        if (target)
            target->planned++;
    }
}

/* Messages that wait use up the capacity of their destination, and so do those that this turn
 * claims from other lanes. */
static void count_waiting(struct ol_worker *worker)
{
    for (struct ol_target *t = worker->targets.first; t; t = t->next)
        t->planned = 0;
    for (size_t i = 0; worker->sending.waiting && i < worker->lanes.count; i++)
        count_queues(worker, worker->lanes.all[i].open);
    for (size_t i = 0; i < worker->planned_entries; i++)
        count_batch(worker, worker->entries[i].fresh);
}

static enum plan_decision decide_message(struct ol_worker *worker, struct ol_relay_lane *lane,
                                         const struct ol_claimed_message *message, const char *key)
{
    struct ol_target *target = ol_target_find(&worker->targets, message->message.destination);
    if (!target)
        return PLAN_STOP;
    if (ol_lane_is_parked_above(&lane->outbox, message->seq))
        return PLAN_SKIP; // an operator ended it before the lane reached it
    if (message->available_at > worker->clock.now + worker->clock.ahead_us ||
        (key && (ol_lane_is_blocked(&lane->outbox, key) ||
                 ol_counter_map_get(&worker->scratch.chain, key))))
        return PLAN_PARK; // not due, or behind its key (rules 8, 9)
    ol_target_tell(target);
    if (!ol_target_is_open(target, worker->clock.now))
        return PLAN_SURPLUS;
    // After a crash a claimed at_most_once message is DEAD: claim no more of them than can be sent
    // at once.
    if (message->at_most_once && key && ol_counter_map_get(&worker->scratch.single, key))
        return PLAN_SURPLUS;
    int capacity = ol_target_capacity(target, message->at_most_once, worker->options->patience_us,
                                      worker->clock.now);
    if (target->planned >= capacity)
        return ol_target_is_quick(target, worker->options->patience_us, worker->clock.now)
                   ? PLAN_BUSY
                   : PLAN_SURPLUS;
    if (message->at_most_once && key && !ol_counter_map_add(&worker->scratch.single, key, 1))
        return PLAN_STOP;
    target->planned++;
    return PLAN_SEND;
}

/* Decide about every message that was read. A message that cannot go now is parked only if another
 * one behind it can be sent; otherwise the batch ends before it. */
static int decide_batch(struct ol_relay_lane *lane, struct ol_batch *batch,
                        enum plan_decision *decisions, size_t *kept, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    size_t last_send = 0;
    bool sends = false, is_busy = false;

    count_waiting(worker);
    ol_counter_map_clear(&worker->scratch.chain); // keys that are parked in this very turn
    ol_counter_map_clear(&worker->scratch.single);
    for (size_t i = 0; i < batch->count; i++) {
        const char *key = batch->messages[i].key;
        decisions[i] = decide_message(worker, lane, &batch->messages[i], key);
        if (decisions[i] == PLAN_STOP) {
            batch->count = i;
            break;
        }
        // A busy destination has capacity again in a moment: the batch ends there. Parking costs
        // more, most of all where the relay itself is slow.
        if (decisions[i] == PLAN_BUSY) {
            is_busy = true;
            batch->count = i;
            break;
        }
        if (decisions[i] == PLAN_SEND) {
            last_send = i;
            sends = true;
        } else if (key && decisions[i] != PLAN_SKIP &&
                   !ol_counter_map_add(&worker->scratch.chain, key, 1)) {
            return ol_no_memory(err);
        }
    }
    *kept = batch->count;
    // If everything in a full read must wait, it would hide what comes after it; and newer lanes
    // wait until the older generations are empty. In both cases park it all.
    if ((!sends && !is_busy && batch->count >= lane->limit) ||
        lane->outbox.number < worker->lanes.newest_first)
        return 0;
    for (size_t i = sends ? last_send + 1 : 0; i < batch->count; i++)
        if (decisions[i] == PLAN_SURPLUS) {
            *kept = i;
            break;
        }
    return 0;
}

static const char *find_parking_reason(struct ol_worker *worker,
                                       const struct ol_claimed_message *message)
{
    struct ol_target *target = ol_target_find(&worker->targets, message->message.destination);
    return target && !target->channel ? target->trouble : NULL;
}

/* A destination that is down for long must not fill the table: at this limit the lane waits. */
static bool is_parking_full(struct ol_relay_lane *lane, const struct ol_claimed_message *message)
{
    struct ol_worker *worker = lane->worker;
    int64_t max = worker->policy.relay.parked ? worker->policy.relay.parked : PLAN_PARKED_MAX;
    return ol_counter_map_get(&lane->outbox.waiting, message->message.destination) +
               ol_counter_map_get(&worker->scratch.parked_to, message->message.destination) >=
           max;
}

/* Only a message that is not due waits for its time: the others are due when they can be sent. */
static int park_message(struct ol_worker *worker, struct ol_turn *turn,
                        const struct ol_claimed_message *message, enum plan_decision decision,
                        outlog_err *err)
{
    struct ol_park_entry entry = {.state = "PENDING",
                                  .available_at = decision == PLAN_PARK ? message->available_at : 0,
                                  .last_error = find_parking_reason(worker, message)};
    if ((message->key && !ol_counter_map_add(&worker->scratch.parked, message->key, 1)) ||
        !ol_counter_map_add(&worker->scratch.parked_to, message->message.destination, 1))
        return ol_no_memory(err);
    ol_turn_park(turn, message, &entry, true);
    return 0;
}

/* Cover what was read: messages to send stay in the batch, others are parked with attempts 0. */
static int plan_messages(struct ol_relay_lane *lane, struct ol_turn *turn, struct ol_batch *batch,
                         outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    enum plan_decision *decisions = ol_arena_array(&batch->arena, batch->count, sizeof *decisions);
    size_t kept = 0, sent = 0, read = batch->count;
    bool must_wait = false;

    if (batch->count == 0)
        return 0;
    if (!decisions)
        return ol_no_memory(err);
    if (decide_batch(lane, batch, decisions, &kept, err) < 0)
        return -1;
    for (size_t i = 0; i < kept; i++) {
        struct ol_claimed_message *message = &batch->messages[i];
        if (!ol_turn_can_cover(turn, message->seq) || is_young_hole(lane, turn, message->seq))
            break;
        if ((decisions[i] == PLAN_PARK || decisions[i] == PLAN_SURPLUS) &&
            is_parking_full(lane, message)) {
            must_wait = true;
            break;
        }
        ol_turn_cover(turn, &lane->outbox, message->seq, decisions[i] == PLAN_SEND);
        if (decisions[i] == PLAN_SEND) {
            batch->messages[sent] = *message;
            ol_side_effects_claim(&worker->effects, &batch->messages[sent++]);
            continue;
        }
        if (decisions[i] == PLAN_SKIP)
            continue;
        if (park_message(worker, turn, message, decisions[i], err) < 0)
            return -1;
    }
    batch->count = sent;
    bool is_busy = kept < read && decisions[kept] == PLAN_BUSY;
    if (must_wait || (kept == 0 && read > 0)) // wait for its destination
        lane->read_after = worker->clock.now +
                           (is_busy ? PLAN_BUSY_US : worker->options->poll_us * 2);
    lane->read_below = is_busy ? worker->sending.waiting / 2 : 0;
    lane->wanted = is_busy ? kept * 2 : lane->limit * 4;
    return 0;
}

/* A message from before the clock was set back is due after the delay that it was given, and not
 * when that clock would say so. */
static void correct_due_times(const struct ol_worker *worker, struct ol_batch *batch)
{
    enum { SET_BACK_MIN_US = 1000000 };
    int64_t now = worker->clock.now + worker->clock.ahead_us;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_claimed_message *message = &batch->messages[i];
        int64_t created_at = message->message.created_at;
        if (created_at > now + SET_BACK_MIN_US && message->available_at > created_at)
            message->available_at += now - created_at;
    }
}

static size_t count_bytes(const struct ol_batch *batch)
{
    size_t bytes = 0;
    for (size_t i = 0; i < batch->count; i++)
        bytes += batch->messages[i].message.payload_bytes;
    return bytes;
}

/* The limit of the next read: lower when messages are large, or when most of the last read had to
 * be left for lack of capacity. There are few sizes, because each one is a statement of its own. */
static void adapt_limit(struct ol_relay_lane *lane, size_t read)
{
    static const size_t sizes[] = {1000, 250, 60, PLAN_BATCH_MIN};
    size_t max = lane->worker->options->batch, i = 0;
    size_t fitting = PLAN_BATCH_BYTES / (lane->bytes / read + 1);
    while (i < 3 && sizes[i] > fitting)
        i++;
    while (i < 2 && sizes[i + 1] >= lane->wanted)
        i++;
    lane->limit = sizes[i] < max ? sizes[i] : max;
}

static struct ol_batch *read_batch(struct ol_relay_lane *lane, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    struct ol_batch *batch = calloc(1, sizeof *batch);
    if (!batch) {
        ol_no_memory(err);
        return NULL;
    }
    batch->lane = lane;
    if (ol_lane_read(worker->conn, &lane->outbox, lane->limit, &batch->arena, &batch->messages,
                     &batch->count, err) < 0) {
        ol_batch_free(batch);
        return NULL;
    }
    return batch;
}

int ol_plan_batch(struct ol_relay_lane *lane, struct ol_turn *turn, struct ol_batch *batch,
                  size_t limit, outlog_err *err)
{
    size_t read = batch->count;
    lane->wants_read = lane->is_full = read >= limit; // there may be more
    lane->bytes = count_bytes(batch);
    note_read(lane, batch);
    correct_due_times(lane->worker, batch);
    ol_turn_gaps(turn, &lane->outbox);
    if (plan_messages(lane, turn, batch, err) < 0)
        return -1;
    if (!ol_batch_wrap(batch))
        return ol_no_memory(err);
    if (read)
        adapt_limit(lane, read);
    return 0;
}

int ol_plan_claim(struct ol_relay_lane *lane, struct ol_batch **fresh, outlog_err *err)
{
    enum { PREFETCH_BYTES = 1024 * 1024 }; // per lane, in addition to what is being sent
    struct ol_turn *turn = &lane->worker->turn;
    *fresh = read_batch(lane, err);
    if (!*fresh || ol_plan_batch(lane, turn, *fresh, lane->limit, err) < 0)
        return -1;
    if (lane->wants_read && lane->bytes < PREFETCH_BYTES)
        turn->prefetch = lane->limit;
    return 0;
}

void ol_plan_capacity(struct ol_relay_lane *lane, struct ol_buf *out)
{
    struct ol_worker *worker = lane->worker;
    const char *comma = "[";
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        if (t->is_retired || !ol_target_is_open(t, worker->clock.now) ||
            ol_counter_map_get(&lane->outbox.waiting, t->name) <= 0)
            continue;
        int capacity =
            ol_target_capacity(t, true, worker->options->patience_us, worker->clock.now) -
            t->planned;
        if (capacity > 1000)
            capacity = 1000;
        if (capacity < 1)
            continue;
        ol_buf_print(out, "%s{\"destination\":", comma);
        ol_buf_json_text(out, t->name);
        ol_buf_print(out, ",\"capacity\":%d}", capacity);
        comma = ",";
    }
    ol_buf_text(out, *comma == ',' ? "]" : "[]");
}
