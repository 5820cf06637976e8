/* effects.c: effects of sessions, pending until a client acknowledges them. */
#include "base/err.h"
#include "base/json/json.h"
#include "base/uuid.h"
#include "log/audit.h"
#include "log/log.h"
#include "sessions/session.h"

#include <stdio.h>
#include <string.h>

/* --- adding --- */

static void put_request(const struct ol_session_effect *effect, const char *effect_id,
                        struct ol_buf *out)
{
    ol_buf_print(out, "{\"effect_id\":\"%s\",\"run_id\":null,\"effect_type\":", effect_id);
    ol_buf_json_text(out, effect->effect_type);
    ol_buf_text(out, ",\"session_key\":");
    ol_buf_json_text(out, effect->session_key);
    ol_buf_text(out, ",\"checkpoint_id\":");
    ol_buf_json_text(out, effect->checkpoint_id);
    ol_buf_text(out, ",\"destination\":\"session\",\"idempotency_key\":");
    ol_buf_json_text(out, effect->idempotency_key);
    ol_buf_char(out, '}');
}

int ol_session_effect_add(outlog_tx *tx, const struct ol_session_effect *effect, outlog_err *err)
{
    struct outlog_appended appended;
    struct ol_buf payload = {0};
    char effect_id[37];

    ol_uuid_make(effect_id);
    put_request(effect, effect_id, &payload);
    const struct outlog_new_event event = {.org_id = effect->org_id,
                                           .aggregate_type = "EFFECT",
                                           .aggregate_id = effect_id,
                                           .event_type = "EFFECT_REQUESTED",
                                           .payload = payload.data,
                                           .actor_id = "session",
                                           .correlation_id = effect->correlation_id,
                                           .causation_id = effect->causation_id};
    int result = payload.failed ? ol_no_memory(err) : ol_append_own(tx, &event, 1, &appended, err);
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
                                         ol_value_text(effect_id), ol_value_int(appended.event_id),
                                         ol_value_text(appended.id),
                                         ol_value_text(appended.correlation_id),
                                         ol_value_time(appended.occurred_at)),
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

/* --- acknowledging --- */

int ol_session_effect_attempted(outlog_tx *tx, const char *effect_id, int count, outlog_err *err)
{
    return ol_store_exec(tx->conn, OL_Q_SESSION_ATTEMPTED,
                         OL_PARAMS(ol_value_text(effect_id), ol_value_int(count)), NULL, err);
}

struct pending_effect_row {
    char last_event_id[37];
    const char *effect_type, *correlation_id;
};

static int find_pending(struct ol_conn *conn, const char *org_id, const char *key,
                        const char *effect_id, struct ol_arena *arena,
                        struct pending_effect_row *out, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    if (ol_store_query(conn, OL_Q_SESSION_EFFECT,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(key),
                                 ol_value_text(effect_id)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        out->effect_type = ol_rows_copy(&rows, 0, arena, &failed);
        ol_rows_uuid(&rows, 1, out->last_event_id);
        out->correlation_id = ol_rows_copy(&rows, 2, arena, &failed);
    }
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : got;
}

static int complete_effect(outlog_tx *tx, const char *org_id, const char *effect_id,
                           const struct pending_effect_row *pending, outlog_err *err)
{
    struct outlog_appended appended;
    struct ol_buf payload = {0};
    ol_buf_print(&payload, "{\"effect_id\":\"%s\",\"run_id\":null,\"effect_type\":", effect_id);
    ol_buf_json_text(&payload, pending->effect_type);
    ol_buf_text(&payload, ",\"result\":null}");
    const struct outlog_new_event event = {.org_id = org_id,
                                           .aggregate_type = "EFFECT",
                                           .aggregate_id = effect_id,
                                           .event_type = "EFFECT_COMPLETED",
                                           .payload = payload.data,
                                           .actor_id = "session",
                                           .correlation_id = pending->correlation_id,
                                           .causation_id = pending->last_event_id};
    int result = payload.failed ? ol_no_memory(err) : ol_append_own(tx, &event, 1, &appended, err);
    ol_buf_clear(&payload);
    return result < 0
               ? -1
               : ol_store_exec(tx->conn, OL_Q_SESSION_COMPLETED,
                               OL_PARAMS(ol_value_text(effect_id), ol_value_text(appended.id),
                                         ol_value_time(appended.occurred_at)),
                               NULL, err);
}

/* In the transaction: 1 when there is something to commit, else 0. */
static int apply_ack(outlog_tx *tx, struct ol_session_ack *ack, const char *effect_id,
                     struct ol_arena *arena, outlog_err *err)
{
    struct pending_effect_row pending = {0};
    // It was sent, even if another client acknowledged it first.
    if (ack->attempts && ol_session_effect_attempted(tx, effect_id, ack->attempts, err) < 0)
        return -1;
    int found =
        find_pending(tx->conn, ack->org_id, ack->session_key, effect_id, arena, &pending, err);
    if (found > 0 && complete_effect(tx, ack->org_id, effect_id, &pending, err) < 0)
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
