/* multi_lane_turn.c: several lanes in one read and one commit (outbox/lane/multi_lane.h).
 *
 * At a steady pace most lanes hold no message or one. The read and the wait for the disk are done
 * once for all of them. A lane with a backlog takes its own turns: it fills a commit by itself and
 * is prefetched. So does a lane whose turn would write more than its own row. */
#include "relay/internal.h"

#include "base/clock.h"

#include <stdlib.h>

enum { MULTI_LANE_LIMIT = 100 }; /* messages per lane; a lane with more takes its own turn */

/* How long the open batch has waited to be recorded; 0: there is none. */
static int64_t find_linger_us(const struct ol_relay_lane *lane)
{
    return lane->open ? lane->worker->clock.now - lane->open->claimed_at : 0;
}

/* Lanes in ascending order (rule 1): those to be read, and those to be recorded if there is a
 * commit anyway. 0: there is nothing to do now, or nothing that one lane could not do as well
 * alone. */
static size_t collect_entries(struct ol_worker *worker)
{
    size_t count = 0;
    bool has_cause = false;
    for (size_t i = 0; i < worker->lanes.count && count < OL_MULTI_LANE_MAX; i++) {
        struct ol_relay_lane *lane = &worker->lanes.all[i];
        if (!lane->is_owned || lane->is_full || worker->clock.now < lane->retry_at ||
            lane->outbox.sides || !ol_lane_loop_is_plain(lane))
            continue;
        bool is_read = ol_plan_may_read(lane);
        if (!is_read && find_linger_us(lane) <= OL_RELAY_LINGER_US / 2)
            continue;
        has_cause |= is_read || find_linger_us(lane) >= OL_RELAY_LINGER_US;
        struct ol_multi_lane_entry *entry = &worker->entries[count++];
        entry->lane = lane;
        entry->fresh = NULL;
        entry->is_read = is_read;
        entry->is_written = false;
    }
    return has_cause && count > 1 ? count : 0;
}

static int read_entries(struct ol_worker *worker, size_t count, outlog_err *err)
{
    struct ol_multi_lane lanes[OL_MULTI_LANE_MAX];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        struct ol_multi_lane_entry *entry = &worker->entries[i];
        if (!entry->is_read)
            continue;
        if (!(entry->fresh = calloc(1, sizeof *entry->fresh)))
            return ol_no_memory(err);
        entry->fresh->lane = entry->lane;
        lanes[used++] =
            (struct ol_multi_lane){.lane = &entry->lane->outbox, .arena = &entry->fresh->arena};
    }
    if (used && ol_multi_lane_read(worker->conn, lanes, used, MULTI_LANE_LIMIT, err) < 0)
        return -1;
    for (size_t i = count; i-- > 0;)
        if (worker->entries[i].is_read) {
            worker->entries[i].fresh->messages = lanes[--used].messages;
            worker->entries[i].fresh->count = lanes[used].count;
        }
    return 0;
}

/* A turn of several lanes parks nothing. A lane whose plan parks something starts again in its own
 * turn. */
static int plan_entry(struct ol_worker *worker, struct ol_multi_lane_entry *entry, outlog_err *err)
{
    struct ol_relay_lane *lane = entry->lane;
    struct ol_turn *turn = &entry->turn;

    ol_turn_begin(turn, &lane->outbox);
    entry->is_written = find_linger_us(lane) > OL_RELAY_LINGER_US / 2;
    if (!entry->is_read)
        return 0;
    ol_side_effects_reset(&worker->effects);
    ol_counter_map_clear(&worker->scratch.parked);
    ol_counter_map_clear(&worker->scratch.parked_to);
    bool must_be_alone = false;
    if (ol_plan_batch(lane, turn, entry->fresh, MULTI_LANE_LIMIT, &must_be_alone, err) < 0)
        return -1;
    bool is_plain = turn->planned_count == 0 && worker->effects.count == 0 &&
                    !worker->effects.failed && !must_be_alone;
    if (!is_plain) {
        lane->wants_read = true;
        lane->read_after = 0;
        lane->read_below = 0;
        entry->fresh->count = 0;
    }
    entry->is_written |= turn->head != lane->outbox.head || turn->sent_count;
    entry->is_written &= is_plain;
    return 0;
}

