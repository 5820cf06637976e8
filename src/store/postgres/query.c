/* query.c: statements, prepared where the session is ours, and rows in binary. */
#include "store/postgres/internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void add_argument(struct ol_postgres_arguments *to, const struct ol_value *value)
{
    int i = to->count++;
    to->types[i] = 0;
    to->formats[i] = 0;
    switch (value->type) {
    case OL_VALUE_INT:
        snprintf(to->numbers[i], sizeof to->numbers[i], "%lld", (long long)value->number);
        to->values[i] = to->numbers[i];
        break;
    case OL_VALUE_REAL:
        snprintf(to->numbers[i], sizeof to->numbers[i], "%.17g", value->real);
        to->values[i] = to->numbers[i];
        break;
    case OL_VALUE_TEXT:
        assert(value->text[value->bytes] == '\0'); // libpq's text format ends at the NUL
        to->values[i] = value->text;
        break;
    default:
        to->values[i] = NULL;
    }
}

/* --- waiting --- */

void ol_postgres_await(struct ol_postgres_conn *conn)
{
    const struct ol_idle_callback *idle = &conn->base.idle;
    struct pollfd fds[2] = {{.fd = PQsocket(conn->pg), .events = POLLIN},
                            {.fd = idle->fd, .events = POLLIN}};
    while (idle->call && PQisBusy(conn->pg)) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        if (fds[1].revents)
            idle->call(idle->user);
        if (fds[0].revents && !PQconsumeInput(conn->pg))
            return; // the connection is lost: PQgetResult returns the error
    }
}

/* The last result of the statement that was just sent. */
static PGresult *await_result(struct ol_postgres_conn *conn)
{
    ol_postgres_await(conn);
    PGresult *result = PQgetResult(conn->pg), *more;
    while (result && (more = PQgetResult(conn->pg))) {
        PQclear(result);
        result = more;
    }
    return result;
}

static PGresult *run_text(struct ol_postgres_conn *conn, const char *sql)
{
    PGconn *pg = ol_postgres_idle_conn(conn);
    if (!conn->base.idle.call)
        return PQexec(pg, sql);
    return PQsendQuery(pg, sql) ? await_result(conn) : NULL;
}

PGresult *ol_postgres_run(struct ol_postgres_conn *conn, const char *sql)
{
    ol_shutdown_begin_wait(&conn->tracked);
    PGresult *result = run_text(conn, sql);
    ol_shutdown_end_wait(&conn->tracked);
    return result;
}

/* --- statements --- */

/* Pgpool-II reads such a comment, and everybody else ignores it. A read that it sent to a standby
 * would be refused by name where a cursor depends on it, and old elsewhere (P5). */
static const char for_primary[] = "/*NO LOAD BALANCE*/ ";

int ol_postgres_build(struct ol_postgres_conn *conn, const struct ol_query *query,
                      const struct ol_value *params, outlog_err *err)
{
    char *text = conn->text.text;
    if (ol_statement_build(query, params, '$', &conn->text, err) < 0)
        return -1;
    size_t bytes = strlen(text) + 1, more = sizeof for_primary - 1;
    if (conn->base.is_proxied && bytes + more <= sizeof conn->text.text) {
        memmove(text + more, text, bytes);
        memcpy(text, for_primary, more);
    }
    return 0;
}

/* A borrowed connection may be behind a pooler, just like one of ours. If the statement is wrong,
 * executing it returns the error. */
int ol_postgres_prepare(struct ol_postgres_conn *conn, enum ol_query_id id, uint64_t key,
                        const struct ol_statement *text,
                        const struct ol_postgres_arguments *arguments)
{
    char name[32];
    if (conn->base.is_borrowed || conn->base.is_pooled ||
        conn->prepared_count == OL_POSTGRES_PREPARED)
        return -1;
    int slot = conn->prepared_count++; // a name is never reused, not even after a failure
    snprintf(name, sizeof name, "ol_%d", slot);
    ol_shutdown_begin_wait(&conn->tracked);
    PGresult *result = PQprepare(ol_postgres_idle_conn(conn), name, text->text, arguments->count,
                                 arguments->types);
    ol_shutdown_end_wait(&conn->tracked);
    struct ol_postgres_prepared *made = &conn->prepared[slot];
    *made = (struct ol_postgres_prepared){.id = id, .key = key, .bound_count = text->bound_count};
    memcpy(made->bound, text->bound, sizeof made->bound);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        made->id = OL_QUERY_COUNT; // never found again
    PQclear(result);
    return made->id == id ? slot : -1;
}

