/* row.c: the columns of each table, and rows read from a query, searched and printed as JSON. */
#include "runs/row.h"

#include "log/secrets.h"

#include <stdlib.h>
#include <string.h>

/* --- the tables --- */

// clang-format off
const struct ol_table ol_table_signal = {"signals", {
    {"signal_id", OL_COLUMN_TEXT},      {"org_id", OL_COLUMN_TEXT},
    {"signal_type", OL_COLUMN_TEXT},    {"payload", OL_COLUMN_JSON},
    {"status", OL_COLUMN_TEXT},         {"correlation_id", OL_COLUMN_TEXT},
    {"received_at", OL_COLUMN_TIME},    {"last_event_id", OL_COLUMN_UUID}}, 8, 7};

const struct ol_table ol_table_run = {"runs", {
    {"run_id", OL_COLUMN_TEXT},         {"org_id", OL_COLUMN_TEXT},
    {"signal_id", OL_COLUMN_TEXT},      {"run_type", OL_COLUMN_TEXT},
    {"orchestrator_version", OL_COLUMN_TEXT}, {"status", OL_COLUMN_TEXT},
    {"total_steps", OL_COLUMN_NUMBER},  {"failed_steps", OL_COLUMN_NUMBER},
    {"correlation_id", OL_COLUMN_TEXT}, {"started_at", OL_COLUMN_TIME},
    {"completed_at", OL_COLUMN_TIME},   {"started_event_id", OL_COLUMN_UUID},
    {"last_event_id", OL_COLUMN_UUID}}, 13, 11};

const struct ol_table ol_table_step = {"steps", {
    {"step_id", OL_COLUMN_TEXT},        {"run_id", OL_COLUMN_TEXT},
    {"step_index", OL_COLUMN_NUMBER},   {"step_type", OL_COLUMN_TEXT},
    {"status", OL_COLUMN_TEXT},         {"output_result", OL_COLUMN_JSON},
    {"error_code", OL_COLUMN_TEXT},     {"error_message", OL_COLUMN_TEXT},
    {"duration_ms", OL_COLUMN_NUMBER},  {"retry_count", OL_COLUMN_NUMBER},
    {"started_at", OL_COLUMN_TIME},     {"completed_at", OL_COLUMN_TIME},
    {"last_event_id", OL_COLUMN_UUID}}, 13, 12};

const struct ol_table ol_table_effect = {"effects", {
    {"effect_id", OL_COLUMN_UUID},      {"run_id", OL_COLUMN_TEXT},
    {"step_id", OL_COLUMN_TEXT},        {"session_key", OL_COLUMN_TEXT},
    {"checkpoint_id", OL_COLUMN_TEXT},  {"effect_type", OL_COLUMN_TEXT},
    {"effect_spec", OL_COLUMN_SPEC},    {"destination", OL_COLUMN_TEXT},
    {"status", OL_COLUMN_TEXT},         {"idempotency_key", OL_COLUMN_TEXT},
    {"message_id", OL_COLUMN_UUID},     {"execution_result", OL_COLUMN_JSON},
    {"executed_at", OL_COLUMN_TIME},    {"attempts", OL_COLUMN_NUMBER},
    {"last_attempt_at", OL_COLUMN_TIME}, {"created_at", OL_COLUMN_TIME},
    {"updated_at", OL_COLUMN_TIME},     {"org_id", OL_COLUMN_TEXT},
    {"correlation_id", OL_COLUMN_TEXT}, {"event_id", OL_COLUMN_NUMBER},
    {"last_event_id", OL_COLUMN_UUID}}, 21, 17};

const struct ol_table ol_table_checkpoint = {"run_checkpoints", {
    {"run_id", OL_COLUMN_TEXT},         {"checkpoint_index", OL_COLUMN_NUMBER},
    {"checkpoint_data", OL_COLUMN_JSON}, {"event_id", OL_COLUMN_NUMBER},
    {"created_at", OL_COLUMN_TIME}}, 5, 5};
// clang-format on

/* --- values --- */

static const char *take_text(struct ol_arena *arena, struct ol_buf *text)
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
    return take_text(arena, &json);
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
    return take_text(arena, &json);
}

const char *ol_row_value_json(struct ol_arena *arena, const struct ol_json *value)
{
    bool is_null = value->type == OL_JSON_NONE || value->type == OL_JSON_NULL;
    return is_null ? NULL : ol_arena_copy(arena, value->text, value->bytes);
}

static const char *read_column(const struct ol_rows *rows, int at, enum ol_column_type type,
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
        return ol_row_value_text(arena, text); // edited by hand: shown as it is
    default:
        return ol_row_value_text(arena, ol_rows_text(rows, at, NULL));
    }
}

/* --- lists --- */

struct ol_row *ol_row_add(struct ol_row_list *list, const struct ol_table *table,
                          struct ol_arena *arena)
{
    struct ol_row *row = ol_arena_alloc(arena, sizeof *row);
    if (!row)
        return NULL;
    row->table = table;
    if (list->last)
        list->last->next = row;
    else
        list->first = row;
    list->last = row;
    return row;
}

