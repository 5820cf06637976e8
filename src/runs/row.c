/* row.c: see row.h. */
#include "runs/row.h"

#include "log/secrets.h"

#include <stdlib.h>
#include <string.h>

/* --- what there is --- */

// clang-format off
const struct ol_table ol_kind_signal = {"signals", {
    {"signal_id", OL_COLUMN_TEXT},      {"org_id", OL_COLUMN_TEXT},
    {"signal_type", OL_COLUMN_TEXT},    {"payload", OL_COLUMN_JSON},
    {"status", OL_COLUMN_TEXT},         {"correlation_id", OL_COLUMN_TEXT},
    {"received_at", OL_COLUMN_TIME}}, 7};

const struct ol_table ol_kind_run = {"runs", {
    {"run_id", OL_COLUMN_TEXT},         {"org_id", OL_COLUMN_TEXT},
    {"signal_id", OL_COLUMN_TEXT},      {"run_type", OL_COLUMN_TEXT},
    {"orchestrator_version", OL_COLUMN_TEXT}, {"status", OL_COLUMN_TEXT},
    {"total_steps", OL_COLUMN_NUMBER},  {"failed_steps", OL_COLUMN_NUMBER},
    {"correlation_id", OL_COLUMN_TEXT}, {"started_at", OL_COLUMN_TIME},
    {"completed_at", OL_COLUMN_TIME}}, 11};

const struct ol_table ol_kind_step = {"steps", {
    {"step_id", OL_COLUMN_TEXT},        {"run_id", OL_COLUMN_TEXT},
    {"step_index", OL_COLUMN_NUMBER},   {"step_type", OL_COLUMN_TEXT},
    {"status", OL_COLUMN_TEXT},         {"output_result", OL_COLUMN_JSON},
    {"error_code", OL_COLUMN_TEXT},     {"error_message", OL_COLUMN_TEXT},
    {"duration_ms", OL_COLUMN_NUMBER},  {"retry_count", OL_COLUMN_NUMBER},
    {"started_at", OL_COLUMN_TIME},     {"completed_at", OL_COLUMN_TIME}}, 12};

const struct ol_table ol_kind_effect = {"effects", {
    {"effect_id", OL_COLUMN_UUID},      {"run_id", OL_COLUMN_TEXT},
    {"step_id", OL_COLUMN_TEXT},        {"session_key", OL_COLUMN_TEXT},
    {"checkpoint_id", OL_COLUMN_TEXT},  {"effect_type", OL_COLUMN_TEXT},
    {"effect_spec", OL_COLUMN_SPEC},    {"destination", OL_COLUMN_TEXT},
    {"status", OL_COLUMN_TEXT},         {"idempotency_key", OL_COLUMN_TEXT},
    {"message_id", OL_COLUMN_UUID},     {"execution_result", OL_COLUMN_JSON},
    {"executed_at", OL_COLUMN_TIME},    {"attempts", OL_COLUMN_NUMBER},
    {"last_attempt_at", OL_COLUMN_TIME}, {"created_at", OL_COLUMN_TIME},
    {"updated_at", OL_COLUMN_TIME}}, 17};

const struct ol_table ol_kind_checkpoint = {"run_checkpoints", {
    {"run_id", OL_COLUMN_TEXT},         {"checkpoint_index", OL_COLUMN_NUMBER},
    {"checkpoint_data", OL_COLUMN_JSON}, {"event_id", OL_COLUMN_NUMBER},
    {"created_at", OL_COLUMN_TIME}}, 5};
// clang-format on

/* --- values --- */

static const char *take(struct ol_arena *arena, struct ol_buf *text)
{
    const char *copy = text->failed ? NULL : ol_arena_copy(arena, text->data, text->bytes);
    ol_buf_clear(text);
    return copy;
}

const char *ol_row_value_text(struct ol_arena *arena, const char *text)
{
    struct ol_buf json = {0};
    if (!text)
        return NULL;
    ol_buf_json_text(&json, text);
    return take(arena, &json);
}

const char *ol_row_value_int(struct ol_arena *arena, int64_t number)
{
    return ol_arena_print(arena, "%lld", (long long)number);
}

const char *ol_row_value_time(struct ol_arena *arena, int64_t time_us)
{
    struct ol_buf json = {0};
    if (!time_us)
        return NULL;
    ol_buf_json_time(&json, time_us);
    return take(arena, &json);
}

const char *ol_row_value_json(struct ol_arena *arena, const struct ol_json *value)
{
    bool is_null = value->type == OL_JSON_NONE || value->type == OL_JSON_NULL;
    return is_null ? NULL : ol_arena_copy(arena, value->text, value->bytes);
}

static const char *column(const struct ol_rows *rows, int at, enum ol_column_type type,
                          struct ol_arena *arena)
{
    char uuid[OL_UUID_TEXT];
    struct ol_json value;
    size_t bytes;
    const char *text;

    switch (type) {
    case OL_COLUMN_NUMBER:
        return ol_row_value_int(arena, ol_rows_int(rows, at));
    case OL_COLUMN_TIME:
        return ol_row_value_time(arena, ol_rows_time(rows, at));
    case OL_COLUMN_UUID:
        ol_rows_uuid(rows, at, uuid);
        return ol_row_value_text(arena, uuid);
    case OL_COLUMN_JSON:
    case OL_COLUMN_SPEC:
        text = ol_rows_text(rows, at, &bytes);
        if (ol_json_parse(text, bytes, &value, NULL) == 0)
            return ol_row_value_json(arena, &value);
        return ol_row_value_text(arena, text); // somebody's hand: shown as it is
    default:
        return ol_row_value_text(arena, ol_rows_text(rows, at, NULL));
    }
}

