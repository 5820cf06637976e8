/* store.c: the code that all stores share: opening by URL, building statements, helpers. */
#include "store/store.h"

#include "base/timestamp.h"
#include "base/utf8.h"
#include "store/wake.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int ol_store_open(const char *url, struct ol_conn **out, outlog_err *err)
{
    *out = NULL;
    if (strncmp(url, "sqlite:", 7) == 0)
        return ol_store_sqlite.open(url, out, err);
#ifndef OL_SQLITE_EXTENSION
    if (strncmp(url, "postgres://", 11) == 0 || strncmp(url, "postgresql://", 13) == 0)
        return ol_store_postgres.open(url, out, err);
#endif
    return ol_fail(err, OUTLOG_INVALID_FIELD,
                   "store %.40s… is neither sqlite:PATH nor postgres://…; correct --store or "
                   "OUTLOG_STORE",
                   url);
}

void ol_store_close(struct ol_conn *conn)
{
    if (conn)
        conn->store->close(conn);
}

/* --- parameters --- */

struct ol_value ol_value_int(int64_t number)
{
    return (struct ol_value){.type = OL_VALUE_INT, .number = number};
}

struct ol_value ol_value_real(double real)
{
    return (struct ol_value){.type = OL_VALUE_REAL, .real = real};
}

struct ol_value ol_value_bytes(const char *text, size_t bytes)
{
    return (struct ol_value){.type = OL_VALUE_TEXT, .text = text, .bytes = bytes};
}

struct ol_value ol_value_text(const char *text)
{
    return text ? ol_value_bytes(text, strlen(text)) : (struct ol_value){.type = OL_VALUE_NULL};
}

struct ol_value ol_value_optional(const char *text)
{
    return text ? ol_value_text(text) : ol_value_absent();
}

struct ol_value ol_value_absent(void)
{
    return (struct ol_value){.type = OL_VALUE_ABSENT};
}

/* Times live in a ring of buffers: a query has fewer time parameters than the ring has buffers. */
struct ol_value ol_value_time(int64_t time_us)
{
    static _Thread_local char ring[8][OL_TIMESTAMP_TEXT];
    static _Thread_local unsigned at;
    return ol_value_text(ol_timestamp_format(time_us, ring[at++ % 8]));
}

/* --- statements --- */

uint64_t ol_statement_key(const struct ol_query *query, const struct ol_value *params)
{
    uint64_t key = 0;
    for (uint32_t i = 0; i < query->param_count; i++) {
        if (query->literal_mask >> i & 1)
            key = key * 1000003u + (uint64_t)params[i].number + 1;
        else
            key = key * 3u + (params[i].type == OL_VALUE_ABSENT ? 1 : 2);
    }
    return key;
}

struct statement_writer {
    struct ol_statement *to;
    size_t bytes;
};

static void put_text(struct statement_writer *out, const char *text)
{
    size_t bytes = strlen(text);
    if (out->bytes + bytes < sizeof out->to->text)
        memcpy(out->to->text + out->bytes, text, bytes + 1);
    out->bytes += bytes;
}

static int bind_slot(struct ol_statement *out, int param)
{
    for (int i = 0; i < out->bound_count; i++)
        if (out->bound[i] == param)
            return i + 1;
    assert(out->bound_count < (int)(sizeof out->bound / sizeof *out->bound));
    out->bound[out->bound_count] = param;
    return ++out->bound_count;
}

int ol_statement_build(const struct ol_query *query, const struct ol_value *params, char marker,
                       struct ol_statement *out, outlog_err *err)
{
    struct statement_writer text = {out, 0};
    char word[32];

    assert(query->pieces); // else it is a query of the other store only
    out->bound_count = 0;
    for (const struct ol_query_piece *piece = query->pieces; piece->text; piece++) {
        if (piece->when >= 0 && params[piece->when].type == OL_VALUE_ABSENT)
            continue;
        put_text(&text, piece->text);
        if (piece->param < 0)
            continue;
        if (query->literal_mask >> piece->param & 1)
            snprintf(word, sizeof word, "%lld", (long long)params[piece->param].number);
        else
            snprintf(word, sizeof word, "%c%d", marker, bind_slot(out, piece->param));
        put_text(&text, word);
    }
    if (text.bytes >= sizeof out->text)
        return ol_fail(err, OUTLOG_MISUSE, "query %s is too long", query->name);
    return 0;
}

