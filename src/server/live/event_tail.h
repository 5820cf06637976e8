/* event_tail.h: the newest events of the log, in memory, for everybody who follows it.
 *
 * One thread follows the log while somebody listens, and keeps the last events as they are sent. A
 * follower near the end is served from here; one further back reads the store (stream.c). So a
 * thousand followers cost the store one reader. */
#ifndef OL_SERVER_LIVE_EVENT_TAIL_H
#define OL_SERVER_LIVE_EVENT_TAIL_H

#include "base/buf.h"
#include "outlog.h"

struct ol_event_tail;

/* `moved` is called from the hub's thread when there is something new. */
int ol_event_tail_open(struct ol_event_tail **out, const char *store, void (*moved)(void *user),
                       void *user, outlog_err *err);
void ol_event_tail_close(struct ol_event_tail *hub);

/* Somebody listens from now on, or not any more. */
void ol_event_tail_watch(struct ol_event_tail *hub, int by);

/* Append the events after `*after` that match, as server-sent events, until `out` holds `most`
 * bytes. *after moves past all that was looked at; *matched (may be NULL) counts. False when the
 * hub does not reach back that far: read the store. */
bool ol_event_tail_take(struct ol_event_tail *hub, const struct outlog_filter *filter,
                        int64_t *after, size_t most, struct ol_buf *out, size_t *matched);

/* One event as text/event-stream. */
void ol_event_tail_put_event(const struct outlog_event *event, struct ol_buf *out);

#endif
