/* object.c: see object.h. */
#include "runs/object.h"

#include "log/secrets.h"

#include <stdlib.h>
#include <string.h>

/* --- what there is --- */

// clang-format off
const struct ol_kind ol_kind_signal = {"signals", {
    {"signal_id", OL_FIELD_TEXT},      {"org_id", OL_FIELD_TEXT},
    {"signal_type", OL_FIELD_TEXT},    {"payload", OL_FIELD_JSON},
    {"status", OL_FIELD_TEXT},         {"correlation_id", OL_FIELD_TEXT},
    {"received_at", OL_FIELD_TIME}}, 7};

const struct ol_kind ol_kind_run = {"runs", {
    {"run_id", OL_FIELD_TEXT},         {"org_id", OL_FIELD_TEXT},
    {"signal_id", OL_FIELD_TEXT},      {"run_type", OL_FIELD_TEXT},
    {"orchestrator_version", OL_FIELD_TEXT}, {"status", OL_FIELD_TEXT},
    {"total_steps", OL_FIELD_NUMBER},  {"failed_steps", OL_FIELD_NUMBER},
    {"correlation_id", OL_FIELD_TEXT}, {"started_at", OL_FIELD_TIME},
    {"completed_at", OL_FIELD_TIME}}, 11};

const struct ol_kind ol_kind_step = {"steps", {
    {"step_id", OL_FIELD_TEXT},        {"run_id", OL_FIELD_TEXT},
    {"step_index", OL_FIELD_NUMBER},   {"step_type", OL_FIELD_TEXT},
    {"status", OL_FIELD_TEXT},         {"output_result", OL_FIELD_JSON},
    {"error_code", OL_FIELD_TEXT},     {"error_message", OL_FIELD_TEXT},
    {"duration_ms", OL_FIELD_NUMBER},  {"retry_count", OL_FIELD_NUMBER},
    {"started_at", OL_FIELD_TIME},     {"completed_at", OL_FIELD_TIME}}, 12};

const struct ol_kind ol_kind_effect = {"effects", {
    {"effect_id", OL_FIELD_UUID},      {"run_id", OL_FIELD_TEXT},
    {"step_id", OL_FIELD_TEXT},        {"session_key", OL_FIELD_TEXT},
    {"checkpoint_id", OL_FIELD_TEXT},  {"effect_type", OL_FIELD_TEXT},
    {"effect_spec", OL_FIELD_SPEC},    {"destination", OL_FIELD_TEXT},
    {"status", OL_FIELD_TEXT},         {"idempotency_key", OL_FIELD_TEXT},
    {"message_id", OL_FIELD_UUID},     {"execution_result", OL_FIELD_JSON},
    {"executed_at", OL_FIELD_TIME},    {"attempts", OL_FIELD_NUMBER},
    {"last_attempt_at", OL_FIELD_TIME}, {"created_at", OL_FIELD_TIME},
    {"updated_at", OL_FIELD_TIME}}, 17};

const struct ol_kind ol_kind_checkpoint = {"run_checkpoints", {
    {"run_id", OL_FIELD_TEXT},         {"checkpoint_index", OL_FIELD_NUMBER},
    {"checkpoint_data", OL_FIELD_JSON}, {"event_id", OL_FIELD_NUMBER},
    {"created_at", OL_FIELD_TIME}}, 5};
// clang-format on

/* --- values --- */

static const char *take(struct ol_arena *arena, struct ol_buf *text)
{
    const char *copy = text->failed ? NULL : ol_arena_copy(arena, text->data, text->bytes);
    ol_buf_clear(text);
    return copy;
}

const char *ol_value_text(struct ol_arena *arena, const char *text)
{
    struct ol_buf json = {0};
    if (!text)
        return NULL;
    ol_buf_json_text(&json, text);
    return take(arena, &json);
}

const char *ol_value_int(struct ol_arena *arena, int64_t number)
{
    return ol_arena_print(arena, "%lld", (long long)number);
}

const char *ol_value_time(struct ol_arena *arena, int64_t time_us)
{
    struct ol_buf json = {0};
    if (!time_us)
        return NULL;
    ol_buf_json_time(&json, time_us);
    return take(arena, &json);
}

const char *ol_value_json(struct ol_arena *arena, const struct ol_json *value)
{
    bool is_null = value->type == OL_JSON_NONE || value->type == OL_JSON_NULL;
    return is_null ? NULL : ol_arena_copy(arena, value->text, value->bytes);
}

static const char *column(const struct ol_rows *rows, int at, enum ol_field_type type,
                          struct ol_arena *arena)
{
    char uuid[OL_UUID_TEXT];
    struct ol_json value;
    size_t bytes;
    const char *text;

    switch (type) {
    case OL_FIELD_NUMBER:
        return ol_value_int(arena, ol_column_int(rows, at));
    case OL_FIELD_TIME:
        return ol_value_time(arena, ol_column_time(rows, at));
    case OL_FIELD_UUID:
        ol_column_uuid(rows, at, uuid);
        return ol_value_text(arena, uuid);
    case OL_FIELD_JSON:
    case OL_FIELD_SPEC:
        text = ol_column_text(rows, at, &bytes);
        if (ol_json_parse(text, bytes, &value, NULL) == 0)
            return ol_value_json(arena, &value);
        return ol_value_text(arena, text); // somebody's hand: shown as it is
    default:
        return ol_value_text(arena, ol_column_text(rows, at, NULL));
    }
}

