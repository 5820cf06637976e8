/* plan.c: which messages to claim. A message is claimed only if it is to be sent now; one that must
 * wait is parked in the same turn, with attempts 0 (rule 8). */
#include "relay/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    PLAN_BATCH_MIN = 15,
    PLAN_BATCH_BYTES = 8 * 1024 * 1024,
    PLAN_PARKED_MAX = 100000,
    PLAN_WAITING_MAX = 1000,
    PLAN_BUSY_US = 20000,
    PLAN_SIDE_US = 100000 /* others wait at most this long for a full destination */
};

/* BUSY: its destination is full for a moment. SURPLUS: full, and it is not known for how long.
 * SINGLE: behind another one of its key that this batch sends, and a crash would condemn both.
 * PASS: a side cursor sends it. SKIP: an operator has parked it already. STOP: out of memory. */
enum plan_decision {
    PLAN_SEND,
    PLAN_PARK,
    PLAN_BUSY,
    PLAN_SURPLUS,
    PLAN_SINGLE,
    PLAN_PASS,
    PLAN_SKIP,
    PLAN_STOP
};

/* A hole in the numbers that is only milliseconds old usually closes by itself. All holes of one
 * read have the same age, so a backlog waits once per read and not once per hole. */
static bool is_young_hole(const struct ol_relay_lane *lane, const struct ol_turn *turn, int64_t seq)
{
    return lane->outbox.has_gaps && seq > turn->head + 1 && seq > lane->old_to;
}

static void note_read(struct ol_relay_lane *lane, const struct ol_turn *turn,
                      const struct ol_batch *batch)
{
    enum { YOUNG_US = 5000 };
    int64_t now = lane->worker->clock.now;
    if ((batch->count == 0 && !turn->stretch.is_known) || now - lane->seen_at < YOUNG_US)
        return;
    lane->old_to = lane->seen_to;
    lane->seen_to = turn->stretch.is_known ? turn->stretch.end
                                           : batch->messages[batch->count - 1].seq;
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
    bool has_waiting = worker->sending.waiting || worker->sending.side_waiting;
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        t->planned = t->stuck_count = 0;
        t->is_stuck = t->is_opening = false;
    }
    for (size_t i = 0; has_waiting && i < worker->lanes.count; i++) {
        const struct ol_relay_lane *lane = &worker->lanes.all[i];
        count_queues(worker, lane->open);
        for (const struct ol_side_cursor *side = lane->outbox.sides; side; side = side->next)
            count_queues(worker, side->open);
    }
    for (size_t i = 0; i < worker->planned_entries; i++)
        count_batch(worker, worker->entries[i].fresh);
}

/* A destination that is down for long must not fill the table: at this limit its messages wait. */
static bool is_parking_full(struct ol_relay_lane *lane, const char *destination)
{
    struct ol_worker *worker = lane->worker;
    int64_t max = worker->policy.relay.parked ? worker->policy.relay.parked : PLAN_PARKED_MAX;
    return ol_counter_map_get(&lane->outbox.waiting, destination) +
               ol_counter_map_get(&worker->scratch.parked_to, destination) >=
           max;
}

/* Can its destination take it now? */
static enum plan_decision decide_capacity(struct ol_relay_lane *lane, struct ol_target *target,
                                          bool at_once)
{
    struct ol_worker *worker = lane->worker;
    int64_t patience_us = worker->options->patience_us, now = worker->clock.now;
    ol_target_tell(target);
    if (!ol_target_is_open(target, now) ||
        ol_counter_map_get(&lane->outbox.older_sides, target->name))
        return PLAN_SURPLUS;
    if (target->planned < ol_target_capacity(target, at_once, patience_us, now))
        return PLAN_SEND;
    return ol_target_is_quick(target, patience_us, now) ? PLAN_BUSY : PLAN_SURPLUS;
}

static bool must_park(const struct ol_relay_lane *lane, const struct ol_claimed_message *message)
{
    const struct ol_worker *worker = lane->worker;
    return message->available_at > worker->clock.now + worker->clock.ahead_us ||
           (message->key && (ol_lane_is_blocked(&lane->outbox, message->key) ||
                             ol_counter_map_get(&worker->scratch.chain, message->key)));
}

