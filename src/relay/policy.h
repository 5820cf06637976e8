/* policy.h: the settings of outlog.yaml beyond destinations that a worker needs: retries per event
 * type, retention, and how a relay runs. */
#ifndef OL_RELAY_POLICY_H
#define OL_RELAY_POLICY_H

#include "outbox/retry.h"
#include "store/store.h"

struct ol_policy_type {
    char *event_type;
    struct ol_retry retry;
};

/* Start from {0}. */
struct ol_policy {
    struct ol_policy_type *types;
    size_t type_count;
    int64_t idempotency_us; /* how long responses and keys are kept: at least 24 h */
    int64_t messages_us;    /* how long published messages are kept; 0: forever */
    int64_t notices_us;     /* how long notices stay in a feed; 0: forever */
    struct {                /* 0: not set */
        int64_t lease_us, poll_us, patience_us, batch, threads, parked;
        bool notify;
    } relay;
    struct { /* NULL: not set */
        char *endpoint, *headers;
    } tracing;
    int64_t stamp_count, stamp_at;
    bool is_loaded;
};

void ol_policy_clear(struct ol_policy *policy);

/* Read the settings again when they have changed. */
int ol_policy_refresh(struct ol_policy *policy, struct ol_conn *conn, outlog_err *err);

/* The retry settings of this event type, or NULL. */
const struct ol_retry *ol_policy_retry(const struct ol_policy *policy, const char *event_type);

#endif