/* --- lists --- */

struct ol_object *ol_object_add(struct ol_objects *list, const struct ol_kind *kind,
                                struct ol_arena *arena)
{
    struct ol_object *object = ol_arena_alloc(arena, sizeof *object);
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

static struct ol_object *add_row(struct ol_objects *list, const struct ol_rows *rows,
                                 const struct ol_kind *kind, struct ol_arena *arena, size_t *bytes)
{
    struct ol_object *object = ol_object_add(list, kind, arena);
    for (int i = 0; object && i < kind->count; i++) {
        enum ol_field_type type = kind->fields[i].type;
        size_t length = 0;
        bool is_null = ol_is_null(rows, i);
        object->values[i] = is_null ? NULL : column(rows, i, type, arena);
        if (type == OL_FIELD_JSON || type == OL_FIELD_SPEC)
            ol_column_text(rows, i, &length);
        *bytes += length;
    }
    return object;
}

int ol_objects_load_short(struct ol_conn *conn, enum ol_query_id query,
                          const struct ol_value *params, const struct ol_kind *kind,
                          size_t most_bytes, struct ol_arena *arena, struct ol_objects *list,
                          bool *is_full, outlog_err *err)
{
    struct ol_rows rows;
    size_t bytes = 0;
    int more = 0;
    if (ol_query(conn, query, params, &rows, err) < 0)
        return -1;
    while (bytes < most_bytes && (more = ol_next(&rows, err)) > 0)
        if (!add_row(list, &rows, kind, arena, &bytes)) {
            more = ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
            break;
        }
    ol_end(&rows);
    *is_full = bytes >= most_bytes / 2; // a server of another encoding counts other bytes
    return more < 0 ? -1 : 0;
}

int ol_objects_load(struct ol_conn *conn, enum ol_query_id query, const struct ol_value *params,
                    const struct ol_kind *kind, struct ol_arena *arena, struct ol_objects *list,
                    outlog_err *err)
{
    bool ignored;
    return ol_objects_load_short(conn, query, params, kind, SIZE_MAX, arena, list, &ignored, err);
}

const char *ol_object_key(const struct ol_object *object)
{
    return object->values[object->kind == &ol_kind_checkpoint ? OL_IN_CHECKPOINT_INDEX : 0];
}

static bool same(const char *key, const char *id)
{
    return key && strcmp(key, id) == 0;
}

struct ol_object *ol_object_find(const struct ol_objects *list, const char *id)
{
    if (list->last && id && same(ol_object_key(list->last), id)) // mostly it is the newest
        return list->last;
    for (struct ol_object *object = list->first; object; object = object->next) {
        if (id && same(ol_object_key(object), id))
            return object;
    }
    return NULL;
}

/* --- what a field says --- */

const char *ol_object_text(const struct ol_object *object, int field, struct ol_arena *arena)
{
    struct ol_json value;
    const char *text = object->values[field];
    if (!text || ol_json_parse(text, strlen(text), &value, NULL) < 0)
        return NULL;
    return ol_json_string(&value, arena, NULL);
}

int64_t ol_object_int(const struct ol_object *object, int field)
{
    return object->values[field] ? strtoll(object->values[field], NULL, 10) : 0;
}

bool ol_object_is(const struct ol_object *object, int field, const char *text)
{
    const char *value = object->values[field];
    size_t bytes = strlen(text);
    return value && strncmp(value + 1, text, bytes) == 0 && strcmp(value + 1 + bytes, "\"") == 0;
}

/* --- as JSON --- */

static void put_value(const struct ol_object *object, int field, struct ol_buf *out)
{
    struct ol_json value;
    const char *text = object->values[field];
    if (!text)
        ol_buf_text(out, "null");
    else if (object->kind->fields[field].type == OL_FIELD_SPEC &&
             ol_json_parse(text, strlen(text), &value, NULL) == 0)
        ol_secrets_mask(&value, out);
    else
        ol_buf_text(out, text);
}

void ol_object_members(const struct ol_object *object, struct ol_buf *out)
{
    for (int i = 0; i < object->kind->count; i++) {
        ol_buf_print(out, "%s\"%s\":", i ? "," : "", object->kind->fields[i].name);
        put_value(object, i, out);
    }
}

void ol_object_json(const struct ol_object *object, struct ol_buf *out)
{
    if (!object) {
        ol_buf_text(out, "null");
        return;
    }
    ol_buf_char(out, '{');
    ol_object_members(object, out);
    ol_buf_char(out, '}');
}

void ol_objects_json(const struct ol_objects *list, struct ol_buf *out)
{
    ol_buf_char(out, '[');
    for (const struct ol_object *object = list->first; object; object = object->next) {
        if (object != list->first)
            ol_buf_char(out, ',');
        ol_object_json(object, out);
    }
    ol_buf_char(out, ']');
}
