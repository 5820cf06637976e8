/* plan.c: which messages to claim. Nothing is claimed that is not meant to be sent now: what must
 * wait is parked in the same turn, with attempts 0 (rule 8). */
#include "relay/internal.h"

#include <stdlib.h>

enum {
    SMALLEST_BATCH = 15,
    BATCH_BYTES = 8 * 1024 * 1024,
    MOST_PARKED = 100000,
    MOST_WAITING = 1000,
    BUSY_US = 20000
};

/* BUSY: its destination has no room, but soon will. SURPLUS: nobody knows when. */
enum fate { SEND, PARK, BUSY, SURPLUS, PASS, STOP };

/* A hole in the numbers that is only milliseconds old most often closes by itself. All holes of one
 * read are of one age, so a backlog waits once a read and not once a hole. */
static bool is_young_hole(const struct ol_relay_lane *wl, const struct ol_turn *turn, int64_t seq)
{
    return wl->lane.has_gaps && seq > turn->head + 1 && seq > wl->old_to;
}

static void note_read(struct ol_relay_lane *wl, const struct ol_batch *batch)
{
    enum { YOUNG_US = 5000 };
    int64_t now = wl->worker->now;
    if (batch->count == 0 || now - wl->seen_at < YOUNG_US)
        return;
    wl->old_to = wl->seen_to;
    wl->seen_to = batch->items[batch->count - 1].seq;
    wl->seen_at = now;
}

/* A read that ends in nothing but another look at the clock costs milliseconds in which nobody
 * looks at the wire: so a lane that stood before a busy destination waits for half of the queue to
 * leave. */
bool ol_plan_may_read(const struct ol_relay_lane *wl)
{
    size_t waiting = wl->worker->waiting;
    int64_t now = wl->worker->now;
    return wl->wants_read && !wl->worker->wants_settings && waiting < MOST_WAITING &&
           (wl->read_below ? waiting <= wl->read_below || now >= wl->read_after
                           : now >= wl->read_after);
}

static void count_queues(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; batch && i < batch->queue_count; i++) {
        struct ol_target *target = ol_target_find(&worker->targets, batch->queues[i].destination);
        if (target)
            target->planned += (int)batch->queues[i].waiting;
    }
}

/* The same of a batch that is planned and has no queues yet. */
static void count_batch(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; batch && i < batch->count; i++) {
        struct ol_target *target =
            ol_target_find(&worker->targets, batch->items[i].message.destination);
        if (target)
            target->planned++;
    }
}

/* Messages that wait for a place take from their destination's room, and so do those that this very
 * claim takes from other lanes. */
static void count_waiting(struct ol_worker *worker)
{
    for (struct ol_target *t = worker->targets.first; t; t = t->next)
        t->planned = 0;
    for (size_t i = 0; worker->waiting && i < worker->lane_count; i++)
        count_queues(worker, worker->lanes[i].open);
    for (size_t i = 0; i < worker->joint_count; i++)
        count_batch(worker, worker->joint[i].fresh);
}

static enum fate fate_of(struct ol_worker *worker, struct ol_relay_lane *wl,
                         const struct ol_claimed_message *item, const char *key)
{
    struct ol_target *target = ol_target_find(&worker->targets, item->message.destination);
    if (!target)
        return STOP;
    if (ol_lane_is_parked_ahead(&wl->lane, item->seq))
        return PASS; // an operator ended it before we came to it
    if (item->available_at > worker->now + worker->ahead_us ||
        (key && (ol_lane_is_blocked(&wl->lane, key) || ol_map_get(&worker->chain, key))))
        return PARK; // not due, or behind its key (rules 8, 9)
    if (!ol_target_is_open(target, worker->now))
        return SURPLUS;
    // A crash condemns what is claimed at_most_once: so claim no more of it than leaves at once.
    if (item->at_most_once && key && ol_map_get(&worker->single, key))
        return SURPLUS;
    int room =
        ol_target_room(target, item->at_most_once, worker->options->patience_us, worker->now);
    if (target->planned >= room)
        return ol_target_is_quick(target, worker->options->patience_us, worker->now) ? BUSY
                                                                                     : SURPLUS;
    if (item->at_most_once && key && !ol_map_add(&worker->single, key, 1))
        return STOP;
    target->planned++;
    return SEND;
}