/* PostgreSQL refuses such text; SQLite would search for it and find nothing. */
int ol_statement_check(const struct ol_query *query, const struct ol_value *params, outlog_err *err)
{
    for (uint32_t i = 0; i < query->param_count; i++) {
        if (params[i].type != OL_VALUE_TEXT || ol_utf8_is_valid(params[i].text, params[i].bytes))
            continue;
        const char *name = query->params;
        for (uint32_t n = 0; n < i; n++)
            name = strchr(name, ' ') + 1;
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/%.*s", (int)strcspn(name, " "), name);
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is not UTF-8", pointer + 1);
    }
    return 0;
}

/* --- use --- */

int ol_store_query(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params,
                   struct ol_rows *rows, outlog_err *err)
{
    *rows = (struct ol_rows){.conn = conn, .row = -1};
    return conn->store->query(conn, id, params, rows, err);
}

void ol_store_prefetch(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params)
{
    if (conn->store->prefetch)
        conn->store->prefetch(conn, id, params);
}

int ol_store_pipeline(struct ol_conn *conn, const struct ol_pipelined_query *queries, size_t count,
                      struct ol_rows *rows, outlog_err *err)
{
    assert(!conn->in_transaction);
    for (size_t i = 0; i < count; i++)
        rows[i] = (struct ol_rows){.conn = conn, .row = -1};
    int result = conn->store->pipeline(conn, queries, count, rows, err);
    for (size_t i = 0; result < 0 && i < count; i++)
        ol_rows_end(&rows[i]);
    return result;
}

int ol_rows_next(struct ol_rows *rows, outlog_err *err)
{
    return rows->conn->store->next(rows, err);
}

void ol_rows_end(struct ol_rows *rows)
{
    if (rows->conn && rows->handle)
        rows->conn->store->end(rows);
    rows->handle = NULL;
}

int ol_store_exec(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params,
                  int64_t *changed, outlog_err *err)
{
    struct ol_rows rows;
    int more;

    if (ol_store_query(conn, id, params, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        ;
    if (changed)
        *changed = rows.changed;
    ol_rows_end(&rows);
    return more;
}

void ol_store_await(struct ol_conn *conn, struct ol_waiter *waiter, int timeout_ms)
{
    ol_waiter_wait(waiter, conn->store->wake_fd(conn), timeout_ms);
    conn->store->drain_wake(conn);
}

int ol_store_limit_hang(struct ol_conn *conn, enum ol_query_id query, int64_t limit_ms,
                        outlog_err *err)
{
    conn->limit_ms = limit_ms;
    conn->limit_query = query;
    return conn->is_pooled
               ? 0
               : ol_store_exec(conn, query, OL_PARAMS(ol_value_int(limit_ms)), NULL, err);
}

int ol_store_number(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params,
                    int64_t *out, outlog_err *err)
{
    struct ol_rows rows;
    int result = -1;

    if (ol_store_query(conn, id, params, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        *out = ol_rows_int(&rows, 0);
        result = 0;
    } else if (got == 0) {
        ol_fail(err, OUTLOG_NOT_FOUND, "query %s returned no row", conn->store->queries[id].name);
    }
    ol_rows_end(&rows);
    return result;
}

bool ol_rows_is_null(const struct ol_rows *rows, int column)
{
    return rows->conn->store->is_null(rows, column);
}

int64_t ol_rows_int(const struct ol_rows *rows, int column)
{
    return rows->conn->store->column_int(rows, column);
}

int64_t ol_rows_time(const struct ol_rows *rows, int column)
{
    return ol_rows_is_null(rows, column) ? 0 : rows->conn->store->column_time(rows, column);
}

void ol_rows_uuid(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT])
{
    if (ol_rows_is_null(rows, column))
        out[0] = '\0';
    else
        rows->conn->store->column_uuid(rows, column, out);
}

const char *ol_rows_text(const struct ol_rows *rows, int column, size_t *bytes)
{
    size_t ignored;
    return rows->conn->store->column_text(rows, column, bytes ? bytes : &ignored);
}

const char *ol_rows_copy(const struct ol_rows *rows, int column, struct ol_arena *arena,
                         bool *failed)
{
    size_t bytes;
    const char *text = ol_rows_text(rows, column, &bytes);
    if (!text)
        return NULL;
    char *copy = ol_arena_copy(arena, text, bytes);
    if (!copy)
        *failed = true;
    return copy;
}

bool ol_store_parse_error(outlog_err *err, const char *message)
{
    const char *colon = strstr(message, ": ");
    enum outlog_code code = colon ? ol_err_code_by_name(message, (size_t)(colon - message))
                                  : OUTLOG_OK;
    if (code == OUTLOG_OK)
        return false;
    ol_fail(err, code, "%s", colon + 2);
    return true;
}
