/* maintenance.c: removing what is too old, in small chunks between turns. */
#include "relay/internal.h"

#include "base/clock.h"
#include "relay/janitor.h"

enum { MAINTENANCE_EVERY_US = 1000000, SWEEP_EVERY_US = 60000000 };

/* Old messages are removed by the owner of their lane, a range of one lane at a time (O10). */
static int prune_lane(struct ol_worker *worker, bool *has_more, outlog_err *err)
{
    for (size_t i = 0; worker->policy.messages_us && i < worker->lanes.count; i++) {
        struct ol_relay_lane *lane =
            &worker->lanes.all[(worker->lanes.pruned + i) % worker->lanes.count];
        if (!lane->is_owned || worker->clock.now < lane->prune_at)
            continue;
        worker->lanes.pruned = (size_t)(lane - worker->lanes.all); // the next call continues here
        *has_more = true;
        if (ol_janitor_prune(worker->conn, &worker->policy, &lane->outbox,
                             worker->clock.now + worker->clock.ahead_us, &lane->pruned_to, err) < 0)
            return -1;
        if (lane->pruned_to)
            return 0;
        worker->lanes.pruned++;
        lane->prune_at = worker->clock.now + ol_janitor_pause_us(&worker->policy);
        return 0;
    }
    return 0;
}

/* Every minute, by the owner of the first lane, until nothing old is left. */
static int sweep_store(struct ol_worker *worker, bool *has_more, outlog_err *err)
{
    if (!worker->lanes.all[0].is_owned || worker->clock.now < worker->clock.sweep_at)
        return 0;
    if (ol_janitor_sweep(worker->conn, &worker->policy, has_more, err) < 0)
        return -1;
    if (*has_more)
        return 0;
    worker->clock.sweep_at = worker->clock.now + SWEEP_EVERY_US;
    return ol_store_exec(worker->conn, OL_Q_SUCCESSES_PURGE, OL_NO_PARAMS, NULL, err) < 0
               ? -1
               : ol_store_exec(worker->conn, OL_Q_BREAKERS_PURGE,
                               OL_PARAMS(ol_value_int(worker->options->lease_us * 10)), NULL, err);
}

int ol_maintenance_step(struct ol_worker *worker, outlog_err *err)
{
    enum { REST = 4 }; // rest four times as long as it took: at most a fifth of our time
    bool has_more = false;
    if (worker->clock.now < worker->clock.maintenance_at)
        return 0;
    int64_t began = ol_clock_boot_us();
    if (sweep_store(worker, &has_more, err) < 0 ||
        (!has_more && prune_lane(worker, &has_more, err) < 0))
        return -1;
    int64_t ended = ol_clock_boot_us();
    worker->clock.maintenance_at = has_more ? ended + REST * (ended - began)
                                            : worker->clock.now + MAINTENANCE_EVERY_US;
    return 0;
}
