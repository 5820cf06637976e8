/* worker.c: claim, publish, record.
 *
 * A turn of a lane is built without changing anything, written in one transaction, and applied to
 * memory only when it is known to be stored. So a turn can be built again after a lost connection,
 * and a fenced one leaves no trace.
 *
 *   open   the batch that is claimed: all of its messages are recorded by the next turn
 *   loose  batches of messages that are recorded one by one: stragglers, and parked ones */
#include "relay/worker.h"

#include "base/clock.h"
#include "base/fault.h"
#include "log/log.h"
#include "outbox/lane.h"
#include "relay/janitor.h"
#include "relay/record.h"
#include "relay/report.h"
#include "relay/target.h"
#include "store/migrate.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LANES = 256, SMALLEST_BATCH = 15, BEAT_US = 1000000, BATCH_BYTES = 8 * 1024 * 1024 };

struct batch {
    struct batch *next;
    struct work_lane *lane;
    struct ol_arena arena;
    struct ol_item *items;
    size_t count, flying, done;
    int64_t claimed_at; /* boot clock */
};

struct work_lane {
    struct worker *worker;
    struct ol_lane lane;
    bool is_owned, gives_back;
    struct batch *open, *loose;
    bool wants_read, wants_due, wants_reap, has_finished;
    int64_t read_after;     /* do not look for new messages before: all that is there must wait */
    int64_t hole, hole_at;  /* a young gap we stopped at, and since when */
    int64_t retry_at;       /* after a store error */
    size_t limit;           /* messages a read, by their size */
};

struct worker {
    const struct ol_worker_options *options;
    struct ol_conn *conn;
    struct ol_waiter waiter;
    struct ol_targets targets;
    struct ol_policy policy;
    char run[OL_UUID_TEXT];
    struct work_lane *lanes;
    size_t lane_count, owned;
    struct ol_turn turn;
    struct ol_record record;
    struct ol_map chain;  /* keys of the batch being planned or linked */
    struct ol_map parked; /* keys of what the plan parks */
    struct ol_map single; /* keys of at_most_once messages that the plan sends */
    struct ol_worker_stats *stats;
    atomic_int *stop;
    int64_t now, beat_at, polled_at, told_at, swept_at;
    int64_t pause_us; /* between polls while nothing happens */
};

struct ol_worker_options ol_worker_defaults(const char *store)
{
    return (struct ol_worker_options){.store = store,
                                      .name = "relay",
                                      .lease_us = 30 * INT64_C(1000000),
                                      .poll_us = 50000,
                                      .patience_us = 250000,
                                      .margin_us = 2 * INT64_C(1000000),
                                      .drain_us = 20 * INT64_C(1000000),
                                      .batch = 1000,
                                      .siblings = 1};
}

/* --- batches --- */

static void batch_free(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        ol_item_clear(&batch->items[i]);
    ol_arena_clear(&batch->arena);
    free(batch);
}

static bool is_over(const struct batch *batch)
{
    return batch->done == batch->count;
}

/* The next message of a key may go when the one before it got through. */
static bool is_next(const struct ol_item *item)
{
    return item->state == OL_ITEM_WAITING && item->is_first;
}

static void on_outcome(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct worker *worker = user;
    struct ol_item *item = tag;
    struct batch *batch = item->batch;
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
    ol_limits_give(&target->limits, item->message.payload_bytes);
    ol_target_note(target, &item->outcome, worker->now);
}

/* --- sending --- */

/* Rule 4: a byte leaves only while the lease surely outlasts the attempt. The clock is read here and
 * now: a process that was stopped in between must not send on an old look at it. */
static bool send(struct worker *worker, struct batch *batch, struct ol_item *item)
{
    struct ol_target *target = ol_target_find(&worker->targets, item->message.destination);
    if (!target || !target->outlet || target->is_paused)
        return false;
    worker->now = ol_clock_boot_us();
    int64_t left = batch->lane->lane.lease_end - worker->options->margin_us - worker->now;
    int64_t half = worker->options->lease_us / 2, timeout = target->settings->timeout_us;
    if (left < (timeout < half ? timeout : half))
        return false;
    int64_t end = worker->now + (timeout < left ? timeout : left);
    if (!ol_limits_take(&target->limits, item->message.payload_bytes, worker->now))
        return false;
    if (!ol_breaker_admit(&target->breaker, worker->now)) {
        ol_limits_give(&target->limits, item->message.payload_bytes);
        return false;
    }
    item->state = OL_ITEM_FLYING;
    item->started_at = ol_clock_wall_us();
    item->target = target;
    batch->flying++;
    ol_fault("publish.sent");
    ol_outlet_submit(target->outlet, &item->message, end, item);
    return true;
}

static void pump(struct worker *worker, struct batch *batch)
{
    bool moved = atomic_load(worker->stop) == 0; // when we stop, what was not sent is handed back
    while (moved && batch->flying + batch->done < batch->count) {
        moved = false;
        for (size_t i = 0; i < batch->count; i++)
            if (is_next(&batch->items[i]) && send(worker, batch, &batch->items[i]))
                moved = true; // an outcome that came at once may have freed the next of its key
    }
}

