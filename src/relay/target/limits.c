/* limits.c: concurrency, bytes and rate. The rate is kept as the time of the next message (GCRA):
 * one number instead of a bucket that must be refilled. */
#include "relay/target/limits.h"

#include <assert.h>

enum { BURST_US = 250000 };

void ol_limits_init(struct ol_limits *limits, int concurrency, int64_t rate_count,
                    int64_t rate_period_us, size_t budget_bytes)
{
    *limits = (struct ol_limits){
        .concurrency = concurrency,
        .budget_bytes = budget_bytes,
        .next_at = INT64_MIN,
    };
    if (rate_count <= 0)
        return;
    limits->interval_us = rate_period_us / rate_count;
    if (limits->interval_us == 0)
        limits->interval_us = 1; // a million per second is no limit in practice
    if (limits->interval_us < BURST_US)
        limits->burst_us = BURST_US - limits->interval_us;
}

int64_t ol_limits_ready_at(const struct ol_limits *limits, size_t bytes, int64_t now_us)
{
    if (limits->concurrency > 0 && limits->in_flight >= limits->concurrency)
        return INT64_MAX;
    if (limits->budget_bytes > 0 && limits->in_flight > 0 &&
        (limits->in_flight_bytes > limits->budget_bytes ||
         bytes > limits->budget_bytes - limits->in_flight_bytes))
        return INT64_MAX;
    if (limits->interval_us == 0 || limits->next_at == INT64_MIN)
        return now_us;
    int64_t earliest = limits->next_at - limits->burst_us;
    return earliest > now_us ? earliest : now_us;
}

bool ol_limits_take(struct ol_limits *limits, size_t bytes, int64_t now_us)
{
    if (ol_limits_ready_at(limits, bytes, now_us) > now_us)
        return false;
    limits->in_flight++;
    limits->in_flight_bytes += bytes;
    if (limits->interval_us) {
        if (limits->next_at < now_us)
            limits->next_at = now_us;
        limits->next_at += limits->interval_us;
    }
    return true;
}

void ol_limits_give(struct ol_limits *limits, size_t bytes)
{
    assert(limits->in_flight > 0 && limits->in_flight_bytes >= bytes);
    limits->in_flight--;
    limits->in_flight_bytes -= bytes;
}
