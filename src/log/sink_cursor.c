/* sink_cursor.c: listing, creating and resetting the cursors of sinks. */
#include "log/sink_cursor.h"

#include "base/json/json.h"
#include "log/audit.h"

#include <string.h>

static const char *read_target(const char *source, struct ol_arena *arena)
{
    struct ol_json object;
    if (ol_json_parse(source, strlen(source), &object, NULL) < 0)
        return NULL;
    struct ol_json to = ol_json_get(&object, "to");
    return ol_json_string(&to, arena, NULL);
}

int ol_sink_cursor_each(outlog *log, void (*each)(void *user, const struct ol_sink_cursor *sink),
                        void *user, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_rows rows;
    int64_t settled;
    int more;

    if (outlog_settled(log, &settled, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SINK_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        int64_t cursor = ol_rows_int(&rows, 2);
        struct ol_sink_cursor sink = {.name = ol_rows_text(&rows, 0, NULL),
                                      .to = read_target(ol_rows_text(&rows, 1, NULL), &arena),
                                      .cursor_event_id = cursor,
                                      .lag = settled > cursor ? settled - cursor : 0,
                                      .updated_at = ol_rows_time(&rows, 5)};
        if (!ol_rows_is_null(&rows, 3))
            sink.owner = ol_rows_text(&rows, 3, NULL);
        if (!ol_rows_is_null(&rows, 4))
            sink.last_error = ol_rows_text(&rows, 4, NULL);
        each(user, &sink);
    }
    ol_rows_end(&rows);
    ol_arena_clear(&arena);
    return more;
}

void ol_sink_cursor_json(const struct ol_sink_cursor *sink, struct ol_buf *out)
{
    ol_buf_text(out, "{\"name\":");
    ol_buf_json_text(out, sink->name);
    ol_buf_text(out, ",\"to\":");
    ol_buf_json_text(out, sink->to);
    ol_buf_print(out, ",\"cursor_event_id\":%lld,\"lag\":%lld,\"claimed_by\":",
                 (long long)sink->cursor_event_id, (long long)sink->lag);
    ol_buf_json_text(out, sink->owner);
    ol_buf_text(out, ",\"last_error\":");
    ol_buf_json_text(out, sink->last_error);
    ol_buf_text(out, ",\"updated_at\":");
    ol_buf_json_time(out, sink->updated_at);
    ol_buf_char(out, '}');
}

int ol_sink_cursor_declare(struct ol_conn *conn, const char *name, const char *source,
                           outlog_err *err)
{
    struct ol_json object;
    int64_t at = 0;
    if (ol_json_parse(source, strlen(source), &object, err) < 0)
        return -1;
    struct ol_json from = ol_json_get(&object, "from");
    if (ol_json_equals(&from, "end") &&
        ol_store_number(conn, OL_Q_EVENTS_SETTLED, OL_NO_PARAMS, &at, err) < 0)
        return -1;
    return ol_store_exec(conn, OL_Q_SINK_MAKE, OL_PARAMS(ol_value_text(name), ol_value_int(at)),
                         NULL, err);
}

static int reset_cursor(outlog_tx *tx, const char *name, int64_t to,
                        const struct outlog_operator *by, outlog_err *err)
{
    struct ol_buf payload = {0};
    int64_t changed;
    if (ol_store_exec(tx->conn, OL_Q_SINK_RESET, OL_PARAMS(ol_value_text(name), ol_value_int(to)),
                      &changed, err) < 0)
        return -1;
    if (!changed)
        return ol_fail(err, OUTLOG_NOT_FOUND, "no sink %s; declare it under `sinks` in outlog.yaml",
                       name);
    ol_buf_text(&payload, "{\"name\":");
    ol_buf_json_text(&payload, name);
    ol_buf_print(&payload, ",\"to_event_id\":%lld}", (long long)to);
    int result = payload.failed ? ol_no_memory(err)
                                : ol_audit_append(tx, by, "outlog.sink.reset", "outlog.sink", name,
                                                  payload.data, err);
    ol_buf_clear(&payload);
    return result;
}

int ol_sink_cursor_reset(outlog *log, const char *name, int64_t to,
                         const struct outlog_operator *by, outlog_err *err)
{
    int64_t settled;
    outlog_tx *tx;
    if (outlog_settled(log, &settled, err) < 0)
        return -1;
    if (to == OUTLOG_END)
        to = settled;
    if (to > settled)
        return ol_fail(err, OUTLOG_BEYOND_SETTLED,
                       "a cursor must be between 0 and the settled position %lld",
                       (long long)settled);
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (reset_cursor(tx, name, to, by, err) == 0)
        return outlog_commit(tx, err);
    outlog_rollback(tx);
    return -1;
}
