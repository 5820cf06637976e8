/* query.c: statements of the SQLite store, and their rows. */
#include "base/timestamp.h"
#include "store/sqlite/file.h"
#include "store/sqlite/internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Turn an INSERT of one row into one of many: repeat the row of its VALUES. Parameters without a
 * number are numbered in order, so those of the second row follow those of the first. */
static bool repeat_values(struct ol_statement *text, size_t rows)
{
    char one[sizeof text->text];
    char *at = strstr(text->text, "values ("), *end = text->text + sizeof text->text;
    assert(at);
    size_t bytes = 0;
    at += strlen("values ");
    for (const char *from = at; bytes == 0 || one[bytes - 1] != ')'; from++)
        if (*from < '0' || *from > '9') // the row has only parameters
            one[bytes++] = *from;
    const char *rest = strchr(at, ')') + 1;
    size_t rest_bytes = strlen(rest) + 1;
    char *rest_at = at + rows * (bytes + 1) - 1;
    if (rest_at + rest_bytes > end)
        return false;
    memmove(rest_at, rest, rest_bytes);
    for (size_t i = 0; i < rows; i++) {
        if (i > 0)
            *at++ = ',';
        memcpy(at, one, bytes);
        at += bytes;
    }
    return true;
}

struct ol_sqlite_prepared *ol_sqlite_prepare(struct ol_sqlite_conn *conn, enum ol_query_id id,
                                             const struct ol_value *params, size_t rows,
                                             outlog_err *err)
{
    const struct ol_query *query = &ol_queries_sqlite[id];
    uint64_t key = ol_statement_key(query, params);
    struct ol_sqlite_prepared *found;

    for (found = conn->prepared[id]; found; found = found->next)
        if (found->key == key && found->rows == rows)
            return found;

    struct ol_statement text;
    if (ol_statement_build(query, params, '?', &text, err) < 0)
        return NULL;
    if (rows > 1 && !repeat_values(&text, rows)) {
        ol_fail(err, OUTLOG_MISUSE, "query %s is too long", query->name);
        return NULL;
    }
    if (!(found = calloc(1, sizeof *found))) {
        ol_no_memory(err);
        return NULL;
    }
    int result = sqlite3_prepare_v3(conn->db, text.text, -1, SQLITE_PREPARE_PERSISTENT,
                                    &found->statement, NULL);
    if (result != SQLITE_OK) {
        free(found);
        ol_sqlite_fail(conn, result, err);
        return NULL;
    }
    found->key = key;
    found->rows = rows;
    found->bound_count = text.bound_count;
    memcpy(found->bound, text.bound, sizeof found->bound);
    found->next = conn->prepared[id];
    conn->prepared[id] = found;
    return found;
}

static int bind_value(sqlite3_stmt *statement, int slot, const struct ol_value *value)
{
    switch (value->type) {
    case OL_VALUE_INT:
        return sqlite3_bind_int64(statement, slot, value->number);
    case OL_VALUE_REAL:
        return sqlite3_bind_double(statement, slot, value->real);
    case OL_VALUE_TEXT:
        return sqlite3_bind_text64(statement, slot, value->text, value->bytes, SQLITE_STATIC,
                                   SQLITE_UTF8);
    default:
        return sqlite3_bind_null(statement, slot);
    }
}

int ol_sqlite_bind_row(struct ol_sqlite_conn *conn, const struct ol_sqlite_prepared *prepared,
                       size_t row, const struct ol_value *params, outlog_err *err)
{
    for (int i = 0; i < prepared->bound_count; i++) {
        int result = bind_value(prepared->statement, (int)row * prepared->bound_count + i + 1,
                                &params[prepared->bound[i]]);
        if (result != SQLITE_OK)
            return ol_sqlite_fail(conn, result, err);
    }
    return 0;
}

int ol_sqlite_query(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params,
                    struct ol_rows *rows, outlog_err *err)
{
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(base);
    if (ol_statement_check(&ol_queries_sqlite[id], params, err) < 0)
        return -1;
    struct ol_sqlite_prepared *prepared = ol_sqlite_prepare(conn, id, params, 1, err);
    if (!prepared)
        return -1;
    assert(!sqlite3_stmt_busy(prepared->statement));
    if (ol_sqlite_bind_row(conn, prepared, 0, params, err) < 0)
        return -1;
    rows->handle = prepared->statement;
    return 0;
}

int ol_sqlite_next(struct ol_rows *rows, outlog_err *err)
{
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(rows->conn);
    if (!rows->handle)
        return 0;
    bool is_commit = !conn->base.in_transaction && !sqlite3_stmt_readonly(rows->handle);
    if (is_commit && ol_sqlite_file_check(conn, true, err) < 0) {
        ol_rows_end(rows);
        return -1;
    }
    if (is_commit)
        ol_sqlite_lock_writer(conn);
    int result = sqlite3_step(rows->handle);
    if (result == SQLITE_ROW) {
        rows->row++;
        return 1;
    }
    if (result == SQLITE_DONE) {
        rows->changed = sqlite3_changes64(conn->db);
        ol_rows_end(rows);
        return is_commit ? ol_sqlite_check_committed(conn, err) : 0;
    }
    ol_sqlite_fail(conn, result, err);
    ol_rows_end(rows);
    return -1;
}

void ol_sqlite_end(struct ol_rows *rows)
{
    sqlite3_reset(rows->handle);
    sqlite3_clear_bindings(rows->handle); // they point into the caller's memory
    if (!rows->conn->in_transaction)
        // A write outside of a transaction is committed now.
        ol_sqlite_unlock_writer(ol_sqlite_conn_from(rows->conn));
}

bool ol_sqlite_is_null(const struct ol_rows *rows, int column)
{
    return sqlite3_column_type(rows->handle, column) == SQLITE_NULL;
}

int64_t ol_sqlite_column_int(const struct ol_rows *rows, int column)
{
    return sqlite3_column_int64(rows->handle, column);
}

const char *ol_sqlite_column_text(const struct ol_rows *rows, int column, size_t *bytes)
{
    const char *text = (const char *)sqlite3_column_text(rows->handle, column);
    *bytes = (size_t)sqlite3_column_bytes(rows->handle, column);
    return text;
}

int64_t ol_sqlite_column_time(const struct ol_rows *rows, int column)
{
    size_t bytes;
    int64_t time_us = 0;
    const char *text = ol_sqlite_column_text(rows, column, &bytes);
    if (!text || ol_timestamp_parse(text, bytes, &time_us) < 0)
        return 0;
    return time_us;
}

void ol_sqlite_column_uuid(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT])
{
    size_t bytes;
    snprintf(out, OL_UUID_TEXT, "%s", ol_sqlite_column_text(rows, column, &bytes));
}
