/* destination.c: what operators do to a destination: deliver now, pause, resume. Each has its audit
 * event in its own transaction (X4), as changes of messages have (admin.c). */
#include "log/audit.h"
#include "outbox/message_list.h"

#include <stdio.h>

static int find_destination(struct ol_conn *conn, const char *name, bool *exists, bool *paused,
                            outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_DESTINATION_GET, OL_PARAMS(ol_value_text(name)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *exists = got > 0;
    if (*exists && paused)
        *paused = ol_rows_int(&rows, 3) != 0;
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

static int fail_unknown(outlog_err *err, const char *name)
{
    return ol_fail(err, OUTLOG_NOT_FOUND,
                   "there is no destination %.100s; `outlog destinations` lists them", name);
}

/* Make a chunk of one lane due now: -1, or how many. */
static int64_t make_due(outlog *log, const char *destination, const struct outlog_operator *by,
                        int lane, outlog_err *err)
{
    enum { DELIVER_CHUNK = 5000 };
    outlog_tx *tx;
    int64_t changed = 0, result = -1;
    char payload[64];

    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (ol_store_exec(tx->conn, OL_Q_LANE_TOUCH, OL_PARAMS(ol_value_int(lane)), NULL, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_PARKED_MAKE_DUE,
                      OL_PARAMS(ol_value_int(lane), ol_value_text(destination),
                                ol_value_int(DELIVER_CHUNK)),
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
                   int64_t *due_count, outlog_err *err)
{
    int lanes[OL_LANE_MAX], result = -1;
    size_t count = 0;
    int64_t total = 0, moved;
    bool exists = false;

    if (ol_log_ready(log, err) < 0 ||
        find_destination(log->conn, destination, &exists, NULL, err) < 0 ||
        ol_message_list_lanes(log->conn, lanes, &count, err) < 0)
        goto out;
    if (!exists) {
        fail_unknown(err, destination);
        goto out;
    }
    for (size_t i = 0; i < count; i++)
        do {
            if ((moved = make_due(log, destination, by, lanes[i], err)) < 0)
                goto out;
            total += moved;
        } while (moved);
    result = 0;
out:
    if (due_count)
        *due_count = total;
    return result;
}

int outlog_destination_pause(outlog *log, const char *destination, bool paused,
                             const struct outlog_operator *by, bool *changed, outlog_err *err)
{
    outlog_tx *tx;
    bool exists, is_paused = false;
    int result = -1;

    if (changed)
        *changed = false;
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (ol_store_exec(tx->conn, OL_Q_CONFIG_LOCK, OL_NO_PARAMS, NULL, err) < 0 ||
        find_destination(tx->conn, destination, &exists, &is_paused, err) < 0)
        goto out;
    if (!exists) {
        fail_unknown(err, destination);
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
