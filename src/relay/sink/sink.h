/* sink.h: the log itself, streamed to a destination (D4), without a message for each event.
 *
 *     sinks: {archive: {to: nats, event_type: "order.*", org_id: acme}}
 *
 *   S1  The cursor stands before the first event that was not acknowledged: after a crash events
 * come again, never fewer. The message's id is the event's, so that a broker or a consumer that
 *       knows ids drops the repeats.
 *   S2  Events of one aggregate go one after another; those of others side by side.
 *   S3  One owner at a time, by lease and epoch. An event is sent only while the lease surely
 * outlasts the attempt, and the cursor moves only in one's own epoch. S4  Nothing is passed by.
 * What the destination refuses, for good or not, is tried again and again; last_error tells, until
 * the destination is mended or a person resets the cursor. S5  Events without org are not sent,
 * unless `event_type` says `outlog.…` or `infrastructure` is true; audit events (outlog.…) only
 * when `event_type` begins with `outlog.`. */
#ifndef OL_RELAY_SINK_SINK_H
#define OL_RELAY_SINK_SINK_H

#include "relay/worker.h"

#include <pthread.h>

/* Move every sink that outlog.yaml declares, until *stop is not 0; with until_idle, until all of
 * them stand at the end. Survives a store that goes away. -1 only when it could not start. */
int ol_sinks_run(const struct ol_worker_options *options, atomic_int *stop, outlog_err *err);

/* The same on a thread of its own, for whoever runs workers; `options` must outlive it. */
struct ol_sinks_thread {
    pthread_t id;
    const struct ol_worker_options *options;
    atomic_int *stop;
    bool is_running;
};
void ol_sinks_start(struct ol_sinks_thread *thread, const struct ol_worker_options *options,
                    atomic_int *stop);
void ol_sinks_join(struct ol_sinks_thread *thread);

#endif