/* Put the messages of one key behind each other. */
static bool link_keys(struct worker *worker, struct batch *batch)
{
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

/* --- building a turn: what became of messages --- */

static double chance(void)
{
    uint32_t bits;
    ol_random(&bits, sizeof bits);
    return bits / 4294967296.0;
}

static bool holds(const struct ol_target *target, const struct ol_item *item)
{
    return item->message.ordering_key && target->settings &&
           target->settings->on_dead == OL_ON_DEAD_HOLD;
}

/* What a message becomes after an attempt that did not publish it. */
static struct ol_parking judge(struct worker *worker, const struct ol_item *item)
{
    struct ol_target *target = ol_target_find(&worker->targets, item->message.destination);
    struct ol_retry policy;
    struct ol_parking how = {.state = "PENDING", .attempts = 1,
                             .last_error = item->error};

    ol_retry_resolve(item->message.event_type, item->max_attempts,
                     ol_policy_retry(&worker->policy, item->message.event_type),
                     target && target->settings ? &target->settings->retry : NULL, &policy);
    switch (ol_retry_decide(&policy, item->at_most_once, ol_item_used(item), &item->outcome, chance(),
                            &how.wait_us)) {
    case OL_VERDICT_DEAD:
        how.state = "DEAD";
        how.held = target && holds(target, item);
        how.wait_us = 0;
        break;
    case OL_VERDICT_BACK:
        how.unsent = 1;
        how.wait_us = 0;
        break;
    default:
        break;
    }
    return how;
}

static bool keeps_attempt(const struct ol_item *item)
{
    const struct ol_target *target = item->target;
    if (item->state != OL_ITEM_DONE || !target || !target->outlet ||
        item->outcome.kind == OUTLOG_PUBLISH_RELEASED)
        return false;
    if (item->outcome.kind != OUTLOG_PUBLISH_OK)
        return true;
    return ol_outlet_publisher(target->outlet)->keeps_attempts &&
           target->settings->keep == OL_KEEP_ALL;
}

/* The open batch: nothing for what was published, a parked row for everything else (rule 12). */
static void record_open(struct worker *worker, const struct batch *batch)
{
    struct ol_turn *turn = &worker->turn;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_item *item = &batch->items[i];
        if (keeps_attempt(item))
            ol_turn_attempt(turn, item);
        struct ol_parking how = {.state = "PENDING", .attempts = 1, .unsent = 1}; // never sent
        bool is_published = item->state == OL_ITEM_DONE && item->outcome.kind == OUTLOG_PUBLISH_OK;
        if (item->state == OL_ITEM_DONE && !is_published)
            how = judge(worker, item);
        if (item->state != OL_ITEM_FLYING)
            ol_record_end(&worker->record, item, &how, is_published);
        if (is_published)
            continue;
        if (item->state == OL_ITEM_FLYING) {
            const struct ol_target *target = item->target;
            how = (struct ol_parking){.state = "CLAIMED", .attempts = 1,
                                      .lease_us = target->settings->timeout_us +
                                                  worker->options->margin_us};
        }
        ol_turn_park(turn, item, &how);
    }
}

/* Parked messages and stragglers whose outcome is here. */
static void record_loose(struct worker *worker, const struct batch *batch)
{
    struct ol_turn *turn = &worker->turn;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_item *item = &batch->items[i];
        if (item->state != OL_ITEM_DONE || !item->is_parked)
            continue;
        if (keeps_attempt(item))
            ol_turn_attempt(turn, item);
        struct ol_parking how = {.state = "PUBLISHED"};
        if (item->outcome.kind != OUTLOG_PUBLISH_OK)
            how = judge(worker, item);
        ol_record_end(&worker->record, item, &how, item->outcome.kind == OUTLOG_PUBLISH_OK);
        ol_turn_finish(turn, item, &how);
    }
}

/* --- building a turn: what to claim --- */

enum fate { SEND, PARK, SURPLUS, PASS, STOP };

/* A hole in the numbers that is only milliseconds old most often closes by itself. */
static bool is_young_hole(struct work_lane *wl, int64_t seq)
{
    enum { YOUNG_US = 5000 };
    if (!wl->lane.has_gaps || seq <= wl->worker->turn.head + 1)
        return false;
    if (wl->hole != wl->worker->turn.head + 1) {
        wl->hole = wl->worker->turn.head + 1;
        wl->hole_at = wl->worker->now;
    }
    return wl->worker->now - wl->hole_at < YOUNG_US;
}

static enum fate fate_of(struct worker *worker, struct work_lane *wl, const struct ol_item *item,
                         const char *key)
{
    struct ol_target *target = ol_target_find(&worker->targets, item->message.destination);
    if (!target)
        return STOP;
    if (ol_lane_is_settled(&wl->lane, item->seq))
        return PASS; // an operator ended it before we came to it
    if (item->available_at > ol_clock_wall_us() ||
        (key && (ol_map_get(&wl->lane.keys, key) || ol_map_get(&worker->chain, key))))
        return PARK; // not due, or behind its key (rules 8, 9)
    if (!ol_target_is_open(target, worker->now))
        return SURPLUS;
    // A crash condemns what is claimed at_most_once: so claim no more of it than leaves at once.
    if (item->at_most_once && key && ol_map_get(&worker->single, key))
        return SURPLUS;
    int room = ol_target_room(target, item->at_most_once, worker->options->patience_us, worker->now);
    if (target->planned >= room)
        return SURPLUS;
    if (item->at_most_once && key && !ol_map_add(&worker->single, key, 1))
        return STOP;
    target->planned++;
    return SEND;
}

