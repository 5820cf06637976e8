/* outcomes.c: what became of the messages that were claimed. First as additions to a turn, which
 * change nothing; then, when the turn is stored, in memory. */
#include "base/random.h"
#include "relay/internal.h"

#include "telemetry/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double chance(void)
{
    uint32_t bits;
    ol_random_bytes(&bits, sizeof bits);
    return bits / 4294967296.0;
}

static bool holds(const struct ol_target *target, const struct ol_claimed_message *item)
{
    return item->message.ordering_key && target->settings &&
           target->settings->on_dead == OL_ON_DEAD_HOLD;
}

/* What a message becomes after an attempt that did not publish it. */
static struct ol_park_entry judge(struct ol_worker *worker, const struct ol_claimed_message *item)
{
    struct ol_target *target = ol_target_find(&worker->targets, item->message.destination);
    struct ol_retry policy;
    struct ol_park_entry how = {.state = "PENDING", .attempts = 1, .last_error = item->error};

    ol_retry_resolve(item->message.event_type, item->max_attempts,
                     ol_policy_retry(&worker->policy, item->message.event_type),
                     target && target->settings ? &target->settings->retry : NULL, &policy);
    switch (ol_retry_decide(&policy, item->at_most_once, ol_claimed_message_used(item),
                            &item->outcome, chance(), &how.wait_us)) {
    case OL_DECISION_DEAD:
        how.state = "DEAD";
        how.held = target && holds(target, item);
        how.wait_us = 0;
        break;
    case OL_DECISION_RELEASE:
        how.unsent = 1;
        break;
    default:
        break;
    }
    return how;
}

/* The open batch: nothing for what was published, a parked row for everything else (rule 12). */
void ol_outcomes_open(struct ol_worker *worker, const struct ol_batch *batch)
{
    struct ol_turn *turn = &worker->turn;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_claimed_message *item = &batch->items[i];
        if (item->is_kept)
            ol_turn_attempt(turn, item);
        struct ol_park_entry how = {.state = "PENDING", .attempts = 1, .unsent = 1}; // never sent
        bool is_published = item->state == OL_CLAIMED_DONE &&
                            item->outcome.kind == OUTLOG_PUBLISH_OK;
        if (item->state == OL_CLAIMED_DONE && !is_published)
            how = judge(worker, item);
        if (item->state != OL_CLAIMED_IN_FLIGHT)
            ol_side_effects_end(&worker->record, item, &how, is_published);
        if (is_published)
            continue;
        if (item->state == OL_CLAIMED_IN_FLIGHT) {
            const struct ol_target *target = item->target;
            how = (struct ol_park_entry){.state = "CLAIMED",
                                         .attempts = 1,
                                         .lease_us = target->settings->timeout_us +
                                                     worker->margin_us};
        }
        ol_turn_park(turn, item, &how, false);
    }
}

void ol_outcomes_one(struct ol_worker *worker, const struct ol_claimed_message *item)
{
    struct ol_park_entry how = {.state = "PUBLISHED"};
    if (item->is_kept)
        ol_turn_attempt(&worker->turn, item);
    if (item->outcome.kind != OUTLOG_PUBLISH_OK)
        how = judge(worker, item);
    ol_side_effects_end(&worker->record, item, &how, item->outcome.kind == OUTLOG_PUBLISH_OK);
    ol_turn_finish(&worker->turn, item, &how);
}

void ol_outcomes_loose(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state == OL_CLAIMED_DONE && batch->items[i].is_parked)
            ol_outcomes_one(worker, &batch->items[i]);
}

/* --- applying a turn --- */

void ol_outcomes_count_key(struct ol_relay_lane *wl, const struct ol_claimed_message *item,
                           int64_t by)
{
    if (item->key)
        ol_map_add(&wl->lane.keys, item->key, by); // out of memory: the next claim reloads
}

void ol_outcomes_count_parked(struct ol_relay_lane *wl, const struct ol_claimed_message *item,
                              int64_t by)
{
    ol_map_add(&wl->lane.waiting, item->message.destination, by);
}

/* What went well is told of notifications, and of the rest only to those who want to hear it all.
 */
