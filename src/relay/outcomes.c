/* outcomes.c: what became of the claimed messages. First as additions to a turn, which change
 * nothing else; then, when the turn is stored, in memory. */
#include "relay/internal.h"

#include "base/random.h"
#include "telemetry/report.h"

#include <string.h>

static double draw_random(void)
{
    uint32_t bits;
    ol_random_bytes(&bits, sizeof bits);
    return bits / 4294967296.0;
}

static bool holds_key(const struct ol_target *target, const struct ol_claimed_message *message)
{
    return message->message.ordering_key && target->settings &&
           target->settings->on_dead == OL_ON_DEAD_HOLD;
}

static void resolve_retry(struct ol_worker *worker, const struct ol_claimed_message *message,
                          const struct ol_target *target, struct ol_retry *out)
{
    const struct outlog_delivery *delivery = &message->message;
    struct ol_retry_subject subject = {.class = message->retry_class,
                                       .event_type = delivery->event_type,
                                       .max_attempts = message->max_attempts};
    ol_retry_resolve(&subject, ol_policy_retry(&worker->policy, delivery->event_type),
                     target && target->settings ? &target->settings->retry : NULL, out);
}

struct ol_park_entry ol_outcomes_condemned(struct ol_worker *worker,
                                           const struct ol_claimed_message *message)
{
    struct ol_target *target = ol_target_find(&worker->targets, message->message.destination);
    return (struct ol_park_entry){.state = "DEAD",
                                  .attempts = 1,
                                  .held = target && holds_key(target, message),
                                  .last_error = message->condemned};
}

/* What a message becomes after an attempt that did not publish it. */
static struct ol_park_entry decide_retry(struct ol_worker *worker,
                                         const struct ol_claimed_message *message)
{
    struct ol_target *target = ol_target_find(&worker->targets, message->message.destination);
    struct ol_retry policy;
    struct ol_park_entry entry = {.state = "PENDING", .attempts = 1, .last_error = message->error};

    if (message->condemned)
        return ol_outcomes_condemned(worker, message);
    resolve_retry(worker, message, target, &policy);
    switch (ol_retry_decide(&policy, message->at_most_once, ol_claimed_message_used(message),
                            &message->outcome, draw_random(), &entry.wait_us)) {
    case OL_DECISION_DEAD:
        entry.state = "DEAD";
        entry.held = target && holds_key(target, message);
        entry.wait_us = 0;
        break;
    case OL_DECISION_RELEASE:
        entry.unsent = 1;
        break;
    default:
        break;
    }
    return entry;
}

static bool is_published(const struct ol_relay_item *item)
{
    return item->state == OL_ITEM_DONE && item->claimed->outcome.kind == OUTLOG_PUBLISH_OK &&
           !item->claimed->condemned;
}

static bool is_dead(const struct ol_park_entry *entry)
{
    return strcmp(entry->state, "DEAD") == 0;
}

/* --- additions to a turn --- */

/* Of the open batch: nothing for what was published, a parked row for everything else (rule 12). */
static void record_open(struct ol_worker *worker, struct ol_turn *turn,
                        const struct ol_relay_item *item)
{
    // never sent
    struct ol_park_entry entry = {.state = "PENDING", .attempts = 1, .unsent = 1};
    if (item->state == OL_ITEM_DONE && !is_published(item))
        entry = decide_retry(worker, item->claimed);
    if (item->state == OL_ITEM_IN_FLIGHT)
        entry = (struct ol_park_entry){.state = "CLAIMED",
                                       .attempts = 1,
                                       .lease_us = item->target->settings->timeout_us +
                                                   worker->margin_us};
    else
        ol_side_effects_end(&worker->effects, item, &entry, is_published(item));
    if (!is_published(item))
        ol_turn_park(turn, item->claimed, &entry, false);
}

static void record_parked(struct ol_worker *worker, struct ol_turn *turn,
                          const struct ol_relay_item *item)
{
    struct ol_park_entry entry = {.state = "PUBLISHED"};
    if (!is_published(item))
        entry = decide_retry(worker, item->claimed);
    ol_side_effects_end(&worker->effects, item, &entry, is_published(item));
    ol_turn_finish(turn, item->claimed, &entry);
}

void ol_outcomes_record(struct ol_worker *worker, struct ol_turn *turn,
                        const struct ol_relay_item *item)
{
    if (item->batch == item->batch->lane->open)
        record_open(worker, turn, item);
    else
        record_parked(worker, turn, item);
}

void ol_outcomes_open(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->items[i].is_kept)
            ol_turn_attempt(&worker->turn, batch->items[i].claimed);
        record_open(worker, &worker->turn, &batch->items[i]);
    }
}

void ol_outcomes_one(struct ol_worker *worker, const struct ol_relay_item *item)
{
    if (item->is_kept)
        ol_turn_attempt(&worker->turn, item->claimed);
    record_parked(worker, &worker->turn, item);
}

bool ol_outcomes_is_due(const struct ol_relay_item *item)
{
    return item->state == OL_ITEM_DONE && item->claimed->is_parked;
}

void ol_outcomes_loose(struct ol_worker *worker, const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (ol_outcomes_is_due(&batch->items[i]))
            ol_outcomes_one(worker, &batch->items[i]);
}

