/* enqueue.c: putting messages into the outbox (O1, I2). */
#include "outbox/enqueue.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "base/uuid.h"
#include "log/causation.h"
#include "store/message_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t year_1 = INT64_C(-62135596800000000), year_10000 = INT64_C(253402300800000000);

/* --- checks --- */

static int parse_object(const char *field, const char *text, struct ol_json *out, outlog_err *err)
{
    char pointer[64];
    outlog_err why;
    snprintf(pointer, sizeof pointer, "/%s", field);
    if (ol_json_parse(text, strlen(text), out, &why) < 0)
        return ol_fail_at(err, OUTLOG_INVALID_JSON, pointer, "%s: %s", field, why.message);
    if (out->type != OL_JSON_OBJECT)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s must be a JSON object", field);
    return 0;
}

/* Headers are flat: a receiver cannot tell a nested value from a text that looks like JSON. They go
 * out as they are, so they may carry credentials. */
static int check_headers(const char *text, outlog_err *err)
{
    struct ol_json headers;
    struct ol_json_iter it = {0};
    char pointer[160];
    if (!text)
        return 0;
    if (parse_object("headers", text, &headers, err) < 0)
        return -1;
    while (ol_json_next(&headers, &it)) {
        if (it.value.type != OL_JSON_OBJECT && it.value.type != OL_JSON_ARRAY)
            continue;
        int bytes = (int)(it.key.bytes < 80 ? it.key.bytes : 80) - 2; // without its quotes
        snprintf(pointer, sizeof pointer, "/headers/%.*s", bytes, it.key.text + 1);
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer,
                          "header %.*s must be a string, a number or a boolean", bytes,
                          it.key.text + 1);
    }
    return 0;
}

/* Metadata stays in the store for good: it must hold no secret (E13). */
static int check_metadata(const struct ol_registry *registry, const char *text, outlog_err *err)
{
    struct ol_json metadata;
    if (!text)
        return 0;
    return parse_object("metadata", text, &metadata, err) < 0
               ? -1
               : ol_registry_refuse_secrets(registry, &metadata, "metadata", err);
}

/* When it may be sent, 0 for at once. Times without a year of four digits sort wrongly: a message
 * for the year 10000 would be sent at once. */
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

static int check_fields(const struct outlog_new_message *draft, outlog_err *err)
{
    for (int i = 0; i < OL_MESSAGE_FIELD_COUNT; i++) {
        const struct ol_field *field = &ol_message_fields[i];
        if (field->kind == OL_FIELD_TEXT && field->given != OL_FIELD_NONE &&
            ol_field_check_text(field, ol_field_text(draft, field->given), err) < 0)
            return -1;
    }
    return 0;
}