/* Decide about every message that was read. What cannot go now is parked only when something else
 * behind it can (so that others pass); otherwise the batch simply ends before it. */
static int decide(struct ol_relay_lane *wl, struct ol_batch *batch, enum fate *fates, size_t *kept,
                  outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    size_t last_send = 0;
    bool sends = false, is_busy = false;

    count_waiting(worker);
    ol_map_clear(&worker->chain); // keys that are parked in this very turn
    ol_map_clear(&worker->single);
    for (size_t i = 0; i < batch->count; i++) {
        const char *key = batch->items[i].key;
        fates[i] = fate_of(worker, wl, &batch->items[i], key);
        if (fates[i] == STOP) {
            batch->count = i;
            break;
        }
        // A busy destination gives a place back in a moment: the batch ends there. To park would
        // cost more, and most where it is the relay that is slow.
        if (fates[i] == BUSY) {
            is_busy = true;
            batch->count = i;
            break;
        }
        if (fates[i] == SEND) {
            last_send = i;
            sends = true;
        } else if (key && fates[i] != PASS && !ol_map_add(&worker->chain, key, 1)) {
            return ol_no_memory(err);
        }
    }
    *kept = batch->count;
    // A full read of what must wait would hide whatever comes after it, and an older generation of
    // lanes holds up the newer ones until it is empty: park it all.
    if ((!sends && !is_busy && batch->count >= wl->limit) || wl->lane.number < worker->newest_first)
        return 0;
    for (size_t i = sends ? last_send + 1 : 0; i < batch->count; i++)
        if (fates[i] == SURPLUS) {
            *kept = i;
            break;
        }
    return 0;
}

static const char *why_parked(struct ol_worker *worker, const struct ol_claimed_message *item)
{
    struct ol_target *target = ol_target_find(&worker->targets, item->message.destination);
    return target && !target->outlet ? target->trouble : NULL;
}

/* A destination that is down for long must not fill the table: beyond so many the lane waits. */
static bool is_full(struct ol_relay_lane *wl, const struct ol_claimed_message *item)
{
    struct ol_worker *worker = wl->worker;
    int64_t most = worker->policy.relay.parked ? worker->policy.relay.parked : MOST_PARKED;
    return ol_map_get(&wl->lane.waiting, item->message.destination) +
               ol_map_get(&worker->parked_to, item->message.destination) >=
           most;
}

/* Cover what was read: the ones to send stay in the batch, the others are parked with attempts 0.
 */
static int plan(struct ol_relay_lane *wl, struct ol_turn *turn, struct ol_batch *batch,
                outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    enum fate *fates = ol_arena_array(&batch->arena, batch->count, sizeof *fates);
    size_t kept = 0, sent = 0, read = batch->count;
    bool must_wait = false;

    if (batch->count == 0)
        return 0;
    if (!fates)
        return ol_no_memory(err);
    if (decide(wl, batch, fates, &kept, err) < 0)
        return -1;
    for (size_t i = 0; i < kept; i++) {
        struct ol_claimed_message *item = &batch->items[i];
        if (!ol_turn_has_room(turn, &wl->lane, item->seq) || is_young_hole(wl, turn, item->seq))
            break;
        if ((fates[i] == PARK || fates[i] == SURPLUS) && is_full(wl, item)) {
            must_wait = true;
            break;
        }
        ol_turn_cover(turn, &wl->lane, item->seq, fates[i] == SEND);
        if (fates[i] == SEND) {
            batch->items[sent] = *item;
            ol_side_effects_claim(&worker->record, &batch->items[sent++]);
            continue;
        }
        if (fates[i] == PASS)
            continue;
        struct ol_park_entry how = {.state = "PENDING",
                                    .available_at = fates[i] == PARK ? item->available_at : 0,
                                    .last_error = why_parked(worker, item)};
        if ((item->key && !ol_map_add(&worker->parked, item->key, 1)) ||
            !ol_map_add(&worker->parked_to, item->message.destination, 1))
            return ol_no_memory(err);
        ol_turn_park(turn, item, &how, true);
    }
    batch->count = sent;
    bool is_busy = kept < read && fates[kept] == BUSY;
    if (must_wait || (kept == 0 && read > 0)) // for its destination
        wl->read_after = worker->now + (is_busy ? BUSY_US : worker->options->poll_us * 2);
    wl->read_below = is_busy ? worker->waiting / 2 : 0;
    wl->wanted = is_busy ? kept * 2 : wl->limit * 4;
    return 0;
}

