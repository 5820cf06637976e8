/* overlap.c: sending goes on while the store works on a turn. A turn with attempts takes
 * milliseconds, in which the connections of a fast receiver would fall idle.
 *
 * I1  A turn is built from what is known of its lane's messages, written, and applied to the same
 *     knowledge. So a lane in a turn sends nothing, and outcomes of its messages wait for the
 * turn's end. I2  The store is not used: it is busy. I3  worker->now stays what it was: leases are
 * counted from before a statement was sent. */
#include "relay/internal.h"

static void call(void *user)
{
    struct ol_worker *worker = user;
    int64_t now = worker->now;
    worker->is_interlude = true;
    ol_sender_drive(worker->targets.sender, 0);
    for (size_t i = 0; i < worker->lane_count; i++) {
        const struct ol_relay_lane *wl = &worker->lanes[i];
        if (wl->is_in_turn || !wl->is_owned)
            continue;
        if (wl->open)
            ol_batch_pump(worker, wl->open);
        for (struct ol_batch *batch = wl->loose; batch; batch = batch->next)
            ol_batch_pump(worker, batch);
    }
    ol_sender_flush(worker->targets.sender);
    worker->is_interlude = false;
    worker->now = now;
}

/* First of all places that have come free are taken: the other lanes' turn may be long in coming.
 */
void ol_overlap_begin(struct ol_worker *worker)
{
    struct ol_sender *sender = worker->targets.sender;
    if (worker->waiting || ol_sender_in_flight(sender))
        call(worker);
    if (ol_sender_in_flight(sender))
        worker->conn->idle =
            (struct ol_idle_callback){.fd = ol_sender_fd(sender), .call = call, .user = worker};
}

void ol_overlap_end(struct ol_worker *worker)
{
    worker->conn->idle = (struct ol_idle_callback){0};
    for (size_t i = 0; i < worker->lane_count; i++)
        worker->lanes[i].is_in_turn = false;
    ol_batch_land(worker);
}
