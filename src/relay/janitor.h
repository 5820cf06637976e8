/* janitor.h: deletes what is older than the policy keeps it. Each call does a bounded amount of
 * work. */
#ifndef OL_RELAY_JANITOR_H
#define OL_RELAY_JANITOR_H

#include "outbox/lane/lane.h"
#include "relay/policy.h"

/* Delete responses of commands (I1), keys of messages that are gone (I5), and notices that are
 * older than the policy keeps them. *has_more: it was a full chunk, so there may be more. */
int ol_janitor_sweep(struct ol_conn *conn, const struct ol_policy *policy, bool *has_more,
                     outlog_err *err);

/* Delete published messages that are older than the policy keeps them (O10), from the next range of
 * a lane that is ours. *after is where the range begins, 0 first, and is moved on; 0 again:
 * everything old enough has been seen. now_us is the database's time. */
int ol_janitor_prune(struct ol_conn *conn, const struct ol_policy *policy,
                     const struct ol_lane *lane, int64_t now_us, int64_t *after, outlog_err *err);

/* How long to wait after the end of one round of pruning before the next. */
int64_t ol_janitor_pause_us(const struct ol_policy *policy);

#endif
