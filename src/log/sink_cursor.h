/* sink_cursor.h: the cursors of sinks: list, create, reset. relay/sink/sink.h moves them. */
#ifndef OL_LOG_SINK_CURSOR_H
#define OL_LOG_SINK_CURSOR_H

#include "base/buf.h"
#include "log/log.h"

struct ol_sink_cursor {
    const char *name, *to;
    int64_t cursor_event_id, lag, updated_at;
    const char *owner;      /* the relay that moves it now, or NULL */
    const char *last_error; /* NULL: none */
};

/* Every declared sink, by name. */
int ol_sink_cursor_each(outlog *log, void (*each)(void *user, const struct ol_sink_cursor *sink),
                        void *user, outlog_err *err);

void ol_sink_cursor_json(const struct ol_sink_cursor *sink, struct ol_buf *out);

/* Create the cursor of a sink, inside the open transaction. `source` is its declaration: it begins
 * at the current end of the log, or at its beginning. An existing cursor is not moved. */
int ol_sink_cursor_declare(struct ol_conn *conn, const char *name, const char *source,
                           outlog_err *err);

/* Move a sink's cursor to 0, an event_id, or OUTLOG_END, and append an audit event (X4).
 * OUTLOG_NOT_FOUND: the sink is not declared. OUTLOG_BEYOND_SETTLED: past the settled position. */
int ol_sink_cursor_reset(outlog *log, const char *name, int64_t to,
                         const struct outlog_operator *by, outlog_err *err);

#endif
