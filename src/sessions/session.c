/* session.c: the rows of sessions: finding messages, leases, answers, lists, tickets. */
#include "sessions/session.h"

#include "base/json/json.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/timestamp.h"
#include "log/log.h"
#include "log/read.h"
#include "own_tokens.h"
#include "runs/row.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- finding messages --- */

static int note_range(outlog *log, int64_t after, int64_t upto, outlog_err *err)
{
    return ol_store_exec(log->conn, OL_Q_SESSIONS_NOTE,
                         OL_PARAMS(ol_value_int(after), ol_value_int(upto)), NULL, err);
}

/* 1: this range is recorded; 0: another process has moved the cursor. */
static int move_cursor(outlog *log, int64_t after, int64_t upto, outlog_err *err)
{
    outlog_tx *tx;
    int64_t moved = 0;
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int result = ol_store_exec(log->conn, OL_Q_SESSIONS_MOVE,
                               OL_PARAMS(ol_value_int(after), ol_value_int(upto)), &moved, err);
    if (result == 0 && moved)
        result = note_range(log, after, upto, err);
    if (result == 0 && moved)
        return outlog_commit(tx, err) < 0 ? -1 : 1;
    outlog_rollback(tx);
    return result;
}

static int read_noted(outlog *log, int64_t *noted, int64_t *last, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(log->conn, OL_Q_SESSIONS_NOTED, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        *noted = ol_rows_int(&rows, 0);
        *last = ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* Without messages the cursor follows in large steps only, which saves writes. */
static bool has_no_messages(outlog *log, int64_t noted, int64_t upto, struct ol_session_scan *scan)
{
    enum { CURSOR_LAG_MAX = 2000 };
    int64_t after = scan->checked > noted ? scan->checked : noted, found;
    outlog_err err;
    if (upto - noted > CURSOR_LAG_MAX ||
        ol_store_number(log->conn, OL_Q_SESSIONS_HAVE_MESSAGE,
                        OL_PARAMS(ol_value_int(after), ol_value_int(upto)), &found, &err) == 0)
        return false;
    if (err.code != OUTLOG_NOT_FOUND)
        return false;
    scan->checked = upto;
    return true;
}

int ol_session_note(outlog *log, struct ol_session_scan *scan, outlog_err *err)
{
    enum { NOTE_EVENTS_MAX = 20000 };
    int64_t settled, noted = 0, last = 0;
    int result = 1;

    while (result > 0) {
        if (outlog_settled(log, &settled, err) < 0 || read_noted(log, &noted, &last, err) < 0)
            return -1;
        if (noted >= settled || has_no_messages(log, noted, settled, scan))
            break;
        int64_t upto = settled - noted > NOTE_EVENTS_MAX ? noted + NOTE_EVENTS_MAX : settled;
        result = move_cursor(log, noted, upto, err);
    }
    int64_t after = scan->seen > settled ? scan->seen : settled;
    if (result < 0 || last <= after)
        return result < 0 ? -1 : 0;
    scan->seen = last;
    return note_range(log, after, last, err);
}

/* --- answering --- */

static int list_names(outlog *log, enum ol_query_id query, const struct ol_value *params,
                      void (*each)(void *user, const char *org_id, const char *key), void *user,
                      outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_log_ready(log, err) < 0 || ol_store_query(log->conn, query, params, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        each(user, ol_rows_text(&rows, 0, NULL), ol_rows_text(&rows, 1, NULL));
    ol_rows_end(&rows);
    return more;
}

int ol_session_waiting(outlog *log, int limit,
                       void (*each)(void *user, const char *org_id, const char *key), void *user,
                       outlog_err *err)
{
    return list_names(log, OL_Q_SESSION_WAITING, OL_PARAMS(ol_value_int(limit)), each, user, err);
}

/* The event after the last answered one. */
static int read_message(outlog *log, struct ol_arena *arena, struct ol_session_work *out,
                        outlog_err *err)
{
    struct ol_rows rows;
    struct ol_json payload;
    bool failed = false;

    if (ol_store_query(log->conn, OL_Q_SESSION_EVENT,
                       OL_PARAMS(ol_value_text(out->org_id), ol_value_text(out->session_key),
                                 ol_value_int(out->seq)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        ol_rows_uuid(&rows, 0, out->event_id);
        out->is_message = strcmp(ol_rows_text(&rows, 1, NULL), "user_message") == 0;
        const char *text = ol_rows_copy(&rows, 2, arena, &failed);
        out->correlation_id = ol_rows_copy(&rows, 3, arena, &failed);
        if (text && ol_json_parse_wrapped(text, strlen(text), &payload, NULL) == 0) {
            struct ol_json content = ol_json_get(&payload, "text");
            struct ol_json request = ol_json_get(&payload, "requestId");
            out->text = ol_json_string(&content, arena, NULL);
            out->request_id = ol_json_string(&request, arena, NULL);
        }
        out->is_message = out->is_message && out->text;
    }
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : got < 0 ? -1 : 0;
}

int ol_session_take(outlog *log, const char *owner, int64_t lease_us, const char *org_id,
                    const char *key, struct ol_arena *arena, struct ol_session_work *out,
                    outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    int64_t ready;

    *out = (struct ol_session_work){.org_id = ol_arena_copy(arena, org_id, strlen(org_id)),
                                    .session_key = ol_arena_copy(arena, key, strlen(key))};
    if (!out->org_id || !out->session_key)
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0)
        return -1;
    if (ol_store_number(log->conn, OL_Q_SESSION_READY,
                        OL_PARAMS(ol_value_text(org_id), ol_value_text(key)), &ready, err) < 0)
        return err->code == OUTLOG_NOT_FOUND ? 0 : -1;
    if (ol_store_query(log->conn, OL_Q_SESSION_TAKE,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(key), ol_value_text(owner),
                                 ol_value_int(lease_us)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        out->seq = ol_rows_int(&rows, 0) + 1;
        out->epoch = ol_rows_int(&rows, 2);
        out->tries = (int)ol_rows_int(&rows, 3);
        out->checkpoint = ol_rows_copy(&rows, 4, arena, &failed);
    }
    ol_rows_end(&rows);
    if (failed)
        return ol_no_memory(err);
    return got <= 0 ? got : read_message(log, arena, out, err) < 0 ? -1 : 1;
}

static int change_rows(struct ol_conn *conn, enum ol_query_id query, const struct ol_value *params,
                       outlog_err *err)
{
    int64_t count = 0;
    return ol_store_exec(conn, query, params, &count, err) < 0 ? -1 : count > 0;
}

int ol_session_renew(outlog *log, const struct ol_session_work *work, int64_t lease_us,
                     outlog_err *err)
{
    return ol_log_ready(log, err) < 0
               ? -1
               : change_rows(log->conn, OL_Q_SESSION_RENEW,
                             OL_PARAMS(ol_value_text(work->org_id),
                                       ol_value_text(work->session_key), ol_value_int(work->epoch),
                                       ol_value_int(lease_us)),
                             err);
}

static int advance_session(struct ol_conn *conn, const struct ol_session_work *work,
                           const char *checkpoint, const char *error, outlog_err *err)
{
    return change_rows(conn, OL_Q_SESSION_ANSWERED,
                       OL_PARAMS(ol_value_text(work->org_id), ol_value_text(work->session_key),
                                 ol_value_int(work->epoch), ol_value_int(work->seq),
                                 ol_value_text(checkpoint), ol_value_text(error)),
                       err);
}

int ol_session_fail(outlog *log, const struct ol_session_work *work, const char *error,
                    int64_t wait_us, outlog_err *err)
{
    return ol_log_ready(log, err) < 0
               ? -1
               : change_rows(log->conn, OL_Q_SESSION_FAILED,
                             OL_PARAMS(ol_value_text(work->org_id),
                                       ol_value_text(work->session_key), ol_value_int(work->epoch),
                                       ol_value_text(error), ol_value_int(wait_us)),
                             err);
}

int ol_session_release(outlog *log, const struct ol_session_work *work, outlog_err *err)
{
    return ol_log_ready(log, err) < 0
               ? -1
               : change_rows(log->conn, OL_Q_SESSION_RELEASE,
                             OL_PARAMS(ol_value_text(work->org_id),
                                       ol_value_text(work->session_key), ol_value_int(work->epoch)),
                             err);
}

/* --- the answer --- */

struct session_answer {
    char checkpoint_id[OL_SESSION_KEY_BYTES + 24], key[65];
    struct ol_buf spec;
};

/* SHA-256(checkpoint_id + type + payload), the payload without white space. */
static void compose_answer(const struct ol_session_work *work, const char *content, size_t bytes,
                           struct session_answer *out)
{
    struct ol_buf text = {0};
    snprintf(out->checkpoint_id, sizeof out->checkpoint_id, "%s#%lld", work->session_key,
             (long long)work->seq);
    ol_buf_text(&out->spec, "{\"content\":");
    ol_buf_json(&out->spec, content, bytes);
    ol_buf_text(&out->spec, ",\"requestId\":");
    ol_buf_json_text(&out->spec, work->request_id);
    ol_buf_text(&out->spec, ",\"isFinal\":true}");
    ol_buf_text(&text, out->checkpoint_id);
    ol_buf_text(&text, "send_message");
    ol_buf_add(&text, out->spec.data, out->spec.bytes);
    ol_sha256_hex(text.data ? text.data : "", text.bytes, out->key);
    out->spec.failed |= text.failed;
    ol_buf_clear(&text);
}

static int store_answer(outlog_tx *tx, const struct ol_session_work *work,
                        const struct session_answer *answer, outlog_err *err)
{
    return ol_session_effect_add(tx,
                                 &(struct ol_session_effect){.org_id = work->org_id,
                                                             .session_key = work->session_key,
                                                             .checkpoint_id = answer->checkpoint_id,
                                                             .effect_type = "send_message",
                                                             .spec = answer->spec.data,
                                                             .spec_bytes = answer->spec.bytes,
                                                             .idempotency_key = answer->key,
                                                             .correlation_id = work->correlation_id,
                                                             .causation_id = work->event_id},
                                 err);
}

int ol_session_answer(outlog *log, const struct ol_session_work *work, const char *content,
                      size_t bytes, const char *checkpoint, outlog_err *err)
{
    struct session_answer answer = {0};
    outlog_tx *tx = NULL;
    int result = -1;

    compose_answer(work, content, bytes, &answer);
    if (answer.spec.failed) {
        ol_no_memory(err);
    } else if (outlog_begin(log, &tx, err) == 0) {
        // The session's row first: its lock decides whose answer counts (I2, I3).
        result = advance_session(log->conn, work, checkpoint, NULL, err);
        if (result > 0 && store_answer(tx, work, &answer, err) < 0)
            result = -1;
        if (result <= 0)
            outlog_rollback(tx);
        else if (outlog_commit(tx, err) < 0)
            result = -1;
    }
    ol_buf_clear(&answer.spec);
    return result;
}

/* The answer that the agent never gave stays visible among the session's effects. */
static int store_failure(outlog_tx *tx, const struct ol_session_work *work, const char *error,
                         outlog_err *err)
{
    char checkpoint_id[512], key[OL_SHA256_TEXT];
    struct ol_buf spec = {0};
    snprintf(checkpoint_id, sizeof checkpoint_id, "%.480s#%lld", work->session_key,
             (long long)work->seq);
    ol_buf_text(&spec, "{\"requestId\":");
    ol_buf_json_text(&spec, work->request_id);
    ol_buf_text(&spec, ",\"detail\":");
    ol_buf_json_text(&spec, error);
    ol_buf_char(&spec, '}');
    ol_sha256_hex(checkpoint_id, strlen(checkpoint_id), key);
    int result =
        spec.failed
            ? ol_no_memory(err)
            : ol_session_effect_add(tx,
                                    &(struct ol_session_effect){.org_id = work->org_id,
                                                                .session_key = work->session_key,
                                                                .checkpoint_id = checkpoint_id,
                                                                .effect_type = OL_AGENT_FAILED,
                                                                .spec = spec.data,
                                                                .spec_bytes = spec.bytes,
                                                                .idempotency_key = key,
                                                                .correlation_id =
                                                                    work->correlation_id,
                                                                .causation_id = work->event_id,
                                                                .error = error},
                                    err);
    ol_buf_clear(&spec);
    return result;
}

int ol_session_pass(outlog *log, const struct ol_session_work *work, const char *error,
                    outlog_err *err)
{
    outlog_tx *tx;
    if (!error)
        return ol_log_ready(log, err) < 0 ? -1 : advance_session(log->conn, work, NULL, NULL, err);
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int result = advance_session(log->conn, work, NULL, error, err);
    if (result > 0 && store_failure(tx, work, error, err) < 0)
        result = -1;
    if (result <= 0)
        outlog_rollback(tx);
    else if (outlog_commit(tx, err) < 0)
        result = -1;
    return result;
}

/* --- listing --- */

static void put_session(const struct ol_rows *rows, struct ol_buf *out)
{
    ol_buf_text(out, "{\"session_key\":");
    ol_buf_json_text(out, ol_rows_text(rows, 1, NULL));
    ol_buf_text(out, ",\"org_id\":");
    ol_buf_json_text(out, ol_rows_text(rows, 0, NULL));
    ol_buf_print(out, ",\"last_seq\":%lld,\"done_seq\":%lld,\"tries\":%lld,\"last_error\":",
                 (long long)ol_rows_int(rows, 2), (long long)ol_rows_int(rows, 3),
                 (long long)ol_rows_int(rows, 4));
    ol_buf_json_text(out, ol_rows_text(rows, 5, NULL));
    ol_buf_text(out, ",\"created_at\":");
    ol_buf_json_time(out, ol_rows_time(rows, 6));
    ol_buf_text(out, ",\"updated_at\":");
    ol_buf_json_time(out, ol_rows_time(rows, 7));
    ol_buf_char(out, '}');
}

/* `after` is "<time> <session_key>" of the last one listed. */
static int split_after(const char *after, struct ol_arena *arena, const char **at, const char **key,
                       outlog_err *err)
{
    const char *space = strchr(after, ' ');
    int64_t time;
    if (!space || ol_timestamp_parse(after, (size_t)(space - after), &time) < 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/after", "after is the next_after of a page");
    *at = ol_arena_copy(arena, after, (size_t)(space - after));
    *key = space + 1;
    return *at ? 0 : ol_no_memory(err);
}

int ol_session_list(outlog *log, const char *org_id, const char *after, int limit,
                    struct ol_buf *out, outlog_err *err)
{
    struct ol_arena arena = {0};
    const char *at = NULL, *key = "";
    char last[OL_SESSION_KEY_BYTES + 40] = "", time[OL_TIMESTAMP_TEXT];
    struct ol_rows rows;
    int more = -1, count = 0;

    if (after && split_after(after, &arena, &at, &key, err) < 0)
        goto out;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SESSION_LIST,
                       OL_PARAMS(ol_value_optional(at), ol_value_text(key),
                                 ol_value_optional(org_id), ol_value_int(limit)),
                       &rows, err) < 0)
        goto out;
    ol_buf_text(out, "{\"sessions\":[");
    while ((more = ol_rows_next(&rows, err)) > 0) {
        ol_buf_text(out, count++ ? "," : "");
        put_session(&rows, out);
        snprintf(last, sizeof last, "%s %s", ol_timestamp_format(ol_rows_time(&rows, 7), time),
                 ol_rows_text(&rows, 1, NULL));
    }
    ol_rows_end(&rows);
    ol_buf_text(out, "],\"next_after\":");
    ol_buf_json_text(out, count == limit ? last : NULL);
    ol_buf_char(out, '}');
out:
    ol_arena_clear(&arena);
    return more < 0 ? -1 : 0;
}

static bool is_status(const char *text)
{
    return strcmp(text, "PENDING") == 0 || strcmp(text, "EXECUTING") == 0 ||
           strcmp(text, "COMPLETED") == 0 || strcmp(text, "FAILED") == 0;
}

static void put_effects(const struct ol_row_list *effects, int limit, bool is_full,
                        struct ol_arena *arena, struct ol_buf *out)
{
    const struct ol_row *last = effects->last;
    int count = 0;
    for (const struct ol_row *effect = effects->first; effect; effect = effect->next)
        count++;
    const char *id = last ? ol_row_text(last, OL_IN_EFFECT_ID, arena) : NULL;
    ol_buf_text(out, "{\"effects\":");
    ol_row_list_json(effects, out);
    if (id && (is_full || count == limit))
        ol_buf_print(out, ",\"next_after\":\"%s\"}", id);
    else
        ol_buf_text(out, ",\"next_after\":null}");
}

int ol_session_effects(outlog *log, const char *org_id, const char *key, const char *status,
                       const char *after, int limit, struct ol_buf *out, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_row_list effects = {0};
    char last[37]; // the effect_id of the last one shown
    bool is_full = false;
    if (status && !is_status(status))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/status",
                          "status must be PENDING, EXECUTING, COMPLETED or FAILED");
    if (after && !ol_uuid_parse(after, last))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/after", "after is the next_after of a page");
    if (ol_log_ready(log, err) < 0)
        return -1;
    bool is_counted = log->conn->store->answers_whole;
    struct ol_row_query query = {
        .conn = log->conn,
        .id = OL_Q_SESSION_EFFECTS,
        .params = OL_PARAMS(ol_value_optional(org_id), ol_value_optional(key),
                            ol_value_optional(status),
                            after ? ol_value_text(last) : ol_value_absent(), ol_value_int(limit),
                            is_counted ? ol_value_int(OL_READ_PAGE_BYTES) : ol_value_absent()),
        .table = &ol_table_effect,
        .json_bytes_max = OL_READ_PAGE_BYTES,
    };
    int result = ol_row_list_load_some(&query, &arena, &effects, &is_full, err);
    if (result == 0)
        put_effects(&effects, limit, is_full, &arena, out);
    ol_arena_clear(&arena);
    return result;
}

/* --- tickets --- */

int ol_session_ticket_make(outlog *log, const char *org_id, const char *key, int64_t life_us,
                           char secret[OL_SESSION_TICKET_TEXT], int64_t *expires_at,
                           outlog_err *err)
{
    unsigned char random[24], text[40];
    char hash[OL_SHA256_TEXT];
    struct ol_rows rows;

    ol_random_bytes(random, sizeof random);
    EVP_EncodeBlock(text, random, sizeof random); // 24 bytes need no padding
    for (unsigned char *c = text; *c; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    snprintf(secret, OL_SESSION_TICKET_TEXT, OL_TICKET_PREFIX "%s", (const char *)text);
    ol_sha256_hex(secret, strlen(secret), hash);
    if (ol_log_ready(log, err) < 0 ||
        ol_store_exec(log->conn, OL_Q_TICKETS_SWEEP, OL_NO_PARAMS, NULL, err) < 0 ||
        ol_store_query(log->conn, OL_Q_TICKET_ADD,
                       OL_PARAMS(ol_value_text(hash), ol_value_text(org_id), ol_value_text(key),
                                 ol_value_int(life_us)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *expires_at = ol_rows_time(&rows, 0);
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

int ol_session_ticket_use(outlog *log, const char *secret, const char *key, struct ol_arena *arena,
                          const char **org_id, outlog_err *err)
{
    char hash[OL_SHA256_TEXT];
    struct ol_rows rows;
    bool failed = false;

    ol_sha256_hex(secret, strlen(secret), hash);
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_TICKET_USE,
                       OL_PARAMS(ol_value_text(hash), ol_value_text(key)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *org_id = ol_rows_copy(&rows, 0, arena, &failed);
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : got;
}