/* --- lists --- */

struct ol_row *ol_row_add(struct ol_row_list *list, const struct ol_table *kind,
                          struct ol_arena *arena)
{
    struct ol_row *object = ol_arena_alloc(arena, sizeof *object);
    if (!object)
        return NULL;
    object->kind = kind;
    if (list->last)
        list->last->next = object;
    else
        list->first = object;
    list->last = object;
    return object;
}

static struct ol_row *add_row(struct ol_row_list *list, const struct ol_rows *rows,
                              const struct ol_table *kind, struct ol_arena *arena, size_t *bytes)
{
    struct ol_row *object = ol_row_add(list, kind, arena);
    for (int i = 0; object && i < kind->count; i++) {
        enum ol_column_type type = kind->fields[i].type;
        size_t length = 0;
        bool is_null = ol_rows_is_null(rows, i);
        object->values[i] = is_null ? NULL : column(rows, i, type, arena);
        if (type == OL_COLUMN_JSON || type == OL_COLUMN_SPEC)
            ol_rows_text(rows, i, &length);
        *bytes += length;
    }
    return object;
}

int ol_row_list_load_short(struct ol_conn *conn, enum ol_query_id query,
                           const struct ol_value *params, const struct ol_table *kind,
                           size_t most_bytes, struct ol_arena *arena, struct ol_row_list *list,
                           bool *is_full, outlog_err *err)
{
    struct ol_rows rows;
    size_t bytes = 0;
    int more = 0;
    if (ol_store_query(conn, query, params, &rows, err) < 0)
        return -1;
    while (bytes < most_bytes && (more = ol_rows_next(&rows, err)) > 0)
        if (!add_row(list, &rows, kind, arena, &bytes)) {
            more = ol_no_memory(err);
            break;
        }
    ol_rows_end(&rows);
    *is_full = bytes >= most_bytes / 2; // a server of another encoding counts other bytes
    return more < 0 ? -1 : 0;
}

int ol_row_list_load(struct ol_conn *conn, enum ol_query_id query, const struct ol_value *params,
                     const struct ol_table *kind, struct ol_arena *arena, struct ol_row_list *list,
                     outlog_err *err)
{
    bool ignored;
    return ol_row_list_load_short(conn, query, params, kind, SIZE_MAX, arena, list, &ignored, err);
}

const char *ol_row_key(const struct ol_row *object)
{
    return object->values[object->kind == &ol_kind_checkpoint ? OL_IN_CHECKPOINT_INDEX : 0];
}

static bool same(const char *key, const char *id)
{
    return key && strcmp(key, id) == 0;
}

struct ol_row *ol_row_find(const struct ol_row_list *list, const char *id)
{
    if (list->last && id && same(ol_row_key(list->last), id)) // mostly it is the newest
        return list->last;
    for (struct ol_row *object = list->first; object; object = object->next) {
        if (id && same(ol_row_key(object), id))
            return object;
    }
    return NULL;
}

/* --- what a field says --- */

const char *ol_row_text(const struct ol_row *object, int field, struct ol_arena *arena)
{
    struct ol_json value;
    const char *text = object->values[field];
    if (!text || ol_json_parse(text, strlen(text), &value, NULL) < 0)
        return NULL;
    return ol_json_string(&value, arena, NULL);
}

int64_t ol_row_int(const struct ol_row *object, int field)
{
    return object->values[field] ? strtoll(object->values[field], NULL, 10) : 0;
}

bool ol_row_is(const struct ol_row *object, int field, const char *text)
{
    const char *value = object->values[field];
    size_t bytes = strlen(text);
    return value && strncmp(value + 1, text, bytes) == 0 && strcmp(value + 1 + bytes, "\"") == 0;
}

/* --- as JSON --- */

static void put_value(const struct ol_row *object, int field, struct ol_buf *out)
{
    struct ol_json value;
    const char *text = object->values[field];
    if (!text)
        ol_buf_text(out, "null");
    else if (object->kind->fields[field].type == OL_COLUMN_SPEC &&
             ol_json_parse(text, strlen(text), &value, NULL) == 0)
        ol_secrets_mask(&value, out);
    else
        ol_buf_text(out, text);
}

void ol_row_members(const struct ol_row *object, struct ol_buf *out)
{
    for (int i = 0; i < object->kind->count; i++) {
        ol_buf_print(out, "%s\"%s\":", i ? "," : "", object->kind->fields[i].name);
        put_value(object, i, out);
    }
}

void ol_row_json(const struct ol_row *object, struct ol_buf *out)
{
    if (!object) {
        ol_buf_text(out, "null");
        return;
    }
    ol_buf_char(out, '{');
    ol_row_members(object, out);
    ol_buf_char(out, '}');
}

void ol_row_list_json(const struct ol_row_list *list, struct ol_buf *out)
{
    ol_buf_char(out, '[');
    for (const struct ol_row *object = list->first; object; object = object->next) {
        if (object != list->first)
            ol_buf_char(out, ',');
        ol_row_json(object, out);
    }
    ol_buf_char(out, ']');
}
