/* worker.h: one thread that owns lanes and carries their messages out. */
#ifndef OL_RELAY_WORKER_H
#define OL_RELAY_WORKER_H

#include "base/err.h"

#include <stdatomic.h>

struct ol_span_exporter;

struct ol_worker_options {
    const char *store; /* URL */
    const char *name;  /* for people; ownership goes by a random id */
    int64_t lease_us, poll_us, patience_us, drain_us;
    int64_t margin_us; /* of a lease, in which nothing is sent any more; 0: a fifteenth of it */
    size_t batch;      /* messages a turn */
    int siblings;      /* workers of this process, itself included */
    atomic_int *begun; /* how many of them have shown themselves to the others; NULL: it is alone */
    bool notify;       /* sleep until a writer says something, where the store can (PostgreSQL) */
    bool until_idle;   /* stop when there is nothing left to send (tests, benchmarks) */
    bool quiet;
    struct ol_span_exporter *tracer; /* shared by all; NULL: nobody wants to know */
};

struct ol_worker_options ol_worker_defaults(const char *store);

/* Take over what outlog.yaml says about relays (`relay: {lease: 30s, …}`) from the store: lease,
 * poll, patience, batch, wakeup, and threads as `siblings`. What it does not say stays as it is.
 * Where it names a collector (`tracing: {endpoint: …}`), `tracer` is opened: the caller's to close.
 */
int ol_worker_load(struct ol_worker_options *options, outlog_err *err);

struct ol_worker_stats {
    int64_t published, failed, dead, parked, fenced, taken;
    int64_t started_at,
        recorded_at; /* boot clock: the first lane was taken, the last turn stored */
};

/* Run until *stop becomes 1 (finish or hand back what is in flight, within drain_us) or 2 (at
 * once). Survives a store that goes away: it reconnects and goes on. -1 only when it could not
 * start. */
int ol_worker_run(const struct ol_worker_options *options, atomic_int *stop,
                  struct ol_worker_stats *stats, outlog_err *err);

/* The same by hand, for a simulation that turns the clock: one round without the rest after it
 * (true: there is more to do at once), and an end without a word to the store, as by a crash. */
struct ol_worker;
struct ol_worker *ol_worker_open(const struct ol_worker_options *options, atomic_int *stop,
                                 struct ol_worker_stats *stats, outlog_err *err);
bool ol_worker_round(struct ol_worker *worker);
void ol_worker_close(struct ol_worker *worker);

#endif