/* Of a message that its cursor owns. */
static enum plan_decision decide_message(struct ol_relay_lane *lane, struct ol_target *target,
                                         const struct ol_claimed_message *message)
{
    struct ol_worker *worker = lane->worker;
    if (must_park(lane, message)) // not due, or behind its key (rules 8, 9)
        return is_parking_full(lane, message->message.destination) ? PLAN_SURPLUS : PLAN_PARK;
    enum plan_decision decision = decide_capacity(lane, target, message->at_most_once);
    if (decision != PLAN_SEND)
        return decision;
    // After a crash a claimed at_most_once message is DEAD: claim no more of them than can be sent
    // at once.
    if (message->at_most_once && message->key) {
        if (ol_counter_map_get(&worker->scratch.single, message->key))
            return PLAN_SINGLE;
        if (!ol_counter_map_add(&worker->scratch.single, message->key, 1))
            return PLAN_STOP;
    }
    target->planned++;
    return PLAN_SEND;
}

static bool is_fill(const struct ol_relay_lane *lane, const struct ol_claimed_message *message)
{
    return message->seq <= lane->outbox.head;
}

/* A read leaves out what side cursors own, but for what has appeared in a gap: that is parked. */
static enum plan_decision decide_lane_message(struct ol_relay_lane *lane,
                                              const struct ol_claimed_message *message)
{
    const char *destination = message->message.destination;
    struct ol_target *target = ol_target_find(&lane->worker->targets, destination);
    if (!target)
        return PLAN_STOP;
    if (ol_lane_is_parked_above(&lane->outbox, message->seq))
        return PLAN_SKIP; // an operator ended it before the lane reached it
    if (is_fill(lane, message) && ol_side_cursor_find(&lane->outbox, destination, ""))
        return PLAN_PARK;
    enum plan_decision decision = target->is_stuck ? PLAN_BUSY
                                                   : decide_message(lane, target, message);
    if (decision == PLAN_BUSY || decision == PLAN_SURPLUS) {
        target->is_stuck = true; // what comes after it waits too
        target->stuck_count++;
    }
    return decision;
}

/* --- destinations that must wait --- */

static bool is_stuck(enum plan_decision decision)
{
    return decision == PLAN_BUSY || decision == PLAN_SURPLUS;
}

static uint64_t hash_name(uint64_t hash, const char *name)
{
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash * 1099511628211u;
}

/* Beyond `last`, is there a message for a destination that is not stuck? How far was searched is
 * remembered, so a backlog is gone through once. */
static int search_other(struct ol_relay_lane *lane, int64_t last, outlog_err *err)
{
    struct ol_buf stuck = {0};
    uint64_t hash = 14695981039346656037u;
    int result = 0;

    for (const struct ol_target *t = lane->worker->targets.first; t; t = t->next)
        if (t->is_stuck) {
            ol_buf_char(&stuck, stuck.bytes ? ',' : '[');
            ol_buf_json_text(&stuck, t->name);
            hash = hash_name(hash, t->name);
        }
    ol_buf_text(&stuck, stuck.bytes ? "]" : "[]");
    if (hash != lane->search.stuck || lane->search.other <= last) {
        lane->search.other = 0;
        if (hash != lane->search.stuck || lane->search.to < last)
            lane->search.to = last;
        lane->search.stuck = hash;
        result = stuck.failed
                     ? ol_no_memory(err)
                     : ol_lane_find_other(lane->worker->conn, &lane->outbox, lane->search.to,
                                          stuck.data, &lane->search.other, &lane->search.to, err);
    }
    ol_buf_clear(&stuck);
    return result;
}

/* Mark the destinations that will not soon have taken what the open batch holds for them. False: it
 * holds something for another one. */
static bool mark_held_up(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (struct ol_target *t = worker->targets.first; t; t = t->next)
        t->is_stuck = false;
    for (size_t i = 0; i < batch->queue_count; i++) {
        const struct ol_destination_queue *queue = &batch->queues[i];
        struct ol_target *target = ol_target_find(&worker->targets, queue->destination);
        if (!target || !(queue->waiting + queue->in_flight))
            continue;
        if (ol_target_wait_us(target, (int64_t)(queue->waiting + queue->in_flight),
                              worker->options->patience_us, worker->clock.now) <= PLAN_SIDE_US)
            return false;
        target->is_stuck = true;
    }
    return true;
}

