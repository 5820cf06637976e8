/* effects.c: effects of sessions, pending until a client acknowledges them. */
#include "base/err.h"
#include "base/json/json.h"
#include "base/sha256.h"
#include "base/uuid.h"
#include "log/audit.h"
#include "log/log.h"
#include "sessions/session.h"

#include <stdio.h>
#include <string.h>

/* --- adding --- */

static int put_request(const struct ol_session_effect *effect, const char *effect_id,
                       struct ol_buf *out, outlog_err *err)
{
    char spec_hash[OL_SHA256_TEXT];
    struct ol_buf spec = {0};
    ol_buf_add(&spec, effect->spec, effect->spec_bytes);
    int result = spec.failed ? ol_no_memory(err) : outlog_request_hash(spec.data, spec_hash, err);
    ol_buf_clear(&spec);
    if (result < 0)
        return -1;
    ol_buf_print(out, "{\"effect_id\":\"%s\",\"run_id\":null,\"effect_type\":", effect_id);
    ol_buf_json_text(out, effect->effect_type);
    ol_buf_text(out, ",\"session_key\":");
    ol_buf_json_text(out, effect->session_key);
    ol_buf_text(out, ",\"checkpoint_id\":");
    ol_buf_json_text(out, effect->checkpoint_id);
    ol_buf_text(out, ",\"destination\":\"session\",\"idempotency_key\":");
    ol_buf_json_text(out, effect->idempotency_key);
    ol_buf_print(out, ",\"spec_hash\":\"%s\"}", spec_hash); // which verify needs (U3)
    return out->failed ? ol_no_memory(err) : 0;
}

static int store_effect(outlog_tx *tx, const struct ol_session_effect *effect, char effect_id[37],
                        struct outlog_appended *appended, outlog_err *err)
{
    struct ol_buf payload = {0};

    ol_uuid_make(effect_id);
    int result = put_request(effect, effect_id, &payload, err);
    const struct outlog_new_event event = {.org_id = effect->org_id,
                                           .aggregate_type = "EFFECT",
                                           .aggregate_id = effect_id,
                                           .event_type = "EFFECT_REQUESTED",
                                           .payload = payload.data,
                                           .actor_id = "session",
                                           .correlation_id = effect->correlation_id,
                                           .causation_id = effect->causation_id};
    if (result == 0)
        result = ol_append_own(tx, &event, 1, appended, err);
    ol_buf_clear(&payload);
    return result < 0
               ? -1
               : ol_store_exec(tx->conn, OL_Q_EFFECT_INSERT,
                               OL_PARAMS(ol_value_text(effect_id), ol_value_text(effect->org_id),
                                         ol_value_text(NULL), ol_value_text(NULL),
                                         ol_value_text(effect->session_key),
                                         ol_value_text(effect->checkpoint_id),
                                         ol_value_text(effect->effect_type),
                                         ol_value_bytes(effect->spec, effect->spec_bytes),
                                         ol_value_text("session"),
                                         ol_value_text(effect->idempotency_key),
                                         ol_value_text(NULL), ol_value_int(appended->event_id),
                                         ol_value_text(appended->id),
                                         ol_value_text(appended->correlation_id),
                                         ol_value_time(appended->occurred_at)),
                               NULL, err);
}

/* --- delivering --- */

int ol_session_effect_pending(outlog *log, const char *org_id, const char *key,
                              struct ol_arena *arena, struct ol_effect_page *page, outlog_err *err)
{
    enum { PENDING_EFFECTS_MAX = 200, PENDING_BYTES_MAX = 4 * 1024 * 1024 };
    struct ol_rows rows;
    bool failed = false;
    size_t bytes = 0;
    int more = 1;