/* `failure`: why the turn was not stored, or NULL. */
static int apply_entry(struct ol_multi_lane_entry *entry, enum ol_turn_result result,
                       const outlog_err *failure, outlog_err *err)
{
    struct ol_relay_lane *lane = entry->lane;
    struct ol_worker *worker = lane->worker;

    if (result == OL_TURN_FENCED) {
        worker->stats->fenced++;
        ol_lane_loop_lose(lane);
        return 0;
    }
    if (result == OL_TURN_STALE) {
        lane->wants_read = true; // what was read must be read again
        if (!failure)
            return ol_lane_loop_reload(lane, err);
        lane->is_suspect |= ol_poison_is_suspected(failure);
        lane->retry_at = worker->clock.now + 100000;
        if (worker->clock.now > lane->outbox.lease_end)
            ol_lane_loop_lose(lane);
        return 0;
    }
    lane->has_finished = false;
    if (lane->open)
        ol_outcomes_apply_open(lane, &lane->open);
    if (!entry->fresh || entry->fresh->count == 0)
        return 0;
    struct ol_batch *fresh = entry->fresh;
    entry->fresh = NULL;
    return ol_lane_loop_open(lane, NULL, fresh, err);
}

static int write_entries(struct ol_worker *worker, size_t count, bool *moved, outlog_err *err)
{
    struct ol_multi_lane lanes[OL_MULTI_LANE_MAX];
    struct ol_multi_lane_entry *written[OL_MULTI_LANE_MAX];
    size_t used = 0;

    for (size_t i = 0; i < count; i++)
        if (worker->entries[i].is_written) {
            written[used] = &worker->entries[i];
            lanes[used++] = (struct ol_multi_lane){.lane = &worker->entries[i].lane->outbox,
                                                   .turn = &worker->entries[i].turn};
        }
    if (used == 0)
        return 0;
    int result = ol_multi_lane_write(worker->conn, lanes, used, err);
    const outlog_err failure = result < 0 ? *err : (outlog_err){0};
    bool has_failed = result < 0;
    if (has_failed && ol_poison_is_suspected(err))
        result = 0; // each lane tries alone, and with care
    worker->stats->recorded_at = ol_clock_boot_us();
    for (size_t i = 0; i < used; i++) {
        outlog_err why;
        *moved |= lanes[i].result == OL_TURN_DONE;
        if (apply_entry(written[i], lanes[i].result, has_failed ? &failure : NULL, &why) < 0 &&
            result == 0) {
            *err = why;
            result = -1;
        }
    }
    ol_batch_overlap_end(worker);
    for (size_t i = 0; i < used; i++)
        if (written[i]->lane->open)
            ol_batch_pump(worker, written[i]->lane->open);
    return result;
}

bool ol_multi_lane_turn_is_possible(const struct ol_worker *worker)
{
    return worker->conn->store->pipeline && !worker->conn->is_pooled;
}

int ol_multi_lane_turn_step(struct ol_worker *worker, bool *moved, outlog_err *err)
{
    int result = -1;
    if (!ol_multi_lane_turn_is_possible(worker) || worker->lanes.owned_count < 2)
        return 0;
    if (!worker->entries && !(worker->entries = calloc(OL_MULTI_LANE_MAX, sizeof *worker->entries)))
        return ol_no_memory(err);
    size_t count = collect_entries(worker);
    if (count < 2)
        return 0;
    for (size_t i = 0; i < count; i++)
        worker->entries[i].lane->is_in_turn = true;
    ol_batch_overlap_begin(worker);
    if (read_entries(worker, count, err) < 0)
        goto out;
    for (size_t i = 0; i < count; i++) {
        if (plan_entry(worker, &worker->entries[i], err) < 0)
            goto out;
        worker->planned_entries = i + 1; // the next plan counts its messages
    }
    result = write_entries(worker, count, moved, err);
out:
    ol_batch_overlap_end(worker);
    worker->planned_entries = 0;
    for (size_t i = 0; i < count; i++)
        if (worker->entries[i].fresh) {
            ol_batch_free(worker->entries[i].fresh);
            worker->entries[i].fresh = NULL;
        }
    return result;
}

void ol_multi_lane_turn_clear(struct ol_worker *worker)
{
    for (size_t i = 0; worker->entries && i < OL_MULTI_LANE_MAX; i++)
        ol_turn_clear(&worker->entries[i].turn);
    free(worker->entries);
}
