/* idle.c: a relay that has nothing to do can let writers notify it (`wakeup: notify`).
 *
 *   AWAKE --- nothing to do ---> ARMING --- every writer that may ---> LISTENING
 *     ^                             |       have missed us has ended      |
 *     +---------- a message, or a lock that we did not get ---------------+
 *
 * An idle relay holds an advisory lock. A writer that inserts messages tries this lock and sends
 * NOTIFY only if somebody holds it, because NOTIFY is expensive. A writer that tried before we had
 * the lock does not notify us. So we continue to poll until all of those have ended: they are the
 * holders of the outbox's insert lock, listed after we got ours. */
#include "relay/internal.h"

#include <stdlib.h>

enum { IDLE_ARMING_US = 50000, IDLE_LISTENING_US = 1000000 };

/* The pause between polls from which on we arm, and while arming. */
static int64_t find_arming_pause(const struct ol_worker *worker)
{
    return worker->options->poll_us < IDLE_ARMING_US ? worker->options->poll_us : IDLE_ARMING_US;
}

static bool can_listen(const struct ol_worker *worker)
{
    return worker->options->notify && !worker->options->until_idle &&
           worker->conn->store->can_notify && !worker->conn->is_pooled;
}

int ol_idle_listen(struct ol_worker *worker, outlog_err *err)
{
    if (ol_idle_wake(worker, err) < 0) // it may be the same session
        return -1;
    return can_listen(worker)
               ? ol_store_exec(worker->conn, OL_Q_RELAY_LISTEN, OL_NO_PARAMS, NULL, err)
               : 0;
}

static int start_arming(struct ol_worker *worker, outlog_err *err)
{
    struct ol_worker_idle *idle = &worker->idle;
    int64_t is_ours;
    if (ol_store_number(worker->conn, OL_Q_RELAY_ARM, OL_NO_PARAMS, &is_ours, err) < 0)
        return -1;
    if (!is_ours) // a writer is trying it right now
        return 0;
    idle->state = OL_IDLE_ARMING;
    free(idle->holders);
    return ol_lane_holders(worker->conn, &idle->holders, &idle->holder_count, err);
}

/* Have all writers ended that may not have seen our lock? */
static int check_holders(struct ol_worker *worker, outlog_err *err)
{
    struct ol_worker_idle *idle = &worker->idle;
    uint64_t *now;
    size_t count;
    idle->has_no_holders = idle->holder_count == 0;
    if (idle->has_no_holders)
        return 0;
    int result = ol_lane_holders(worker->conn, &now, &count, err);
    if (result == 0)
        idle->has_no_holders = !ol_lane_holds(idle->holders, idle->holder_count, now, count);
    free(now);
    return result;
}

int ol_idle_before_poll(struct ol_worker *worker, outlog_err *err)
{
    worker->idle.has_no_holders = false;
    return worker->idle.state == OL_IDLE_ARMING ? check_holders(worker, err) : 0;
}

int ol_idle_after_poll(struct ol_worker *worker, bool has_work, outlog_err *err)
{
    struct ol_worker_idle *idle = &worker->idle;
    if (has_work)
        return ol_idle_wake(worker, err);
    if (idle->state == OL_IDLE_AWAKE && can_listen(worker) &&
        idle->pause_us >= find_arming_pause(worker))
        return start_arming(worker, err);
    if (idle->state == OL_IDLE_ARMING && idle->has_no_holders)
        idle->state = OL_IDLE_LISTENING; // this poll came after the last of them
    return 0;
}

int ol_idle_wake(struct ol_worker *worker, outlog_err *err)
{
    if (worker->idle.state == OL_IDLE_AWAKE)
        return 0;
    worker->idle.state = OL_IDLE_AWAKE;
    return ol_store_exec(worker->conn, OL_Q_RELAY_DISARM, OL_NO_PARAMS, NULL, err);
}

int64_t ol_idle_pause_us(const struct ol_worker *worker)
{
    int64_t poll_us = worker->options->poll_us;
    if (worker->idle.state == OL_IDLE_ARMING)
        return find_arming_pause(worker);
    if (worker->idle.state == OL_IDLE_LISTENING)
        return poll_us > IDLE_LISTENING_US ? poll_us : IDLE_LISTENING_US;
    return worker->idle.pause_us < poll_us ? worker->idle.pause_us : poll_us;
}
