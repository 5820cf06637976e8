/* multi_lane_turn.c: several lanes in one read and one commit (outbox/lane/multi_lane.h).
 *
 * At a steady pace most lanes hold nothing or one message. What is the same for all of them, a
 * look, a wait for the disk, is done once for all. A lane with a backlog goes on alone, as it fills
 * a commit by itself and is read ahead; so does one whose turn would write more than its own row.
 */
#include "relay/internal.h"

#include "base/clock.h"

#include <stdlib.h>

enum { LIMIT = 100 }; /* messages of a lane; where there are more it goes on alone */

/* How long the open batch of a lane has waited to be recorded, with nothing new to claim beside it.
 */
static int64_t lingered(const struct ol_relay_lane *wl)
{
    return wl->open ? wl->worker->now - wl->open->claimed_at : 0;
}

/* Lanes in ascending order (rule 1): those to be read, and those to be recorded when there is a
 * commit anyway. 0: there is nothing to do now, or nothing that one lane could not do as well
 * alone. */
static size_t gather(struct ol_worker *worker)
{
    size_t count = 0;
    bool has_cause = false;
    for (size_t i = 0; i < worker->lane_count && count < OL_MULTI_LANE_MAX; i++) {
        struct ol_relay_lane *wl = &worker->lanes[i];
        if (!wl->is_owned || wl->is_full || worker->now < wl->retry_at ||
            !ol_lane_loop_is_plain(wl))
            continue;
        bool is_read = ol_plan_may_read(wl);
        if (!is_read && lingered(wl) <= OL_RELAY_LINGER_US / 2)
            continue;
        has_cause |= is_read || lingered(wl) >= OL_RELAY_LINGER_US;
        struct ol_multi_lane_entry *joint = &worker->joint[count++];
        joint->wl = wl;
        joint->fresh = NULL;
        joint->is_read = is_read;
        joint->is_written = false;
    }
    return has_cause && count > 1 ? count : 0;
}

static int read_all(struct ol_worker *worker, size_t count, outlog_err *err)
{
    struct ol_multi_lane lanes[OL_MULTI_LANE_MAX];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        struct ol_multi_lane_entry *joint = &worker->joint[i];
        if (!joint->is_read)
            continue;
        if (!(joint->fresh = calloc(1, sizeof *joint->fresh)))
            return ol_no_memory(err);
        joint->fresh->lane = joint->wl;
        lanes[used++] =
            (struct ol_multi_lane){.lane = &joint->wl->lane, .arena = &joint->fresh->arena};
    }
    if (used && ol_multi_lane_read(worker->conn, lanes, used, LIMIT, err) < 0)
        return -1;
    for (size_t i = count; i-- > 0;)
        if (worker->joint[i].is_read) {
            worker->joint[i].fresh->items = lanes[--used].items;
            worker->joint[i].fresh->count = lanes[used].count;
        }
    return 0;
}

/* Nothing is parked in a joint turn. Where the plan parks something, the lane does it all again
 * alone. */
static int plan(struct ol_worker *worker, struct ol_multi_lane_entry *joint, outlog_err *err)
{
    struct ol_relay_lane *wl = joint->wl;
    struct ol_turn *turn = &joint->turn;

    ol_turn_begin(turn, &wl->lane);
    joint->is_written = lingered(wl) > OL_RELAY_LINGER_US / 2;
    if (!joint->is_read)
        return 0;
    ol_side_effects_reset(&worker->record);
    ol_map_clear(&worker->parked);
    ol_map_clear(&worker->parked_to);
    if (ol_plan_batch(wl, turn, joint->fresh, LIMIT, err) < 0)
        return -1;
    bool is_plain = turn->planned_count == 0 && worker->record.count == 0 && !worker->record.failed;
    if (!is_plain) {
        wl->wants_read = true;
        joint->fresh->count = 0;
    }
    joint->is_written |= turn->head != wl->lane.head || turn->sent_count;
    joint->is_written &= is_plain;
    return 0;
}

