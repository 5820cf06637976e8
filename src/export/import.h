/* import.h: loads the lines of an export (export.h) into a new store.
 *
 * Events are stored as their lines come. The state waits in a temporary file until all events are
 * stored: routes and rules must not see imported events. */
#ifndef OL_EXPORT_IMPORT_H
#define OL_EXPORT_IMPORT_H

#include "log/log.h"

struct ol_import;

/* Begin an import, or continue one that was interrupted: events that are already stored are
 * skipped.
 *
 * OUTLOG_ILLEGAL_TRANSITION: the store is in use; an import needs a new one. */
int ol_import_open(outlog *log, struct ol_import **out, outlog_err *err);

/* Import one line, given without its line feed. Events are committed in batches of a thousand.
 *
 * OUTLOG_INVALID_FIELD: not a line of an export, a gap, or an export of another log. */
int ol_import_line(struct ol_import *import, const char *line, size_t bytes, outlog_err *err);

/* All lines were given: store the last events, the heads and the state in one transaction. *events
 * gets the number of events that this import stored.
 *
 * OUTLOG_INVALID_FIELD: the last line of the export was missing. */
int ol_import_finish(struct ol_import *import, int64_t *events, outlog_err *err);
void ol_import_close(struct ol_import *import);

#endif
