/* effects.c: what sessions are owed: effects, until a client acknowledges them. */
#include "base/err.h"
#include "base/json/json.h"
#include "base/uuid.h"
#include "log/audit.h"
#include "log/log.h"
#include "sessions/session.h"

#include <stdio.h>
#include <string.h>

/* --- owing --- */

static void put_request(const struct ol_session_effect *debt, const char *effect_id,
                        struct ol_buf *out)
{
    ol_buf_print(out, "{\"effect_id\":\"%s\",\"run_id\":null,\"effect_type\":", effect_id);
    ol_buf_json_text(out, debt->effect_type);
    ol_buf_text(out, ",\"session_key\":");
    ol_buf_json_text(out, debt->session_key);
    ol_buf_text(out, ",\"checkpoint_id\":");
    ol_buf_json_text(out, debt->checkpoint_id);
    ol_buf_text(out, ",\"destination\":\"session\",\"idempotency_key\":");
    ol_buf_json_text(out, debt->idempotency_key);
    ol_buf_char(out, '}');
}

int ol_session_effect_add(outlog_tx *tx, const struct ol_session_effect *debt, outlog_err *err)
{
    struct outlog_appended appended;
    struct ol_buf payload = {0};
    char effect_id[37];

    ol_uuid_make(effect_id);
    put_request(debt, effect_id, &payload);
    const struct outlog_new_event event = {.org_id = debt->org_id,
                                           .aggregate_type = "EFFECT",
                                           .aggregate_id = effect_id,
                                           .event_type = "EFFECT_REQUESTED",
                                           .payload = payload.data,
                                           .actor_id = "session",
                                           .correlation_id = debt->correlation_id,
                                           .causation_id = debt->causation_id};
    int result = payload.failed ? ol_no_memory(err) : outlog_append(tx, &event, &appended, err);
    ol_buf_clear(&payload);
    return result < 0
               ? -1
               : ol_store_exec(tx->conn, OL_Q_EFFECT_INSERT,
                               OL_PARAMS(ol_value_text(effect_id), ol_value_text(debt->org_id),
                                         ol_value_text(NULL), ol_value_text(NULL),
                                         ol_value_text(debt->session_key),
                                         ol_value_text(debt->checkpoint_id),
                                         ol_value_text(debt->effect_type),
                                         ol_value_bytes(debt->spec, debt->spec_bytes),
                                         ol_value_text("session"),
                                         ol_value_text(debt->idempotency_key),
                                         ol_value_text(effect_id), ol_value_int(appended.event_id),
                                         ol_value_text(appended.id),
                                         ol_value_text(appended.correlation_id),
                                         ol_value_time(appended.occurred_at)),
                               NULL, err);
}

/* --- delivering --- */

int ol_session_effect_pending(outlog *log, const char *org_id, const char *key, int64_t *after,
                              struct ol_arena *arena, struct ol_pending_effect **out, size_t *count,
                              bool *is_all, outlog_err *err)
{
    enum { MOST = 200, MOST_BYTES = 4 * 1024 * 1024 };
    struct ol_rows rows;
    bool failed = false;
    size_t bytes = 0;
    int more = 1;

    *count = 0;
    if (!(*out = ol_arena_array(arena, MOST, sizeof **out)))
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SESSION_OWED,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(key), ol_value_int(*after)),
                       &rows, err) < 0)
        return -1;
    while (*count < MOST && bytes < MOST_BYTES && (more = ol_rows_next(&rows, err)) > 0) {
        struct ol_pending_effect *owed = &(*out)[(*count)++];
        ol_rows_uuid(&rows, 0, owed->effect_id);
        owed->effect_type = ol_rows_copy(&rows, 1, arena, &failed);
        owed->spec = ol_rows_copy(&rows, 2, arena, &failed);
        bytes += owed->spec ? strlen(owed->spec) : 0;
        *after = ol_rows_int(&rows, 3);
    }
    ol_rows_end(&rows);
    *is_all = more == 0;
    return failed ? ol_no_memory(err) : more < 0 ? -1 : 0;
}

