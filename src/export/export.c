/* export.c: pages through the tables and the log and writes each row as a line. */
#include "export/export.h"

#include "export/tables.h"
#include "log/event.h"
#include "log/read.h"

#include <stdlib.h>
#include <string.h>

enum { EXPORT_PAGE = 1000, EXPORT_OPEN_TX_MS = 60000 };

void ol_export_head(struct ol_buf *line, int64_t after, int64_t settled)
{
    ol_buf_print(line, "{\"outlog_export\":{\"format\":%d,\"after\":%lld,\"settled\":%lld}}\n",
                 OL_EXPORT_FORMAT, (long long)after, (long long)settled);
}

void ol_export_end(struct ol_buf *line, int64_t events)
{
    ol_buf_print(line, "{\"end\":{\"events\":%lld}}\n", (long long)events);
}

/* A JSON document with control characters, such as line breaks, is also written as a string: that
 * keeps its bytes. */
static void put_raw_text(struct ol_buf *line, const char *name, const char *text, size_t bytes)
{
    bool is_plain = true;
    for (size_t i = 0; text && i < bytes && is_plain; i++)
        is_plain = (unsigned char)text[i] >= ' ';
    if (is_plain)
        return;
    ol_buf_print(line, ",\"%s\":", name);
    ol_buf_json(line, text, bytes);
}

static void put_event_line(const struct outlog_event *event, struct ol_buf *line)
{
    ol_buf_reset(line);
    ol_buf_text(line, "{\"event\":");
    ol_event_write_json(event, line);
    if (!line->failed)
        line->bytes--; // the closing brace: more follows
    put_raw_text(line, "metadata_text", event->metadata,
                 event->metadata ? strlen(event->metadata) : 0);
    put_raw_text(line, "payload_text", event->payload, event->payload_bytes);
    ol_buf_text(line, "}}\n");
}

static int write_events(const struct outlog_page *page, struct ol_export_cursor *cursor,
                        ol_export_writer *write, void *user, outlog_err *err)
{
    struct ol_buf line = {0};
    int result = 0;
    for (size_t i = 0; result == 0 && i < page->count; i++) {
        put_event_line(&page->events[i], &line);
        result = line.failed ? ol_no_memory(err) : write(user, line.data, line.bytes, err);
        if (result == 0) {
            cursor->after = page->events[i].event_id;
            cursor->count++;
        }
    }
    ol_buf_clear(&line);
    return result;
}

int ol_export_events(outlog *log, struct ol_export_cursor *cursor, ol_export_writer *write,
                     void *user, outlog_err *err)
{
    const struct outlog_filter filter = {.raw = true}; // as stored
    struct outlog_page page = {0};
    int result = -1;

    cursor->count = 0;
    do {
        int64_t left = cursor->limit ? cursor->limit - cursor->count : EXPORT_PAGE;
        if (left == 0)
            break;
        bool must_wait = cursor->after < cursor->upto;
        if (ol_read_follow_short(log, &filter, cursor->after,
                                 left < EXPORT_PAGE ? (size_t)left : EXPORT_PAGE,
                                 OL_READ_PAGE_BYTES, must_wait ? EXPORT_OPEN_TX_MS : 0, &page,
                                 err) < 0)
            goto out;
        if (page.count == 0 && must_wait) {
            ol_fail(err, OUTLOG_UNAVAILABLE,
                    "a transaction that appends has been open for a minute: end it, and export "
                    "again");
            goto out;
        }
        if (write_events(&page, cursor, write, user, err) < 0)
            goto out;
    } while (page.count > 0);
    result = 0;
out:
    outlog_page_clear(&page);
    return result;
}

static void put_value(const struct ol_rows *rows, int column, char kind, struct ol_buf *line)
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

static void put_row_line(const struct ol_export_table *table, const struct ol_rows *rows,
                         struct ol_buf *line)
{
    const char *comma = "";
    ol_buf_reset(line);
    ol_buf_print(line, "{\"%s\":{", table->name);
    for (int i = 0; i < OL_EXPORT_COLUMNS_MAX && table->columns[i].name; i++) {
        if (table->columns[i].kind == 'k')
            continue;
        ol_buf_print(line, "%s\"%s\":", comma, table->columns[i].name);
        put_value(rows, i, table->columns[i].kind, line);
        comma = ",";
    }
    ol_buf_text(line, "}}\n");
}

/* Write one page; the key of its last row becomes `after`. */
static int write_page(outlog *log, const struct ol_export_table *table,
                      char *after[OL_EXPORT_KEYS_MAX], ol_export_writer *write, void *user,
                      int *count, outlog_err *err)
{
    struct ol_value params[OL_EXPORT_KEYS_MAX + 1];
    struct ol_rows rows;
    struct ol_buf line = {0};
    int more;

    for (int i = 0; i < table->keys; i++)
        params[i] = ol_value_text(after[i] ? after[i] : "");
    params[table->keys] = ol_value_int(EXPORT_PAGE);
    if (ol_store_query(log->conn, table->list, params, &rows, err) < 0)
        return -1;
    *count = 0;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        put_row_line(table, &rows, &line);
        if (line.failed || write(user, line.data, line.bytes, err) < 0) {
            more = line.failed ? ol_no_memory(err) : -1;
            break;
        }
        for (int i = 0; i < table->keys; i++) {
            free(after[i]);
            after[i] = strdup(ol_rows_text(&rows, i, NULL));
        }
        ++*count;
    }
    ol_rows_end(&rows);
    ol_buf_clear(&line);
    return more;
}

static int write_table(outlog *log, const struct ol_export_table *table, ol_export_writer *write,
                       void *user, outlog_err *err)
{
    char *after[OL_EXPORT_KEYS_MAX] = {0};
    int result = 0, count = EXPORT_PAGE;
    while (result == 0 && count == EXPORT_PAGE)
        result = write_page(log, table, after, write, user, &count, err);
    for (int k = 0; k < OL_EXPORT_KEYS_MAX; k++)
        free(after[k]);
    return result;
}

int ol_export_state(outlog *log, ol_export_writer *write, void *user, int64_t *upto,
                    outlog_err *err)
{
    const struct ol_export_table *table;
    int result = log->conn->store->snapshot(log->conn, err);
    if (result < 0)
        return -1;
    for (size_t i = 0; result == 0 && (table = ol_export_table_at(i)); i++)
        result = write_table(log, table, write, user, err);
    if (result == 0)
        result = ol_store_number(log->conn, OL_Q_EXPORT_LAST, OL_NO_PARAMS, upto, err);
    log->conn->store->rollback(log->conn);
    return result;
}

int ol_export_claimed(outlog *log, int64_t *count, outlog_err *err)
{
    return ol_store_number(log->conn, OL_Q_EXPORT_CLAIMED_MESSAGES, OL_NO_PARAMS, count, err);
}