static size_t bytes_of(const struct ol_batch *batch)
{
    size_t bytes = 0;
    for (size_t i = 0; i < batch->count; i++)
        bytes += batch->items[i].message.payload_bytes;
    return bytes;
}

/* Messages the next read may bring: fewer when they are large, or when most of what was read had to
 * be left for want of places. Few sizes, for each is a statement of its own. */
static void adapt_limit(struct ol_relay_lane *wl, size_t read)
{
    static const size_t sizes[] = {1000, 250, 60, SMALLEST_BATCH};
    size_t most = wl->worker->options->batch, i = 0;
    size_t fitting = BATCH_BYTES / (wl->bytes / read + 1);
    while (i < 3 && sizes[i] > fitting)
        i++;
    while (i < 2 && sizes[i + 1] >= wl->wanted)
        i++;
    wl->limit = sizes[i] < most ? sizes[i] : most;
}

static struct ol_batch *read_new(struct ol_relay_lane *wl, outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    struct ol_batch *batch = calloc(1, sizeof *batch);
    if (!batch) {
        ol_no_memory(err);
        return NULL;
    }
    batch->lane = wl;
    if (ol_lane_read(worker->conn, &wl->lane, wl->limit, &batch->arena, &batch->items,
                     &batch->count, err) < 0) {
        ol_batch_free(batch);
        return NULL;
    }
    return batch;
}

int ol_plan_batch(struct ol_relay_lane *wl, struct ol_turn *turn, struct ol_batch *batch,
                  size_t limit, outlog_err *err)
{
    size_t read = batch->count;
    wl->wants_read = wl->is_full = read >= limit; // there may be more
    wl->bytes = bytes_of(batch);
    note_read(wl, batch);
    ol_turn_gaps(turn, &wl->lane);
    if (plan(wl, turn, batch, err) < 0)
        return -1;
    if (read)
        adapt_limit(wl, read);
    return 0;
}

int ol_plan_claim(struct ol_relay_lane *wl, struct ol_batch **fresh, outlog_err *err)
{
    enum { AHEAD_BYTES = 1024 * 1024 }; // of each lane, beside what is being sent
    struct ol_turn *turn = &wl->worker->turn;
    *fresh = read_new(wl, err);
    if (!*fresh || ol_plan_batch(wl, turn, *fresh, wl->limit, err) < 0)
        return -1;
    if (wl->wants_read && wl->bytes < AHEAD_BYTES)
        turn->ahead = wl->limit;
    return 0;
}

void ol_plan_capacity(struct ol_relay_lane *wl, struct ol_buf *out)
{
    struct ol_worker *worker = wl->worker;
    const char *comma = "[";
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        if (t->is_retired || !ol_target_is_open(t, worker->now) ||
            ol_map_get(&wl->lane.waiting, t->name) <= 0)
            continue;
        int room = ol_target_room(t, true, worker->options->patience_us, worker->now) - t->planned;
        if (room > 1000)
            room = 1000;
        if (room < 1)
            continue;
        ol_buf_print(out, "%s{\"destination\":", comma);
        ol_buf_json_text(out, t->name);
        ol_buf_print(out, ",\"room\":%d}", room);
        comma = ",";
    }
    ol_buf_text(out, *comma == ',' ? "]" : "[]");
}
