/* rates.h: recent rates of appends and deliveries, sampled every two seconds and kept in memory.
 *
 * Appended is how far the settled position moved. Published and failed come from what all relays
 * recorded in the store. A message with a row of its own is counted exactly. A batch counts as many
 * as its range has sequence numbers; a few of its messages are read to estimate their destinations
 * and latency. Each sample reads what happened since the one before, by an index on time, and never
 * a whole table. */
#ifndef OL_SERVER_RATES_H
#define OL_SERVER_RATES_H

#include "base/buf.h"
#include "outlog.h"

struct ol_rates;

enum { OL_RATES_MS = 2000, OL_RATES_BOUNDS = 12 };

int ol_rates_open(struct ol_rates **out, outlog_err *err);
void ol_rates_close(struct ol_rates *rates);

/* Take one sample, in an worker thread. Times when the store was unreachable stay unknown. */
void ol_rates_sample(struct ol_rates *rates, outlog *log);

/* Count a request that appended and took this long. */
void ol_rates_append(struct ol_rates *rates, int64_t duration_us);

/* --- reading, from any thread --- */

struct ol_rate_values {
    bool is_known;
    double appended, published, failed; /* per second, over the last ten seconds */
};

struct ol_rate_values ol_rates_recent(struct ol_rates *rates);

struct ol_throughput {
    bool is_known;
    double ok_per_min, fail_per_min;
    int64_t p50_ms, p99_ms;        /* from creation to delivery, estimated; -1: unknown */
    double ok_total, failed_total; /* since this process started */
};

/* Of one destination, or of all (NULL), over the last minute. */
struct ol_throughput ol_rates_throughput(struct ol_rates *rates, const char *destination);

/* {"step_s":…,"from":…,"appended":[…],"published":[…],"failed":[…]}: per second; null: unknown. */
void ol_rates_series(struct ol_rates *rates, struct ol_buf *out);

/* Durations in seconds: counts[i] took at most bounds[i]; the last bound is infinite. */
struct ol_histogram {
    int64_t counts[OL_RATES_BOUNDS + 1];
    double sum;
};
extern const double ol_rates_bounds[OL_RATES_BOUNDS];
struct ol_histogram ol_rates_appends(struct ol_rates *rates);
struct ol_histogram ol_rates_publishes(struct ol_rates *rates);

/* Call `each` for every destination with a delivery. It must not call ol_rates_*(). */
void ol_rates_each(struct ol_rates *rates,
                   void (*each)(void *user, const char *destination, double ok, double failed),
                   void *user);

#endif
