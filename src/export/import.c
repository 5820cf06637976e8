/* import.c: stores the events of an export as they come, and its state after them. */
#include "export/import.h"

#include "export/export.h"
#include "export/tables.h"
#include "store/event_fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMPORT_BATCH = 1000 };

struct ol_import {
    outlog *log;
    outlog_tx *tx;       /* of the current batch, or NULL */
    int in_tx;           /* events in this batch */
    int64_t last;        /* the highest event_id that is stored */
    int64_t seen, count; /* events read from this file; events stored by this import */
    int64_t announced;   /* number of events in the last line; -1: not read yet */
    bool has_head;
    FILE *state; /* the lines of the state, which may be many: a temporary file */
    struct ol_arena arena;
};

int ol_import_open(outlog *log, struct ol_import **out, outlog_err *err)
{
    struct ol_import *import = calloc(1, sizeof *import);
    int64_t used;
    if (!import)
        return ol_no_memory(err);
    import->log = log;
    import->announced = -1;
    if (!(import->state = tmpfile())) {
        free(import);
        return ol_fail(err, OUTLOG_STORE_ERROR, "a temporary file: %s", strerror(errno));
    }
    if (ol_log_ready(log, err) < 0 ||
        ol_store_number(log->conn, OL_Q_EXPORT_IN_USE, OL_NO_PARAMS, &used, err) < 0 ||
        ol_store_number(log->conn, OL_Q_EXPORT_LAST, OL_NO_PARAMS, &import->last, err) < 0) {
        ol_import_close(import);
        return -1;
    }
    if (used) {
        ol_import_close(import);
        return ol_fail(
            err, OUTLOG_ILLEGAL_TRANSITION,
            "the store has events of its own: import into a new one, made by `outlog init`");
    }
    *out = import;
    return 0;
}

void ol_import_close(struct ol_import *import)
{
    if (!import)
        return;
    outlog_rollback(import->tx);
    if (import->state)
        fclose(import->state);
    ol_arena_clear(&import->arena);
    free(import);
}

static int commit_tx(struct ol_import *import, outlog_err *err)
{
    outlog_tx *tx = import->tx;
    import->tx = NULL;
    import->in_tx = 0;
    return tx ? outlog_commit(tx, err) : 0;
}

static int begin_tx(struct ol_import *import, outlog_err *err)
{
    return import->tx ? 0 : outlog_begin(import->log, &import->tx, err);
}

static struct ol_value get_text(struct ol_import *import, const struct ol_json *object,
                                const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    return ol_value_text(ol_json_string(&value, &import->arena, NULL));
}

static struct ol_value get_int(const struct ol_json *object, const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    int64_t number = 0;
    if (value.type == OL_JSON_NULL)
        return ol_value_text(NULL);
    ol_json_int(&value, &number);
    return ol_value_int(number);
}

/* `payload_text` if there is one, else the bytes of `payload`. */
static struct ol_value get_document(struct ol_import *import, const struct ol_json *object,
                                    const char *key, const char *text_key)
{
    struct ol_json text = ol_json_get(object, text_key), value = ol_json_get(object, key);
    if (text.type == OL_JSON_STRING)
        return get_text(import, object, text_key);
    if (value.type != OL_JSON_OBJECT)
        return ol_value_text(NULL);
    const char *copy = ol_arena_copy(&import->arena, value.text, value.bytes);
    return copy ? ol_value_bytes(copy, value.bytes) : ol_value_text(NULL);
}

static struct ol_value get_field(struct ol_import *import, const struct ol_json *event,
                                 const struct ol_field *field)
{
    char text_key[64];
    if (field->kind == OL_FIELD_NUMBER || field->kind == OL_FIELD_VERSION)
        return get_int(event, field->name);
    if (field->kind != OL_FIELD_JSON)
        return get_text(import, event, field->name);
    snprintf(text_key, sizeof text_key, "%s_text", field->name);
    return get_document(import, event, field->name, text_key);
}

/* Check that the last event of the store is the one of this line. If it is, those before it are the
 * same too: ids never repeat. */
