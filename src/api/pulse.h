/* pulse.h: what happened lately, sampled every two seconds and kept in memory.
 *
 * Appended is how far the settled position moved. Published and failed come from what relays recorded,
 * whichever process they run in: exact where they left a row, else a batch counts as many as its range
 * has numbers, and a few of its messages tell which destinations they went to and how long it took.
 * Each beat reads as much as happened since the one before, by an index on time; no big table. */
#ifndef OL_API_PULSE_H
#define OL_API_PULSE_H

#include "base/buf.h"
#include "outlog.h"

struct ol_pulse;

enum { OL_PULSE_MS = 2000, OL_PULSE_BOUNDS = 12 };

int ol_pulse_open(struct ol_pulse **out, outlog_err *err);
void ol_pulse_close(struct ol_pulse *pulse);

/* One beat, in a clerk's thread. A store that is away leaves a hole. */
void ol_pulse_beat(struct ol_pulse *pulse, outlog *log);

/* A request that appended took this long. */
void ol_pulse_append(struct ol_pulse *pulse, int64_t duration_us);

/* --- questions, from any thread --- */

struct ol_rates {
    bool is_known;
    double appended, published, failed; /* a second, over the last ten */
};

struct ol_rates ol_pulse_rates(struct ol_pulse *pulse);

struct ol_flow {
    bool is_known;
    double ok_per_min, fail_per_min;
    int64_t p50_ms, p99_ms;        /* from creation to delivery, sampled; -1: unknown */
    double ok_total, failed_total; /* since this process began */
};

/* Of one destination, or of all (NULL), over the last minute. */
struct ol_flow ol_pulse_flow(struct ol_pulse *pulse, const char *destination);

/* {"step_s":…,"from":…,"appended":[…],"published":[…],"failed":[…]}: a second, null where unknown. */
void ol_pulse_series(struct ol_pulse *pulse, struct ol_buf *out);

/* Seconds: how many took at most bounds[i]; the last bound is infinite. */
struct ol_histogram {
    int64_t counts[OL_PULSE_BOUNDS + 1];
    double sum;
};
extern const double ol_pulse_bounds[OL_PULSE_BOUNDS];
struct ol_histogram ol_pulse_appends(struct ol_pulse *pulse);
struct ol_histogram ol_pulse_publishes(struct ol_pulse *pulse);

/* Every destination that something happened to; `each` must not call back. */
void ol_pulse_each(struct ol_pulse *pulse,
                   void (*each)(void *user, const char *destination, double ok, double failed),
                   void *user);

#endif
