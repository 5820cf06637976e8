/* projector.h: a worker that fills projections from the log. */
#ifndef OL_PROJECTIONS_PROJECTOR_H
#define OL_PROJECTIONS_PROJECTOR_H

#include "base/err.h"

#include <stdatomic.h>

struct ol_projector_options {
    const char *store; /* URL */
    const char *name;  /* shown to people; a random id decides ownership */
    const char *only;  /* one projection; NULL: all */
    int64_t lease_us, poll_us;
    bool until_idle; /* stop when everything is applied and nothing is left to rebuild */
};

struct ol_projector_options ol_projector_defaults(const char *store);

struct ol_projector_stats {
    int64_t applied, swaps, stops, fenced;
};

/* Run until *stop is not 0. Any number of projectors may run, on any machine: one owns a projection
 * at a time, and one that lost it cannot commit. A store that goes away is waited for. -1 only when
 * the projector could not start. */
int ol_projector_run(const struct ol_projector_options *options, atomic_int *stop,
                     struct ol_projector_stats *stats, outlog_err *err);

#endif