static struct ol_row *add_row(struct ol_row_list *list, const struct ol_rows *rows,
                              const struct ol_table *table, struct ol_arena *arena, size_t *bytes)
{
    struct ol_row *row = ol_row_add(list, table, arena);
    for (int i = 0; row && i < table->count; i++) {
        enum ol_column_type type = table->columns[i].type;
        size_t length = 0;
        bool is_null = ol_rows_is_null(rows, i);
        row->values[i] = is_null ? NULL : read_column(rows, i, type, arena);
        if (type == OL_COLUMN_JSON || type == OL_COLUMN_SPEC)
            ol_rows_text(rows, i, &length);
        *bytes += length;
    }
    return row;
}

int ol_row_list_load_some(const struct ol_row_query *query, struct ol_arena *arena,
                          struct ol_row_list *list, bool *is_cut, outlog_err *err)
{
    size_t bytes_max = query->json_bytes_max;
    struct ol_rows rows;
    size_t bytes = 0;
    int more = 0;
    if (ol_store_query(query->conn, query->id, query->params, &rows, err) < 0)
        return -1;
    while (bytes < bytes_max && (more = ol_rows_next(&rows, err)) > 0)
        if (!add_row(list, &rows, query->table, arena, &bytes)) {
            more = ol_no_memory(err);
            break;
        }
    ol_rows_end(&rows);
    *is_cut = bytes >= bytes_max / 2; // a server with another encoding counts other bytes
    return more < 0 ? -1 : 0;
}

int ol_row_list_load(struct ol_conn *conn, enum ol_query_id query, const struct ol_value *params,
                     const struct ol_table *table, struct ol_arena *arena, struct ol_row_list *list,
                     outlog_err *err)
{
    struct ol_row_query all = {.conn = conn,
                               .id = query,
                               .params = params,
                               .table = table,
                               .json_bytes_max = SIZE_MAX};
    bool is_cut;
    return ol_row_list_load_some(&all, arena, list, &is_cut, err);
}

const char *ol_row_key(const struct ol_row *row)
{
    return row->values[row->table == &ol_table_checkpoint ? OL_IN_CHECKPOINT_INDEX : 0];
}

static bool key_equals(const char *key, const char *wanted)
{
    return key && strcmp(key, wanted) == 0;
}

struct ol_row *ol_row_find(const struct ol_row_list *list, const char *key)
{
    if (!key)
        return NULL;
    if (list->last && key_equals(ol_row_key(list->last), key)) // mostly it is the newest
        return list->last;
    for (struct ol_row *row = list->first; row; row = row->next)
        if (key_equals(ol_row_key(row), key))
            return row;
    return NULL;
}

/* --- values of a row --- */

const char *ol_row_text(const struct ol_row *row, int column, struct ol_arena *arena)
{
    struct ol_json value;
    const char *text = row->values[column];
    if (!text || ol_json_parse(text, strlen(text), &value, NULL) < 0)
        return NULL;
    return ol_json_string(&value, arena, NULL);
}

int64_t ol_row_int(const struct ol_row *row, int column)
{
    return row->values[column] ? strtoll(row->values[column], NULL, 10) : 0;
}

bool ol_row_is(const struct ol_row *row, int column, const char *text)
{
    const char *value = row->values[column];
    size_t bytes = strlen(text);
    return value && strncmp(value + 1, text, bytes) == 0 && strcmp(value + 1 + bytes, "\"") == 0;
}

/* --- as JSON --- */

static void put_value(const struct ol_row *row, int column, struct ol_buf *out)
{
    struct ol_json value;
    const char *text = row->values[column];
    if (!text)
        ol_buf_text(out, "null");
    else if (row->table->columns[column].type == OL_COLUMN_SPEC &&
             ol_json_parse(text, strlen(text), &value, NULL) == 0)
        ol_secrets_mask(&value, out);
    else
        ol_buf_text(out, text);
}

void ol_row_members(const struct ol_row *row, struct ol_buf *out)
{
    for (int i = 0; i < row->table->shown; i++) {
        ol_buf_print(out, "%s\"%s\":", i ? "," : "", row->table->columns[i].name);
        put_value(row, i, out);
    }
}

void ol_row_json(const struct ol_row *row, struct ol_buf *out)
{
    if (!row) {
        ol_buf_text(out, "null");
        return;
    }
    ol_buf_char(out, '{');
    ol_row_members(row, out);
    ol_buf_char(out, '}');
}

void ol_row_list_json(const struct ol_row_list *list, struct ol_buf *out)
{
    ol_buf_char(out, '[');
    for (const struct ol_row *row = list->first; row; row = row->next) {
        if (row != list->first)
            ol_buf_char(out, ',');
        ol_row_json(row, out);
    }
    ol_buf_char(out, ']');
}
