/* event_tail.h: the newest events of the log, in memory, for all that follow it.
 *
 * While there are followers, one thread reads the log and keeps the newest events in the form in
 * which they are sent. A follower near the end is served from here; one further back reads the
 * store (followers.c). So a thousand followers cost the store one reader. */
#ifndef OL_SERVER_LIVE_EVENT_TAIL_H
#define OL_SERVER_LIVE_EVENT_TAIL_H

#include "base/buf.h"
#include "outlog.h"

struct ol_event_tail;

/* `moved` is called on the tail's thread when there are new events. */
int ol_event_tail_open(struct ol_event_tail **out, const char *store, void (*moved)(void *user),
                       void *user, outlog_err *err);
void ol_event_tail_close(struct ol_event_tail *tail);

/* Add `by` followers, or remove them (negative). */
void ol_event_tail_watch(struct ol_event_tail *tail, int by);

/* Append the events after `*after` that match, as server-sent events, until `out` holds `max`
 * bytes. *after moves past all that were examined; *matched (may be NULL) counts. False: the tail
 * does not reach back that far, or is of another log than filter->log_id; read the store. */
bool ol_event_tail_take(struct ol_event_tail *tail, const struct outlog_filter *filter,
                        int64_t *after, size_t max, struct ol_buf *out, size_t *matched);

/* Whether the log, as far as the tail knows, ends before `after`: for a moment that is so for a
 * follower that read the store, and for good for one of another log. */
bool ol_event_tail_is_before(struct ol_event_tail *tail, int64_t after);

/* One event as text/event-stream. */
void ol_event_tail_put_event(const struct outlog_event *event, struct ol_buf *out);

#endif
