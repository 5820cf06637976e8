/* quota.h: the limits of one destination, shared by the threads of this process (L5).
 *
 * Concurrency, rate and bytes are counted once for all threads: `concurrency: 1` means one, for any
 * number of --threads. While several threads want places at once, each has a fair share; the
 * remainder goes around among them. Other processes have counts of their own. */
#ifndef OL_RELAY_TARGET_QUOTA_H
#define OL_RELAY_TARGET_QUOTA_H

#include "destinations/settings.h"
#include "relay/target/limits.h"

struct ol_quota;

/* One thread's part in a quota. */
struct ol_quota_member {
    struct ol_quota *quota;
    int number;
};

/* Join the quota of destination `name` of a store (its wake_key). The settings of the last one to
 * join hold for all. False when memory is out. */
bool ol_quota_join(struct ol_quota_member *member, uint64_t store, const char *name,
                   const struct ol_settings *settings);

/* Nothing of this member may be in flight any more. Does nothing if it never joined. */
void ol_quota_leave(struct ol_quota_member *member);

/* As ol_limits_take and ol_limits_give. */
bool ol_quota_take(struct ol_quota_member *member, size_t bytes, int64_t now_us);
void ol_quota_give(struct ol_quota_member *member, size_t bytes);

/* How many more messages may be sent at once (INT_MAX: any number), and the interval that the rate
 * leaves to this member (0: no rate). Asking marks this thread as one that wants places. */
int ol_quota_places(struct ol_quota_member *member, int64_t now_us, int64_t *interval_us);

#endif
