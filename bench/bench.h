/* bench.h: what the benchmark programs share. Each measures one thing once and prints one line of
 * JSON; scripts/bench runs them in turns, takes medians and compares. */
#ifndef BENCH_H
#define BENCH_H

#include "base/uuid.h"
#include "outlog.h"

#include <stdint.h>

/* Print the error and exit. */
_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parse an argument, which must be a number from 1. */
int bench_number(const char *text, const char *what);

/* Seconds of the monotonic clock. */
double bench_now(void);

/* The highest resident memory of this process so far, in bytes. */
int64_t bench_resident_peak(void);

/* What a writer appends: `count` events with payloads of about 400 bytes. The events of a batch
 * belong to different aggregates, which is the expensive case for gap-free sequences. The 10,000
 * aggregates are divided among the writers, so each knows the sequences without a query. */
struct bench_batch {
    int writer;
    int64_t aggregates;
    size_t count;
    int64_t done; /* events made so far */
    struct outlog_new_event *events;
    int64_t *seqs; /* the expected aggregate_seq of each */
    char (*names)[32];
    char (*payloads)[512];
    struct outlog_appended *appended;
};

void bench_batch_init(struct bench_batch *batch, int writer, int writers, size_t count);
void bench_batch_next(struct bench_batch *batch);
void bench_batch_clear(struct bench_batch *batch);

/* The quantile (0.5, 0.99) of `count` numbers, which it sorts. */
double bench_quantile(double *values, size_t count, double share);

#endif
