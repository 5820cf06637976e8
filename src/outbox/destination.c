/* destination.c: what people do to a destination: deliver now, pause, resume. Like a change of
 * messages (admin.c) each has its audit event in its own transaction (X4). */
#include "log/audit.h"
#include "outbox/message_list.h"

#include <stdio.h>

static int find_destination(struct ol_conn *conn, const char *name, bool *is_there, bool *paused,
                            outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_DESTINATION_GET, OL_PARAMS(ol_value_text(name)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *is_there = got > 0;
    if (*is_there && paused)
        *paused = ol_rows_int(&rows, 3) != 0;
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

static int no_destination(outlog_err *err, const char *name)
{
    return ol_fail(err, OUTLOG_NOT_FOUND,
                   "there is no destination %.100s; `outlog destinations` lists them", name);
}

/* A chunk of one lane: -1, or how many. */
static int64_t hurry(outlog *log, const char *destination, const struct outlog_operator *by,
                     int lane, outlog_err *err)
{
    enum { CHUNK = 5000 };
    outlog_tx *tx;
    int64_t changed = 0, result = -1;
    char payload[64];

    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (ol_store_exec(tx->conn, OL_Q_LANE_TOUCH, OL_PARAMS(ol_value_int(lane)), NULL, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_PARKED_HURRY,
                      OL_PARAMS(ol_value_int(lane), ol_value_text(destination),
                                ol_value_int(CHUNK)),
                      &changed, err) < 0)
        goto out;
    if (changed == 0) {
        result = 0;
        goto out;
    }
    snprintf(payload, sizeof payload, "{\"lane\":%d,\"messages\":%lld}", lane, (long long)changed);
    if (ol_audit_append(tx, by, "outlog.destination.delivered", "outlog.destination", destination,
                        payload, err) < 0)
        goto out;
    result = outlog_commit(tx, err) < 0 ? -1 : changed;
    tx = NULL;
out:
    outlog_rollback(tx);
    return result;
}

int outlog_deliver(outlog *log, const char *destination, const struct outlog_operator *by,
                   int64_t *hurried, outlog_err *err)
{
    int lanes[OL_LANE_MAX], result = -1;
    size_t count = 0;
    int64_t total = 0, moved;
    bool is_there = false;

    if (ol_log_ready(log, err) < 0 ||
        find_destination(log->conn, destination, &is_there, NULL, err) < 0 ||
        ol_message_list_lanes(log->conn, lanes, &count, err) < 0)
        goto out;
    if (!is_there) {
        no_destination(err, destination);
        goto out;
    }
    for (size_t i = 0; i < count; i++)
        do {
            if ((moved = hurry(log, destination, by, lanes[i], err)) < 0)
                goto out;
            total += moved;
        } while (moved);
    result = 0;
out:
    if (hurried)
        *hurried = total;
    return result;
}

int outlog_destination_pause(outlog *log, const char *destination, bool paused,
                             const struct outlog_operator *by, bool *changed, outlog_err *err)
{
    outlog_tx *tx;
    bool is_there, is_paused = false;
    int result = -1;

    if (changed)
        *changed = false;
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (ol_store_exec(tx->conn, OL_Q_CONFIG_LOCK, OL_NO_PARAMS, NULL, err) < 0 ||
        find_destination(tx->conn, destination, &is_there, &is_paused, err) < 0)
        goto out;
    if (!is_there) {
        no_destination(err, destination);
        goto out;
    }
    if (is_paused == paused) {
        result = 0;
        goto out;
    }
    if (ol_store_exec(tx->conn, OL_Q_DESTINATION_PAUSE,
                      OL_PARAMS(ol_value_text(destination), ol_value_int(paused)), NULL, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_LANES_INVALIDATE, OL_NO_PARAMS, NULL, err) < 0 ||
        ol_audit_append(tx, by, paused ? "outlog.destination.paused" : "outlog.destination.resumed",
                        "outlog.destination", destination, "{}", err) < 0)
        goto out;
    result = outlog_commit(tx, err);
    tx = NULL;
    if (changed)
        *changed = result == 0;
out:
    outlog_rollback(tx);
    return result;
}