static int apply(struct ol_multi_lane_entry *joint, enum ol_turn_result result, bool has_failed,
                 outlog_err *err)
{
    struct ol_relay_lane *wl = joint->wl;
    struct ol_worker *worker = wl->worker;

    if (result == OL_TURN_FENCED) {
        worker->stats->fenced++;
        ol_lane_loop_lose(wl);
        return 0;
    }
    if (result == OL_TURN_STALE) {
        wl->wants_read = true; // what was read must be read again
        if (!has_failed)
            return ol_lane_loop_reload(wl, err);
        wl->retry_at = worker->now + 100000;
        if (worker->now > wl->lane.lease_end)
            ol_lane_loop_lose(wl);
        return 0;
    }
    wl->has_finished = false;
    if (wl->open)
        ol_outcomes_apply_open(wl);
    if (!joint->fresh || joint->fresh->count == 0)
        return 0;
    struct ol_batch *fresh = joint->fresh;
    joint->fresh = NULL;
    return ol_lane_loop_open(wl, fresh, err);
}

static int write_all(struct ol_worker *worker, size_t count, bool *moved, outlog_err *err)
{
    struct ol_multi_lane lanes[OL_MULTI_LANE_MAX];
    struct ol_multi_lane_entry *written[OL_MULTI_LANE_MAX];
    size_t used = 0;

    for (size_t i = 0; i < count; i++)
        if (worker->joint[i].is_written) {
            written[used] = &worker->joint[i];
            lanes[used++] = (struct ol_multi_lane){.lane = &worker->joint[i].wl->lane,
                                                   .turn = &worker->joint[i].turn};
        }
    if (used == 0)
        return 0;
    int result = ol_multi_lane_write(worker->conn, lanes, used, err);
    bool has_failed = result < 0;
    worker->stats->recorded_at = ol_clock_boot_us();
    for (size_t i = 0; i < used; i++) {
        outlog_err why;
        *moved |= lanes[i].result == OL_TURN_DONE;
        if (apply(written[i], lanes[i].result, has_failed, &why) < 0 && result == 0) {
            *err = why;
            result = -1;
        }
    }
    ol_overlap_end(worker);
    for (size_t i = 0; i < used; i++)
        if (written[i]->wl->open)
            ol_batch_pump(worker, written[i]->wl->open);
    return result;
}

bool ol_multi_lane_turn_is_possible(const struct ol_worker *worker)
{
    return worker->conn->store->pipeline && !worker->conn->is_pooled;
}

int ol_multi_lane_turn_step(struct ol_worker *worker, bool *moved, outlog_err *err)
{
    int result = -1;
    if (!ol_multi_lane_turn_is_possible(worker) || worker->owned < 2)
        return 0;
    if (!worker->joint && !(worker->joint = calloc(OL_MULTI_LANE_MAX, sizeof *worker->joint)))
        return ol_no_memory(err);
    size_t count = gather(worker);
    if (count < 2)
        return 0;
    for (size_t i = 0; i < count; i++)
        worker->joint[i].wl->is_in_turn = true;
    ol_overlap_begin(worker);
    if (read_all(worker, count, err) < 0)
        goto out;
    for (size_t i = 0; i < count; i++) {
        if (plan(worker, &worker->joint[i], err) < 0)
            goto out;
        worker->joint_count = i + 1; // the next plan counts its messages
    }
    result = write_all(worker, count, moved, err);
out:
    ol_overlap_end(worker);
    worker->joint_count = 0;
    for (size_t i = 0; i < count; i++)
        if (worker->joint[i].fresh) {
            ol_batch_free(worker->joint[i].fresh);
            worker->joint[i].fresh = NULL;
        }
    return result;
}

void ol_multi_lane_turn_clear(struct ol_worker *worker)
{
    for (size_t i = 0; worker->joint && i < OL_MULTI_LANE_MAX; i++)
        ol_turn_clear(&worker->joint[i].turn);
    free(worker->joint);
}