bool ol_plan_is_held_up(struct ol_relay_lane *lane)
{
    struct ol_worker *worker = lane->worker;
    outlog_err ignored; // a lost store is noticed by the turn
    if (!lane->wants_read || worker->clock.now < lane->search.after ||
        worker->clock.now - lane->open->claimed_at < PLAN_SIDE_US || worker->wants_settings ||
        !mark_held_up(worker, lane->open))
        return false;
    lane->search.after = worker->clock.now + PLAN_BUSY_US;
    if (search_other(lane, lane->outbox.head, &ignored) < 0)
        return false;
    if (!lane->search.other)
        return false;
    lane->read_after = 0; // it was the one that this batch is for
    return true;
}

/* What comes after the first message that must wait: how many numbers away is one for another
 * destination? 0: none is known; 1: in the same read. */
static int find_other(struct ol_relay_lane *lane, const struct ol_batch *batch,
                      const enum plan_decision *decisions, size_t first, int64_t *distance,
                      outlog_err *err)
{
    *distance = 0;
    if (lane->outbox.number < lane->worker->lanes.newest_first)
        *distance = 1; // newer lanes wait until this one is empty
    for (size_t i = first; i < batch->count && !*distance; i++)
        *distance = decisions[i] == PLAN_SEND;
    if (*distance || !lane->is_full)
        return 0;
    if (search_other(lane, batch->messages[batch->count - 1].seq, err) < 0)
        return -1;
    if (lane->search.other)
        *distance = lane->search.other - batch->messages[first].seq;
    return 0;
}

/* From this turn on the lane passes the messages of this destination. */
static bool open_side(struct ol_relay_lane *lane, struct ol_turn *turn, struct ol_target *target)
{
    struct ol_side_cursor *side = calloc(1, sizeof *side);
    if (!side || strlen(target->name) >= sizeof side->destination) {
        free(side);
        return false;
    }
    memcpy(side->destination, target->name, strlen(target->name));
    side->since = side->head = side->place = lane->outbox.head;
    side->next = turn->opening;
    turn->opening = side;
    target->is_opening = true;
    return true;
}

/* The lane claims none of their messages, also not those that it could: within a claim it is
 * always the same cursor that owns a message (rule 34). */
static void pass_opened(struct ol_relay_lane *lane, const struct ol_batch *batch,
                        enum plan_decision *decisions)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct ol_claimed_message *message = &batch->messages[i];
        struct ol_target *target =
            ol_target_find(&lane->worker->targets, message->message.destination);
        if (!target || !target->is_opening || decisions[i] == PLAN_SKIP)
            continue;
        target->planned -= decisions[i] == PLAN_SEND;
        decisions[i] = is_fill(lane, message) ? PLAN_PARK : PLAN_PASS;
    }
}

/* Some destinations can take no more now. Where another one would have to wait for long behind
 * their messages they get side cursors; else the batch ends before the first such message. */
static int resolve_stuck(struct ol_relay_lane *lane, struct ol_turn *turn, struct ol_batch *batch,
                         enum plan_decision *decisions, size_t first, bool *must_be_alone,
                         outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    int64_t distance;
    if (find_other(lane, batch, decisions, first, &distance, err) < 0)
        return -1;
    for (size_t i = first; i < batch->count; i++) {
        struct ol_target *target =
            ol_target_find(&worker->targets, batch->messages[i].message.destination);
        if (!is_stuck(decisions[i]) || target->is_opening)
            continue;
        bool is_long = distance && (ol_counter_map_get(&lane->outbox.older_sides, target->name) ||
                                    is_parking_full(lane, target->name) ||
                                    ol_target_wait_us(target, target->stuck_count + distance,
                                                      worker->options->patience_us,
                                                      worker->clock.now) > PLAN_SIDE_US);
        if (is_long && must_be_alone)
            *must_be_alone = true;
        if (!is_long || must_be_alone || !open_side(lane, turn, target)) {
            batch->count = i;
            break;
        }
    }
    pass_opened(lane, batch, decisions);
    return 0;
}

/* Messages behind another one of their key are parked only if a message after them can be sent;
 * otherwise the batch ends before them. */
static size_t find_end(const struct ol_batch *batch, const enum plan_decision *decisions)
{
    size_t end = 0;
    for (size_t i = 0; i < batch->count; i++)
        if (decisions[i] == PLAN_SEND)
            end = i + 1;
    while (end < batch->count && decisions[end] != PLAN_SINGLE)
        end++;
    return end;
}