/* Decide about every message that was read. What cannot go now is parked only when something else
 * behind it can (so that others pass); otherwise the batch simply ends before it. */
static int decide(struct work_lane *wl, struct batch *batch, enum fate *fates, size_t *kept,
                  outlog_err *err)
{
    struct worker *worker = wl->worker;
    size_t last_send = 0;
    bool sends = false;

    for (struct ol_target *t = worker->targets.first; t; t = t->next)
        t->planned = 0;
    ol_map_clear(&worker->chain); // keys that are parked in this very turn
    ol_map_clear(&worker->single);
    for (size_t i = 0; i < batch->count; i++) {
        const char *key = batch->items[i].key;
        fates[i] = fate_of(worker, wl, &batch->items[i], key);
        if (fates[i] == STOP) {
            batch->count = i;
            break;
        }
        if (fates[i] == SEND) {
            last_send = i;
            sends = true;
        } else if (key && fates[i] != PASS && !ol_map_add(&worker->chain, key, 1)) {
            return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
        }
    }
    *kept = batch->count;
    for (size_t i = sends ? last_send + 1 : 0; i < batch->count; i++)
        if (fates[i] == SURPLUS) {
            *kept = i;
            break;
        }
    return 0;
}

static const char *why_parked(struct worker *worker, const struct ol_item *item)
{
    struct ol_target *target = ol_target_find(&worker->targets, item->message.destination);
    return target && !target->outlet ? target->trouble : NULL;
}

/* Cover what was read: the ones to send stay in the batch, the others are parked with attempts 0. */
static int plan(struct work_lane *wl, struct batch *batch, outlog_err *err)
{
    struct worker *worker = wl->worker;
    struct ol_turn *turn = &worker->turn;
    enum fate *fates = ol_arena_array(&batch->arena, batch->count, sizeof *fates);
    size_t kept, sent = 0, read = batch->count;

    if (batch->count == 0)
        return 0;
    if (!fates)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    if (decide(wl, batch, fates, &kept, err) < 0)
        return -1;
    for (size_t i = 0; i < kept; i++) {
        struct ol_item *item = &batch->items[i];
        if (!ol_turn_has_room(turn, &wl->lane, item->seq) || is_young_hole(wl, item->seq))
            break;
        ol_turn_cover(turn, &wl->lane, item->seq, fates[i] == SEND);
        if (fates[i] == SEND) {
            batch->items[sent] = *item;
            ol_record_claim(&worker->record, &batch->items[sent++]);
            continue;
        }
        if (fates[i] == PASS)
            continue;
        struct ol_parking how = {.state = "PENDING",
                                 .available_at = fates[i] == PARK ? item->available_at : 0,
                                 .last_error = why_parked(worker, item)};
        if (item->key && !ol_map_add(&worker->parked, item->key, 1))
            return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
        ol_turn_park(turn, item, &how);
    }
    batch->count = sent;
    if (kept == 0 && read > 0) // everything here must wait for its destination
        wl->read_after = worker->now + worker->options->poll_us * 2;
    return 0;
}

/* Messages a read may bring: fewer when they are large. */
static void adapt_limit(struct work_lane *wl, const struct batch *batch)
{
    size_t bytes = 0, most = wl->worker->options->batch;
    for (size_t i = 0; i < batch->count; i++)
        bytes += batch->items[i].message.payload_bytes;
    size_t average = batch->count ? bytes / batch->count + 1 : 1;
    size_t limit = BATCH_BYTES / average;
    size_t steps[] = {1000, 250, 60, SMALLEST_BATCH};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (limit >= steps[i] || i == 3) {
            wl->limit = steps[i] < most ? steps[i] : most;
            return;
        }
}

static struct batch *read_new(struct work_lane *wl, outlog_err *err)
{
    struct worker *worker = wl->worker;
    struct batch *batch = calloc(1, sizeof *batch);
    if (!batch) {
        ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
        return NULL;
    }
    batch->lane = wl;
    if (ol_lane_read(worker->conn, &wl->lane, wl->limit, &batch->arena, &batch->items, &batch->count,
                     err) < 0) {
        batch_free(batch);
        return NULL;
    }
    wl->wants_read = batch->count >= wl->limit; // a full read: there may be more
    if (batch->count)
        adapt_limit(wl, batch);
    return batch;
}

