/* worker.h: one thread that owns lanes and sends their messages. */
#ifndef OL_RELAY_WORKER_H
#define OL_RELAY_WORKER_H

#include "base/err.h"

#include <stdatomic.h>

struct ol_span_exporter;

struct ol_worker_options {
    const char *store; /* URL */
    const char *name;  /* for people; ownership goes by a random id */
    int64_t lease_us, poll_us, patience_us, drain_us;
    int64_t margin_us; /* the end of a lease, in which nothing is sent any more; 0: a fifteenth of
                          the lease */
    size_t batch;      /* messages per turn */
    int siblings;      /* workers of this process, itself included */
    atomic_int
        *begun;  /* how many of them have written their first heartbeat; NULL: it is the only one */
    bool notify; /* wait for NOTIFY instead of polling, if the store can (PostgreSQL) */
    bool until_idle; /* stop when there is nothing left to send (tests, benchmarks) */
    bool quiet;
    struct ol_span_exporter *tracer; /* shared by all workers; NULL: no tracing */
};

struct ol_worker_options ol_worker_defaults(const char *store);

/* Take the settings of relays in outlog.yaml (`relay: {lease: 30s, …}`) from the store: lease,
 * poll, patience, batch, wakeup, and threads as `siblings`. What it does not set stays as it is. If
 * it names a collector (`tracing: {endpoint: …}`), `tracer` is opened, and the caller closes it. */
int ol_worker_load(struct ol_worker_options *options, outlog_err *err);

struct ol_worker_stats {
    int64_t published, failed, dead, parked, fenced, taken;
    int64_t started_at, recorded_at; /* boot clock: first lane taken, last turn stored */
};

/* Run until *stop becomes 1 (finish or hand back what is in flight, within drain_us) or 2 (stop at
 * once). When the store is lost it reconnects and continues. -1 only when it could not start. */
int ol_worker_run(const struct ol_worker_options *options, atomic_int *stop,
                  struct ol_worker_stats *stats, outlog_err *err);

/* The same by hand, for a simulation that controls the clock: one round without the wait after it
 * (true: there is more to do at once), and an end that writes nothing to the store, as after a
 * crash. */
struct ol_worker;
struct ol_worker *ol_worker_open(const struct ol_worker_options *options, atomic_int *stop,
                                 struct ol_worker_stats *stats, outlog_err *err);
bool ol_worker_round(struct ol_worker *worker);
void ol_worker_close(struct ol_worker *worker);

#endif