    page->count = 0;
    if (!(page->effects = ol_arena_array(arena, PENDING_EFFECTS_MAX, sizeof *page->effects)))
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SESSION_PENDING_EFFECTS,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(key),
                                 ol_value_int(page->after)),
                       &rows, err) < 0)
        return -1;
    while (page->count < PENDING_EFFECTS_MAX && bytes < PENDING_BYTES_MAX &&
           (more = ol_rows_next(&rows, err)) > 0) {
        struct ol_pending_effect *effect = &page->effects[page->count++];
        ol_rows_uuid(&rows, 0, effect->effect_id);
        effect->effect_type = ol_rows_copy(&rows, 1, arena, &failed);
        effect->spec = ol_rows_copy(&rows, 2, arena, &failed);
        bytes += effect->spec ? strlen(effect->spec) : 0;
        page->after = ol_rows_int(&rows, 3);
    }
    ol_rows_end(&rows);
    page->is_last = more == 0;
    return failed ? ol_no_memory(err) : more < 0 ? -1 : 0;
}

/* --- states --- */

struct pending_effect_row {
    char last_event_id[37], status[16];
    const char *org_id, *effect_type, *correlation_id;
    int64_t attempts, last_attempt_at;
};

/* The first row of a query that returns the columns of a pending effect: 1, or 0 for none. */
static int read_pending(struct ol_conn *conn, enum ol_query_id query, const struct ol_value *params,
                        struct ol_arena *arena, struct pending_effect_row *out, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    if (ol_store_query(conn, query, params, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        out->effect_type = ol_rows_copy(&rows, 0, arena, &failed);
        ol_rows_uuid(&rows, 1, out->last_event_id);
        out->correlation_id = ol_rows_copy(&rows, 2, arena, &failed);
        out->org_id = ol_rows_copy(&rows, 3, arena, &failed);
        snprintf(out->status, sizeof out->status, "%s", ol_rows_text(&rows, 4, NULL));
        out->attempts = ol_rows_int(&rows, 5);
        out->last_attempt_at = ol_rows_is_null(&rows, 6) ? 0 : ol_rows_time(&rows, 6);
    }
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : got;
}

/* Append an event of the effect, whose payload ends with `more`, and move the row to `status`. */
static int move_effect(outlog_tx *tx, const char *effect_id, const struct pending_effect_row *row,
                       const char *event_type, const char *status, const char *more,
                       outlog_err *err)
{
    struct outlog_appended appended;
    struct ol_buf payload = {0};
    ol_buf_print(&payload, "{\"effect_id\":\"%s\",\"run_id\":null,\"effect_type\":", effect_id);
    ol_buf_json_text(&payload, row->effect_type);
    ol_buf_print(&payload, ",%s}", more);
    const struct outlog_new_event event = {.org_id = row->org_id,
                                           .aggregate_type = "EFFECT",
                                           .aggregate_id = effect_id,
                                           .event_type = event_type,
                                           .payload = payload.data,
                                           .actor_id = "session",
                                           .correlation_id = row->correlation_id,
                                           .causation_id = row->last_event_id};
    int result = payload.failed ? ol_no_memory(err) : ol_append_own(tx, &event, 1, &appended, err);
    ol_buf_clear(&payload);
    return result < 0 ? -1
                      : ol_store_exec(tx->conn, OL_Q_SESSION_EFFECT_MOVE,
                                      OL_PARAMS(ol_value_text(effect_id), ol_value_text(status),
                                                ol_value_text(appended.id),
                                                ol_value_time(appended.occurred_at)),
                                      NULL, err);
}

/* Sent, not acknowledged: the first delivery is an event (U5); the others are counted in the row
 * and told by the event that ends it, or a client that never acknowledges would fill the log. */
int ol_session_effect_attempted(outlog_tx *tx, const char *effect_id, int count, outlog_err *err)
{
    struct pending_effect_row row = {0};
    struct ol_arena arena = {0};
    char more[64];
    int found = read_pending(tx->conn, OL_Q_SESSION_ATTEMPTED,
                             OL_PARAMS(ol_value_text(effect_id), ol_value_int(count)), &arena, &row,
                             err);
    int result = found < 0 ? -1 : 0;
    if (found > 0 && strcmp(row.status, "PENDING") == 0) {
        snprintf(more, sizeof more, "\"attempt\":%lld", (long long)row.attempts);
        result = move_effect(tx, effect_id, &row, "EFFECT_EXECUTING", "EXECUTING", more, err);
    }
    ol_arena_clear(&arena);
    return result;
}

/* How often and when it was delivered, for the event that ends it. */
static int end_effect(outlog_tx *tx, const char *effect_id, const struct pending_effect_row *row,
                      const char *event_type, const char *status, outlog_err *err)
{
    struct ol_buf more = {0};
    ol_buf_print(&more, "\"execution_result\":null,\"attempts\":%lld,\"last_attempt_at\":",
                 (long long)row->attempts);
    ol_buf_json_time(&more, row->last_attempt_at);
    int result = more.failed ? ol_no_memory(err)
                             : move_effect(tx, effect_id, row, event_type, status, more.data, err);
    ol_buf_clear(&more);
    return result;
}

/* Given up, or ended by an operator. A text that a secret rule refuses is left out (L8). */
static int fail_effect(outlog_tx *tx, const char *effect_id, const struct pending_effect_row *row,
                       const char *code, const char *why, outlog_err *err)
{
    struct ol_buf more = {0};
    ol_buf_print(&more, "\"error_code\":\"%s\",\"error_message\":", code);
    ol_buf_json_text(&more, why);
    ol_buf_print(&more, ",\"attempts\":%lld,\"last_attempt_at\":", (long long)row->attempts);
    ol_buf_json_time(&more, row->last_attempt_at);
    int result = more.failed ? ol_no_memory(err)
                             : move_effect(tx, effect_id, row, "EFFECT_DEAD_LETTERED", "FAILED",
                                           more.data, err);
    ol_buf_clear(&more);
    if (result < 0 && err->code == OUTLOG_SECRET_MATERIAL && why)
        return fail_effect(tx, effect_id, row, code, NULL, err);
    return result;
}

int ol_session_effect_add(outlog_tx *tx, const struct ol_session_effect *effect, outlog_err *err)
{
    struct outlog_appended appended;
    char effect_id[37];
    if (store_effect(tx, effect, effect_id, &appended, err) < 0)
        return -1;
    if (!effect->error)
        return 0;
    struct pending_effect_row row = {.org_id = effect->org_id,
                                     .effect_type = effect->effect_type,
                                     .correlation_id = appended.correlation_id};
    snprintf(row.last_event_id, sizeof row.last_event_id, "%s", appended.id);
    return fail_effect(tx, effect_id, &row, "AGENT_FAILED", effect->error, err);
}

/* --- operators --- */

/* What an operator does to one effect, in its transaction. */
typedef int change_function(outlog_tx *tx, const char *effect_id,
                            const struct pending_effect_row *row, const char *reason,
                            outlog_err *err);

static int refuse_status(const char *effect_id, const struct pending_effect_row *row,
                         const char *wanted, outlog_err *err)
{
    return ol_fail(err, OUTLOG_ILLEGAL_TRANSITION, "effect %s is %s; %s", effect_id, row->status,
                   wanted);
}

static int end_by_operator(outlog_tx *tx, const char *effect_id,
                           const struct pending_effect_row *row, const char *reason,
                           outlog_err *err)
{
    if (strcmp(row->status, "COMPLETED") == 0 || strcmp(row->status, "FAILED") == 0)
        return refuse_status(effect_id, row, "only one that is owed can be ended", err);
    return fail_effect(tx, effect_id, row, "ENDED", reason ? reason : "ended by an operator", err);
}

static int resend_by_operator(outlog_tx *tx, const char *effect_id,
                              const struct pending_effect_row *row, const char *reason,
                              outlog_err *err)
{
    (void)reason;
    if (strcmp(row->status, "COMPLETED") == 0)
        return refuse_status(effect_id, row, "a client has it", err);
    if (strcmp(row->effect_type, OL_AGENT_FAILED) == 0)
        return refuse_status(effect_id, row, "there is no answer to send; say it again", err);
    if (strcmp(row->status, "FAILED") == 0 &&
        move_effect(tx, effect_id, row, "EFFECT_RETRYING", "PENDING", "\"next_retry_at\":null",
                    err) < 0)
        return -1;
    return ol_store_exec(tx->conn, OL_Q_SESSION_EFFECT_HURRY, OL_PARAMS(ol_value_text(effect_id)),
                         NULL, err);
}

static int change_effect(outlog_tx *tx, const struct ol_session_effect_call *call,
                         change_function *change, const char *event_type, struct ol_arena *arena,
                         outlog_err *err)
{
    struct pending_effect_row row = {0};
    struct ol_buf payload = {0};
    char effect_id[37];
    int found =
        !ol_uuid_parse(call->effect_id, effect_id)
            ? 0
            : read_pending(tx->conn, OL_Q_SESSION_EFFECT_LOCK,
                           OL_PARAMS(ol_value_text(effect_id), ol_value_optional(call->org_id)),
                           arena, &row, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return ol_fail(err, OUTLOG_NOT_FOUND, "no session has an effect %.100s", call->effect_id);
    if (change(tx, effect_id, &row, call->reason, err) < 0)
        return -1;
    ol_buf_text(&payload, "{\"org_id\":");
    ol_buf_json_text(&payload, row.org_id);
    ol_buf_text(&payload, ",\"reason\":");
    ol_buf_json_text(&payload, call->reason);
    ol_buf_char(&payload, '}');
    int result = payload.failed ? ol_no_memory(err)
                                : ol_audit_append(tx, &call->by, event_type, "outlog.effect",
                                                  effect_id, payload.data, err);
    ol_buf_clear(&payload);
    return result;
}

static int run_change(outlog *log, const struct ol_session_effect_call *call,
                      change_function *change, const char *event_type, outlog_err *err)
{
    struct ol_arena arena = {0};
    outlog_tx *tx;
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int result = change_effect(tx, call, change, event_type, &arena, err);
    if (result < 0)
        outlog_rollback(tx);
    else
        result = outlog_commit(tx, err);
    ol_arena_clear(&arena);
    return result;
}

int ol_session_effect_end(outlog *log, const struct ol_session_effect_call *call, outlog_err *err)
{
    return run_change(log, call, end_by_operator, "outlog.effect.ended", err);
}

int ol_session_effect_resend(outlog *log, const struct ol_session_effect_call *call,
                             outlog_err *err)
{
    return run_change(log, call, resend_by_operator, "outlog.effect.resent", err);
}

/* --- acknowledging --- */

/* In the transaction: 1 when there is something to commit, else 0. */
static int apply_ack(outlog_tx *tx, struct ol_session_ack *ack, const char *effect_id,
                     struct ol_arena *arena, outlog_err *err)
{
    struct pending_effect_row pending = {0};
    // It was sent, even if another client acknowledged it first.
    if (ack->attempts && ol_session_effect_attempted(tx, effect_id, ack->attempts, err) < 0)
        return -1;
    int found = read_pending(tx->conn, OL_Q_SESSION_EFFECT,
                             OL_PARAMS(ol_value_text(ack->org_id), ol_value_text(ack->session_key),
                                       ol_value_text(effect_id)),
                             arena, &pending, err);
    if (found > 0 && end_effect(tx, effect_id, &pending, "EFFECT_COMPLETED", "COMPLETED", err) < 0)
        return -1;
    ack->is_first = found > 0;
    return found < 0 ? -1 : found > 0 || ack->attempts;
}

int ol_session_effect_ack(outlog *log, struct ol_session_ack *ack, outlog_err *err)
{
    char effect_id[37];
    struct ol_arena arena = {0};
    outlog_tx *tx;

    ack->is_first = false;
    if (!ol_uuid_parse(ack->effect_id, effect_id))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "effect_id is the id of an effect");
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int result = apply_ack(tx, ack, effect_id, &arena, err);
    if (result <= 0)
        outlog_rollback(tx);
    else
        result = outlog_commit(tx, err);
    ol_arena_clear(&arena);
    ack->is_first = ack->is_first && result == 0;
    return result < 0 ? -1 : 0;
}

/* --- what changed --- */

int ol_session_effect_changed(outlog *log, int64_t after, int64_t since_us,
                              void (*each)(void *user, const char *org_id, const char *key,
                                           int64_t asked_at),
                              void *user, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SESSIONS_CHANGED,
                       OL_PARAMS(ol_value_int(after), ol_value_int(since_us)), &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        each(user, ol_rows_text(&rows, 0, NULL), ol_rows_text(&rows, 1, NULL),
             ol_rows_time(&rows, 2));
    ol_rows_end(&rows);
    return more;
}

/* The message's requestId, in the arena; NULL: it has none. */
static const char *read_request_id(const char *payload, struct ol_arena *arena)
{
    struct ol_json object;
    if (!payload || ol_json_parse_wrapped(payload, strlen(payload), &object, NULL) < 0)
        return NULL;
    struct ol_json id = ol_json_get(&object, "requestId");
    return ol_json_string(&id, arena, NULL);
}

int ol_session_list_failures(outlog *log, int64_t since_us,
                             void (*each)(void *user, const struct ol_session_failure *failure),
                             void *user, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_rows rows;
    int more;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SESSIONS_FAILED, OL_PARAMS(ol_value_int(since_us)), &rows,
                       err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        const char *why = ol_rows_text(&rows, 3, NULL); // NULL: the next message has cleared it
        ol_arena_reset(&arena);
        each(user, &(struct ol_session_failure){.org_id = ol_rows_text(&rows, 0, NULL),
                                                .session_key = ol_rows_text(&rows, 1, NULL),
                                                .seq = ol_rows_int(&rows, 2),
                                                .why = why ? why : "the agent failed",
                                                .request_id =
                                                    read_request_id(ol_rows_text(&rows, 4, NULL),
                                                                    &arena)});
    }
    ol_rows_end(&rows);
    ol_arena_clear(&arena);
    return more;
}