/* Destinations that can take parked messages now, as JSON. */
static void write_rooms(struct worker *worker, struct ol_buf *out)
{
    const char *comma = "[";
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        if (t->is_retired || !ol_target_is_open(t, worker->now))
            continue;
        int room = ol_target_room(t, true, worker->options->patience_us, worker->now) - t->planned;
        if (t->limits.concurrency == 0 || room > 1000)
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

/* --- applying a turn --- */

static void count_key(struct work_lane *wl, const struct ol_item *item, int64_t by)
{
    if (item->key)
        ol_map_add(&wl->lane.keys, item->key, by); // out of memory: the next claim reloads
}

static void log_move(struct worker *worker, const struct ol_item *item, const char *from,
                     const char *to)
{
    if (!worker->options->quiet)
        ol_report_move(&item->message, from, to, item->error);
}

/* After the record of the open batch: what is still on the wire becomes a straggler. */
static void apply_open(struct worker *worker, struct work_lane *wl)
{
    struct batch *batch = wl->open;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_item *item = &batch->items[i];
        if (item->state == OL_ITEM_DONE && item->outcome.kind == OUTLOG_PUBLISH_OK) {
            worker->stats->published++;
            continue;
        }
        worker->stats->parked++;
        struct ol_parking how = {.state = "PENDING"};
        if (item->state == OL_ITEM_DONE)
            how = judge(worker, item);
        bool is_dead = strcmp(how.state, "DEAD") == 0;
        if (!is_dead || how.held)
            count_key(wl, item, 1);
        if (item->state == OL_ITEM_DONE) {
            worker->stats->failed++;
            worker->stats->dead += is_dead;
            log_move(worker, item, "CLAIMED", how.state);
        }
        item->is_parked = item->state == OL_ITEM_FLYING;
        item->attempts = 1;
    }
    wl->open = NULL;
    if (batch->flying == 0) {
        batch_free(batch);
        return;
    }
    batch->next = wl->loose;
    wl->loose = batch;
}

/* Does it still hold a message that has to be recorded by its own token? */
static bool has_parked(const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].is_parked)
            return true;
    return false;
}

static void apply_loose(struct worker *worker, struct work_lane *wl)
{
    for (struct batch **at = &wl->loose; *at;) {
        struct batch *batch = *at;
        for (size_t i = 0; i < batch->count; i++) {
            struct ol_item *item = &batch->items[i];
            if (item->state != OL_ITEM_DONE || !item->is_parked)
                continue;
            bool is_ok = item->outcome.kind == OUTLOG_PUBLISH_OK;
            struct ol_parking how = is_ok ? (struct ol_parking){.state = "PUBLISHED"}
                                          : judge(worker, item);
            bool is_dead = strcmp(how.state, "DEAD") == 0;
            if (is_ok || (is_dead && !how.held))
                count_key(wl, item, -1);
            worker->stats->published += is_ok;
            worker->stats->failed += !is_ok;
            worker->stats->dead += is_dead;
            if (!is_ok)
                log_move(worker, item, "CLAIMED", how.state);
            item->is_parked = false; // recorded
        }
        if (batch->flying == 0 && !has_parked(batch)) {
            *at = batch->next;
            batch_free(batch);
        } else {
            at = &batch->next;
        }
    }
    wl->has_finished = false;
}

/* Keys of the messages that the plan parked with attempts 0. */
static void apply_parked_keys(struct work_lane *wl)
{
    struct ol_map *parked = &wl->worker->parked;
    for (size_t i = 0; i < parked->room; i++)
        if (parked->entries[i].key)
            ol_map_add(&wl->lane.keys, parked->entries[i].key, parked->entries[i].count);
}

/* --- the turn --- */

/* Forget a lane that is not ours any more. Whatever is on the wire ends by its own token, if it has
 * one; the rest was parked by whoever took the lane. */
static void lose_lane(struct work_lane *wl)
{
    struct worker *worker = wl->worker;
    wl->is_owned = false;
    worker->owned--;
    if (wl->open) {
        for (size_t i = 0; i < wl->open->count; i++)
            wl->open->items[i].is_parked = false; // outcomes of these are dropped
        wl->open->next = wl->loose;
        wl->loose = wl->open;
        wl->open = NULL;
    }
}

static bool claims_parked(const struct work_lane *wl)
{
    return wl->wants_due && !wl->gives_back && atomic_load(wl->worker->stop) == 0;
}

/* A message whose relays went away as often as it may be tried is not sent once more (rule 14). */
static void end_if_spent(struct work_lane *wl, struct ol_item *item)
{
    struct ol_target *target = ol_target_find(&wl->worker->targets, item->message.destination);
    struct ol_retry policy;
    ol_retry_resolve(item->message.event_type, item->max_attempts,
                     ol_policy_retry(&wl->worker->policy, item->message.event_type),
                     target && target->settings ? &target->settings->retry : NULL, &policy);
    if (ol_item_used(item) <= policy.max_attempts)
        return;
    struct batch *batch = item->batch;
    item->state = OL_ITEM_DONE;
    item->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED, .is_permanent = true};
    item->error = strdup("attempts are used up; the last outcomes are unknown");
    batch->done++;
    wl->has_finished = true;
}

static int start_parked(struct work_lane *wl, struct batch *holder, struct ol_item *items,
                        size_t count, outlog_err *err)
{
    holder->items = items;
    holder->count = count;
    holder->claimed_at = wl->worker->now;
    if (!link_keys(wl->worker, holder))
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++)
        end_if_spent(wl, &items[i]);
    holder->next = wl->loose;
    wl->loose = holder;
    return 0;
}

