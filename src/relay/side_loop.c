/* side_loop.c: the side cursors of a lane: each has an open batch of its own, and its own turns
 * under the lane's lock. */
#include "relay/internal.h"

bool ol_side_loop_is_open(const struct ol_relay_lane *lane)
{
    for (const struct ol_side_cursor *side = lane->outbox.sides; side; side = side->next)
        if (side->open)
            return true;
    return false;
}

bool ol_side_loop_is_busy(const struct ol_relay_lane *lane)
{
    for (const struct ol_side_cursor *side = lane->outbox.sides; side; side = side->next)
        if (side->open || ol_plan_side_may_read(lane, side))
            return true;
    return false;
}

/* Is there anything to record, to claim or to close? */
static bool side_needs_turn(struct ol_relay_lane *lane, struct ol_side_cursor *side)
{
    if (side->open)
        return ol_batch_is_ready(lane->worker, side->open);
    return ol_plan_side_may_read(lane, side) || ol_plan_has_done_sides(lane, side);
}

int ol_side_loop_step(struct ol_relay_lane *lane, bool *moved, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    for (struct ol_side_cursor *side = lane->outbox.sides, *next; side && lane->is_owned;
         side = next) {
        next = side->next;
        if (side->open)
            ol_batch_pump(worker, side->open);
        if (!side_needs_turn(lane, side))
            continue;
        int64_t claim_no = side->claim_no, place = side->place;
        if (ol_lane_loop_turn(lane, side, moved, err) < 0)
            return -1;
        if (!lane->is_owned)
            return 0;
        if (worker->turn.is_closing) { // the list has changed
            *moved = true;
            return 0;
        }
        *moved |= side->claim_no != claim_no || side->place != place;
        if (side->open)
            ol_batch_pump(worker, side->open);
    }
    return 0;
}
