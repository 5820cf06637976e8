/* rates.h: what happened lately, sampled every two seconds and kept in memory.
 *
 * Appended is how far the settled position moved. Published and failed come from what relays
 * recorded, whichever process they run in: exact where they left a row, else a batch counts as many
 * as its range has numbers, and a few of its messages tell which destinations they went to and how
 * long it took. Each beat reads as much as happened since the one before, by an index on time; no
 * big table. */
#ifndef OL_SERVER_RATES_H
#define OL_SERVER_RATES_H

#include "base/buf.h"
#include "outlog.h"

struct ol_rates;

enum { OL_RATES_MS = 2000, OL_RATES_BOUNDS = 12 };

int ol_rates_open(struct ol_rates **out, outlog_err *err);
void ol_rates_close(struct ol_rates *pulse);

/* One beat, in a clerk's thread. A store that is away leaves a hole. */
void ol_rates_sample(struct ol_rates *pulse, outlog *log);

/* A request that appended took this long. */
void ol_rates_append(struct ol_rates *pulse, int64_t duration_us);

/* --- questions, from any thread --- */

struct ol_rate_values {
    bool is_known;
    double appended, published, failed; /* a second, over the last ten */
};

struct ol_rate_values ol_rates_rates(struct ol_rates *pulse);

struct ol_throughput {
    bool is_known;
    double ok_per_min, fail_per_min;
    int64_t p50_ms, p99_ms;        /* from creation to delivery, sampled; -1: unknown */
    double ok_total, failed_total; /* since this process began */
};

/* Of one destination, or of all (NULL), over the last minute. */
struct ol_throughput ol_rates_throughput(struct ol_rates *pulse, const char *destination);

/* {"step_s":…,"from":…,"appended":[…],"published":[…],"failed":[…]}: a second, null where unknown.
 */
void ol_rates_series(struct ol_rates *pulse, struct ol_buf *out);

/* Seconds: how many took at most bounds[i]; the last bound is infinite. */
struct ol_histogram {
    int64_t counts[OL_RATES_BOUNDS + 1];
    double sum;
};
extern const double ol_pulse_bounds[OL_RATES_BOUNDS];
struct ol_histogram ol_rates_appends(struct ol_rates *pulse);
struct ol_histogram ol_rates_publishes(struct ol_rates *pulse);

/* Every destination that something happened to; `each` must not call back. */
void ol_rates_each(struct ol_rates *pulse,
                   void (*each)(void *user, const char *destination, double ok, double failed),
                   void *user);

#endif