static int build(struct work_lane *wl, struct batch **fresh, struct ol_buf *rooms, outlog_err *err)
{
    struct worker *worker = wl->worker;
    struct ol_turn *turn = &worker->turn;
    bool may_claim = !wl->gives_back && atomic_load(worker->stop) == 0;

    ol_turn_begin(turn, &wl->lane);
    ol_record_reset(&worker->record);
    turn->row_lease_us = wl->lane.lease_us;
    turn->reap = wl->wants_reap;
    if (wl->open)
        record_open(worker, wl->open);
    for (struct batch *batch = wl->loose; batch; batch = batch->next)
        record_loose(worker, batch);
    ol_map_clear(&worker->parked);
    if (may_claim && wl->wants_read && worker->now >= wl->read_after) {
        if (!(*fresh = read_new(wl, err)) || plan(wl, *fresh, err) < 0)
            return -1;
    }
    if (claims_parked(wl)) {
        write_rooms(worker, rooms);
        turn->rooms = rooms->data;
    }
    ol_record_attach(&worker->record, turn);
    return 0;
}

/* Keys that failed in the batch being recorded must block the plan made beside it. */
static void block_failed_keys(struct work_lane *wl, int64_t by)
{
    for (size_t i = 0; wl->open && i < wl->open->count; i++) {
        struct ol_item *item = &wl->open->items[i];
        if (item->state != OL_ITEM_DONE || item->outcome.kind != OUTLOG_PUBLISH_OK)
            count_key(wl, item, by);
    }
}

static int turn(struct work_lane *wl, outlog_err *err)
{
    struct worker *worker = wl->worker;
    struct batch *fresh = NULL, *holder = calloc(1, sizeof *holder);
    struct ol_buf rooms = {0};
    struct ol_item *items;
    size_t count;
    enum ol_turn_result result;
    int outcome = -1;

    if (!holder)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    holder->lane = wl;
    block_failed_keys(wl, 1);
    int built = build(wl, &fresh, &rooms, err);
    block_failed_keys(wl, -1);
    if (built < 0)
        goto out;
    struct ol_turn *t = &worker->turn;
    bool is_empty = !wl->open && !t->finished_count && !t->parked_count && !t->sent_count &&
                    t->head == wl->lane.head && !t->rooms && !t->reap;
    if (is_empty) {
        outcome = 0;
        goto out;
    }
    if (ol_turn_write(worker->conn, &wl->lane, t, &holder->arena, &items, &count, &result, err) < 0)
        goto out;
    outcome = 0;
    if (result == OL_TURN_STALE) {
        outcome = ol_lane_reload(worker->conn, &wl->lane, err);
        wl->wants_read = true; // what was read must be read again
        goto out;
    }
    if (result == OL_TURN_FENCED) {
        worker->stats->fenced++;
        lose_lane(wl);
        goto out;
    }
    wl->wants_reap = false;
    wl->wants_due = count > 0;
    if (wl->open)
        apply_open(worker, wl);
    apply_loose(worker, wl);
    apply_parked_keys(wl);
    if (fresh && fresh->count) {
        fresh->claimed_at = worker->now;
        wl->open = fresh;
        fresh = NULL;
        if (!link_keys(worker, wl->open)) {
            outcome = ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
            goto out;
        }
    }
    if (count) {
        outcome = start_parked(wl, holder, items, count, err);
        holder = outcome == 0 ? NULL : holder;
    }
out:
    if (fresh)
        batch_free(fresh);
    if (holder)
        batch_free(holder);
    ol_buf_clear(&rooms);
    return outcome;
}

/* --- a lane's step --- */

/* The open batch is recorded when nothing more can happen to it now, or patience is over. */
static bool is_ready(struct worker *worker, const struct batch *batch)
{
    if (is_over(batch) || worker->now - batch->claimed_at >= worker->options->patience_us)
        return true;
    if (batch->flying)
        return false;
    for (size_t i = 0; i < batch->count && atomic_load(worker->stop) == 0; i++)
        if (is_next(&batch->items[i]))
            return false; // waits for a place
    return true;
}

/* Rows that are due may all stand behind their keys or a closed destination: look before writing. */
static bool finds_due(struct work_lane *wl, outlog_err *err)
{
    struct ol_buf rooms = {0};
    bool has = false;
    for (struct ol_target *t = wl->worker->targets.first; t; t = t->next)
        t->planned = 0;
    write_rooms(wl->worker, &rooms);
    if (ol_lane_has_due(wl->worker->conn, &wl->lane, rooms.data, &has, err) < 0)
        has = false;
    wl->wants_due = has;
    ol_buf_clear(&rooms);
    return has;
}

