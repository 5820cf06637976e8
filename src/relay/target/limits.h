/* limits.h: how much of a destination may be in flight, and how fast (L5). Pure: the caller passes
 * the clock. Not locked: the destination's owner does that. */
#ifndef OL_RELAY_TARGET_LIMITS_H
#define OL_RELAY_TARGET_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ol_limits {
    int concurrency;     /* attempts in flight; 0: any number */
    size_t budget_bytes; /* payload bytes in flight; 0: any number */
    int64_t interval_us; /* one message each; 0: no rate */
    int64_t burst_us;    /* how far ahead of the interval it may run */
    int in_flight;
    size_t in_flight_bytes;
    int64_t next_at; /* the time the next message is due by the rate */
};

/* rate_count messages per rate_period_us (0: no rate). Up to a quarter of a second's worth may go
 * at once, and at least one. */
void ol_limits_init(struct ol_limits *limits, int concurrency, int64_t rate_count,
                    int64_t rate_period_us, size_t budget_bytes);

/* Take a place for a message of `bytes`; false when there is none now. A message larger than the
 * whole budget goes alone. */
bool ol_limits_take(struct ol_limits *limits, size_t bytes, int64_t now_us);

/* Give the place back when the outcome is known. The rate still counts the message. */
void ol_limits_give(struct ol_limits *limits, size_t bytes);

/* When take() may succeed: now_us, a later time by the rate, or INT64_MAX while it waits for
 * another message to end. */
int64_t ol_limits_ready_at(const struct ol_limits *limits, size_t bytes, int64_t now_us);

#endif