/* Decide about every message that was read. */
static int decide_batch(struct ol_relay_lane *lane, struct ol_turn *turn, struct ol_batch *batch,
                        enum plan_decision *decisions, bool *is_busy, bool *must_be_alone,
                        outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    size_t first = batch->count, read = batch->count;

    count_waiting(worker);
    ol_counter_map_clear(&worker->scratch.chain); // keys that are parked in this very turn
    ol_counter_map_clear(&worker->scratch.single);
    for (size_t i = 0; i < batch->count; i++) {
        const char *key = batch->messages[i].key;
        decisions[i] = decide_lane_message(lane, &batch->messages[i]);
        if (decisions[i] == PLAN_STOP)
            batch->count = i;
        else if (is_stuck(decisions[i]))
            first = first < i ? first : i;
        else if (key && (decisions[i] == PLAN_PARK || decisions[i] == PLAN_SINGLE) &&
                 !ol_counter_map_add(&worker->scratch.chain, key, 1))
            return ol_no_memory(err);
    }
    if (first < batch->count &&
        resolve_stuck(lane, turn, batch, decisions, first, must_be_alone, err) < 0)
        return -1;
    *is_busy = batch->count < read && decisions[batch->count] == PLAN_BUSY;
    batch->count = find_end(batch, decisions);
    return 0;
}