/* Stragglers of a lane that somebody else has now still end by their own token (rule 13). */
static int end_orphans(struct work_lane *wl, outlog_err *err)
{
    struct worker *worker = wl->worker;
    ol_turn_begin(&worker->turn, &wl->lane);
    ol_record_reset(&worker->record);
    for (struct batch *batch = wl->loose; batch; batch = batch->next)
        record_loose(worker, batch);
    ol_record_attach(&worker->record, &worker->turn);
    if (worker->turn.finished_count &&
        ol_turn_orphan(worker->conn, &wl->lane, &worker->turn, err) < 0) {
        wl->retry_at = worker->now + 100000;
        return -1;
    }
    apply_loose(worker, wl);
    return 0;
}

static int step(struct work_lane *wl, bool *moved, outlog_err *err)
{
    struct worker *worker = wl->worker;
    if (worker->now < wl->retry_at)
        return 0;
    if (!wl->is_owned)
        return wl->has_finished ? end_orphans(wl, err) : 0;
    if (wl->open)
        pump(worker, wl->open);
    for (struct batch *batch = wl->loose; batch; batch = batch->next)
        pump(worker, batch);
    if (wl->open && !is_ready(worker, wl->open))
        return 0;
    bool reads = wl->wants_read && worker->now >= wl->read_after;
    if (!wl->open && !wl->has_finished && !reads && !wl->wants_reap &&
        (!wl->wants_due || !finds_due(wl, err)))
        return 0;
    int64_t claim_no = wl->lane.claim_no;
    if (turn(wl, err) < 0) {
        wl->retry_at = worker->now + 100000;
        if (worker->now > wl->lane.lease_end)
            lose_lane(wl);
        return -1;
    }
    *moved |= wl->lane.claim_no != claim_no || wl->wants_read;
    if (wl->open)
        pump(worker, wl->open);
    return 0;
}

/* --- sharing lanes --- */

static int count_relays(struct worker *worker, int64_t *live, outlog_err *err)
{
    int64_t dead_after = worker->options->lease_us;
    if (ol_exec(worker->conn, OL_Q_RELAY_BEAT,
                OL_PARAMS(ol_text(worker->run), ol_text(worker->options->name)), NULL, err) < 0 ||
        ol_exec(worker->conn, OL_Q_RELAY_FORGET, OL_PARAMS(ol_int(dead_after * 10)), NULL, err) < 0)
        return -1;
    return ol_number(worker->conn, OL_Q_RELAY_COUNT, OL_PARAMS(ol_int(dead_after)), live, err);
}

static int take_free(struct worker *worker, size_t share, outlog_err *err)
{
    int free_lanes[MOST_LANES];
    size_t count = 0;
    struct ol_rows rows;
    int more;

    if (worker->owned >= share)
        return 0;
    if (ol_query(worker->conn, OL_Q_LANE_FREE, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_next(&rows, err)) > 0 && count < MOST_LANES)
        free_lanes[count++] = (int)ol_column_int(&rows, 0);
    ol_end(&rows);
    for (size_t i = 0; more >= 0 && i < count && worker->owned < share; i++) {
        struct work_lane *wl = &worker->lanes[free_lanes[i]];
        bool taken;
        int64_t parked;
        if ((size_t)free_lanes[i] >= worker->lane_count || wl->is_owned || wl->loose)
            continue;
        wl->lane.number = free_lanes[i];
        if (ol_lane_take(worker->conn, &wl->lane, worker->options->name, &taken, &parked, err) < 0)
            return -1;
        if (!taken)
            continue;
        wl->is_owned = wl->wants_read = wl->wants_due = true;
        wl->gives_back = false;
        worker->owned++;
        worker->stats->taken++;
        worker->stats->parked += parked;
    }
    return more < 0 ? -1 : 0;
}

static int renew_all(struct worker *worker, outlog_err *err)
{
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct work_lane *wl = &worker->lanes[i];
        bool held;
        if (!wl->is_owned || wl->lane.lease_end - worker->now > worker->options->lease_us * 2 / 3)
            continue;
        if (ol_lane_renew(worker->conn, &wl->lane, &held, err) < 0)
            return -1;
        if (!held) {
            worker->stats->fenced++;
            lose_lane(wl);
        }
    }
    return 0;
}

static int give_back(struct worker *worker, struct work_lane *wl, outlog_err *err)
{
    if (wl->open || wl->has_finished)
        return 0;
    if (ol_lane_release(worker->conn, &wl->lane, err) < 0)
        return -1;
    wl->is_owned = wl->gives_back = false;
    worker->owned--;
    return 0;
}

/* Show breakers to whoever asks: rows only for those that are not closed. */
static int show_breakers(struct worker *worker, outlog_err *err)
{
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        enum ol_breaker_state state = ol_breaker_state(&t->breaker, worker->now);
        if (!t->outlet || t->is_retired || state == t->shown)
            continue;
        const struct ol_value run = ol_text(worker->run), name = ol_text(t->name);
        if ((state == OL_BREAKER_CLOSED
                 ? ol_exec(worker->conn, OL_Q_BREAKER_CLOSE, OL_PARAMS(run, name), NULL, err)
                 : ol_exec(worker->conn, OL_Q_BREAKER_PUT,
                           OL_PARAMS(run, name, ol_text(ol_breaker_name(state))), NULL, err)) < 0)
            return -1;
        t->shown = state;
    }
    return 0;
}

