/* enqueue.c: putting messages into the outbox (O1, I2). */
#include "outbox/enqueue.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "base/uuid.h"
#include "log/causation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAYLOAD_BYTES = 256 * 1024 };
static const int64_t year_1 = INT64_C(-62135596800000000), year_10000 = INT64_C(253402300800000000);

/* --- checks --- */

struct limit {
    const char *field;
    size_t offset, most;
    bool is_required;
};

#define FIELD(name) #name, offsetof(struct outlog_new_message, name)

static const struct limit limits[] = {
    {FIELD(destination), 100, true},      {FIELD(event_type), 100, true},
    {FIELD(content_type), 200, false},    {FIELD(org_id), 100, false},
    {FIELD(idempotency_key), 512, false}, {FIELD(ordering_key), 512, false},
    {FIELD(partition_key), 512, false},   {FIELD(correlation_id), 255, false},
    {FIELD(aggregate_type), 50, false},   {FIELD(aggregate_id), 255, false},
};

static int check_text(const struct limit *limit, const char *text, outlog_err *err)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s", limit->field);
    size_t bytes = text ? strlen(text) : 0;
    if (!text && !limit->is_required)
        return 0;
    if (!text)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is required", limit->field);
    if (bytes < 1 || bytes > limit->most)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer,
                          "%s must have 1 to %zu bytes, it has %zu", limit->field, limit->most,
                          bytes);
    if (!ol_utf8_is_valid(text, bytes))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is not UTF-8", limit->field);
    return 0;
}

static int check_object(const struct ol_registry *registry, const char *field, const char *text,
                        outlog_err *err)
{
    struct ol_json value;
    char pointer[64];
    outlog_err why;
    if (!text)
        return 0;
    snprintf(pointer, sizeof pointer, "/%s", field);
    if (ol_json_parse(text, strlen(text), &value, &why) < 0)
        return ol_fail_at(err, OUTLOG_INVALID_JSON, pointer, "%s: %s", field, why.message);
    if (value.type != OL_JSON_OBJECT)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s must be a JSON object", field);
    return registry ? ol_registry_refuse_secrets(registry, &value, field, err) : 0;
}

/* When it may go, 0 for at once. Times that cannot be written with four digits of year sort
 * wrongly, and what was meant for never would go at once. */
static int find_due(const struct outlog_new_message *draft, int64_t *out, outlog_err *err)
{
    *out = draft->available_at;
    bool is_past_all = !*out && draft->delay_us &&
                       __builtin_add_overflow(ol_clock_wall_us(), draft->delay_us, out);
    if (is_past_all || *out < year_1 || *out >= year_10000)
        return ol_fail_at(
            err, OUTLOG_INVALID_FIELD, draft->available_at ? "/available_at" : "/delay",
            "available_at, or the end of delay, must be a time of the years 1 to 9999");
    return 0;
}

static int check(const struct ol_registry *registry, const struct outlog_new_message *draft,
                 outlog_err *err)
{
    char uuid[OL_UUID_TEXT];
    int64_t due;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const char *text;
        memcpy(&text, (const char *)draft + limits[i].offset, sizeof text);
        if (check_text(&limits[i], text, err) < 0)
            return -1;
    }
    if (!draft->payload)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/payload", "payload is required");
    if (draft->payload_bytes > PAYLOAD_BYTES)
        return ol_fail_at(err, OUTLOG_TOO_LARGE, "/payload",
                          "payload has %zu bytes, the limit is %d", draft->payload_bytes,
                          PAYLOAD_BYTES);
    if (draft->max_attempts < 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/max_attempts",
                          "max_attempts must be 1 or more");
    if (find_due(draft, &due, err) < 0)
        return -1;
    if (draft->event_id && !ol_uuid_parse(draft->event_id, uuid))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/event_id", "event_id must be a UUID");
    // Headers go out as they are and may carry credentials; metadata stays with us for good (E13).
    if (check_object(NULL, "headers", draft->headers, err) < 0 ||
        check_object(registry, "metadata", draft->metadata, err) < 0)
        return -1;
    return 0;
}

/* --- storing --- */

