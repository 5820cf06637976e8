/* sink_cursor.h: sinks as people see them, and what people do to them. sink.h moves them. */
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

/* As a JSON object. */
void ol_sink_cursor_json(const struct ol_sink_cursor *sink, struct ol_buf *out);

/* Make the row of a sink that is declared as `source` says, inside the open transaction: it begins
 * where the log ends now, or at its beginning. One that is there stays where it stands. */
int ol_sink_cursor_declare(struct ol_conn *conn, const char *name, const char *source,
                           outlog_err *err);

/* Put a sink's cursor somewhere else: 0, an event_id, or OUTLOG_END; with its audit event (X4).
 * OUTLOG_NOT_FOUND: it is not declared. OUTLOG_BEYOND_SETTLED: past what may be read. */
int ol_sink_cursor_reset(outlog *log, const char *name, int64_t to,
                         const struct outlog_operator *by, outlog_err *err);

#endif
