/* projector.h: a worker that fills projections from the log. */
#ifndef OL_PROJECTIONS_PROJECTOR_H
#define OL_PROJECTIONS_PROJECTOR_H

#include "base/err.h"

#include <stdatomic.h>

struct ol_projector_options {
    const char *store; /* URL */
    const char *name;  /* for people; ownership goes by a random id */
    const char *only;  /* one projection; NULL: all */
    int64_t lease_us, poll_us;
    bool until_idle; /* stop when everything is applied and nothing is left to rebuild */
};

struct ol_projector_options ol_projector_defaults(const char *store);

struct ol_projector_stats {
    int64_t applied, swaps, stops, fenced;
};

/* Run until *stop is not 0. Any number may run, on any machine: a projection belongs to one at a
 * time, and what another one still writes after it lost it cannot commit. Survives a store that
 * goes away. -1 only when it could not start. */
int ol_projector_run(const struct ol_projector_options *options, atomic_int *stop,
                     struct ol_projector_stats *stats, outlog_err *err);

#endif
