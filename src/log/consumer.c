/* consumer.c: named, durable cursors on the log (C1, C4).
 *
 * A consumer reads after its cursor, processes, and commits. After a crash it gets the same events
 * again, never fewer. The cursor only moves forward; going back is an explicit reset. */
#include "log/consumer.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "log/audit.h"
#include "log/filter.h"
#include "log/read.h"

#include <stdio.h>
#include <string.h>

static int check_name(const char *name, outlog_err *err)
{
    size_t bytes = name ? strlen(name) : 0;
    if (bytes < 1 || bytes > 100)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/name",
                          "a consumer's name must have 1 to 100 bytes");
    if (!ol_utf8_is_valid(name, bytes))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/name", "a consumer's name is not UTF-8");
    return 0;
}

static int refuse_unknown(const char *name, outlog_err *err)
{
    return ol_fail(
        err, OUTLOG_NOT_FOUND,
        "no consumer %s; `outlog consumers` lists them, `outlog consumers create %s` makes it",
        name, name);
}

static int check_consumer(outlog *log, const char *name, outlog_err *err)
{
    return check_name(name, err) < 0 ? -1 : ol_log_ready(log, err);
}

/* --- create and delete --- */

int outlog_consumer_create(outlog *log, const char *name, const struct outlog_filter *filter,
                           int64_t from, bool *created, outlog_err *err)
{
    struct ol_buf filters = {0};
    int64_t changed, settled;
    int result = -1;

    if (check_consumer(log, name, err) < 0)
        return -1;
    if (from < 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/from", "from must be 0 or more");
    ol_filter_write(filter ? filter : &(struct outlog_filter){0}, &filters);
    if (filters.failed || filters.bytes >= sizeof((struct outlog_consumer *)0)->filters) {
        ol_fail_at(err, OUTLOG_TOO_LARGE, "/filters", "filters are too long");
        goto out;
    }
    if (!ol_utf8_is_valid(filters.data, filters.bytes)) {
        ol_fail_at(err, OUTLOG_INVALID_FIELD, "/filters", "filters are not UTF-8");
        goto out;
    }
    if (outlog_settled(log, &settled, err) < 0)
        goto out;
    if (from == OUTLOG_END)
        from = settled;
    if (from > settled) { // it would miss the events in between
        ol_fail(err, OUTLOG_BEYOND_SETTLED,
                "a cursor must be between 0 and the settled position %lld", (long long)settled);
        goto out;
    }
    if (ol_store_exec(log->conn, OL_Q_CONSUMER_CREATE,
                      OL_PARAMS(ol_value_text(name), ol_value_text(filters.data),
                                ol_value_int(from), ol_value_time(ol_clock_wall_us())),
                      &changed, err) < 0)
        goto out;
    if (created)
        *created = changed > 0;
    result = 0;
out:
    ol_buf_clear(&filters);
    return result;
}

/* A change by an operator appends an event without org (X4). `to` < 0: the consumer was deleted. */
static int append_audit(outlog_tx *tx, const struct outlog_operator *by, const char *event_type,
                        const char *name, int64_t from, int64_t to, outlog_err *err)
{
    struct ol_buf payload = {0};
    ol_buf_text(&payload, "{\"name\":");
    ol_buf_json_text(&payload, name);
    ol_buf_print(&payload, ",\"from_event_id\":%lld", (long long)from);
    if (to >= 0)
        ol_buf_print(&payload, ",\"to_event_id\":%lld", (long long)to);
    ol_buf_char(&payload, '}');
    int result = payload.failed ? ol_no_memory(err)
                                : ol_audit_append(tx, by, event_type, "outlog.consumer", name,
                                                  payload.data, err);
    ol_buf_clear(&payload);
    return result;
}

/* Its position, as the open transaction sees it. */
static int read_cursor(outlog_tx *tx, const char *name, int64_t *out, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(tx->conn, OL_Q_CONSUMER_GET, OL_PARAMS(ol_value_text(name)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *out = ol_rows_int(&rows, 1);
    ol_rows_end(&rows);
    return got == 0 ? refuse_unknown(name, err) : got < 0 ? -1 : 0;
}

/* to < 0: delete it. */
static int change_consumer(outlog *log, const char *name, int64_t to,
                           const struct outlog_operator *by, outlog_err *err)
{
    int64_t from = 0, changed = 0;
    outlog_tx *tx;

    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int result = read_cursor(tx, name, &from, err);
    if (result == 0 && to < 0)
        result = ol_store_exec(tx->conn, OL_Q_CONSUMER_DELETE, OL_PARAMS(ol_value_text(name)),
                               &changed, err);
    else if (result == 0)
        result = ol_store_exec(tx->conn, OL_Q_CONSUMER_RESET,
                               OL_PARAMS(ol_value_text(name), ol_value_int(to),
                                         ol_value_time(ol_clock_wall_us())),
                               &changed, err);
    if (result == 0 && !changed)
        result = refuse_unknown(name, err);
    if (result < 0 ||
        append_audit(tx, by, to < 0 ? "outlog.consumer.deleted" : "outlog.consumer.reset", name,
                     from, to, err) < 0) {
        outlog_rollback(tx);
        return -1;
    }
    return outlog_commit(tx, err);
}

int ol_consumer_delete(outlog *log, const char *name, const struct outlog_operator *by,
                       outlog_err *err)
{
    return check_consumer(log, name, err) < 0 ? -1 : change_consumer(log, name, -1, by, err);
}

int outlog_consumer_delete(outlog *log, const char *name, outlog_err *err)
{
    return ol_consumer_delete(log, name, NULL, err);
}

/* --- reading consumers --- */

static void read_row(const struct ol_rows *rows, int64_t settled, struct outlog_consumer *out)
{
    snprintf(out->name, sizeof out->name, "%s", ol_rows_text(rows, 0, NULL));
    out->cursor_event_id = ol_rows_int(rows, 1);
    snprintf(out->filters, sizeof out->filters, "%s", ol_rows_text(rows, 2, NULL));
    out->updated_at = ol_rows_time(rows, 3);
    out->lag = settled > out->cursor_event_id ? settled - out->cursor_event_id : 0;
}

int outlog_consumer_get(outlog *log, const char *name, struct outlog_consumer *out, outlog_err *err)
{
    struct ol_rows rows;
    int64_t settled;

    if (check_consumer(log, name, err) < 0 || outlog_settled(log, &settled, err) < 0 ||
        ol_store_query(log->conn, OL_Q_CONSUMER_GET, OL_PARAMS(ol_value_text(name)), &rows, err) <
            0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        read_row(&rows, settled, out);
    ol_rows_end(&rows);
    return got == 0 ? refuse_unknown(name, err) : got < 0 ? -1 : 0;
}

int outlog_consumer_list(outlog *log, struct outlog_consumer *out, size_t capacity, size_t *count,
                         outlog_err *err)
{
    struct ol_rows rows;
    int64_t settled;
    int more;

    *count = 0;
    if (ol_log_ready(log, err) < 0 || outlog_settled(log, &settled, err) < 0 ||
        ol_store_query(log->conn, OL_Q_CONSUMER_LIST,
                       OL_PARAMS(ol_value_text(""), ol_value_int(10000)), &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (*count < capacity)
            read_row(&rows, settled, &out[*count]);
        ++*count;
    }
    ol_rows_end(&rows);
    return more;
}

void ol_consumer_json(const struct outlog_consumer *consumer, struct ol_buf *out)
{
    ol_buf_text(out, "{\"name\":");
    ol_buf_json_text(out, consumer->name);
    ol_buf_print(out, ",\"cursor_event_id\":%lld,\"lag\":%lld,\"filters\":%s,\"updated_at\":",
                 (long long)consumer->cursor_event_id, (long long)consumer->lag, consumer->filters);
    ol_buf_json_time(out, consumer->updated_at);
    ol_buf_char(out, '}');
}

/* --- reading and committing events --- */

int outlog_consumer_read(outlog *log, const char *name, size_t limit, int timeout_ms,
                         struct outlog_page *page, outlog_err *err)
{
    struct outlog_consumer consumer;
    struct outlog_filter filter;
    struct ol_arena arena = {0};
    int result = -1;

    if (outlog_consumer_get(log, name, &consumer, err) < 0)
        return -1;
    if (ol_filter_read(consumer.filters, &arena, &filter, err) == 0)
        result = ol_read_follow_short(log, &filter, consumer.cursor_event_id, limit,
                                      OL_READ_PAGE_BYTES, timeout_ms, page, err);
    ol_arena_clear(&arena);
    return result;
}

int outlog_consumer_commit(outlog *log, const char *name, int64_t event_id, bool *moved,
                           outlog_err *err)
{
    struct outlog_consumer consumer;
    int64_t settled, changed;

    if (check_consumer(log, name, err) < 0 || outlog_settled(log, &settled, err) < 0)
        return -1;
    if (event_id > settled)
        return ol_fail(err, OUTLOG_BEYOND_SETTLED,
                       "event %lld is beyond the settled position %lld; commit what was read",
                       (long long)event_id, (long long)settled);
    if (ol_store_exec(log->conn, OL_Q_CONSUMER_COMMIT,
                      OL_PARAMS(ol_value_text(name), ol_value_int(event_id),
                                ol_value_time(ol_clock_wall_us())),
                      &changed, err) < 0)
        return -1;
    if (moved)
        *moved = changed > 0;
    return changed ? 0 : outlog_consumer_get(log, name, &consumer, err); // not moved, or not found
}

/* A reset to the end also skips the audit event of the reset, as soon as that is settled. */
static int pass_own_event(outlog *log, const char *name, outlog_err *err)
{
    int64_t settled;
    if (log->tx) // not before the caller's transaction commits
        return 0;
    if (outlog_settled(log, &settled, err) < 0)
        return -1;
    return ol_store_exec(log->conn, OL_Q_CONSUMER_COMMIT,
                         OL_PARAMS(ol_value_text(name), ol_value_int(settled),
                                   ol_value_time(ol_clock_wall_us())),
                         NULL, err);
}

int ol_consumer_reset(outlog *log, const char *name, int64_t to, const struct outlog_operator *by,
                      outlog_err *err)
{
    int64_t settled;
    if (check_consumer(log, name, err) < 0 || outlog_settled(log, &settled, err) < 0)
        return -1;
    bool is_end = to == OUTLOG_END;
    if (is_end)
        to = settled;
    if (to < 0 || to > settled)
        return ol_fail(err, to < 0 ? OUTLOG_INVALID_FIELD : OUTLOG_BEYOND_SETTLED,
                       "a cursor must be between 0 and the settled position %lld",
                       (long long)settled);
    if (change_consumer(log, name, to, by, err) < 0)
        return -1;
    return is_end ? pass_own_event(log, name, err) : 0;
}

int outlog_consumer_reset(outlog *log, const char *name, int64_t to, outlog_err *err)
{
    return ol_consumer_reset(log, name, to, NULL, err);
}

int ol_consumer_reset_to_time(outlog *log, const char *name, int64_t at_time,
                              const struct outlog_operator *by, outlog_err *err)
{
    int64_t first, last, settled;
    if (check_consumer(log, name, err) < 0 || outlog_settled(log, &settled, err) < 0 ||
        ol_read_window(log, at_time, 0, &first, &last, err) < 0)
        return -1;
    return change_consumer(log, name, first && first <= settled ? first - 1 : settled, by, err);
}

int outlog_consumer_reset_to_time(outlog *log, const char *name, int64_t at_time, outlog_err *err)
{
    return ol_consumer_reset_to_time(log, name, at_time, NULL, err);
}