static void log_move(struct ol_worker *worker, const struct ol_claimed_message *item,
                     const char *from, const char *to)
{
    bool is_good = item->state == OL_CLAIMED_DONE && item->outcome.kind == OUTLOG_PUBLISH_OK;
    if (!worker->options->quiet)
        ol_report_move(is_good && !item->notice ? OL_LOGLINE_DEBUG : OL_LOGLINE_INFO,
                       &item->message, from, to, item->error);
}

/* After the record of the open batch: what is still on the wire becomes a straggler. */
void ol_outcomes_apply_open(struct ol_relay_lane *wl)
{
    struct ol_worker *worker = wl->worker;
    struct ol_batch *batch = wl->open;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_claimed_message *item = &batch->items[i];
        if (item->state == OL_CLAIMED_DONE && item->outcome.kind == OUTLOG_PUBLISH_OK) {
            worker->stats->published++;
            log_move(worker, item, "CLAIMED", "PUBLISHED");
            continue;
        }
        worker->stats->parked++;
        struct ol_park_entry how = {.state = "PENDING"};
        if (item->state == OL_CLAIMED_DONE)
            how = judge(worker, item);
        bool is_dead = strcmp(how.state, "DEAD") == 0;
        if (!is_dead || how.held)
            ol_outcomes_count_key(wl, item, 1);
        if (!is_dead)
            ol_outcomes_count_parked(wl, item, 1);
        if (item->state == OL_CLAIMED_DONE) {
            worker->stats->failed++;
            worker->stats->dead += is_dead;
            log_move(worker, item, "CLAIMED", how.state);
        }
        item->is_parked = item->state == OL_CLAIMED_IN_FLIGHT;
        item->attempts = 1;
    }
    wl->open = NULL;
    ol_batch_drop_unsent(batch); // parked by this turn: another claim sends them
    if (batch->flying == 0) {
        ol_batch_free(batch);
        return;
    }
    batch->next = wl->loose;
    wl->loose = batch;
}

/* Does it still hold a message that has to be recorded by its own token? */
static bool has_parked(const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].is_parked)
            return true;
    return false;
}

void ol_outcomes_apply_one(struct ol_relay_lane *wl, struct ol_claimed_message *item)
{
    struct ol_worker *worker = wl->worker;
    bool is_ok = item->outcome.kind == OUTLOG_PUBLISH_OK;
    struct ol_park_entry how = {.state = "PUBLISHED"};
    if (!is_ok)
        how = judge(worker, item);
    bool is_dead = strcmp(how.state, "DEAD") == 0;
    if (is_ok || (is_dead && !how.held))
        ol_outcomes_count_key(wl, item, -1);
    if (is_ok || is_dead)
        ol_outcomes_count_parked(wl, item, -1);
    worker->stats->published += is_ok;
    worker->stats->failed += !is_ok;
    worker->stats->dead += is_dead;
    log_move(worker, item, "CLAIMED", how.state);
    item->is_parked = false; // recorded
}

void ol_outcomes_apply_loose(struct ol_relay_lane *wl)
{
    for (struct ol_batch **at = &wl->loose; *at;) {
        struct ol_batch *batch = *at;
        for (size_t i = 0; i < batch->count; i++)
            if (batch->items[i].state == OL_CLAIMED_DONE && batch->items[i].is_parked)
                ol_outcomes_apply_one(wl, &batch->items[i]);
        if (batch->flying == 0 && !has_parked(batch)) {
            *at = batch->next;
            ol_batch_free(batch);
        } else {
            at = &batch->next;
        }
    }
    wl->has_finished = false;
}

/* A message whose relays went away as often as it may be tried is not sent once more (rule 14). */
void ol_outcomes_if_spent(struct ol_relay_lane *wl, struct ol_claimed_message *item)
{
    struct ol_target *target = ol_target_find(&wl->worker->targets, item->message.destination);
    struct ol_retry policy;
    ol_retry_resolve(item->message.event_type, item->max_attempts,
                     ol_policy_retry(&wl->worker->policy, item->message.event_type),
                     target && target->settings ? &target->settings->retry : NULL, &policy);
    if (ol_claimed_message_used(item) <= policy.max_attempts)
        return;
    struct ol_batch *batch = item->batch;
    item->state = OL_CLAIMED_DONE;
    item->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED, .is_permanent = true};
    item->error = strdup("attempts are used up; the last outcomes are unknown");
    batch->done++;
    ol_batch_unqueue(wl->worker, item);
    wl->has_finished = true;
}
