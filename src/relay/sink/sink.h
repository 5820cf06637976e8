/* sink.h: the log itself, streamed to a destination (D4), without a message per event.
 *
 *     sinks: {archive: {to: nats, event_type: "order.*", org_id: acme}}
 *
 * S1  The cursor is before the first event that was not acknowledged: after a crash events may be
 *     sent again, and none is lost. The message's id is the event's, so that a broker or a consumer
 *     that knows ids drops the repeats.
 * S2  Events of one aggregate are sent one after another; those of others side by side.
 * S3  One owner at a time, by lease and epoch. An event is sent only while the lease surely
 *     outlasts the attempt, and the cursor moves only in the owner's epoch.
 * S4  No event is skipped. What the destination refuses, permanently or not, is tried again and
 *     again; last_error shows it, until the destination is repaired or a person resets the cursor.
 * S5  Events without org are not sent, unless `event_type` begins with `outlog.` or
 *     `infrastructure` is true; audit events (outlog.…) only when `event_type` begins with
 *     `outlog.`. */
#ifndef OL_RELAY_SINK_SINK_H
#define OL_RELAY_SINK_SINK_H

#include "relay/worker.h"

#include <pthread.h>

/* Run every sink that outlog.yaml declares until *stop is not 0; with until_idle, until all of them
 * are at the end of the log. When the store is lost it reconnects and continues. -1 only when it
 * could not start. */
int ol_sink_run(const struct ol_worker_options *options, atomic_int *stop, outlog_err *err);

/* The same on its own thread, beside the workers; `options` must outlive it. */
struct ol_sink_thread {
    pthread_t id;
    const struct ol_worker_options *options;
    atomic_int *stop;
    bool is_running;
};
void ol_sink_thread_start(struct ol_sink_thread *thread, const struct ol_worker_options *options,
                          atomic_int *stop);
void ol_sink_thread_join(struct ol_sink_thread *thread);

#endif
