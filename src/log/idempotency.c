/* idempotency.c: a command is executed once (I1).
 *
 * An insert claims the key before the work, and the answer is stored after it, all in one
 * transaction. So only committed answers exist, and a second caller waits at its insert until the
 * first transaction has ended. */
#include "base/clock.h"
#include "base/sha256.h"
#include "log/log.h"

#include <stdio.h>
#include <string.h>

enum { KEY_AGE_MIN_S = 24 * 3600, PURGE_CHUNK = 5000 };

int ol_idempotency_request_hash(const char *request, size_t bytes, char out[65], outlog_err *err)
{
    struct ol_json value;
    struct ol_buf canonical = {0};
    int result = -1;

    if (ol_json_parse_wrapped(request, bytes, &value, err) < 0)
        return -1;
    if (ol_json_canonical(&value, &canonical) == 0) {
        ol_sha256_hex(canonical.data, canonical.bytes, out);
        result = 0;
    } else {
        ol_no_memory(err);
    }
    ol_buf_clear(&canonical);
    return result;
}

int outlog_request_hash(const char *request, char out[65], outlog_err *err)
{
    return ol_idempotency_request_hash(request, strlen(request), out, err);
}

int outlog_derived_key(const char *aggregate_type, const char *aggregate_id, const char *event_type,
                       const char *payload, char *out, size_t size, outlog_err *err)
{
    char hash[OL_SHA256_TEXT];
    if (outlog_request_hash(payload, hash, err) < 0)
        return -1;
    return snprintf(out, size, "%s:%s:%s:%s", aggregate_type, aggregate_id, event_type, hash);
}

static const char *org_key(const struct outlog_idempotency *call)
{
    return call->org_id ? call->org_id : "";
}

/* The key exists: the same request gets the first answer, another one is refused. */
static int compare_request(outlog_tx *tx, const struct outlog_idempotency *call, const char *hash,
                           const char **response, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    if (ol_store_query(tx->conn, OL_Q_IDEMPOTENCY_GET,
                       OL_PARAMS(ol_value_text(org_key(call)), ol_value_text(call->actor_id),
                                 ol_value_text(call->endpoint), ol_value_text(call->key),
                                 ol_value_text(hash)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got == 0) // purged between the two statements
        got = ol_fail(err, OUTLOG_UNAVAILABLE, "idempotency key %s just expired; try again",
                      call->key);
    else if (got > 0 && !ol_rows_int(&rows, 0))
        got = ol_fail(err, OUTLOG_IDEMPOTENCY_KEY_REUSE,
                      "key %s was used for another request; take a new key", call->key);
    else if (got > 0 && ol_rows_is_null(&rows, 1)) // see ol_idempotency_forget()
        got = ol_fail(err, OUTLOG_IDEMPOTENCY_IN_PROGRESS,
                      "a call with key %s was begun and is not answered; if nobody works on it any "
                      "more, look what it did and take a new key",
                      call->key);
    else if (got > 0)
        *response = ol_rows_copy(&rows, 1, &tx->arena, &failed);
    ol_rows_end(&rows);
    if (failed)
        return ol_no_memory(err);
    return got < 0 ? -1 : 0;
}

int outlog_idempotent_begin(outlog_tx *tx, const struct outlog_idempotency *call,
                            const char **response, outlog_err *err)
{
    char hash[OL_SHA256_TEXT];
    int64_t claimed;

    *response = NULL;
    if (!call->actor_id || !call->endpoint || !call->key || !call->request)
        return ol_fail(err, OUTLOG_MISUSE, "actor_id, endpoint, key and request are required");
    if (strlen(call->key) < 1 || strlen(call->key) > 512)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/idempotency_key",
                          "idempotency_key must have 1 to 512 bytes");
    if (outlog_request_hash(call->request, hash, err) < 0)
        return -1;
    if (ol_store_exec(tx->conn, OL_Q_IDEMPOTENCY_CLAIM,
                      OL_PARAMS(ol_value_text(org_key(call)), ol_value_text(call->actor_id),
                                ol_value_text(call->endpoint), ol_value_text(call->key),
                                ol_value_text(hash), ol_value_time(ol_clock_wall_us())),
                      &claimed, err) < 0)
        return -1;
    return claimed ? 0 : compare_request(tx, call, hash, response, err);
}

int outlog_idempotent_end(outlog_tx *tx, const struct outlog_idempotency *call,
                          const char *response, outlog_err *err)
{
    int64_t stored;
    if (ol_store_exec(tx->conn, OL_Q_IDEMPOTENCY_STORE,
                      OL_PARAMS(ol_value_text(org_key(call)), ol_value_text(call->actor_id),
                                ol_value_text(call->endpoint), ol_value_text(call->key),
                                ol_value_text(response)),
                      &stored, err) < 0)
        return -1;
    return stored ? 0
                  : ol_fail(err, OUTLOG_MISUSE,
                            "outlog_idempotent_end: key %s was not begun in this transaction",
                            call->key);
}

int ol_idempotency_forget(outlog_tx *tx, const struct outlog_idempotency *call, outlog_err *err)
{
    return ol_store_exec(tx->conn, OL_Q_IDEMPOTENCY_FORGET,
                         OL_PARAMS(ol_value_text(org_key(call)), ol_value_text(call->actor_id),
                                   ol_value_text(call->endpoint), ol_value_text(call->key)),
                         NULL, err);
}

int outlog_idempotency_purge(outlog *log, int64_t max_age_s, int64_t *purged, outlog_err *err)
{
    int64_t chunk, total = 0;
    if (max_age_s < KEY_AGE_MIN_S)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "idempotency records are kept for at least 24 h (%d s)", KEY_AGE_MIN_S);
    if (ol_log_ready(log, err) < 0)
        return -1;
    int64_t before = ol_clock_wall_us() - max_age_s * 1000000;
    do {
        if (ol_store_exec(log->conn, OL_Q_IDEMPOTENCY_PURGE,
                          OL_PARAMS(ol_value_time(before), ol_value_int(PURGE_CHUNK)), &chunk,
                          err) < 0)
            return -1;
        total += chunk;
    } while (chunk == PURGE_CHUNK);
    if (purged)
        *purged = total;
    return 0;
}