/* Every minute, by whoever owns the first lane. */
static int sweep(struct worker *worker, outlog_err *err)
{
    int64_t removed;
    if (!worker->lanes[0].is_owned || worker->now - worker->swept_at < 60 * BEAT_US)
        return 0;
    worker->swept_at = worker->now;
    return ol_janitor_sweep(worker->conn, &worker->policy, &removed, err) < 0 ||
                   ol_exec(worker->conn, OL_Q_BREAKER_FORGET,
                           OL_PARAMS(ol_int(worker->options->lease_us * 10)), NULL, err) < 0
               ? -1
               : 0;
}

/* Once a second: tell that we live, take what is free up to a fair share, hand one lane over when we
 * hold more. */
static int beat(struct worker *worker, outlog_err *err)
{
    int64_t live;
    if (worker->now < worker->beat_at)
        return 0;
    worker->beat_at = worker->now + BEAT_US;
    if (count_relays(worker, &live, err) < 0 || renew_all(worker, err) < 0 ||
        ol_targets_refresh(&worker->targets, worker->conn, err) < 0 ||
        ol_policy_refresh(&worker->policy, worker->conn, err) < 0 ||
        show_breakers(worker, err) < 0 || sweep(worker, err) < 0)
        return -1;
    if (atomic_load(worker->stop))
        return 0;
    if (live < worker->options->siblings)
        live = worker->options->siblings; // they are starting beside us
    size_t share = (worker->lane_count + (size_t)live - 1) / (size_t)(live ? live : 1);
    if (worker->owned > share)
        for (size_t i = worker->lane_count; i-- > 0;)
            if (worker->lanes[i].is_owned && !worker->lanes[i].gives_back) {
                worker->lanes[i].gives_back = true;
                break;
            }
    return take_free(worker, share, err);
}

/* --- the loop --- */

/* One look at all lanes that have nothing to do. */
static int poll_lanes(struct worker *worker, bool *news, outlog_err *err)
{
    struct ol_lane_news found[MOST_LANES];
    struct ol_buf numbers = {0};
    size_t count;

    for (size_t i = 0; i < worker->lane_count; i++)
        if (worker->lanes[i].is_owned)
            ol_buf_print(&numbers, "%s%d", numbers.bytes ? "," : "[", worker->lanes[i].lane.number);
    if (!numbers.bytes)
        return 0;
    ol_buf_char(&numbers, ']');
    int result = ol_lane_poll(worker->conn, numbers.data, found, MOST_LANES, &count, err);
    ol_buf_clear(&numbers);
    for (size_t i = 0; result == 0 && i < count; i++) {
        struct work_lane *wl = &worker->lanes[found[i].number];
        if (found[i].newest > wl->lane.head || wl->lane.gap_count)
            wl->wants_read = true;
        if (found[i].due_us <= 0)
            wl->wants_due = true;
        if (found[i].expiry_us <= 0)
            wl->wants_reap = true;
        if (found[i].parked_gen != wl->lane.parked_gen && found[i].epoch == wl->lane.epoch &&
            ol_lane_reload(worker->conn, &wl->lane, err) < 0)
            return -1;
        *news |= wl->wants_read || wl->wants_due || wl->wants_reap;
    }
    return result;
}

static bool is_idle(const struct worker *worker)
{
    for (size_t i = 0; i < worker->lane_count; i++) {
        const struct work_lane *wl = &worker->lanes[i];
        if (wl->is_owned && (wl->open || wl->loose || wl->wants_read || wl->wants_due))
            return false;
    }
    return ol_sender_in_flight(worker->targets.sender) == 0;
}

/* Wait for outcomes while something is in flight, else for a commit or the next poll. */
static void rest(struct worker *worker, bool moved)
{
    if (moved)
        worker->pause_us = 1000;
    if (ol_sender_in_flight(worker->targets.sender)) {
        ol_sender_drive(worker->targets.sender, moved ? 0 : 2);
        return;
    }
    int64_t left_us = worker->polled_at + worker->pause_us - ol_clock_boot_us();
    if (!moved && left_us > 0 &&
        ol_waiter_wait(&worker->waiter, worker->conn->store->wake_fd(worker->conn),
                       (int)((left_us + 999) / 1000)))
        worker->polled_at = 0; // somebody committed: look at once
}

static int turn_all(struct worker *worker, bool *moved, outlog_err *err)
{
    bool news = false;
    if (beat(worker, err) < 0)
        return -1;
    for (size_t i = 0; i < worker->lane_count; i++)
        if (step(&worker->lanes[i], moved, err) < 0)
            return -1;
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct work_lane *wl = &worker->lanes[i];
        if (wl->is_owned && wl->gives_back && give_back(worker, wl, err) < 0)
            return -1;
    }
    if (*moved || worker->now - worker->polled_at < worker->pause_us)
        return 0;
    worker->polled_at = worker->now;
    if (poll_lanes(worker, &news, err) < 0)
        return -1;
    worker->pause_us = news ? 1000
                            : worker->pause_us * 2 < worker->options->poll_us
                                  ? worker->pause_us * 2
                                  : worker->options->poll_us;
    *moved |= news;
    return 0;
}