/* --- applying a turn --- */

void ol_outcomes_count_key(struct ol_relay_lane *lane, const struct ol_claimed_message *message,
                           int64_t by)
{
    if (message->key)
        ol_counter_map_add(&lane->outbox.keys, message->key,
                           by); // out of memory: the next claim reloads
}

void ol_outcomes_count_parked(struct ol_relay_lane *lane, const struct ol_claimed_message *message,
                              int64_t by)
{
    ol_counter_map_add(&lane->outbox.waiting, message->message.destination, by);
}

/* Successes are logged at level debug, those of notifications at level info. */
static void log_move(struct ol_worker *worker, const struct ol_relay_item *item, const char *from,
                     const char *to)
{
    if (!worker->options->quiet)
        ol_report_move(is_published(item) && !item->notification ? OL_LOGLINE_DEBUG
                                                                 : OL_LOGLINE_INFO,
                       &item->claimed->message, from, to,
                       item->claimed->condemned ? item->claimed->condemned : item->claimed->error);
}

/* The turn has parked this message of the open batch. */
static void apply_parked(struct ol_relay_lane *lane, struct ol_relay_item *item)
{
    struct ol_worker *worker = lane->worker;
    struct ol_claimed_message *message = item->claimed;
    struct ol_park_entry entry = {.state = "PENDING"};

    worker->stats->parked++;
    if (item->state == OL_ITEM_DONE)
        entry = decide_retry(worker, message);
    if (!is_dead(&entry) || entry.held)
        ol_outcomes_count_key(lane, message, 1);
    if (!is_dead(&entry))
        ol_outcomes_count_parked(lane, message, 1);
    if (item->state == OL_ITEM_DONE) {
        worker->stats->failed++;
        worker->stats->dead += is_dead(&entry);
        log_move(worker, item, "CLAIMED", entry.state);
    }
    message->is_parked = item->state == OL_ITEM_IN_FLIGHT;
    message->attempts = 1;
}

/* After the open batch is recorded: what is still on the wire becomes a straggler. */
void ol_outcomes_apply_open(struct ol_relay_lane *lane, struct ol_batch **open)
{
    struct ol_batch *batch = *open;
    for (size_t i = 0; i < batch->count; i++) {
        struct ol_relay_item *item = &batch->items[i];
        if (is_published(item)) {
            lane->worker->stats->published++;
            log_move(lane->worker, item, "CLAIMED", "PUBLISHED");
        } else {
            apply_parked(lane, item);
        }
    }
    *open = NULL;
    batch->side = NULL;
    ol_batch_drop_unsent(batch); // parked by this turn: another claim sends them
    if (batch->in_flight == 0) {
        ol_batch_free(batch);
        return;
    }
    batch->next = lane->loose;
    lane->loose = batch;
}

/* Does it still hold a message that has to be recorded by its own token? */
static bool has_parked(const struct ol_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->messages[i].is_parked)
            return true;
    return false;
}

void ol_outcomes_apply_one(struct ol_relay_lane *lane, struct ol_relay_item *item)
{
    struct ol_worker *worker = lane->worker;
    struct ol_claimed_message *message = item->claimed;
    bool is_ok = is_published(item);
    struct ol_park_entry entry = {.state = "PUBLISHED"};
    if (!is_ok)
        entry = decide_retry(worker, message);
    if (is_ok || (is_dead(&entry) && !entry.held))
        ol_outcomes_count_key(lane, message, -1);
    if (is_ok || is_dead(&entry))
        ol_outcomes_count_parked(lane, message, -1);
    worker->stats->published += is_ok;
    worker->stats->failed += !is_ok;
    worker->stats->dead += is_dead(&entry);
    log_move(worker, item, "CLAIMED", entry.state);
    message->is_parked = false; // recorded
}

void ol_outcomes_apply_loose(struct ol_relay_lane *lane)
{
    for (struct ol_batch **at = &lane->loose; *at;) {
        struct ol_batch *batch = *at;
        for (size_t i = 0; i < batch->count; i++)
            if (ol_outcomes_is_due(&batch->items[i]))
                ol_outcomes_apply_one(lane, &batch->items[i]);
        if (batch->in_flight == 0 && !has_parked(batch)) {
            *at = batch->next;
            ol_batch_free(batch);
        } else {
            at = &batch->next;
        }
    }
    lane->has_finished = false;
}

/* A message is not sent again once relays that went away have used up its attempts (rule 14). */
void ol_outcomes_if_spent(struct ol_relay_lane *lane, struct ol_relay_item *item)
{
    struct ol_claimed_message *message = item->claimed;
    struct ol_target *target = ol_target_find(&lane->worker->targets, message->message.destination);
    struct ol_retry policy;
    resolve_retry(lane->worker, message, target, &policy);
    if (ol_claimed_message_used(message) <= policy.max_attempts)
        return;
    item->state = OL_ITEM_DONE;
    message->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED, .is_permanent = true};
    message->error = strdup("attempts are used up; the last outcomes are unknown");
    item->batch->done++;
    ol_batch_unqueue(lane->worker, item);
    lane->has_finished = true;
}