static int find_key(outlog_tx *tx, const struct outlog_new_message *draft,
                    struct outlog_enqueued *out, bool *found, outlog_err *err)
{
    struct ol_rows rows;
    *found = false;
    if (!draft->idempotency_key)
        return 0;
    if (ol_store_query(tx->conn, OL_Q_MESSAGE_BY_KEY,
                       OL_PARAMS(ol_value_text(draft->org_id), ol_value_text(draft->destination),
                                 ol_value_text(draft->idempotency_key)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        ol_rows_uuid(&rows, 0, out->event_id);
        *found = out->duplicate = true;
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

static char *hex_of(const unsigned char *bytes, size_t count)
{
    char *text = malloc(count * 2 + 1);
    for (size_t i = 0; text && i < count; i++) {
        text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    if (text)
        text[count * 2] = '\0';
    return text;
}

static int insert(outlog_tx *tx, const struct outlog_new_message *draft,
                  struct outlog_enqueued *out, int64_t *stored, outlog_err *err)
{
    bool is_text = ol_utf8_is_valid(draft->payload, draft->payload_bytes);
    int64_t at;
    if (find_due(draft, &at, err) < 0)
        return -1;
    char *text = is_text ? strndup(draft->payload, draft->payload_bytes)
                         : hex_of(draft->payload, draft->payload_bytes);
    if (!text)
        return ol_no_memory(err);
    int result = ol_store_exec(
        tx->conn, OL_Q_MESSAGE_INSERT,
        OL_PARAMS(ol_value_text(out->event_id), ol_value_text(draft->destination),
                  ol_value_text(draft->event_type), ol_value_text(is_text ? text : NULL),
                  ol_value_text(is_text ? NULL : text),
                  ol_value_text(draft->content_type ? draft->content_type : "application/json"),
                  ol_value_text(draft->org_id), ol_value_text(draft->idempotency_key),
                  ol_value_text(draft->ordering_key), ol_value_text(draft->partition_key),
                  ol_value_text(draft->headers), ol_value_text(draft->metadata),
                  at ? ol_value_time(at) : ol_value_text(NULL),
                  draft->max_attempts ? ol_value_int(draft->max_attempts) : ol_value_text(NULL),
                  ol_value_text(draft->correlation_id ? draft->correlation_id : out->event_id),
                  ol_value_text(draft->causation_id), ol_value_text(draft->aggregate_type),
                  ol_value_text(draft->aggregate_id)),
        stored, err);
    free(text);
    return result;
}

/* A cause must be there (T2), and gives its correlation (T1). A message without org may have one of
 * any. */
static int resolve_cause(outlog_tx *tx, struct outlog_new_message *draft, struct ol_arena *arena,
                         outlog_err *err)
{
    struct ol_causation cause;
    bool found;
    if (ol_causation_find(tx->conn, draft->causation_id, arena, &cause, &found, err) < 0)
        return -1;
    if (!found || (draft->org_id && !ol_causation_is_of_org(&cause, draft->org_id)))
        return ol_causation_refuse(err, draft->causation_id);
    draft->causation_id = ol_arena_copy(arena, cause.id, OL_UUID_TEXT - 1);
    if (!draft->correlation_id)
        draft->correlation_id = cause.correlation_id;
    return draft->causation_id ? 0 : ol_no_memory(err);
}

static int store_once(outlog_tx *tx, const struct outlog_new_message *draft,
                      struct outlog_enqueued *out, outlog_err *err)
{
    bool found;
    int64_t stored;
    // Twice: another transaction may take the key between the look and the insert.
    for (int i = 0; i < 2; i++) {
        if (find_key(tx, draft, out, &found, err) < 0)
            return -1;
        if (found)
            return 0;
        if (insert(tx, draft, out, &stored, err) < 0)
            return -1;
        if (stored)
            return 0;
    }
    return ol_fail_at(err, OUTLOG_ID_CONFLICT, "/event_id", "message id %s is taken",
                      out->event_id);
}

static int enqueue(outlog_tx *tx, const struct outlog_new_message *draft,
                   struct outlog_enqueued *out, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct outlog_new_message caused = *draft;
    int result = -1;

    if (!draft->causation_id)
        return store_once(tx, draft, out, err);
    if (resolve_cause(tx, &caused, &arena, err) == 0)
        result = store_once(tx, &caused, out, err);
    ol_arena_clear(&arena);
    return result;
}

int outlog_enqueue(outlog_tx *tx, const struct outlog_new_message *draft,
                   struct outlog_enqueued *out, outlog_err *err)
{
    *out = (struct outlog_enqueued){0};
    if (check(tx->registry, draft, err) < 0)
        return -1;
    if (draft->event_id)
        ol_uuid_parse(draft->event_id, out->event_id);
    else
        ol_uuid_make(out->event_id);
    if (tx->log)
        return enqueue(tx, draft, out, err);
    // A caller's own transaction stays usable whatever happens to us.
    const struct ol_store *store = tx->conn->store;
    if (store->mark(tx->conn, err) < 0)
        return -1;
    int result = enqueue(tx, draft, out, err);
    if (store->release(tx->conn, result == 0, result == 0 ? err : NULL) < 0)
        result = -1;
    return result;
}
