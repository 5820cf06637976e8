/* joint.c: several lanes in one read and one commit (outbox/convoy.h).
 *
 * At a steady pace most lanes hold nothing or one message. What is the same for all of them, a look, a wait
 * for the disk, is done once for all. A lane with a backlog goes on alone, as it fills a commit by itself
 * and is read ahead; so does one whose turn would write more than its own row. */
#include "relay/work.h"

#include "base/clock.h"

#include <stdlib.h>

enum { LIMIT = 100 }; /* messages of a lane; where there are more it goes on alone */

static bool may_join(const struct ol_work_lane *wl)
{
    return wl->is_owned && wl->worker->now >= wl->retry_at && !wl->is_full &&
           ol_plan_may_read(wl) && ol_step_is_plain(wl);
}

/* Lanes in ascending order (rule 1). */
static size_t gather(struct ol_worker *worker)
{
    size_t count = 0;
    for (size_t i = 0; i < worker->lane_count && count < OL_CONVOY_LANES; i++)
        if (may_join(&worker->lanes[i])) {
            worker->joint[count].wl = &worker->lanes[i];
            worker->joint[count].fresh = NULL;
            worker->joint[count++].is_written = false;
        }
    return count;
}

static int read_all(struct ol_worker *worker, size_t count, outlog_err *err)
{
    struct ol_convoy_lane lanes[OL_CONVOY_LANES];
    for (size_t i = 0; i < count; i++) {
        struct ol_joint_lane *joint = &worker->joint[i];
        if (!(joint->fresh = calloc(1, sizeof *joint->fresh)))
            return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
        joint->fresh->lane = joint->wl;
        lanes[i] = (struct ol_convoy_lane){.lane = &joint->wl->lane, .arena = &joint->fresh->arena};
    }
    if (ol_convoy_read(worker->conn, lanes, count, LIMIT, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        worker->joint[i].fresh->items = lanes[i].items;
        worker->joint[i].fresh->count = lanes[i].count;
    }
    return 0;
}

/* Nothing is parked in a joint turn. Where the plan parks something, the lane does it all again alone. */
static int plan(struct ol_worker *worker, struct ol_joint_lane *joint, outlog_err *err)
{
    struct ol_work_lane *wl = joint->wl;
    struct ol_turn *turn = &joint->turn;

    ol_turn_begin(turn, &wl->lane);
    ol_record_reset(&worker->record);
    ol_map_clear(&worker->parked);
    ol_map_clear(&worker->parked_to);
    if (ol_plan_batch(wl, turn, joint->fresh, LIMIT, err) < 0)
        return -1;
    bool is_plain = turn->planned_count == 0 && worker->record.count == 0 && !worker->record.failed;
    bool is_late = wl->open && worker->now - wl->open->claimed_at > OL_LINGER_US / 2;
    if (!is_plain) {
        wl->wants_read = true;
        joint->fresh->count = 0;
    }
    joint->is_written = is_plain && (turn->head != wl->lane.head || turn->sent_count || is_late);
    return 0;
}

static int apply(struct ol_joint_lane *joint, enum ol_turn_result result, bool has_failed,
                 outlog_err *err)
{
    struct ol_work_lane *wl = joint->wl;
    struct ol_worker *worker = wl->worker;

    if (result == OL_TURN_FENCED) {
        worker->stats->fenced++;
        ol_step_lose(wl);
        return 0;
    }
    if (result == OL_TURN_STALE) {
        wl->wants_read = true; // what was read must be read again
        if (!has_failed)
            return ol_lane_reload(worker->conn, &wl->lane, err);
        wl->retry_at = worker->now + 100000;
        if (worker->now > wl->lane.lease_end)
            ol_step_lose(wl);
        return 0;
    }
    wl->has_finished = false;
    if (wl->open)
        ol_settle_apply_open(wl);
    if (joint->fresh->count == 0)
        return 0;
    struct ol_batch *fresh = joint->fresh;
    joint->fresh = NULL;
    return ol_step_open(wl, fresh, err);
}

static int write_all(struct ol_worker *worker, size_t count, bool *moved, outlog_err *err)
{
    struct ol_convoy_lane lanes[OL_CONVOY_LANES];
    struct ol_joint_lane *written[OL_CONVOY_LANES];
    size_t used = 0;

    for (size_t i = 0; i < count; i++)
        if (worker->joint[i].is_written) {
            written[used] = &worker->joint[i];
            lanes[used++] = (struct ol_convoy_lane){.lane = &worker->joint[i].wl->lane,
                                                    .turn = &worker->joint[i].turn};
        }
    if (used == 0)
        return 0;
    int result = ol_convoy_write(worker->conn, lanes, used, err);
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
    for (size_t i = 0; i < used; i++)
        if (written[i]->wl->open)
            ol_batch_pump(worker, written[i]->wl->open);
    return result;
}

int ol_joint_step(struct ol_worker *worker, bool *moved, outlog_err *err)
{
    int result = -1;
    if (!worker->conn->store->together || worker->owned < 2)
        return 0;
    if (!worker->joint && !(worker->joint = calloc(OL_CONVOY_LANES, sizeof *worker->joint)))
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    size_t count = gather(worker);
    if (count < 2)
        return 0;
    if (read_all(worker, count, err) < 0)
        goto out;
    for (size_t i = 0; i < count; i++) {
        if (plan(worker, &worker->joint[i], err) < 0)
            goto out;
        worker->joint_count = i + 1; // the next plan counts its messages
    }
    result = write_all(worker, count, moved, err);
out:
    worker->joint_count = 0;
    for (size_t i = 0; i < count; i++)
        if (worker->joint[i].fresh) {
            ol_batch_free(worker->joint[i].fresh);
            worker->joint[i].fresh = NULL;
        }
    return result;
}

void ol_joint_clear(struct ol_worker *worker)
{
    for (size_t i = 0; worker->joint && i < OL_CONVOY_LANES; i++)
        ol_turn_clear(&worker->joint[i].turn);
    free(worker->joint);
}
