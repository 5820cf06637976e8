/* export.c: see export.h. What stands beside the log is told by tables.h, for both directions. */
#include "export/export.h"

#include "export/tables.h"
#include "log/event.h"
#include "log/read.h"
#include "store/event_fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 1000, FORMAT = 2, OPEN_MS = 60000 };

/* --- out
 * ------------------------------------------------------------------------------------------------
 */

void ol_export_head(struct ol_buf *line, int64_t after, int64_t settled)
{
    ol_buf_print(line, "{\"outlog_export\":{\"format\":%d,\"after\":%lld,\"settled\":%lld}}\n",
                 FORMAT, (long long)after, (long long)settled);
}

void ol_export_end(struct ol_buf *line, int64_t events)
{
    ol_buf_print(line, "{\"end\":{\"events\":%lld}}\n", (long long)events);
}

/* A document with line breaks reads well as JSON, and is kept byte for byte beside it. */
static void add_text(struct ol_buf *line, const char *name, const char *text, size_t bytes)
{
    bool is_plain = true;
    for (size_t i = 0; text && i < bytes && is_plain; i++)
        is_plain = (unsigned char)text[i] >= ' ';
    if (is_plain)
        return;
    ol_buf_print(line, ",\"%s\":", name);
    ol_buf_json(line, text, bytes);
}

static void event_line(const struct outlog_event *event, struct ol_buf *line)
{
    ol_buf_reset(line);
    ol_buf_text(line, "{\"event\":");
    ol_event_write_json(event, line);
    if (!line->failed)
        line->bytes--; // the closing brace: more follows
    add_text(line, "metadata_text", event->metadata, event->metadata ? strlen(event->metadata) : 0);
    add_text(line, "payload_text", event->payload, event->payload_bytes);
    ol_buf_text(line, "}}\n");
}

int ol_export_events(outlog *log, int64_t after, int64_t upto, int64_t limit, ol_export_sink *write,
                     void *user, int64_t *last, int64_t *count, outlog_err *err)
{
    const struct outlog_filter filter = {.raw = true}; // as stored
    struct outlog_page page = {0};
    struct ol_buf line = {0};
    int result = -1;

    *last = after;
    *count = 0;
    do {
        size_t wanted = limit && limit - *count < PAGE ? (size_t)(limit - *count) : PAGE;
        if (wanted == 0)
            break;
        if (ol_read_follow_short(log, &filter, *last, wanted, OL_READ_PAGE_BYTES,
                                 *last < upto ? OPEN_MS : 0, &page, err) < 0)
            goto out;
        if (page.count == 0 && *last < upto) {
            ol_fail(err, OUTLOG_UNAVAILABLE,
                    "a transaction that appends is open for a minute: end it, and export again");
            goto out;
        }
        for (size_t i = 0; i < page.count; i++) {
            event_line(&page.events[i], &line);
            if (line.failed) {
                ol_no_memory(err);
                goto out;
            }
            if (write(user, line.data, line.bytes, err) < 0)
                goto out;
            *last = page.events[i].event_id;
            ++*count;
        }
    } while (page.count > 0);
    result = 0;
out:
    ol_buf_clear(&line);
    outlog_page_clear(&page);
    return result;
}

static void add_value(const struct ol_rows *rows, int column, char kind, struct ol_buf *line)
{
    size_t bytes = 0;
    if (ol_rows_is_null(rows, column))
        ol_buf_text(line, "null");
    else if (kind == 'i')
        ol_buf_int(line, ol_rows_int(rows, column));
    else if (kind == 'T')
        ol_buf_json_time(line, ol_rows_time(rows, column));
    else {
        const char *text = ol_rows_text(rows, column, &bytes);
        ol_buf_json(line, text, bytes);
    }
}

static void row_line(const struct ol_export_table *shelf, const struct ol_rows *rows,
                     struct ol_buf *line)
{
    const char *comma = "";
    ol_buf_reset(line);
    ol_buf_print(line, "{\"%s\":{", shelf->name);
    for (int i = 0; i < OL_EXPORT_COLUMNS_MAX && shelf->columns[i].name; i++) {
        if (shelf->columns[i].kind == 'k')
            continue;
        ol_buf_print(line, "%s\"%s\":", comma, shelf->columns[i].name);
        add_value(rows, i, shelf->columns[i].kind, line);
        comma = ",";
    }
    ol_buf_text(line, "}}\n");
}