/* A prepared statement ends up with one generic plan; some queries need a plan for their values. */
static bool is_replanned(const struct ol_query *query, const struct ol_value *params)
{
    for (uint32_t i = 0; i < query->param_count; i++)
        if (query->replan_mask >> i & 1 && params[i].type != OL_VALUE_ABSENT)
            return true;
    return false;
}

int ol_postgres_find_prepared(const struct ol_postgres_conn *conn, enum ol_query_id id,
                              uint64_t key)
{
    for (int i = 0; i < conn->prepared_count; i++)
        if (conn->prepared[i].id == id && conn->prepared[i].key == key)
            return i;
    return -1;
}

static PGresult *execute_slot(struct ol_postgres_conn *conn, int slot, const char *text,
                              const struct ol_postgres_arguments *arguments)
{
    char name[32];
    if (slot < 0)
        return PQexecParams(ol_postgres_idle_conn(conn), text, arguments->count, arguments->types,
                            arguments->values, arguments->lengths, arguments->formats,
                            OL_POSTGRES_BINARY);
    snprintf(name, sizeof name, "ol_%d", slot);
    if (ol_prefetch_is_busy(&conn->prefetch) && !conn->base.in_transaction)
        return ol_prefetch_execute(&conn->prefetch, conn->pg,
                                   &(struct ol_prefetch_statement){name, arguments->count,
                                                                   arguments->values,
                                                                   arguments->lengths,
                                                                   arguments->formats});
    PGconn *pg = ol_postgres_idle_conn(conn);
    bool is_sent = PQsendQueryPrepared(pg, name, arguments->count, arguments->values,
                                       arguments->lengths, arguments->formats, OL_POSTGRES_BINARY);
    return is_sent ? await_result(conn) : NULL;
}

PGresult *ol_postgres_execute(struct ol_postgres_conn *conn, int slot, const char *text,
                              const struct ol_postgres_arguments *arguments)
{
    ol_shutdown_begin_wait(&conn->tracked);
    PGresult *result = execute_slot(conn, slot, text, arguments);
    ol_shutdown_end_wait(&conn->tracked);
    return result;
}

/* The arguments of a prefetched query are numbers; the literal ones are part of the key. */
static struct ol_prefetch_key make_prefetch_key(const struct ol_postgres_prepared *prepared,
                                                const struct ol_value *params)
{
    struct ol_prefetch_key key = {.id = prepared->id,
                                  .statement_key = prepared->key,
                                  .count = prepared->bound_count};
    assert(prepared->bound_count <= OL_PREFETCH_NUMBERS);
    for (int i = 0; i < prepared->bound_count; i++) {
        assert(params[prepared->bound[i]].type == OL_VALUE_INT);
        key.numbers[i] = params[prepared->bound[i]].number;
    }
    return key;
}

void ol_postgres_prefetch(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    char name[32];
    int slot =
        ol_postgres_find_prepared(conn, id, ol_statement_key(&ol_queries_postgres[id], params));
    if (slot < 0 || base->in_transaction || base->is_borrowed)
        return; // it is run when it is needed
    struct ol_prefetch_key key = make_prefetch_key(&conn->prepared[slot], params);
    snprintf(name, sizeof name, "ol_%d", slot);
    ol_prefetch_request(&conn->prefetch, name, &key);
    conn->prepared[slot].is_prefetched = true;
}

static PGresult *take_prefetched(struct ol_postgres_conn *conn, int slot,
                                 const struct ol_value *params)
{
    if (slot < 0 || !conn->prepared[slot].is_prefetched || conn->base.in_transaction)
        return NULL;
    struct ol_prefetch_key key = make_prefetch_key(&conn->prepared[slot], params);
    return ol_prefetch_take(&conn->prefetch, conn->pg, &key);
}

