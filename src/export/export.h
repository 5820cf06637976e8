/* export.h: writes the store as lines, for backup and for moving to another store.
 *
 * A line is a JSON object with one member, whose name is the kind of the line:
 *
 *     {"outlog_export":{"format":2,"after":0,"settled":1204}}   the first line
 *     {"record":{…}} {"key":{…}} {"consumer":{…}} …             the state: rows of other tables
 *     {"event":{"event_id":1,"id":…}}                           events in order
 *     {"end":{"events":1204}}                                   the last line: without it the
 * export was cut off
 *
 * Everything keeps its id, events their event_id, messages their state: a message that is not
 * delivered will be, one that is delivered will not be delivered again. Messages get new positions
 * in the lanes of the new store, in the same order. The heads of aggregates are computed from the
 * events. An export does not contain the views of projections, which are rebuilt from their
 * definitions, nor what belongs to a running process (relays, breakers, leases, tickets).
 *
 * While others write, the state is read first, from one snapshot, and the events after it, up to
 * the last one in the snapshot. In the other order an idempotency record could be exported without
 * its event, and a repeated request would then be lost. */
#ifndef OL_EXPORT_EXPORT_H
#define OL_EXPORT_EXPORT_H

#include "base/buf.h"
#include "log/log.h"

/* Of the lines, in the first of them. */
enum { OL_EXPORT_FORMAT = 2 };

/* Writes a line, which ends in a line feed. -1 and err end the export. */
typedef int ol_export_writer(void *user, const char *line, size_t bytes, outlog_err *err);

/* Write the state. *upto gets the event_id that the events must reach to match it. */
int ol_export_state(outlog *log, ol_export_writer *write, void *user, int64_t *upto,
                    outlog_err *err);

/* Which events to write, and which were written. */
struct ol_export_cursor {
    int64_t after; /* write the events after this event_id; becomes that of the last one written */
    int64_t upto;  /* wait for open transactions until the log is settled up to here */
    int64_t limit; /* write at most this many; 0: all that are settled */
    int64_t count; /* becomes the number of events written */
};

/* Write the events of `cursor` and move it behind them.
 *
 * OUTLOG_UNAVAILABLE: a transaction below `upto` stayed open for a minute. */
int ol_export_events(outlog *log, struct ol_export_cursor *cursor, ol_export_writer *write,
                     void *user, outlog_err *err);

/* How many messages are claimed by a relay, so that their outcome is not known yet. */
int ol_export_claimed(outlog *log, int64_t *count, outlog_err *err);

/* Add the first line: the events after `after` follow, and the log is settled up to `settled`. */
void ol_export_head(struct ol_buf *line, int64_t after, int64_t settled);

/* Add the last line. */
void ol_export_end(struct ol_buf *line, int64_t events);

#endif
