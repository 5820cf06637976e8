/* user_sql.c: a user's statements and tables in PostgreSQL.
 *
 * One round trip per statement is too slow to catch up with a log, and statements of several events
 * cannot be merged into one without changing their meaning. So a program becomes a temporary
 * function: it gets the values of a batch as one array and runs one statement after the other, with
 * cached plans. The values stay values: only the statements, which the operator wrote, are in its
 * text.
 *
 * PostgreSQL itself infers the types: each statement is prepared once, with parameters of unknown
 * type, and the function casts the values to the types that PostgreSQL reports. */
#include "store/user_sql.h"

#include "base/buf.h"
#include "store/postgres/conn.h"

#include <endian.h>
#include <libpq-fe.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT_BINARY = 1, USER_PARAMS_MAX = 64 };

/* Types of PostgreSQL, by their OIDs. */
enum { USER_INT4 = 23, USER_TEXT = 25, USER_JSON = 114, USER_JSONB = 3802 };
enum { USER_INT4_ARRAY = 1007, USER_TEXT_ARRAY = 1009 };

struct pg_program {
    int number; /* in the names of its statements and its function */
    bool has_function;
    struct ol_buf which, values; /* the arrays of a batch */
};

/* --- errors --- */

/* Temporary errors, and those that a new connection cures; all others are the statement's fault. */
static enum outlog_code find_code(const char *state)
{
    static const char *const temporary[] = {"08", "26", "40", "53", "55P03", "57", NULL};
    if (strcmp(state, "25006") == 0)
        return OUTLOG_READ_ONLY;
    for (int i = 0; temporary[i]; i++)
        if (strncmp(state, temporary[i], strlen(temporary[i])) == 0)
            return OUTLOG_UNAVAILABLE;
    return OUTLOG_STORE_ERROR;
}

static int fail_user(PGconn *pg, const PGresult *result, outlog_err *err)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *message = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    const char *detail = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL) : NULL;
    if (!state)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "the connection to the store was lost: %.200s",
                       PQerrorMessage(pg));
    return ol_fail(err, find_code(state), "%.300s%s%.120s", message ? message : state,
                   detail ? ": " : "", detail ? detail : "");
}

