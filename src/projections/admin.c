/* admin.c: the public functions that list, await, rebuild, skip and retry projections. Each change
 * appends an audit event in its own transaction (X4). */
#include "base/clock.h"
#include "base/json/json.h"
#include "log/log.h"
#include "projections/checkpoint.h"

#include <string.h>

/* --- reading --- */

int outlog_projection_list(outlog *log, struct outlog_projection *out, size_t capacity,
                           size_t *count, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_checkpoint *rows;
    int64_t settled;

    *count = 0;
    if (ol_log_ready(log, err) < 0 || outlog_settled(log, &settled, err) < 0)
        return -1;
    int result = ol_checkpoint_list(log->conn, &arena, &rows, count, err);
    for (size_t i = 0; result == 0 && i < *count && i < capacity; i++) {
        out[i] = rows[i].shown;
        out[i].lag = settled > out[i].last_applied_event_id ? settled - out[i].last_applied_event_id
                                                            : 0;
    }
    ol_arena_clear(&arena);
    return result;
}

int outlog_projection_get(outlog *log, const char *name, struct outlog_projection *out,
                          outlog_err *err)
{
    struct ol_checkpoint row;
    int64_t settled;
    if (ol_log_ready(log, err) < 0 || outlog_settled(log, &settled, err) < 0 ||
        ol_checkpoint_get(log->conn, name, &row, err) < 0)
        return -1;
    *out = row.shown;
    out->lag = settled > out->last_applied_event_id ? settled - out->last_applied_event_id : 0;
    return 0;
}

int outlog_projection_wait(outlog *log, const char *name, int64_t event_id, int timeout_ms,
                           int64_t *last_applied, outlog_err *err)
{
    int64_t deadline = ol_clock_boot_us() + (int64_t)timeout_ms * 1000, reached = 0;
    int pause_ms = 2;
    outlog_err why;

    if (log->tx)
        return ol_fail(
            err, OUTLOG_MISUSE,
            "this handle has an open transaction, and nothing of it is applied before it "
            "commits; end it first, or wait with another handle");
    if (ol_log_ready(log, err) < 0)
        return -1;
    if (!log->is_waiting)
        log->is_waiting = ol_waiter_open(&log->waiter, log->conn->wake_key) == 0;
    for (;;) {
        if (ol_store_number(log->conn, OL_Q_CHECKPOINT_POSITION, OL_PARAMS(ol_value_text(name)),
                            &reached, &why) < 0) {
            if (why.code == OUTLOG_NOT_FOUND)
                ol_fail(&why, OUTLOG_NOT_FOUND,
                        "no projection %.60s; `outlog projections` lists them", name);
            if (err)
                *err = why;
            return -1;
        }
        if (last_applied)
            *last_applied = reached;
        if (reached >= event_id)
            return 0;
        int64_t left_ms = (deadline - ol_clock_boot_us()) / 1000;
        if (left_ms <= 0)
            return ol_fail(
                err, OUTLOG_PROJECTION_BEHIND,
                "projection %s has applied event %lld, not yet %lld; wait longer, or look "
                "at `outlog projections`",
                name, (long long)reached, (long long)event_id);
        ol_store_await(log->conn, &log->waiter, pause_ms < left_ms ? pause_ms : (int)left_ms);
        pause_ms = pause_ms * 2 < 50 ? pause_ms * 2 : 50;
    }
}

/* --- changes --- */

struct projection_change {
    outlog_tx *tx;
    struct ol_conn *conn;
    struct ol_checkpoint row;
    const struct outlog_operator *by;
    outlog_err *err;
};

/* Begin, and read the projection inside the transaction. */
static int change_begin(struct projection_change *c, outlog *log, const char *name,
                        const struct outlog_operator *by, outlog_err *err)
{
    static const struct outlog_operator nobody;
    *c = (struct projection_change){.by = by ? by : &nobody, .err = err};
    if (outlog_begin(log, &c->tx, err) < 0)
        return -1;
    c->conn = c->tx->conn;
    return ol_checkpoint_get(c->conn, name, &c->row, err);
}

/* `more`: further members of the payload, or "". */
static int append_audit(struct projection_change *c, const char *event_type, const char *more)
{
    struct outlog_appended appended;
    struct ol_buf payload = {0};
    ol_buf_text(&payload, "{\"name\":");
    ol_buf_json_text(&payload, c->row.shown.name);
    ol_buf_print(&payload, ",\"version\":%d%s}", c->row.shown.version, more);
    struct outlog_new_event event = {.is_infrastructure = true,
                                     .aggregate_type = "outlog.projection",
                                     .aggregate_id = c->row.shown.name,
                                     .event_type = event_type,
                                     .payload = payload.data,
                                     .actor_type = c->by->actor_type,
                                     .actor_id = c->by->actor_id,
                                     .request_id = c->by->request_id};
    int result = payload.failed ? ol_fail(c->err, OUTLOG_NO_MEMORY, "out of memory")
                                : ol_append_own(c->tx, &event, 1, &appended, c->err);
    ol_buf_clear(&payload);
    return result;
}

static int change_end(struct projection_change *c, int result)
{
    if (result < 0) {
        outlog_rollback(c->tx);
        return -1;
    }
    return outlog_commit(c->tx, c->err);
}