/* --- delivery on request --- */

int outlog_deliver_session(outlog *log, const char *org_id, const char *session_key,
                           const struct outlog_operator *by, int64_t *hurried, outlog_err *err)
{
    struct ol_buf payload = {0};
    int64_t count = 0;
    outlog_tx *tx;

    if (hurried)
        *hurried = 0;
    if (!org_id || !*org_id)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "org_id is missing: whose session is it?");
    if (!session_key || !ol_session_key_is_valid(session_key))
        return ol_fail(err, OUTLOG_INVALID_FIELD, OL_SESSION_KEY_RULE);
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int result = ol_store_exec(tx->conn, OL_Q_SESSION_REDELIVER,
                               OL_PARAMS(ol_value_text(org_id), ol_value_text(session_key)), &count,
                               err);
    if (result == 0 && count > 0) {
        ol_buf_text(&payload, "{\"org_id\":");
        ol_buf_json_text(&payload, org_id);
        ol_buf_print(&payload, ",\"effects\":%lld}", (long long)count);
        result = payload.failed ? ol_no_memory(err)
                                : ol_audit_append(tx, by, "outlog.session.delivered",
                                                  "outlog.session", session_key, payload.data, err);
        ol_buf_clear(&payload);
    }
    if (result < 0 || count == 0)
        outlog_rollback(tx);
    else
        result = outlog_commit(tx, err);
    if (hurried && result == 0)
        *hurried = count;
    return result;
}
