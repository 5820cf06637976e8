/* position.c: the settled position, and the identity of the log (R3).
 *
 * 1  A handle keeps the highest settled position it has seen. That holds for one log on one server:
 *    another log_id, another server or a new session forget it.
 * 2  A cursor is a position in a log. It is refused when no event was given out there, or when the
 *    reader says which log it is of, and this log has other events before it. */
#include "log/position.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* --- settled --- */

static void forget_position(outlog *log)
{
    log->settled = 0;
    log->window.settled = 0;
}

/* (1) In a store without gaps the position never goes back: it did, so the file was overwritten. */
static void take_position(outlog *log, int64_t settled, const char *log_id, int64_t server)
{
    bool is_rewound = !log->conn->store->has_gaps && settled < log->settled;
    if (is_rewound || server != log->server || strcmp(log_id, log->log_id) != 0)
        forget_position(log);
    log->server = server;
    snprintf(log->log_id, sizeof log->log_id, "%s", log_id);
    if (settled > log->settled)
        log->settled = settled;
}

int outlog_settled(outlog *log, int64_t *settled, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_EVENTS_SETTLED, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        const char *log_id = ol_rows_text(&rows, 1, NULL);
        *settled = ol_rows_int(&rows, 0);
        if (!log->tx) { // a store with one writer counts what this transaction may roll back
            take_position(log, *settled, log_id ? log_id : "", ol_rows_int(&rows, 2));
            *settled = log->settled;
        }
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* --- cursors --- */

static int refuse_cursor(const char *log_id, int64_t after, int64_t upto, outlog_err *err)
{
    if (upto < 0)
        ol_fail(err, OUTLOG_BEYOND_LOG,
                "log %.40s is not this one, nor an earlier state of it; begin at 0", log_id);
    else if (!log_id)
        ol_fail(err, OUTLOG_BEYOND_LOG,
                "event %lld was never given out, the last is %lld: the cursor is of another log, "
                "or this one was restored; go on after an event that is in it",
                (long long)after, (long long)upto);
    else
        ol_fail(err, OUTLOG_BEYOND_LOG,
                "the log was restored, or lost its end: what you read up to %lld is in it up to "
                "%lld only; go on from there",
                (long long)after, (long long)upto);
    if (err) {
        err->expected = after;
        err->actual = upto;
    }
    return -1;
}

int ol_position_check(outlog *log, const char *log_id, int64_t after, outlog_err *err)
{
    char uuid[OL_UUID_TEXT];
    struct ol_rows rows;
    int64_t upto = INT64_MAX;

    if (log_id && !ol_uuid_parse(log_id, uuid))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/log_id", "log_id is not a UUID");
    bool is_ours = !log_id || strcmp(uuid, log->log_id) == 0;
    if (is_ours && after <= log->settled)
        return 0;
    if (ol_store_query(log->conn, OL_Q_LOG_LIMITS, OL_PARAMS(ol_value_text(log_id ? uuid : NULL)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        int64_t last = ol_rows_int(&rows, 1);
        if (!ol_rows_is_null(&rows, 0))
            upto = ol_rows_int(&rows, 0);
        if (last < upto)
            upto = last;
    }
    ol_rows_end(&rows);
    if (got < 0)
        return -1;
    return after > upto ? refuse_cursor(log_id, after, upto, err) : 0;
}

/* --- epochs --- */

/* The first file that the store is in, or another one than before: it was restored, or copied. */
static int note_file(struct ol_conn *conn, const char *known, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    struct ol_value file = ol_value_text(conn->place);
    if (!*known)
        return ol_store_exec(conn, OL_Q_LOG_ADOPT_FILE, OL_PARAMS(file), NULL, err);
    ol_uuid_make(id);
    return ol_store_exec(conn, OL_Q_LOG_BEGIN_FILE,
                         OL_PARAMS(ol_value_text(id), ol_value_time(ol_clock_wall_us()),
                                   ol_value_text("file"), file),
                         NULL, err);
}

static int read_file(struct ol_conn *conn, char out[OL_PLACE_TEXT], outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_LOG_FILE, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        snprintf(out, OL_PLACE_TEXT, "%s", ol_rows_text(&rows, 0, NULL));
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* Read first without a lock: it is the same file nearly always. */
static int note_place(struct ol_conn *conn, outlog_err *err)
{
    char known[OL_PLACE_TEXT] = "";
    if (!*conn->place)
        return 0;
    if (read_file(conn, known, err) < 0)
        return -1;
    if (strcmp(known, conn->place) == 0)
        return 0;
    if (conn->store->begin(conn, err) < 0)
        return -1;
    if (read_file(conn, known, err) < 0 ||
        (strcmp(known, conn->place) != 0 && note_file(conn, known, err) < 0)) {
        conn->store->rollback(conn);
        return -1;
    }
    return conn->store->commit(conn, err);
}

int ol_position_note(struct ol_conn *conn, outlog_err *err)
{
    outlog_err why;
    int result = conn->store->has_functions
                     ? ol_store_exec(conn, OL_Q_LOG_NOTE, OL_NO_PARAMS, NULL, &why)
                     : note_place(conn, &why);
    if (result == 0 || why.code == OUTLOG_READ_ONLY)
        return 0;
    if (err)
        *err = why;
    return -1;
}

int ol_position_restart(outlog_tx *tx, int64_t above, outlog_err *err)
{
    struct ol_conn *conn = tx->conn;
    struct ol_value ids = ol_value_int(above);
    char id[OL_UUID_TEXT];

    if (conn->store->has_functions)
        return ol_store_exec(conn, OL_Q_LOG_BEGIN, OL_PARAMS(ids), NULL, err);
    ol_uuid_make(id);
    if (ol_store_exec(conn, OL_Q_LOG_BEGIN_FILE,
                      OL_PARAMS(ol_value_text(id), ol_value_time(ol_clock_wall_us()),
                                ol_value_text("restored"), ol_value_text(conn->place)),
                      NULL, err) < 0 ||
        ol_store_exec(conn, OL_Q_LOG_RAISE_IDS, OL_PARAMS(ids), NULL, err) < 0)
        return -1;
    return ol_store_exec(conn, OL_Q_LOG_MAKE_IDS, OL_PARAMS(ids), NULL, err);
}

int ol_position_epoch(struct ol_conn *conn, struct ol_position_epoch *out, outlog_err *err)
{
    struct ol_rows rows;
    *out = (struct ol_position_epoch){0};
    if (ol_store_query(conn, OL_Q_LOG_NEWEST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        snprintf(out->log_id, sizeof out->log_id, "%s", ol_rows_text(&rows, 0, NULL));
        out->began_after = ol_rows_int(&rows, 1);
        out->epoch = ol_rows_int(&rows, 2);
        snprintf(out->reason, sizeof out->reason, "%s", ol_rows_text(&rows, 3, NULL));
        out->began_at = ol_rows_time(&rows, 4);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}