/* One page; the key of its last row becomes `after`. */
static int shelf_page(outlog *log, const struct ol_export_table *shelf,
                      char *after[OL_EXPORT_KEYS_MAX], ol_export_sink *write, void *user,
                      int *count, outlog_err *err)
{
    struct ol_value params[OL_EXPORT_KEYS_MAX + 1];
    struct ol_rows rows;
    struct ol_buf line = {0};
    int more;

    for (int i = 0; i < shelf->keys; i++)
        params[i] = ol_value_text(after[i] ? after[i] : "");
    params[shelf->keys] = ol_value_int(PAGE);
    if (ol_store_query(log->conn, shelf->list, params, &rows, err) < 0)
        return -1;
    *count = 0;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        row_line(shelf, &rows, &line);
        if (line.failed || write(user, line.data, line.bytes, err) < 0) {
            more = line.failed ? ol_no_memory(err) : -1;
            break;
        }
        for (int i = 0; i < shelf->keys; i++) {
            free(after[i]);
            after[i] = strdup(ol_rows_text(&rows, i, NULL));
        }
        ++*count;
    }
    ol_rows_end(&rows);
    ol_buf_clear(&line);
    return more;
}

static int write_shelf(outlog *log, const struct ol_export_table *shelf, ol_export_sink *write,
                       void *user, outlog_err *err)
{
    char *after[OL_EXPORT_KEYS_MAX] = {0};
    int result = 0, count = PAGE;
    while (result == 0 && count == PAGE)
        result = shelf_page(log, shelf, after, write, user, &count, err);
    for (int k = 0; k < OL_EXPORT_KEYS_MAX; k++)
        free(after[k]);
    return result;
}

int ol_export_state(outlog *log, ol_export_sink *write, void *user, int64_t *upto, outlog_err *err)
{
    const struct ol_export_table *shelf;
    int result = log->conn->store->snapshot(log->conn, err);
    if (result < 0)
        return -1;
    for (size_t i = 0; result == 0 && (shelf = ol_export_table_at(i)); i++)
        result = write_shelf(log, shelf, write, user, err);
    if (result == 0)
        result = ol_store_number(log->conn, OL_Q_ARCHIVE_LAST, OL_NO_PARAMS, upto, err);
    log->conn->store->rollback(log->conn);
    return result;
}

int ol_export_claimed(outlog *log, int64_t *count, outlog_err *err)
{
    return ol_store_number(log->conn, OL_Q_ARCHIVE_CLAIMED_MESSAGES, OL_NO_PARAMS, count, err);
}

/* --- in
 * --------------------------------------------------------------------------------------------------
 */

struct ol_import {
    outlog *log;
    outlog_tx *tx;       /* open while events are being stored */
    int in_tx;           /* how many of them */
    int64_t last;        /* the highest event_id that is stored */
    int64_t seen, count; /* events that came by; those that were stored */
    int64_t claimed;     /* what the end says came; -1: no end yet */
    bool has_head;
    FILE *state; /* lines that wait for the end: a file without a name, as they may be many */
    struct ol_arena arena;
};