int ol_postgres_query(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params,
                      struct ol_rows *rows, outlog_err *err)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    const struct ol_query *query = &ol_queries_postgres[id];
    uint64_t key = ol_statement_key(query, params);
    struct ol_statement *text = &conn->text;
    struct ol_postgres_arguments arguments = {0};

    int slot = ol_postgres_find_prepared(conn, id, key);
    PGresult *result = take_prefetched(conn, slot, params);
    if (result) {
        rows->handle = result;
        rows->count = PQntuples(result);
        return 0;
    }
    if (ol_statement_check(query, params, err) < 0)
        return -1;
    if (slot < 0 && ol_postgres_build(conn, query, params, err) < 0)
        return -1;
    const int *bound = slot < 0 ? text->bound : conn->prepared[slot].bound;
    int bound_count = slot < 0 ? text->bound_count : conn->prepared[slot].bound_count;
    for (int i = 0; i < bound_count; i++)
        add_argument(&arguments, &params[bound[i]]);
    if (slot < 0 && !is_replanned(query, params))
        slot = ol_postgres_prepare(conn, id, key, text, &arguments);

    result = ol_postgres_execute(conn, slot, text->text, &arguments);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        ol_postgres_fail(conn, result, err);
        PQclear(result);
        return -1;
    }
    rows->handle = result;
    rows->count = PQntuples(result);
    rows->changed = strtoll(PQcmdTuples(result), NULL, 10);
    return 0;
}

/* --- several at once --- */

/* Prepare the statement, where that is possible. */
static int prepare_pipelined(struct ol_postgres_conn *conn, const struct ol_pipelined_query *item,
                             outlog_err *err)
{
    const struct ol_query *query = &ol_queries_postgres[item->id];
    uint64_t key = ol_statement_key(query, item->params);
    struct ol_postgres_arguments arguments = {0};
    if (ol_postgres_find_prepared(conn, item->id, key) >= 0)
        return 0;
    if (ol_postgres_build(conn, query, item->params, err) < 0)
        return -1;
    for (int i = 0; i < conn->text.bound_count; i++)
        add_argument(&arguments, &item->params[conn->text.bound[i]]);
    ol_postgres_prepare(conn, item->id, key, &conn->text, &arguments); // if not, its text is sent
    return 0;
}

static int send_pipelined(struct ol_postgres_conn *conn, const struct ol_pipelined_query *item,
                          outlog_err *err)
{
    const struct ol_query *query = &ol_queries_postgres[item->id];
    struct ol_postgres_arguments arguments = {0};
    char name[32];
    int slot = ol_postgres_find_prepared(conn, item->id, ol_statement_key(query, item->params));
    if (slot < 0 && ol_postgres_build(conn, query, item->params, err) < 0)
        return -1;
    const int *bound = slot < 0 ? conn->text.bound : conn->prepared[slot].bound;
    int bound_count = slot < 0 ? conn->text.bound_count : conn->prepared[slot].bound_count;
    for (int i = 0; i < bound_count; i++)
        add_argument(&arguments, &item->params[bound[i]]);
    snprintf(name, sizeof name, "ol_%d", slot);
    int is_sent = slot < 0 ? PQsendQueryParams(conn->pg, conn->text.text, arguments.count,
                                               arguments.types, arguments.values, arguments.lengths,
                                               arguments.formats, OL_POSTGRES_BINARY)
                           : PQsendQueryPrepared(conn->pg, name, arguments.count, arguments.values,
                                                 arguments.lengths, arguments.formats,
                                                 OL_POSTGRES_BINARY);
    return is_sent ? 0 : ol_postgres_fail(conn, NULL, err);
}

static int send_pipeline(struct ol_postgres_conn *conn, const struct ol_pipelined_query *queries,
                         size_t count, outlog_err *err)
{
    PGconn *pg = ol_postgres_idle_conn(conn);
    if (!PQenterPipelineMode(pg))
        return ol_postgres_fail(conn, NULL, err);
    for (size_t i = 0; i < count; i++)
        if (send_pipelined(conn, &queries[i], err) < 0)
            return -1;
    return PQpipelineSync(pg) ? 0 : ol_postgres_fail(conn, NULL, err);
}

/* Nothing of a pipeline without its sync may be committed. Once a statement is on its way, only the
 * end of the connection ensures that; whoever uses it next reconnects. */
