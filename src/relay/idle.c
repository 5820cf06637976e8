/* idle.c: a relay that has nothing to do lets writers wake it, where that is wanted (`wakeup:
 * notify`).
 *
 *   AWAKE --- nothing to do ---> DOZING --- no writer is left who ---> ASLEEP
 *     ^                             |       did not see us              |
 *     +---------- a message, or a lock that we did not get -------------+
 *
 * A sleeper holds an advisory lock. Whoever inserts messages tries it and says NOTIFY only when
 * somebody sleeps, as it costs much. A writer that tried before we had the lock says nothing, so
 * until all of those have ended we go on polling: they are the holders of the outbox's insert lock,
 * listed after we got ours. */
#include "relay/internal.h"

#include <stdlib.h>

enum { DOZE_US = 50000, SLEEP_US = 1000000 };

/* How long to go on looking before lying down, and while dozing. */
static int64_t doze_us(const struct ol_worker *worker)
{
    return worker->options->poll_us < DOZE_US ? worker->options->poll_us : DOZE_US;
}

static bool can_sleep(const struct ol_worker *worker)
{
    return worker->options->notify && !worker->options->until_idle &&
           worker->conn->store->can_notify && !worker->conn->is_pooled;
}

int ol_idle_listen(struct ol_worker *worker, outlog_err *err)
{
    worker->mood = OL_IDLE_AWAKE; // a new session holds no lock
    return can_sleep(worker)
               ? ol_store_exec(worker->conn, OL_Q_RELAY_LISTEN, OL_NO_PARAMS, NULL, err)
               : 0;
}

static int doze(struct ol_worker *worker, outlog_err *err)
{
    int64_t is_ours;
    if (ol_store_number(worker->conn, OL_Q_RELAY_SLEEP, OL_NO_PARAMS, &is_ours, err) < 0)
        return -1;
    if (!is_ours) // a writer is trying it at this very moment
        return 0;
    worker->mood = OL_IDLE_ARMING;
    free(worker->holders);
    return ol_lane_holders(worker->conn, &worker->holders, &worker->holder_count, err);
}

/* Have all writers ended that may not have seen us? */
static int look_around(struct ol_worker *worker, bool *is_quiet, outlog_err *err)
{
    uint64_t *now;
    size_t count;
    *is_quiet = worker->holder_count == 0;
    if (*is_quiet)
        return 0;
    int result = ol_lane_holders(worker->conn, &now, &count, err);
    if (result == 0)
        *is_quiet = !ol_lane_holds(worker->holders, worker->holder_count, now, count);
    free(now);
    return result;
}

int ol_idle_before_poll(struct ol_worker *worker, outlog_err *err)
{
    worker->is_quiet = false;
    return worker->mood == OL_IDLE_ARMING ? look_around(worker, &worker->is_quiet, err) : 0;
}

int ol_idle_after_poll(struct ol_worker *worker, bool has_work, outlog_err *err)
{
    if (has_work)
        return ol_idle_wake(worker, err);
    if (worker->mood == OL_IDLE_AWAKE && can_sleep(worker) && worker->pause_us >= doze_us(worker))
        return doze(worker, err);
    if (worker->mood == OL_IDLE_ARMING && worker->is_quiet)
        worker->mood = OL_IDLE_LISTENING; // this poll came after the last of them
    return 0;
}

int ol_idle_wake(struct ol_worker *worker, outlog_err *err)
{
    if (worker->mood == OL_IDLE_AWAKE)
        return 0;
    worker->mood = OL_IDLE_AWAKE;
    return ol_store_exec(worker->conn, OL_Q_RELAY_WAKE, OL_NO_PARAMS, NULL, err);
}

int64_t ol_idle_pause_us(const struct ol_worker *worker)
{
    int64_t longest = worker->options->poll_us;
    if (worker->mood == OL_IDLE_ARMING)
        return doze_us(worker);
    if (worker->mood == OL_IDLE_LISTENING)
        return longest > SLEEP_US ? longest : SLEEP_US;
    return worker->pause_us < longest ? worker->pause_us : longest;
}