/* Stop claiming; what is on the wire ends or is left to its lease; hand the lanes back. */
static void drain(struct worker *worker)
{
    outlog_err err;
    int64_t end = ol_clock_boot_us() + worker->options->drain_us;
    for (;;) {
        bool moved = false;
        worker->now = ol_clock_boot_us();
        ol_sender_drive(worker->targets.sender, 5);
        for (size_t i = 0; i < worker->lane_count; i++) {
            struct work_lane *wl = &worker->lanes[i];
            wl->gives_back = wl->is_owned;
            wl->wants_read = wl->wants_due = false;
            if (step(wl, &moved, &err) < 0)
                wl->retry_at = worker->now + 100000;
            if (wl->is_owned && !wl->loose)
                give_back(worker, wl, &err);
        }
        if (worker->owned == 0 || worker->now > end || atomic_load(worker->stop) > 1)
            break;
    }
    ol_exec(worker->conn, OL_Q_RELAY_GONE, OL_PARAMS(ol_text(worker->run)), NULL, &err);
}

/* Rule 5: a session of ours that hangs must not hold a lane's row for longer than a third of the
 * lease. A new connection has to be told again. */
static int limit_session(struct worker *worker, outlog_err *err)
{
    return ol_exec(worker->conn, OL_Q_RELAY_SESSION,
                   OL_PARAMS(ol_int(worker->options->lease_us / 3000)), NULL, err);
}

static int start(struct worker *worker, outlog_err *err)
{
    int64_t lanes;
    if (ol_open(worker->options->store, &worker->conn, err) < 0 ||
        ol_migrate_check(worker->conn, err) < 0 || limit_session(worker, err) < 0 ||
        ol_number(worker->conn, OL_Q_LANE_COUNT, OL_NO_PARAMS, &lanes, err) < 0 ||
        ol_sender_open(&worker->targets.sender, on_outcome, worker, err) < 0)
        return -1;
    if (lanes > MOST_LANES)
        return ol_fail(err, OUTLOG_STORE_ERROR, "more lanes than this relay knows");
    worker->lane_count = (size_t)lanes;
    if (!(worker->lanes = calloc(worker->lane_count, sizeof *worker->lanes)))
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < worker->lane_count; i++) {
        worker->lanes[i].worker = worker;
        worker->lanes[i].limit = worker->options->batch;
        worker->lanes[i].lane = (struct ol_lane){.number = (int)i,
                                                 .run = worker->run,
                                                 .lease_us = worker->options->lease_us,
                                                 .has_gaps = worker->conn->store->has_gaps};
    }
    return ol_waiter_open(&worker->waiter, worker->conn->wake_key) == 0
               ? 0
               : ol_fail(err, OUTLOG_NO_MEMORY, "no file descriptor left");
}

static void finish(struct worker *worker)
{
    if (worker->targets.sender) {
        ol_targets_clear(&worker->targets); // ends what is in flight: outcomes still arrive here
        ol_sender_close(worker->targets.sender);
    }
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct work_lane *wl = &worker->lanes[i];
        if (wl->open)
            batch_free(wl->open);
        while (wl->loose) {
            struct batch *next = wl->loose->next;
            batch_free(wl->loose);
            wl->loose = next;
        }
        ol_lane_clear(&wl->lane);
    }
    ol_map_clear(&worker->chain);
    ol_map_clear(&worker->parked);
    ol_map_clear(&worker->single);
    ol_record_clear(&worker->record);
    ol_policy_clear(&worker->policy);
    ol_turn_clear(&worker->turn);
    ol_waiter_close(&worker->waiter);
    free(worker->lanes);
    ol_close(worker->conn);
}

int ol_worker_run(const struct ol_worker_options *options, atomic_int *stop,
                  struct ol_worker_stats *stats, outlog_err *err)
{
    struct worker *worker = calloc(1, sizeof *worker);
    int result = -1, idle_rounds = 0;
    outlog_err why;

    if (!worker)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    worker->options = options;
    worker->stop = stop;
    worker->stats = stats;
    worker->pause_us = 1000;
    worker->waiter.fd = -1;
    ol_uuid_make(worker->run);
    if (start(worker, err) < 0)
        goto out;
    result = 0;
    while (atomic_load(stop) == 0) {
        bool moved = false;
        worker->now = ol_clock_boot_us();
        if (turn_all(worker, &moved, &why) < 0) {
            if (worker->now - worker->told_at > BEAT_US) {
                ol_report_trouble(&why);
                worker->told_at = worker->now;
            }
            moved = false;
            worker->polled_at = worker->now;
            worker->pause_us = worker->options->poll_us;
            if (worker->conn->store->revive(worker->conn, &why) == 0)
                limit_session(worker, &why);
        }
        idle_rounds = !moved && is_idle(worker) ? idle_rounds + 1 : 0;
        if (options->until_idle && idle_rounds > 3 && worker->owned > 0)
            break;
        rest(worker, moved);
    }
    if (atomic_load(stop) < 2)
        drain(worker);
out:
    finish(worker);
    free(worker);
    return result;
}
