/* position.h: where the log ends, which log it is, and which cursors belong to it. */
#ifndef OL_LOG_POSITION_H
#define OL_LOG_POSITION_H

#include "log/log.h"

/* Once per session, before anything else is done: begin a new epoch if the log may have lost its
 * end, or is a copy (R3). A store that cannot be written stays as it is. */
int ol_position_note(struct ol_conn *conn, outlog_err *err);

/* Refuse a cursor that is not of this log. `log_id` is the log that it was read from, NULL when the
 * reader does not know. Call outlog_settled() first.
 * OUTLOG_BEYOND_LOG: err->expected is the cursor, err->actual where the reader can go on, or -1. */
int ol_position_check(outlog *log, const char *log_id, int64_t after, outlog_err *err);

/* An operator restored the store: begin a new epoch, with ids above `above` and above all that the
 * store knows. Inside the open transaction. */
int ol_position_restart(outlog_tx *tx, int64_t above, outlog_err *err);

/* The newest epoch. */
struct ol_position_epoch {
    char log_id[OL_UUID_TEXT];
    int64_t began_after, epoch, began_at;
    char reason[16];
};
int ol_position_epoch(struct ol_conn *conn, struct ol_position_epoch *out, outlog_err *err);

#endif