static void abandon_pipeline(PGconn *pg)
{
    if (PQexitPipelineMode(pg))
        return;
    shutdown(PQsocket(pg), SHUT_RDWR);
    PQconsumeInput(pg); // notices it
}

/* One result per query, each followed by NULL; then the sync, which is the commit. The first
 * failure is the outcome: the queries after it were not run. */
static int collect_results(struct ol_postgres_conn *conn, struct ol_rows *rows, size_t count,
                           outlog_err *err)
{
    int outcome = 0;
    for (size_t i = 0; i <= count; i++) {
        ol_postgres_await(conn);
        PGresult *result = PQgetResult(conn->pg);
        ExecStatusType status = PQresultStatus(result);
        bool is_good = i < count ? status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK
                                 : status == PGRES_PIPELINE_SYNC;
        if (!is_good && outcome == 0) {
            ol_postgres_fail(conn, result, err);
            outcome = -1;
        }
        if (!is_good || i == count) {
            PQclear(result);
        } else {
            rows[i].handle = result;
            rows[i].count = PQntuples(result);
            rows[i].changed = strtoll(PQcmdTuples(result), NULL, 10);
        }
        while (result && status != PGRES_PIPELINE_SYNC && (result = PQgetResult(conn->pg))) {
            status = PQresultStatus(result);
            PQclear(result);
        }
    }
    return outcome;
}

/* Statements without BEGIN up to a sync are one transaction, in one round trip. */
int ol_postgres_pipeline(struct ol_conn *base, const struct ol_pipelined_query *queries,
                         size_t count, struct ol_rows *rows, outlog_err *err)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);

    for (size_t i = 0; i < count; i++)
        if (prepare_pipelined(conn, &queries[i], err) < 0)
            return -1;
    if (send_pipeline(conn, queries, count, err) < 0) {
        abandon_pipeline(conn->pg);
        return -1;
    }
    ol_shutdown_begin_wait(&conn->tracked);
    int outcome = collect_results(conn, rows, count, err);
    ol_shutdown_end_wait(&conn->tracked);
    PQexitPipelineMode(conn->pg);
    return outcome;
}

int ol_postgres_next(struct ol_rows *rows, outlog_err *err)
{
    (void)err; // the whole result is in memory already
    if (!rows->handle)
        return 0;
    if (++rows->row < rows->count)
        return 1;
    ol_rows_end(rows);
    return 0;
}

void ol_postgres_end(struct ol_rows *rows)
{
    PQclear(rows->handle);
}

bool ol_postgres_is_null(const struct ol_rows *rows, int column)
{
    return PQgetisnull(rows->handle, rows->row, column);
}

int64_t ol_postgres_column_int(const struct ol_rows *rows, int column)
{
    const char *bytes = PQgetvalue(rows->handle, rows->row, column);
    uint64_t eight;
    uint32_t four;
    uint16_t two;
    switch (PQgetlength(rows->handle, rows->row, column)) {
    case 8:
        memcpy(&eight, bytes, sizeof eight);
        return (int64_t)be64toh(eight);
    case 4:
        memcpy(&four, bytes, sizeof four);
        return (int32_t)be32toh(four);
    case 2:
        memcpy(&two, bytes, sizeof two);
        return (int16_t)be16toh(two);
    case 1:
        return *bytes;
    default:
        assert(false); // not a column of numbers
        return 0;
    }
}

const char *ol_postgres_column_text(const struct ol_rows *rows, int column, size_t *bytes)
{
    *bytes = 0;
    if (ol_postgres_is_null(rows, column))
        return NULL;
    *bytes = (size_t)PQgetlength(rows->handle, rows->row, column);
    return PQgetvalue(rows->handle, rows->row, column);
}

int64_t ol_postgres_column_time(const struct ol_rows *rows, int column)
{
    int64_t time_us;
    bool is_past_all =
        __builtin_add_overflow(ol_postgres_column_int(rows, column), OL_POSTGRES_EPOCH, &time_us);
    return is_past_all ? INT64_MAX : time_us; // 'infinity', the year 294276
}

void ol_postgres_column_uuid(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT])
{
    ol_uuid_from_bytes((const uint8_t *)PQgetvalue(rows->handle, rows->row, column), out);
}
