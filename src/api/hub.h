/* hub.h: the newest events of the log, in memory, for everybody who follows it.
 *
 * One thread follows the log while somebody listens, and keeps the last events as they are sent. A
 * follower near the end is served from here; one further back reads the store (stream.c). So a
 * thousand followers cost the store one reader. */
#ifndef OL_API_HUB_H
#define OL_API_HUB_H

#include "base/buf.h"
#include "outlog.h"

struct ol_hub;

/* `moved` is called from the hub's thread when there is something new. */
int ol_hub_open(struct ol_hub **out, const char *store, void (*moved)(void *user), void *user,
                outlog_err *err);
void ol_hub_close(struct ol_hub *hub);

/* Somebody listens from now on, or not any more. */
void ol_hub_listen(struct ol_hub *hub, int by);

/* Append the events after `*after` that match, as server-sent events, until `out` holds `most` bytes.
 * *after moves past all that was looked at; *matched (may be NULL) counts. False when the hub does
 * not reach back that far: read the store. */
bool ol_hub_take(struct ol_hub *hub, const struct outlog_filter *filter, int64_t *after,
                 size_t most, struct ol_buf *out, size_t *matched);

/* One event as text/event-stream. */
void ol_hub_put_event(const struct outlog_record *event, struct ol_buf *out);

#endif
