/* janitor.c: see janitor.h. */
#include "relay/janitor.h"

#include "base/clock.h"

enum { CHUNK = 5000 };

int ol_janitor_sweep(struct ol_conn *conn, const struct ol_policy *policy, int64_t *removed,
                     outlog_err *err)
{
    int64_t before = ol_clock_wall_us() - policy->idempotency_us;
    return ol_exec(conn, OL_Q_IDEMPOTENCY_PURGE, OL_PARAMS(ol_time(before), ol_int(CHUNK)), removed,
                   err);
}