int ol_session_effect_attempted(outlog_tx *tx, const char *effect_id, outlog_err *err)
{
    return ol_store_exec(tx->conn, OL_Q_SESSION_ATTEMPTED, OL_PARAMS(ol_value_text(effect_id)),
                         NULL, err);
}

struct pending {
    char last_event_id[37];
    const char *effect_type, *correlation_id;
};

static int find_pending(struct ol_conn *conn, const char *org_id, const char *key,
                        const char *effect_id, struct ol_arena *arena, struct pending *out,
                        outlog_err *err)
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

static int complete(outlog_tx *tx, const char *org_id, const char *effect_id,
                    const struct pending *pending, outlog_err *err)
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
    int result = payload.failed ? ol_no_memory(err) : outlog_append(tx, &event, &appended, err);
    ol_buf_clear(&payload);
    return result < 0
               ? -1
               : ol_store_exec(tx->conn, OL_Q_SESSION_COMPLETED,
                               OL_PARAMS(ol_value_text(effect_id), ol_value_text(appended.id),
                                         ol_value_time(appended.occurred_at)),
                               NULL, err);
}

int ol_session_effect_ack(outlog *log, const char *org_id, const char *key, const char *effect_id,
                          bool *first, outlog_err *err)
{
    char uuid[37];
    struct pending pending = {0};
    struct ol_arena arena = {0};
    outlog_tx *tx;

    if (first)
        *first = false;
    if (!ol_uuid_parse(effect_id, uuid))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "effect_id is the id of an effect");
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int result = find_pending(log->conn, org_id, key, uuid, &arena, &pending, err);
    bool was_pending = result > 0;
    if (was_pending)
        result = complete(tx, org_id, uuid, &pending, err);
    if (!was_pending || result < 0)
        outlog_rollback(tx);
    else
        result = outlog_commit(tx, err);
    ol_arena_clear(&arena);
    if (first)
        *first = was_pending && result == 0;
    return result < 0 ? -1 : 0;
}

/* --- news --- */

int ol_session_effect_changed(outlog *log, int64_t after, int64_t since_us,
                              void (*each)(void *user, const char *org_id, const char *key,
                                           int64_t asked_at),
                              void *user, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SESSIONS_OWED,
                       OL_PARAMS(ol_value_int(after), ol_value_int(since_us)), &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        each(user, ol_rows_text(&rows, 0, NULL), ol_rows_text(&rows, 1, NULL),
             ol_rows_time(&rows, 2));
    ol_rows_end(&rows);
    return more;
}

/* What the message's requestId was, in the arena; NULL: it had none. */
static const char *request_of(const char *payload, struct ol_arena *arena)
{
    struct ol_json object;
    if (!payload || ol_json_parse_wrapped(payload, strlen(payload), &object, NULL) < 0)
        return NULL;
    struct ol_json id = ol_json_get(&object, "requestId");
    return ol_json_string(&id, arena, NULL);
}

int ol_session_effect_failed(outlog *log, int64_t since_us,
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
        const char *why = ol_rows_text(&rows, 3, NULL); // the next message may have cleared it
        ol_arena_reset(&arena);
        each(user,
             &(struct ol_session_failure){.org_id = ol_rows_text(&rows, 0, NULL),
                                          .session_key = ol_rows_text(&rows, 1, NULL),
                                          .seq = ol_rows_int(&rows, 2),
                                          .why = why ? why : "the agent failed",
                                          .request_id =
                                              request_of(ol_rows_text(&rows, 4, NULL), &arena)});
    }
    ol_rows_end(&rows);
    ol_arena_clear(&arena);
    return more;
}

/* --- on demand --- */

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
    int result = ol_store_exec(tx->conn, OL_Q_SESSION_HURRY,
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
