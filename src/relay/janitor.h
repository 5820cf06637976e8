/* janitor.h: what has to be swept out from time to time. */
#ifndef OL_RELAY_JANITOR_H
#define OL_RELAY_JANITOR_H

#include "relay/policy.h"

/* Delete idempotency records that are older than the policy keeps them (I1). A bounded amount of work
 * a call; *removed tells how much. */
int ol_janitor_sweep(struct ol_conn *conn, const struct ol_policy *policy, int64_t *removed,
                     outlog_err *err);

#endif