static int check_message(const struct ol_registry *registry, const struct outlog_new_message *draft,
                         outlog_err *err)
{
    size_t payload_max = ol_message_fields[OL_MESSAGE_PAYLOAD].max_bytes;
    char uuid[OL_UUID_TEXT];
    int64_t due;
    if (check_fields(draft, err) < 0)
        return -1;
    if (!draft->payload)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/payload", "payload is required");
    if (draft->payload_bytes > payload_max)
        return ol_fail_at(err, OUTLOG_TOO_LARGE, "/payload",
                          "payload has %zu bytes, the limit is %zu", draft->payload_bytes,
                          payload_max);
    if (draft->max_attempts < 0)
        return ol_field_refuse(&ol_message_fields[OL_MESSAGE_MAX_ATTEMPTS], "1 or more", err);
    if (find_due(draft, &due, err) < 0)
        return -1;
    if (draft->event_id && !ol_uuid_parse(draft->event_id, uuid))
        return ol_field_refuse(&ol_message_fields[OL_MESSAGE_EVENT_ID], "a UUID", err);
    return check_headers(draft->headers, err) < 0 ? -1
                                                  : check_metadata(registry, draft->metadata, err);
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

static char *write_hex(const unsigned char *bytes, size_t count)
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

/* What an INSERT needs beside the draft. */
struct message_row {
    const struct outlog_new_message *draft;
    const char *event_id;
    char *payload; /* text, or hexadecimal */
    bool is_text;
    int64_t due;
};

static struct ol_value read_column(const struct message_row *row, int column)
{
    const struct outlog_new_message *draft = row->draft;
    const char *text;
    switch (column) {
    case OL_MESSAGE_EVENT_ID:
        return ol_value_text(row->event_id);
    case OL_MESSAGE_AVAILABLE_AT:
        return row->due ? ol_value_time(row->due) : ol_value_text(NULL);
    case OL_MESSAGE_MAX_ATTEMPTS:
        return draft->max_attempts ? ol_value_int(draft->max_attempts) : ol_value_text(NULL);
    case OL_MESSAGE_PAYLOAD:
        return ol_value_text(row->is_text ? row->payload : NULL);
    case OL_MESSAGE_PAYLOAD_BYTES:
        return ol_value_text(row->is_text ? NULL : row->payload);
    default:
        text = ol_field_text(draft, ol_message_fields[column].given);
        if (!text && column == OL_MESSAGE_CONTENT_TYPE)
            text = "application/json";
        if (!text && column == OL_MESSAGE_CORRELATION_ID)
            text = row->event_id;
        return ol_value_text(text);
    }
}

static bool is_given(int column)
{
    return ol_message_fields[column].given != OL_FIELD_NONE || column == OL_MESSAGE_PAYLOAD_BYTES;
}

static int insert_message(outlog_tx *tx, const struct outlog_new_message *draft,
                          struct outlog_enqueued *out, int64_t *stored, outlog_err *err)
{
    struct message_row row = {.draft = draft, .event_id = out->event_id};
    struct ol_value params[OL_MESSAGE_GIVEN_COUNT];

    if (find_due(draft, &row.due, err) < 0)
        return -1;
    row.is_text = ol_utf8_is_valid(draft->payload, draft->payload_bytes);
    row.payload = row.is_text ? strndup(draft->payload, draft->payload_bytes)
                              : write_hex(draft->payload, draft->payload_bytes);
    if (!row.payload)
        return ol_no_memory(err);
    for (int i = 0, at = 0; i < OL_MESSAGE_FIELD_COUNT; i++)
        if (is_given(i))
            params[at++] = read_column(&row, i);
    int result = ol_store_exec(tx->conn, OL_Q_MESSAGE_INSERT, params, stored, err);
    free(row.payload);
    return result;
}

/* A cause must exist (T2), and gives its correlation (T1). A message without org may have a cause
 * of any org. */
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
    // Twice: another transaction may take the key between the query and the insert.
    for (int i = 0; i < 2; i++) {
        if (find_key(tx, draft, out, &found, err) < 0)
            return -1;
        if (found)
            return 0;
        if (insert_message(tx, draft, out, &stored, err) < 0)
            return -1;
        if (stored)
            return 0;
    }
    return ol_fail_at(err, OUTLOG_ID_CONFLICT, "/event_id", "message id %s is taken",
                      out->event_id);
}

static int enqueue_message(outlog_tx *tx, const struct outlog_new_message *draft,
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
    if (check_message(tx->registry, draft, err) < 0)
        return -1;
    if (draft->event_id)
        ol_uuid_parse(draft->event_id, out->event_id);
    else
        ol_uuid_make(out->event_id);
    if (tx->log)
        return enqueue_message(tx, draft, out, err);
    // A caller's own transaction stays usable after an error of ours.
    const struct ol_store *store = tx->conn->store;
    if (store->mark(tx->conn, err) < 0)
        return -1;
    int result = enqueue_message(tx, draft, out, err);
    if (store->release(tx->conn, result == 0, result == 0 ? err : NULL) < 0)
        result = -1;
    return result;
}