static const char *find_parking_reason(struct ol_worker *worker,
                                       const struct ol_claimed_message *message)
{
    struct ol_target *target = ol_target_find(&worker->targets, message->message.destination);
    return target && !target->channel ? target->trouble : NULL;
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

/* Cover one message. False: the claim ends before it. */
static bool cover_message(struct ol_relay_lane *lane, struct ol_turn *turn,
                          const struct ol_claimed_message *message, enum plan_decision decision)
{
    bool is_stretch = turn->stretch.is_known && !is_fill(lane, message);
    if (is_stretch && decision == PLAN_PASS)
        return ol_turn_pass(turn, &lane->outbox, message->seq, lane->old_to);
    if (is_stretch && !ol_turn_pass(turn, &lane->outbox, message->seq - 1, lane->old_to))
        return false;
    if (!ol_turn_can_cover(turn, message->seq) || is_young_hole(lane, turn, message->seq))
        return false;
    ol_turn_cover(turn, &lane->outbox, message->seq, decision == PLAN_SEND);
    return true;
}

/* Cover what was read: messages to send stay in the batch, others are parked with attempts 0, or
 * passed. */
static int plan_messages(struct ol_relay_lane *lane, struct ol_turn *turn, struct ol_batch *batch,
                         bool *must_be_alone, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    enum plan_decision *decisions = ol_arena_array(&batch->arena, batch->count, sizeof *decisions);
    size_t sent = 0, at = 0, read = batch->count;
    bool is_busy = false;

    if (!decisions && read)
        return ol_no_memory(err);
    if (read && decide_batch(lane, turn, batch, decisions, &is_busy, must_be_alone, err) < 0)
        return -1;
    size_t kept = batch->count;
    for (; at < kept; at++) {
        struct ol_claimed_message *message = &batch->messages[at];
        if (!cover_message(lane, turn, message, decisions[at]))
            break;
        if (decisions[at] == PLAN_SEND) {
            batch->messages[sent] = *message;
            ol_side_effects_claim(&worker->effects, &batch->messages[sent++]);
        } else if ((decisions[at] == PLAN_PARK || decisions[at] == PLAN_SINGLE) &&
                   park_message(worker, turn, message, decisions[at], err) < 0) {
            return -1;
        }
    }
    batch->count = sent;
    if (at == read && turn->stretch.is_known)
        ol_turn_pass(turn, &lane->outbox, turn->stretch.end, lane->old_to);
    if (kept == 0 && read > 0) // wait for its destination
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

static struct ol_batch *new_batch(struct ol_relay_lane *lane, outlog_err *err)
{
    struct ol_batch *batch = calloc(1, sizeof *batch);
    if (batch)
        batch->lane = lane;
    else
        ol_no_memory(err);
    return batch;
}

static struct ol_batch *read_batch(struct ol_relay_lane *lane, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    struct ol_batch *batch = new_batch(lane, err);
    if (!batch)
        return NULL;
    int result = lane->outbox.sides
                     ? ol_lane_read_passing(worker->conn, &lane->outbox, lane->limit,
                                            &worker->turn.stretch, &batch->arena, &batch->messages,
                                            &batch->count, err)
                     : ol_lane_read(worker->conn, &lane->outbox, lane->limit, &batch->arena,
                                    &batch->messages, &batch->count, err);
    if (result < 0) {
        ol_batch_free(batch);
        return NULL;
    }
    return batch;
}

int ol_plan_batch(struct ol_relay_lane *lane, struct ol_turn *turn, struct ol_batch *batch,
                  size_t limit, bool *must_be_alone, outlog_err *err)
{
    size_t read = batch->count;
    lane->is_full = read >= limit || (turn->stretch.is_known && turn->stretch.is_cut);
    lane->wants_read = lane->is_full; // there may be more
    lane->bytes = count_bytes(batch);
    note_read(lane, turn, batch);
    correct_due_times(lane->worker, batch);
    ol_turn_gaps(turn, &lane->outbox);
    if (plan_messages(lane, turn, batch, must_be_alone, err) < 0)
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
    if (!*fresh || ol_plan_batch(lane, turn, *fresh, lane->limit, NULL, err) < 0)
        return -1;
    if (lane->wants_read && lane->bytes < PREFETCH_BYTES)
        turn->prefetch = lane->limit;
    return 0;
}

/* --- side cursors --- */

bool ol_plan_has_done_sides(const struct ol_relay_lane *lane, const struct ol_side_cursor *parent)
{
    for (const struct ol_side_cursor *side = lane->outbox.sides; side; side = side->next)
        if (ol_side_cursor_is_within(side, parent) && ol_side_cursor_is_done(&lane->outbox, side))
            return true;
    return false;
}

bool ol_plan_close_sides(struct ol_relay_lane *lane, struct ol_side_cursor *parent)
{
    for (struct ol_side_cursor *side = lane->outbox.sides; side; side = side->next)
        if (ol_side_cursor_is_within(side, parent) && ol_side_cursor_is_done(&lane->outbox, side))
            side->is_closing = lane->worker->turn.is_closing = true;
    return lane->worker->turn.is_closing;
}

bool ol_plan_side_may_read(const struct ol_relay_lane *lane, const struct ol_side_cursor *side)
{
    struct ol_worker *worker = lane->worker;
    if (!ol_lane_loop_may_claim(lane) || worker->wants_settings ||
        worker->clock.now < side->read_after ||
        side->place >= ol_side_cursor_limit(&lane->outbox, side) ||
        ol_counter_map_get(&lane->outbox.older_sides, side->destination))
        return false;
    struct ol_target *target = ol_target_find(&worker->targets, side->destination);
    return target &&
           ol_target_capacity(target, false, worker->options->patience_us, worker->clock.now) > 0;
}

/* Read until something is found, but not for long. */
static int read_side(struct ol_relay_lane *lane, struct ol_side_cursor *side, size_t limit,
                     struct ol_batch *batch, int64_t *upto, outlog_err *err)
{
    enum { STRETCHES = 3 };
    int64_t end = ol_side_cursor_limit(&lane->outbox, side);
    for (int i = 0; i < STRETCHES && side->place < end; i++) {
        *upto = side->place + OL_SIDE_STRETCH < end ? side->place + OL_SIDE_STRETCH : end;
        if (ol_side_cursor_read(lane->worker->conn, &lane->outbox, side, *upto, limit,
                                &batch->arena, &batch->messages, &batch->count, err) < 0)
            return -1;
        if (batch->count)
            break;
        side->place = *upto;
    }
    return 0;
}

/* How many messages its destination can take. Those that are parked and due get a part of the
 * places, or the retries would wait for the whole backlog. */
static int find_side_capacity(struct ol_relay_lane *lane, const struct ol_side_cursor *side,
                              struct ol_target *target)
{
    enum { LOOK_EVERY = 4 };
    int capacity = ol_target_capacity(target, false, lane->worker->options->patience_us,
                                      lane->worker->clock.now);
    bool is_shared = ol_counter_map_get(&lane->outbox.waiting, side->destination) > 0 &&
                     (side->has_due || side->claim_no % LOOK_EVERY == 0);
    return is_shared ? capacity / 2 : capacity;
}

static size_t find_side_limit(const struct ol_relay_lane *lane, const struct ol_side_cursor *side,
                              int capacity)
{
    static const size_t sizes[] = {PLAN_BATCH_MIN, 60, 250, 1000};
    size_t fitting = PLAN_BATCH_BYTES / (side->bytes + 1), i = 0;
    while (i < 3 && (int64_t)sizes[i] < capacity && sizes[i + 1] <= fitting)
        i++;
    return sizes[i] < lane->worker->options->batch ? sizes[i] : lane->worker->options->batch;
}

static enum plan_decision decide_side_message(struct ol_relay_lane *lane, struct ol_target *target,
                                              const struct ol_claimed_message *message,
                                              int capacity)
{
    if (ol_lane_is_gap(&lane->outbox, message->seq))
        return PLAN_SKIP; // it has appeared in a gap: the lane parks it
    if (!must_park(lane, message) && target->planned >= capacity)
        return PLAN_BUSY;
    return decide_message(lane, target, message);
}

/* Decide about every message that was read; the batch ends where the destination is full. */
static int decide_side_batch(struct ol_relay_lane *lane, struct ol_target *target,
                             struct ol_batch *batch, enum plan_decision *decisions, int capacity,
                             outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    count_waiting(worker);
    ol_counter_map_clear(&worker->scratch.chain);
    ol_counter_map_clear(&worker->scratch.single);
    for (size_t i = 0; i < batch->count; i++) {
        const char *key = batch->messages[i].key;
        decisions[i] = decide_side_message(lane, target, &batch->messages[i], capacity);
        if (is_stuck(decisions[i]) || decisions[i] == PLAN_STOP)
            batch->count = i;
        else if (key && (decisions[i] == PLAN_PARK || decisions[i] == PLAN_SINGLE) &&
                 !ol_counter_map_add(&worker->scratch.chain, key, 1))
            return ol_no_memory(err);
    }
    batch->count = find_end(batch, decisions);
    return 0;
}

static int plan_side_messages(struct ol_relay_lane *lane, struct ol_turn *turn,
                              struct ol_batch *batch, const enum plan_decision *decisions,
                              outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    size_t sent = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_claimed_message *message = &batch->messages[i];
        if (decisions[i] == PLAN_SEND) {
            if (!ol_turn_cover_side(turn, &lane->outbox, message->seq))
                break;
            batch->messages[sent] = *message;
            ol_side_effects_claim(&worker->effects, &batch->messages[sent++]);
        } else if (decisions[i] != PLAN_SKIP &&
                   park_message(worker, turn, message, decisions[i], err) < 0) {
            return -1;
        }
        turn->side_head = message->seq;
    }
    batch->count = sent;
    return 0;
}

int ol_plan_side(struct ol_relay_lane *lane, struct ol_side_cursor *side, struct ol_batch **fresh,
                 outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    struct ol_turn *turn = &worker->turn;
    struct ol_target *target = ol_target_find(&worker->targets, side->destination);
    int64_t upto = side->place;
    if (!target || !(*fresh = new_batch(lane, err)))
        return ol_no_memory(err);
    struct ol_batch *batch = *fresh;
    int capacity = find_side_capacity(lane, side, target);
    size_t limit = find_side_limit(lane, side, capacity);
    if (read_side(lane, side, limit, batch, &upto, err) < 0)
        return -1;
    size_t read = batch->count;
    turn->side_head = side->place;
    correct_due_times(worker, batch);
    side->bytes = read ? count_bytes(batch) / read : 0;
    enum plan_decision *decisions = ol_arena_array(&batch->arena, read, sizeof *decisions);
    if (read && !decisions)
        return ol_no_memory(err);
    if (decide_side_batch(lane, target, batch, decisions, capacity, err) < 0)
        return -1;
    size_t kept = batch->count;
    if (plan_side_messages(lane, turn, batch, decisions, err) < 0)
        return -1;
    if (kept == read && read < limit)
        turn->side_head = upto;
    if (read && kept == 0)
        side->read_after = worker->clock.now + PLAN_BUSY_US / 2;
    return ol_batch_wrap(batch) ? 0 : ol_no_memory(err);
}

/* May this turn claim parked messages of a destination? */
static bool may_claim_parked(const struct ol_relay_lane *lane, const struct ol_side_cursor *side,
                             const char *destination)
{
    if (side && strcmp(side->destination, destination) != 0)
        return false;
    for (const struct ol_side_cursor *s = lane->outbox.sides; s; s = s->next)
        if (s != side && s->open && strcmp(s->destination, destination) == 0)
            return false;
    return true;
}

void ol_plan_capacity(struct ol_relay_lane *lane, const struct ol_side_cursor *side,
                      struct ol_buf *out)
{
    struct ol_worker *worker = lane->worker;
    const char *comma = "[";
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        if (t->is_retired || !ol_target_is_open(t, worker->clock.now) ||
            ol_counter_map_get(&lane->outbox.waiting, t->name) <= 0 ||
            ol_counter_map_get(&lane->outbox.older_sides, t->name) ||
            !may_claim_parked(lane, side, t->name))
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
