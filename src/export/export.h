/* export.h: the log as lines, for backup and for moving to another store.
 *
 * A line is a JSON object with one member, whose name says what it is:
 *
 *     {"outlog_export":{"format":2,"after":0,"settled":1204}}      the first
 *     {"record":{…}} {"key":{…}} {"consumer":{…}} …                what stands beside the log
 *     {"event":{"event_id":1,"id":…}}                              in order
 *     {"end":{"events":1204}}                                      the last: without it, it is cut
 * off
 *
 * Everything keeps its id, events their number, messages their state: what is not delivered will
 * be, what is delivered will not be again. Messages get a new place in the lanes of the new store,
 * in their order. Heads are made anew from the events. What is not in it: the views of projections,
 * which are built anew from their definitions, and what ends with a process (relays, breakers,
 * leases, tickets).
 *
 * Under traffic the state is read first, as of one moment, and the events after it, up to the last
 * one that was there then: a record whose event is missing would turn a repeat into a loss. */
#ifndef OL_EXPORT_EXPORT_H
#define OL_EXPORT_EXPORT_H

#include "base/buf.h"
#include "log/log.h"

/* Where lines go: each ends in a line feed. -1 and err: no further. */
typedef int ol_export_sink(void *user, const char *line, size_t bytes, outlog_err *err);

/* Write what stands beside the log. *upto gets the number the events must reach to go with it. */
int ol_export_state(outlog *log, ol_export_sink *write, void *user, int64_t *upto, outlog_err *err);

/* Write the events after `after`, at most `limit` of them (0: all that are settled, and at least up
 * to `upto`, for which open transactions are waited); *last gets the event_id of the last one, or
 * `after`, *count how many. */
int ol_export_events(outlog *log, int64_t after, int64_t upto, int64_t limit, ol_export_sink *write,
                     void *user, int64_t *last, int64_t *count, outlog_err *err);

/* How many messages a relay has in hand, so that nobody knows yet what becomes of them. */
int ol_export_claimed(outlog *log, int64_t *count, outlog_err *err);

void ol_export_head(struct ol_buf *line, int64_t after, int64_t settled);
void ol_export_end(struct ol_buf *line, int64_t events);

/* --- the other way
 * ------------------------------------------------------------------------------------ */

struct ol_import;

/* Begin, or go on after an interruption: events that are there already are passed by.
 * OUTLOG_ILLEGAL_TRANSITION: the store is in use; an import needs one that is new. */
int ol_import_open(outlog *log, struct ol_import **out, outlog_err *err);

/* Take one line. Events are stored a thousand at a time.
 * OUTLOG_INVALID_FIELD: not a line of an export, a gap, or another log than the one that is there.
 */
int ol_import_line(struct ol_import *import, const char *line, size_t bytes, outlog_err *err);

/* Everything came: store the rest, the heads and what stands beside the log, in one transaction.
 * OUTLOG_INVALID_FIELD: the last line was missing. *events: how many events this import stored. */
int ol_import_finish(struct ol_import *import, int64_t *events, outlog_err *err);
void ol_import_close(struct ol_import *import);

#endif