int ol_import_open(outlog *log, struct ol_import **out, outlog_err *err)
{
    struct ol_import *import = calloc(1, sizeof *import);
    int64_t used;
    if (!import)
        return ol_no_memory(err);
    import->log = log;
    import->claimed = -1;
    if (!(import->state = tmpfile())) {
        free(import);
        return ol_fail(err, OUTLOG_STORE_ERROR, "a temporary file: %s", strerror(errno));
    }
    if (ol_log_ready(log, err) < 0 ||
        ol_store_number(log->conn, OL_Q_ARCHIVE_IN_USE, OL_NO_PARAMS, &used, err) < 0 ||
        ol_store_number(log->conn, OL_Q_ARCHIVE_LAST, OL_NO_PARAMS, &import->last, err) < 0) {
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

static int commit(struct ol_import *import, outlog_err *err)
{
    outlog_tx *tx = import->tx;
    import->tx = NULL;
    import->in_tx = 0;
    return tx ? outlog_commit(tx, err) : 0;
}

static int begin(struct ol_import *import, outlog_err *err)
{
    return import->tx ? 0 : outlog_begin(import->log, &import->tx, err);
}

static struct ol_value text_of(struct ol_import *import, const struct ol_json *object,
                               const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    return ol_value_text(ol_json_string(&value, &import->arena, NULL));
}

static struct ol_value int_of(const struct ol_json *object, const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    int64_t number = 0;
    if (value.type == OL_JSON_NULL)
        return ol_value_text(NULL);
    ol_json_int(&value, &number);
    return ol_value_int(number);
}

/* `payload_text` where there is one, else the bytes of `payload` as they stand. */
static struct ol_value document_of(struct ol_import *import, const struct ol_json *object,
                                   const char *key, const char *text_key)
{
    struct ol_json text = ol_json_get(object, text_key), value = ol_json_get(object, key);
    if (text.type == OL_JSON_STRING)
        return text_of(import, object, text_key);
    if (value.type != OL_JSON_OBJECT)
        return ol_value_text(NULL);
    const char *copy = ol_arena_copy(&import->arena, value.text, value.bytes);
    return copy ? ol_value_bytes(copy, value.bytes) : ol_value_text(NULL);
}

static struct ol_value field_of(struct ol_import *import, const struct ol_json *event,
                                const struct ol_field *field)
{
    char text_key[64];
    if (field->kind == OL_FIELD_NUMBER || field->kind == OL_FIELD_VERSION)
        return int_of(event, field->name);
    if (field->kind != OL_FIELD_JSON)
        return text_of(import, event, field->name);
    snprintf(text_key, sizeof text_key, "%s_text", field->name);
    return document_of(import, event, field->name, text_key);
}

/* It is there already; is it the same one? Only the last is looked at: ids never repeat. */
static int check_same(struct ol_import *import, const struct ol_json *event, outlog_err *err)
{
    struct ol_json id = ol_json_get(event, "id");
    struct ol_rows rows;
    if (ol_store_query(import->log->conn, OL_Q_ARCHIVE_EVENT_ID,
                       OL_PARAMS(ol_value_int(import->last)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    bool is_same = got > 0 && ol_json_equals(&id, ol_rows_text(&rows, 0, NULL));
    ol_rows_end(&rows);
    if (got < 0)
        return -1;
    return is_same ? 0
                   : ol_fail(err, OUTLOG_INVALID_FIELD,
                             "event %lld in the store is another one: this is not the rest of the"
                             " same log",
                             (long long)import->last);
}

/* What came so far is stored, and known to have come by this import. */
static int commit_page(struct ol_import *import, outlog_err *err)
{
    return ol_store_exec(import->tx->conn, OL_Q_ARCHIVE_MARK, OL_PARAMS(ol_value_int(import->last)),
                         NULL, err) < 0
               ? -1
               : commit(import, err);
}

static int take_event(struct ol_import *import, const struct ol_json *e, outlog_err *err)
{
    struct ol_value params[OL_EVENT_FIELD_COUNT];
    int64_t number = int_of(e, "event_id").number;

    import->seen++;
    if (number <= import->last)
        return number == import->last && import->count == 0 ? check_same(import, e, err) : 0;
    if (begin(import, err) < 0)
        return -1;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++)
        params[i] = field_of(import, e, &ol_event_fields[i]);
    if (ol_store_exec(import->tx->conn, OL_Q_ARCHIVE_EVENT, params, NULL, err) < 0) {
        ol_err_prefix(err, "event %lld", (long long)number);
        return -1;
    }
    import->last = number;
    import->count++;
    return ++import->in_tx < PAGE ? 0 : commit_page(import, err);
}

static int take_row(struct ol_import *import, const struct ol_export_table *shelf,
                    const struct ol_json *row, outlog_err *err)
{
    struct ol_value params[OL_EXPORT_COLUMNS_MAX] = {0};
    int count = 0;
    for (int i = 0; i < OL_EXPORT_COLUMNS_MAX && shelf->columns[i].name; i++)
        if (shelf->columns[i].kind != 'k')
            params[count++] = shelf->columns[i].kind == 'i'
                                  ? int_of(row, shelf->columns[i].name)
                                  : text_of(import, row, shelf->columns[i].name);
    int result = shelf->make ? shelf->make(import->tx->conn, params[0].text, params[1].text,
                                           &import->arena, err)
                             : ol_store_exec(import->tx->conn, shelf->put, params, NULL, err);
    if (result < 0)
        ol_err_prefix(err, "%s", shelf->name);
    return result;
}

static int take_head(struct ol_import *import, const struct ol_json *head, outlog_err *err)
{
    int64_t after = int_of(head, "after").number;
    if (int_of(head, "format").number != FORMAT)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "this export has another format than %d: a newer outlog reads it", FORMAT);
    if (after > import->last)
        return ol_fail(
            err, OUTLOG_INVALID_FIELD,
            "this part begins after event %lld, but the store ends at %lld: one is missing",
            (long long)after, (long long)import->last);
    import->has_head = true;
    import->claimed = -1;
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
        return ol_fail(err, OUTLOG_INVALID_FIELD, "this is no line of an export");
    if (ol_json_equals(&it.key, "outlog_export"))
        return take_head(import, &it.value, err);
    if (!import->has_head)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "an export begins with {\"outlog_export\": …}; this does not");
    if (ol_json_equals(&it.key, "event"))
        return take_event(import, &it.value, err);
    if (ol_json_equals(&it.key, "end")) {
        import->claimed = int_of(&it.value, "events").number;
        if (import->claimed == import->seen)
            return 0;
        return ol_fail(err, OUTLOG_INVALID_FIELD, "%lld events were said to be there, %lld came",
                       (long long)import->claimed, (long long)import->seen);
    }
    if (!ol_export_table_named(&it.key))
        return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "%.*s: what is this?",
                       (int)(it.key.bytes < 60 ? it.key.bytes : 60), it.key.text);
    // After the events: routes must not see them.
    return fwrite(line, 1, bytes, import->state) == bytes && fputc('\n', import->state) != EOF
               ? 0
               : ol_fail(err, OUTLOG_STORE_ERROR, "a temporary file: %s", strerror(errno));
}

static int take_line(struct ol_import *import, const char *line, size_t bytes, outlog_err *err)
{
    struct ol_json whole;
    struct ol_json_iter it = {0};
    ol_arena_reset(&import->arena);
    return ol_json_parse(line, bytes, &whole, err) < 0 || !ol_json_next(&whole, &it)
               ? -1
               : take_row(import, ol_export_table_named(&it.key), &it.value, err);
}

static int take_state(struct ol_import *import, outlog_err *err)
{
    struct ol_conn *conn = import->tx->conn;
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes = 0;
    int result = ol_store_exec(conn, OL_Q_ARCHIVE_BEGIN, OL_NO_PARAMS, NULL, err);

    rewind(import->state);
    while (result == 0 && (bytes = getline(&line, &room, import->state)) > 0)
        result = bytes > 1 ? take_line(import, line, (size_t)bytes - 1, err) : 0;
    if (result == 0 && ferror(import->state))
        result = ol_fail(err, OUTLOG_STORE_ERROR, "a temporary file: %s", strerror(errno));
    free(line);
    return result < 0 || ol_store_exec(conn, OL_Q_ARCHIVE_LANES, OL_NO_PARAMS, NULL, err) < 0 ||
                   ol_store_exec(conn, OL_Q_ARCHIVE_VIEWS, OL_NO_PARAMS, NULL, err) < 0
               ? -1
               : ol_store_exec(conn, OL_Q_ARCHIVE_DONE, OL_NO_PARAMS, NULL, err);
}

int ol_import_finish(struct ol_import *import, int64_t *events, outlog_err *err)
{
    int64_t number;
    if (!import->has_head || import->claimed < 0)
        return ol_fail(
            err, OUTLOG_INVALID_FIELD,
            "the end is missing: the export was cut off; what came is stored, so import a"
            " whole one into the same store");
    if (begin(import, err) < 0 ||
        ol_store_exec(import->tx->conn, OL_Q_ARCHIVE_HEADS, OL_NO_PARAMS, NULL, err) < 0 ||
        ol_store_number(import->tx->conn, OL_Q_ARCHIVE_NUMBER,
                        OL_PARAMS(ol_value_int(import->last)), &number, err) < 0 ||
        take_state(import, err) < 0)
        return -1;
    *events = import->count;
    return commit(import, err);
}
