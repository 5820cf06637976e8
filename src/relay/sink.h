/* sink.h: the log itself, streamed to a destination (D4), without a message for each event.
 *
 *     sinks: {archive: {to: nats, event_type: "order.*", org_id: acme}}
 *
 *   S1  The cursor stands before the first event that was not acknowledged: after a crash events come
 *       again, never fewer. The message's id is the event's, so that a broker or a consumer that
 *       knows ids drops the repeats.
 *   S2  Events of one aggregate go one after another; those of others side by side.
 *   S3  One owner at a time, by lease and epoch. An event is sent only while the lease surely outlasts
 *       the attempt, and the cursor moves only in one's own epoch.
 *   S4  Nothing is passed by. What the destination refuses, for good or not, is tried again and again;
 *       last_error tells, until the destination is mended or a person resets the cursor.
 *   S5  Events without org are not sent, unless `event_type` says `outlog.…` or `infrastructure` is
 *       true; audit events (outlog.…) only when `event_type` begins with `outlog.`. */
#ifndef OL_RELAY_SINK_H
#define OL_RELAY_SINK_H

#include "relay/worker.h"

#include <pthread.h>

struct ol_sink_view {
    const char *name, *to;
    int64_t cursor_event_id, lag, updated_at;
    const char *owner;      /* the relay that moves it now, or NULL */
    const char *last_error; /* NULL: none */
};

/* Move every sink that outlog.yaml declares, until *stop is not 0; with until_idle, until all of them
 * stand at the end. Survives a store that goes away. -1 only when it could not start. */
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

/* Every declared sink, by name. */
int ol_sinks_list(outlog *log, void (*each)(void *user, const struct ol_sink_view *sink),
                  void *user, outlog_err *err);

/* Put a sink's cursor somewhere else: 0, an event_id, or OUTLOG_END.
 * OUTLOG_NOT_FOUND: it is not declared. OUTLOG_BEYOND_SETTLED: past what may be read. */
int ol_sinks_reset(outlog *log, const char *name, int64_t to, outlog_err *err);

#endif