static int check_same_event(struct ol_import *import, const struct ol_json *event, outlog_err *err)
{
    struct ol_json id = ol_json_get(event, "id");
    struct ol_rows rows;
    if (ol_store_query(import->log->conn, OL_Q_EXPORT_EVENT_ID,
                       OL_PARAMS(ol_value_int(import->last)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    bool is_same = got > 0 && ol_json_equals(&id, ol_rows_text(&rows, 0, NULL));
    ol_rows_end(&rows);
    if (got < 0)
        return -1;
    return is_same ? 0
                   : ol_fail(err, OUTLOG_INVALID_FIELD,
                             "event %lld in the store has another id: this is an export of another"
                             " log",
                             (long long)import->last);
}

/* Commit the batch and mark its events as imported, so that an interrupted import can continue. */
static int commit_batch(struct ol_import *import, outlog_err *err)
{
    return ol_store_exec(import->tx->conn, OL_Q_EXPORT_MARK, OL_PARAMS(ol_value_int(import->last)),
                         NULL, err) < 0
               ? -1
               : commit_tx(import, err);
}

static int import_event(struct ol_import *import, const struct ol_json *e, outlog_err *err)
{
    struct ol_value params[OL_EVENT_FIELD_COUNT];
    int64_t number = get_int(e, "event_id").number;

    import->seen++;
    if (number <= import->last)
        return number == import->last && import->count == 0 ? check_same_event(import, e, err) : 0;
    if (begin_tx(import, err) < 0)
        return -1;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++)
        params[i] = get_field(import, e, &ol_event_fields[i]);
    if (ol_store_exec(import->tx->conn, OL_Q_EXPORT_EVENT, params, NULL, err) < 0) {
        ol_err_prefix(err, "event %lld", (long long)number);
        return -1;
    }
    import->last = number;
    import->count++;
    return ++import->in_tx < IMPORT_BATCH ? 0 : commit_batch(import, err);
}

static int import_row(struct ol_import *import, const struct ol_export_table *table,
                      const struct ol_json *row, outlog_err *err)
{
    struct ol_value params[OL_EXPORT_COLUMNS_MAX] = {0};
    int count = 0;
    for (int i = 0; i < OL_EXPORT_COLUMNS_MAX && table->columns[i].name; i++)
        if (table->columns[i].kind != 'k')
            params[count++] = table->columns[i].kind == 'i'
                                  ? get_int(row, table->columns[i].name)
                                  : get_text(import, row, table->columns[i].name);
    int result = table->make ? table->make(import->tx->conn, params[0].text, params[1].text,
                                           &import->arena, err)
                             : ol_store_exec(import->tx->conn, table->put, params, NULL, err);
    if (result < 0)
        ol_err_prefix(err, "%s", table->name);
    return result;
}

static int check_head(struct ol_import *import, const struct ol_json *head, outlog_err *err)
{
    int64_t after = get_int(head, "after").number;
    if (get_int(head, "format").number != OL_EXPORT_FORMAT)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "the format of this export is not %d: import it with a newer outlog",
                       OL_EXPORT_FORMAT);
    if (after > import->last)
        return ol_fail(
            err, OUTLOG_INVALID_FIELD,
            "this part begins after event %lld, but the store ends at %lld: a part is missing",
            (long long)after, (long long)import->last);
    import->has_head = true;
    import->announced = -1;
    import->seen = 0;
    return 0;
}

int ol_import_line(struct ol_import *import, const char *line, size_t bytes, outlog_err *err)
{
    struct ol_json whole;
    struct ol_json_iter it = {0};

    ol_arena_reset(&import->arena);
    if (ol_json_parse(line, bytes, &whole, err) < 0)
        return -1;
    if (whole.type != OL_JSON_OBJECT || !ol_json_next(&whole, &it))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "this is not a line of an export");
    if (ol_json_equals(&it.key, "outlog_export"))
        return check_head(import, &it.value, err);
    if (!import->has_head)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "an export begins with {\"outlog_export\": …}; this file does not");
    if (ol_json_equals(&it.key, "event"))
        return import_event(import, &it.value, err);
    if (ol_json_equals(&it.key, "end")) {
        import->announced = get_int(&it.value, "events").number;
        if (import->announced == import->seen)
            return 0;
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "the export ends with %lld events, but %lld were read",
                       (long long)import->announced, (long long)import->seen);
    }
    if (!ol_export_table_named(&it.key))
        return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "%.*s is not a kind of line in an export",
                       (int)(it.key.bytes < 60 ? it.key.bytes : 60), it.key.text);
    return fwrite(line, 1, bytes, import->state) == bytes && fputc('\n', import->state) != EOF
               ? 0
               : ol_fail(err, OUTLOG_STORE_ERROR, "a temporary file: %s", strerror(errno));
}

static int import_state_line(struct ol_import *import, const char *line, size_t bytes,
                             outlog_err *err)
{
    struct ol_json whole;
    struct ol_json_iter it = {0};
    ol_arena_reset(&import->arena);
    return ol_json_parse(line, bytes, &whole, err) < 0 || !ol_json_next(&whole, &it)
               ? -1
               : import_row(import, ol_export_table_named(&it.key), &it.value, err);
}

static int import_state(struct ol_import *import, outlog_err *err)
{
    struct ol_conn *conn = import->tx->conn;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes = 0;
    int result = ol_store_exec(conn, OL_Q_EXPORT_BEGIN, OL_NO_PARAMS, NULL, err);

    rewind(import->state);
    while (result == 0 && (bytes = getline(&line, &capacity, import->state)) > 0)
        result = bytes > 1 ? import_state_line(import, line, (size_t)bytes - 1, err) : 0;
    if (result == 0 && ferror(import->state))
        result = ol_fail(err, OUTLOG_STORE_ERROR, "a temporary file: %s", strerror(errno));
    free(line);
    return result < 0 || ol_store_exec(conn, OL_Q_EXPORT_LANES, OL_NO_PARAMS, NULL, err) < 0 ||
                   ol_store_exec(conn, OL_Q_EXPORT_VIEWS, OL_NO_PARAMS, NULL, err) < 0
               ? -1
               : ol_store_exec(conn, OL_Q_EXPORT_DONE, OL_NO_PARAMS, NULL, err);
}

int ol_import_finish(struct ol_import *import, int64_t *events, outlog_err *err)
{
    int64_t number;
    if (!import->has_head || import->announced < 0)
        return ol_fail(
            err, OUTLOG_INVALID_FIELD,
            "the last line is missing: the export was cut off; import a complete one into the"
            " same store, which continues after the events stored so far");
    if (begin_tx(import, err) < 0 ||
        ol_store_exec(import->tx->conn, OL_Q_EXPORT_HEADS, OL_NO_PARAMS, NULL, err) < 0 ||
        ol_store_number(import->tx->conn, OL_Q_EXPORT_NUMBER, OL_PARAMS(ol_value_int(import->last)),
                        &number, err) < 0 ||
        import_state(import, err) < 0)
        return -1;
    *events = import->count;
    return commit_tx(import, err);
}