static bool is_ok(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* Frees `result`. */
static int check_result(PGconn *pg, PGresult *result, outlog_err *err)
{
    int outcome = is_ok(result) ? 0 : fail_user(pg, result, err);
    PQclear(result);
    return outcome;
}

/* --- programs --- */

static void format_statement_name(const struct pg_program *own, size_t i, char out[40])
{
    snprintf(out, 40, "outlog_user_%d_%zu", own->number, i);
}

/* The type names of a statement's parameters, each with its NUL. */
static int read_type_names(struct ol_conn *conn, const PGresult *described, struct ol_buf *out,
                           outlog_err *err)
{
    struct ol_buf list = {0};
    struct ol_rows rows = {0};
    int more = -1;
    ol_buf_char(&list, '[');
    for (int i = 0; i < PQnparams(described); i++)
        ol_buf_print(&list, "%s%u", i ? "," : "", PQparamtype(described, i));
    ol_buf_char(&list, ']');
    if (list.failed)
        ol_no_memory(err);
    else if (ol_store_query(conn, OL_Q_TYPE_NAMES, OL_PARAMS(ol_value_text(list.data)), &rows,
                            err) == 0)
        while ((more = ol_rows_next(&rows, err)) > 0)
            ol_buf_add(out, ol_rows_text(&rows, 0, NULL), strlen(ol_rows_text(&rows, 0, NULL)) + 1);
    ol_rows_end(&rows);
    ol_buf_clear(&list);
    return more;
}

/* Prepare a statement and describe it; NULL: see err. The caller frees the result. */
static PGresult *describe_statement(PGconn *pg, const struct pg_program *own,
                                    const struct ol_user_statement *statement, size_t number,
                                    outlog_err *err)
{
    struct ol_buf text = {0};
    PGresult *described = NULL;
    char name[40];

    for (int i = 0; i <= statement->param_count; i++) {
        if (i)
            ol_buf_print(&text, "$%d", i);
        ol_buf_text(&text, statement->texts[i]);
    }
    format_statement_name(own, number, name);
    int result = text.failed ? ol_no_memory(err)
                             : check_result(pg, PQprepare(pg, name, text.data, 0, NULL), err);
    ol_buf_clear(&text);
    if (result < 0)
        return NULL;
    described = PQdescribePrepared(pg, name);
    if (is_ok(described) && PQnparams(described) == statement->param_count)
        return described;
    is_ok(described) ? ol_fail(err, OUTLOG_STORE_ERROR, "parameters are written :name, not $1")
                     : fail_user(pg, described, err);
    PQclear(described);
    return NULL;
}

/* Add the branch of a statement to the function's text; `type` is the first of its type names. */
static void put_branch(const struct ol_user_statement *statement, size_t number, const char *type,
                       struct ol_buf *body)
{
    ol_buf_print(body, "when %zu then\n", number);
    for (int i = 0; i <= statement->param_count; i++) {
        if (i) {
            ol_buf_print(body, "(outlog_values[outlog_at + %d])::%s", i, type);
            type += strlen(type) + 1;
        }
        ol_buf_text(body, statement->texts[i]);
    }
    ol_buf_print(body, "\n;\noutlog_at := outlog_at + %d;\n", statement->param_count);
}

/* Prepare one statement, and add it to the function's text. */
static int prepare_statement(struct ol_conn *conn, struct pg_program *own,
                             struct ol_user_statement *statement, size_t number,
                             struct ol_buf *body, outlog_err *err)
{
    struct ol_buf types = {0};
    PGresult *described = describe_statement(ol_postgres_native(conn), own, statement, number, err);
    int result = described ? read_type_names(conn, described, &types, err) : -1;

    if (result == 0) {
        own->has_function &= PQnfields(described) == 0; // the function cannot return rows
        for (int i = 0; i < statement->param_count; i++) {
            Oid type = PQparamtype(described, i);
            statement->wants_json[i] = type == USER_JSON || type == USER_JSONB;
        }
        put_branch(statement, number, types.data, body);
    }
    PQclear(described);
    ol_buf_clear(&types);
    return result;
}

/* The text of the function. When plpgsql refuses a statement, for whatever reason, the program is
 * run one by one instead. */
static void put_function(const struct pg_program *own, const char *body, struct ol_buf *out)
{
    static const char head[] = "create function pg_temp."; // lint: sql
    ol_buf_print(out,
                 "%soutlog_user_%d(outlog_which int4[], outlog_values text[])\n"
                 "returns void language plpgsql as $outlog_user_%d$\n"
                 "declare\n    outlog_at int4 := 0;\n    outlog_one int4;\nbegin\n"
                 "foreach outlog_one in array outlog_which loop\ncase outlog_one\n%s"
                 "end case;\nend loop;\nend $outlog_user_%d$",
                 head, own->number, own->number, body, own->number);
}

static int make_function(struct ol_conn *conn, struct pg_program *own, const struct ol_buf *body,
                         outlog_err *err)
{
    PGconn *pg = ol_postgres_native(conn);
    struct ol_buf text = {0};
    char name[40];
    int result = -1;

    if (!body->failed)
        put_function(own, body->data, &text);
    if (text.failed || body->failed) {
        ol_no_memory(err);
        goto out;
    }
    PGresult *made = PQexec(pg, text.data);
    own->has_function = is_ok(made);
    PQclear(made);
    ol_buf_reset(&text);
    ol_buf_print(&text, "select pg_temp.outlog_user_%d($1, $2)", own->number); // lint: sql
    snprintf(name, sizeof name, "outlog_user_%d", own->number);
    const Oid types[] = {USER_INT4_ARRAY, USER_TEXT_ARRAY};
    result = own->has_function ? check_result(pg, PQprepare(pg, name, text.data, 2, types), err)
                               : 0;
out:
    ol_buf_clear(&text);
    return result;
}

static int prepare_program(struct ol_conn *conn, struct ol_user_program *program, outlog_err *err)
{
    static atomic_int last_number;
    struct pg_program *own = calloc(1, sizeof *own);
    struct ol_buf body = {0};
    int result = -1;

    if (!own)
        return ol_no_memory(err);
    own->number = atomic_fetch_add(&last_number, 1) + 1;
    own->has_function = program->count > 0;
    program->conn = conn;
    program->handle = own;
    for (size_t i = 0; i < program->count; i++)
        if (prepare_statement(conn, own, &program->statements[i], i, &body, err) < 0) {
            if (err)
                err->index = (int)i;
            goto out;
        }
    result = own->has_function ? make_function(conn, own, &body, err) : 0;
out:
    ol_buf_clear(&body);
    if (result < 0)
        conn->store->user_sql->forget(program);
    return result;
}

static void forget_program(struct ol_user_program *program)
{
    struct pg_program *own = program->handle;
    struct ol_buf text = {0};
    if (!own)
        return;
    PGconn *pg = ol_postgres_native(program->conn);
    for (size_t i = 0; i < program->count; i++)
        ol_buf_print(&text, "deallocate outlog_user_%d_%zu;", own->number, i);
    // Best effort, and never inside an open transaction: names are not reused anyway.
    if (!text.failed && text.data && PQstatus(pg) == CONNECTION_OK &&
        PQtransactionStatus(pg) == PQTRANS_IDLE)
        PQclear(PQexec(pg, text.data));
    ol_buf_clear(&text);
    ol_buf_clear(&own->which);
    ol_buf_clear(&own->values);
    free(own);
    program->handle = NULL;
}

/* --- running --- */

/* A one-dimensional array in binary form; the count is filled in at the end. */
static void array_begin(struct ol_buf *to, Oid element)
{
    const uint32_t header[5] = {htobe32(1), htobe32(1), htobe32(element), 0, htobe32(1)};
    ol_buf_reset(to);
    ol_buf_add(to, header, sizeof header);
}

static void array_add(struct ol_buf *to, const void *bytes, size_t count)
{
    uint32_t length = htobe32(bytes ? (uint32_t)count : UINT32_MAX);
    ol_buf_add(to, &length, sizeof length);
    if (bytes)
        ol_buf_add(to, bytes, count);
}

static void array_end(struct ol_buf *to, size_t count)
{
    uint32_t number = htobe32((uint32_t)count);
    if (!to->failed)
        memcpy(to->data + 12, &number, sizeof number);
}

/* A value as text; NULL for null. A number is written to `buffer`. */
static const char *format_value(const struct ol_value *value, char buffer[32], size_t *bytes)
{
    switch (value->type) {
    case OL_VALUE_TEXT:
        *bytes = value->bytes;
        return value->text;
    case OL_VALUE_INT:
        *bytes = (size_t)snprintf(buffer, 32, "%lld", (long long)value->number);
        return buffer;
    default:
        return NULL;
    }
}

/* The result of a command that was sent. */
static PGresult *read_last_result(PGconn *pg)
{
    PGresult *last = NULL, *next;
    while ((next = PQgetResult(pg))) {
        PQclear(last);
        last = next;
    }
    return last;
}

static int apply_all(struct ol_user_program *program, const struct ol_user_call *calls,
                     size_t count, outlog_err *err)
{
    struct pg_program *own = program->handle;
    PGconn *pg = ol_postgres_native(program->conn);
    size_t value_count = 0, bytes = 0;
    char name[40], buffer[32];

    array_begin(&own->which, USER_INT4);
    array_begin(&own->values, USER_TEXT);
    for (size_t i = 0; i < count; i++) {
        uint32_t which = htobe32((uint32_t)calls[i].statement);
        int params = program->statements[calls[i].statement].param_count;
        array_add(&own->which, &which, sizeof which);
        for (int p = 0; p < params; p++) {
            const char *text = format_value(&calls[i].values[p], buffer, &bytes);
            array_add(&own->values, text, bytes);
        }
        value_count += (size_t)params;
    }
    array_end(&own->which, count);
    array_end(&own->values, value_count);
    if (own->which.failed || own->values.failed)
        return ol_no_memory(err);
    snprintf(name, sizeof name, "outlog_user_%d", own->number);
    if (!PQsendQueryPrepared(pg, name, 2, (const char *const[]){own->which.data, own->values.data},
                             (const int[]){(int)own->which.bytes, (int)own->values.bytes},
                             (const int[]){FORMAT_BINARY, FORMAT_BINARY}, FORMAT_BINARY))
        return fail_user(pg, NULL, err);
    if (program->overlap)
        program->overlap(program->context);
    return check_result(pg, read_last_result(pg), err);
}

static int apply_one(struct ol_user_program *program, const struct ol_user_call *call,
                     outlog_err *err)
{
    PGconn *pg = ol_postgres_native(program->conn);
    const struct ol_user_statement *statement = &program->statements[call->statement];
    const char *values[USER_PARAMS_MAX] = {NULL};
    char name[40], numbers[USER_PARAMS_MAX][32];
    struct ol_arena arena = {0};
    int result = -1;

    for (int i = 0; i < statement->param_count; i++) {
        size_t bytes;
        values[i] = format_value(&call->values[i], numbers[i], &bytes);
        if (values[i] &&
            !(values[i] = ol_arena_copy(&arena, values[i], bytes))) { // libpq needs the NUL
            ol_no_memory(err);
            goto out;
        }
    }
    format_statement_name(program->handle, (size_t)call->statement, name);
    result = check_result(pg,
                          PQexecPrepared(pg, name, statement->param_count, values, NULL, NULL, 0),
                          err);
out:
    ol_arena_clear(&arena);
    return result;
}

static int apply_calls(struct ol_user_program *program, const struct ol_user_call *calls,
                       size_t count, bool one_by_one, outlog_err *err)
{
    const struct pg_program *own = program->handle;
    if (count == 0)
        return 0;
    if (own->has_function && !one_by_one)
        return apply_all(program, calls, count, err);
    for (size_t i = 0; i < count; i++)
        if (apply_one(program, &calls[i], err) < 0) {
            if (err)
                err->index = (int)i;
            return -1;
        }
    return 0;
}

/* --- tables --- */

static int run_script(struct ol_conn *conn, const char *sql, outlog_err *err)
{
    PGconn *pg = ol_postgres_native(conn);
    if (check_result(pg, PQexec(pg, sql), err) < 0)
        return -1;
    return PQtransactionStatus(pg) == PQTRANS_INTRANS
               ? 0
               : ol_fail(err, OUTLOG_STORE_ERROR, "it must not end the transaction");
}

static int has_table(struct ol_conn *conn, const char *table, bool *out, outlog_err *err)
{
    int64_t found;
    if (ol_store_number(conn, OL_Q_PROJECTION_HAS, OL_PARAMS(ol_value_text(table)), &found, err) <
        0)
        return -1;
    *out = found != 0;
    return 0;
}

static int refuse_filled(struct ol_conn *conn, const struct ol_user_swap *swap, outlog_err *err)
{
    return ol_store_exec(conn, OL_Q_PROJECTION_REFUSE_FILLED,
                         OL_PARAMS(ol_value_text(swap->tables_json)), NULL, err);
}

static int clear_tables(struct ol_conn *conn, const struct ol_user_swap *swap, outlog_err *err)
{
    return ol_store_exec(conn, OL_Q_PROJECTION_CLEAR, OL_PARAMS(ol_value_text(swap->tables_json)),
                         NULL, err);
}

/* --- shadow tables --- */

enum { SHADOW_SCHEMA_SIZE = 64 };

static struct ol_value format_schema(const char *name, char out[SHADOW_SCHEMA_SIZE])
{
    snprintf(out, SHADOW_SCHEMA_SIZE, "outlog_aside_%.50s", name);
    return ol_value_text(out);
}

static int shadow_open(const char *url, const char *name, struct ol_conn **out, outlog_err *err)
{
    char schema[SHADOW_SCHEMA_SIZE];
    if (ol_store_open(url, out, err) < 0)
        return -1;
    if (ol_store_exec(*out, OL_Q_PROJECTION_ASIDE, OL_PARAMS(format_schema(name, schema)), NULL,
                      err) == 0)
        return 0;
    ol_err_prefix(err, "a rebuild aside needs the right to create a schema");
    ol_store_close(*out);
    *out = NULL;
    return -1;
}

static int shadow_begin(struct ol_conn *shadow, outlog_err *err)
{
    return shadow->store->begin(shadow, err);
}

static int shadow_drop(struct ol_conn *live, const char *name, outlog_err *err)
{
    char schema[SHADOW_SCHEMA_SIZE];
    return ol_store_exec(live, OL_Q_PROJECTION_ASIDE_DROP, OL_PARAMS(format_schema(name, schema)),
                         NULL, err);
}

static int shadow_swap(struct ol_conn *live, const struct ol_user_swap *swap, outlog_err *err)
{
    char schema[SHADOW_SCHEMA_SIZE];
    if (live->store->begin(live, err) < 0)
        return -1;
    if (swap->record(swap->context, live, err) < 0 ||
        ol_store_exec(live, OL_Q_PROJECTION_SWAP,
                      OL_PARAMS(format_schema(swap->name, schema), ol_value_text(swap->tables_json),
                                ol_value_int(swap->event_id)),
                      NULL, err) < 0) {
        live->store->rollback(live);
        return -1;
    }
    return live->store->commit(live, err);
}

/* The query is stored in the rule's row; here it is only tried. */
static int set_lookup(struct ol_conn *conn, const char *rule, const char *sql, outlog_err *err)
{
    (void)rule;
    return sql ? ol_store_exec(conn, OL_Q_LOOKUP_TRY, OL_PARAMS(ol_value_text(sql)), NULL, err) : 0;
}

const struct ol_user_sql ol_user_sql_postgres = {
    .prepare = prepare_program,
    .apply = apply_calls,
    .forget = forget_program,
    .script = run_script,
    .has_table = has_table,
    .refuse_filled = refuse_filled,
    .clear = clear_tables,
    .shadow_open = shadow_open,
    .shadow_begin = shadow_begin,
    .shadow_drop = shadow_drop,
    .shadow_swap = shadow_swap,
    .set_lookup = set_lookup,
    .has_types = true,
};