static int request_rebuild(struct projection_change *c, bool aside)
{
    char rebuild_id[OL_UUID_TEXT];
    const struct outlog_projection *shown = &c->row.shown;
    if (c->row.shown.is_in_c && aside)
        return ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION,
                       "projection %s is written in C and can only be rebuilt in place",
                       shown->name);
    if (!aside && shown->version > 0 && c->row.declared_at &&
        shown->rebuild_version != shown->version)
        return ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION,
                       "version %d of %s is live and %d is declared; rebuild it aside",
                       shown->version, shown->name, shown->rebuild_version);
    aside &= shown->version > 0; // without live tables there is nothing to leave in place
    ol_uuid_make(rebuild_id);
    if (ol_store_exec(c->conn, OL_Q_CHECKPOINT_REQUEST_REBUILD,
                      OL_PARAMS(ol_value_text(shown->name),
                                ol_value_text(aside ? "aside" : "in_place"),
                                ol_value_text(rebuild_id)),
                      NULL, c->err) < 0)
        return -1;
    return append_audit(c, "outlog.projection.rebuild_requested",
                        aside ? ",\"kind\":\"aside\"" : ",\"kind\":\"in_place\"");
}

int outlog_projection_rebuild(outlog *log, const char *name, bool aside,
                              const struct outlog_operator *by, outlog_err *err)
{
    struct projection_change c;
    int result = change_begin(&c, log, name, by, err);
    return change_end(&c, result < 0 ? -1 : request_rebuild(&c, aside));
}

static int cancel_rebuild(struct projection_change *c)
{
    int64_t changed;
    if (ol_store_exec(c->conn, OL_Q_CHECKPOINT_CANCEL_REBUILD,
                      OL_PARAMS(ol_value_text(c->row.shown.name)), &changed, c->err) < 0)
        return -1;
    return changed ? append_audit(c, "outlog.projection.rebuild_cancelled", "")
                   : ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION,
                             "projection %s is not being rebuilt aside", c->row.shown.name);
}

int outlog_projection_cancel(outlog *log, const char *name, const struct outlog_operator *by,
                             outlog_err *err)
{
    struct projection_change c;
    int result = change_begin(&c, log, name, by, err);
    return change_end(&c, result < 0 ? -1 : cancel_rebuild(&c));
}

/* Whether the projection stopped at this event. */
static bool stopped_at(const char *error, int64_t event_id)
{
    struct ol_json value;
    int64_t at;
    if (!*error || ol_json_parse(error, strlen(error), &value, NULL) < 0)
        return false;
    struct ol_json member = ol_json_get(&value, "event_id");
    return ol_json_int(&member, &at) && at == event_id;
}

static int skip_event(struct projection_change *c, int64_t event_id)
{
    const struct outlog_projection *shown = &c->row.shown;
    bool is_live = stopped_at(shown->error, event_id),
         is_shadow = stopped_at(shown->rebuild_error, event_id);
    struct ol_buf more = {0};
    int result = -1;
    if (!is_live && !is_shadow)
        return ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION,
                       "projection %s has not stopped at event %lld; `outlog projections` shows "
                       "where it has",
                       shown->name, (long long)event_id);
    const struct ol_value name = ol_value_text(shown->name), at = ol_value_int(event_id);
    ol_buf_print(&more, ",\"event_id\":%lld", (long long)event_id);
    if (is_live) {
        if (ol_store_exec(c->conn, OL_Q_SKIP_ADD, OL_PARAMS(name, ol_value_int(shown->version), at),
                          NULL, c->err) < 0 ||
            ol_store_exec(c->conn, OL_Q_CHECKPOINT_SKIP, OL_PARAMS(name, at), NULL, c->err) < 0)
            goto out;
    }
    if (is_shadow) {
        if (ol_store_exec(c->conn, OL_Q_SKIP_ADD,
                          OL_PARAMS(name, ol_value_int(shown->rebuild_version), at), NULL,
                          c->err) < 0 ||
            (!is_live &&
             ol_store_exec(c->conn, OL_Q_CHECKPOINT_RETRY, OL_PARAMS(name), NULL, c->err) < 0))
            goto out;
    }
    result = append_audit(c, "outlog.projection.skipped", more.failed ? "" : more.data);
out:
    ol_buf_clear(&more);
    return result;
}

int outlog_projection_skip(outlog *log, const char *name, int64_t event_id,
                           const struct outlog_operator *by, outlog_err *err)
{
    struct projection_change c;
    int result = change_begin(&c, log, name, by, err);
    return change_end(&c, result < 0 ? -1 : skip_event(&c, event_id));
}

static int retry_projection(struct projection_change *c)
{
    const struct outlog_projection *shown = &c->row.shown;
    if (!*shown->error && !*shown->rebuild_error)
        return ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION, "projection %s has not stopped",
                       shown->name);
    if (ol_store_exec(c->conn, OL_Q_CHECKPOINT_RETRY, OL_PARAMS(ol_value_text(shown->name)), NULL,
                      c->err) < 0)
        return -1;
    return append_audit(c, "outlog.projection.retried", "");
}

int outlog_projection_retry(outlog *log, const char *name, const struct outlog_operator *by,
                            outlog_err *err)
{
    struct projection_change c;
    int result = change_begin(&c, log, name, by, err);
    return change_end(&c, result < 0 ? -1 : retry_projection(&c));
}
