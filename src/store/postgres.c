/* postgres.c: the store in PostgreSQL, through libpq.
 *
 * 1  Results come in binary: numbers, times and UUIDs are not printed and parsed again.
 * 2  A COMMIT whose answer did not arrive, or came with a warning, is an unknown outcome.
 * 3  Reads of the log rely on a new snapshot per statement, so our sessions are READ COMMITTED.
 * 4  After an unknown outcome the handle is used again only when the server's end of the lost
 *    connection is gone: what can be read then is final.
 * 5  Behind a pooler (PgBouncer in transaction mode) a session is ours for one transaction only: nothing
 *    is prepared, and what is set is set for the transaction. The server's end is known by our name,
 *    which a pooler takes along from session to session. */
#include "store/postgres.h"

#include "base/fault.h"
#include "base/json.h"
#include "store/ahead.h"
#include "store/ferry.h"
#include "store/store.h"
#include "store/user.h"
#include "store/wake.h"
#include "store/write.h"

#include <assert.h>
#include <endian.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BINARY = 1, MOST_PREPARED = 128, POOLED_LOCK_MS = 10000 };

/* Every read walks an index in the order of its rows and stops at its limit. A table that was never
 * analyzed makes the planner believe that it is cheaper to gather a whole range and sort it; here it
 * may not. */
static const char planner_settings[] =
    "set jit = off; set random_page_cost = 1.1; set enable_bitmapscan = off; set enable_seqscan = off;"
    "set client_min_messages = warning; set default_transaction_isolation = 'read committed'";

/* The same for a transaction (5); %lld is how long it may hang, in milliseconds. */
static const char pooled_begin[] =
    "begin isolation level read committed; set local jit = off; set local random_page_cost = 1.1;"
    "set local enable_bitmapscan = off; set local enable_seqscan = off; set local lock_timeout = %lld";
static const char pooled_limits[] =
    "; set local idle_in_transaction_session_timeout = %lld; set local statement_timeout = %lld";

/* A statement that the server knows under the name "ol_<number>". */
struct prepared {
    enum ol_query_id id;
    uint64_t key;
    int bound[32];
    int bound_count;
    bool is_asked_ahead; /* an answer may be here already (store/ahead.h) */
};

struct pg_store_conn {
    struct ol_conn base;
    PGconn *pg;
    char *url;
    bool warned; /* the server sent a warning since this was last cleared */
    struct ol_session session;
    struct ol_session in_doubt; /* it may still commit what we could not hear the end of (4) */
    struct prepared prepared[MOST_PREPARED];
    int prepared_count;
    struct ol_ferry *ferry; /* NULL: appends go alone */
    struct ol_ahead ahead;
    struct ol_statement_text text; /* of the statement at hand, if the server does not know it */
};

static struct pg_store_conn *own(struct ol_conn *conn)
{
    return (struct pg_store_conn *)conn;
}

/* The connection, with nothing under way on it. */
static PGconn *quiet(struct pg_store_conn *conn)
{
    ol_ahead_settle(&conn->ahead, conn->pg);
    return conn->pg;
}

/* --- errors --- */

struct state {
    const char *prefix; /* of the SQLSTATE; the first that fits wins */
    enum outlog_code code;
    const char *advice;
};

static const struct state states[] = {
    {"25006", OUTLOG_READ_ONLY, "; connect to the primary"},
    {"25P01", OUTLOG_MISUSE, "; begin the transaction before joining it"},
    {"25P02", OUTLOG_MISUSE, "; roll the transaction back"},
    {"42P01", OUTLOG_NO_SCHEMA, "; run `outlog init` first"},
    {"3F000", OUTLOG_NO_SCHEMA, "; run `outlog init` first"},
    {"42883", OUTLOG_NO_SCHEMA, "; run `outlog init` to bring the schema up to date"},
    {"42501", OUTLOG_STORE_ERROR,
     "; grant the role one of outlog_append, outlog_read, outlog_admin"},
    {"55P03", OUTLOG_UNAVAILABLE, "; another transaction holds the row, try again"},
    {"40", OUTLOG_UNAVAILABLE, "; nothing was stored, try again"},
    {"53", OUTLOG_UNAVAILABLE, "; nothing was stored, try again"},
    {"57", OUTLOG_UNAVAILABLE, "; nothing was stored, try again"},
    {"08", OUTLOG_UNAVAILABLE, "; nothing was stored, try again"},
    {"22", OUTLOG_INVALID_FIELD, ""},
    {"23514", OUTLOG_INVALID_FIELD, ""},
    {"23505", OUTLOG_ID_CONFLICT, ""},
    {"", OUTLOG_STORE_ERROR, ""},
};

/* DETAIL of our own refusals is JSON: expected, actual, index, pointer. */
static void read_detail(outlog_err *err, const char *detail)
{
    struct ol_json value;
    if (!detail || ol_json_parse(detail, strlen(detail), &value, NULL) < 0)
        return;
    int64_t index;
    struct ol_json member = ol_json_get(&value, "expected");
    ol_json_int(&member, &err->expected);
    member = ol_json_get(&value, "actual");
    ol_json_int(&member, &err->actual);
    member = ol_json_get(&value, "index");
    if (ol_json_int(&member, &index))
        err->index = (int)index;
    member = ol_json_get(&value, "pointer");
    if (member.type == OL_JSON_STRING) // pointers of ours need no unescaping
        snprintf(err->pointer, sizeof err->pointer, "%.*s", (int)member.bytes - 2, member.text + 1);
}

static bool is_lost(const struct pg_store_conn *conn)
{
    return PQstatus(conn->pg) != CONNECTION_OK;
}

/* Whether the answer leaves open if a transaction was committed (2): no answer at all, or the
 * server went away while giving it. An ordinary error has rolled back. */
static bool is_unknown(const struct pg_store_conn *conn, const PGresult *result)
{
    const char *severity = result ? PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED)
                                  : NULL;
    return is_lost(conn) || !severity || strcmp(severity, "ERROR") != 0;
}

static void one_line(char *text)
{
    size_t bytes = strcspn(text, "\n");
    text[bytes] = '\0';
}

static int fail(struct pg_store_conn *conn, const PGresult *result, outlog_err *err)
{
    char message[300];
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *primary = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;

    snprintf(message, sizeof message, "%s", primary ? primary : PQerrorMessage(conn->pg));
    one_line(message);
    if (!state)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "%s: %s; nothing was stored, try again",
                       conn->base.name, *message ? message : "connection lost");
    if (strcmp(state, "OL000") == 0 && ol_err_from_text(err, message)) {
        if (err)
            read_detail(err, PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
        return -1;
    }
    const struct state *fit = states;
    while (strncmp(state, fit->prefix, strlen(fit->prefix)) != 0)
        fit++;
    return ol_fail(err, fit->code, "%s: %s%s", conn->base.name, message, fit->advice);
}

/* What may still commit something that nobody could hear the end of (4). */
static struct ol_session doubtful(const struct pg_store_conn *conn)
{
    return is_lost(conn) ? conn->session : (struct ol_session){0};
}

static int fail_unknown(struct pg_store_conn *conn, struct ol_session in_doubt, outlog_err *err)
{
    if (in_doubt.pid)
        conn->in_doubt = in_doubt;
    return ol_fail(err, OUTLOG_OUTCOME_UNKNOWN,
                   "%s: no clear answer to the commit; the events may be stored or not: look them "
                   "up by id, or repeat them with the same id",
                   conn->base.name);
}

/* --- life --- */

static void on_notice(void *argument, const PGresult *result)
{
    struct pg_store_conn *conn = argument;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (severity && strcmp(severity, "WARNING") == 0 &&
        !(message && strncmp(message, "outlog:", 7) == 0)) // our own warnings are no doubt
        conn->warned = true;
}

static int say(struct pg_store_conn *conn, const char *sql, outlog_err *err)
{
    PGresult *result = PQexec(conn->pg, sql);
    bool ok = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (!ok)
        fail(conn, result, err);
    PQclear(result);
    return ok ? 0 : -1;
}

/* (5) The name is ours alone, so that what works under it works for this connection. */
static int begin_pooled(struct pg_store_conn *conn, outlog_err *err)
{
    char id[OL_UUID_TEXT], sql[80];
    ol_uuid_make(id);
    conn->session.pid = PQbackendPID(conn->pg); // the pooler's, which nobody is asked about
    snprintf(conn->session.started_at, sizeof conn->session.started_at, "outlog %.23s", id + 13);
    snprintf(sql, sizeof sql, "set application_name = '%.40s'",
             conn->session.started_at); // lint: sql
    return say(conn, sql, err);
}

/* Who really serves us tells whether somebody stands between. */
static int begin_session(struct pg_store_conn *conn, outlog_err *err)
{
    struct ol_rows rows;
    conn->session = (struct ol_session){0};
    conn->base.is_pooled = true; // until we know: nothing is prepared
    if (ol_query(&conn->base, OL_Q_SESSION_BEGIN, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    if (ol_next(&rows, err) > 0) {
        conn->session.pid = (int)ol_column_int(&rows, 1);
        snprintf(conn->session.started_at, sizeof conn->session.started_at, "%s",
                 ol_column_text(&rows, 0, NULL));
    }
    ol_end(&rows);
    conn->base.is_pooled = conn->session.pid != PQbackendPID(conn->pg);
    if (conn->base.is_pooled)
        return begin_pooled(conn, err);
    if (say(conn, planner_settings, err) < 0 ||
        ol_exec(&conn->base, OL_Q_SESSION_WAIT, OL_NO_PARAMS, NULL, err) < 0)
        return -1;
    return conn->base.limit_ms
               ? ol_limit(&conn->base, conn->base.limit_query, conn->base.limit_ms, err)
               : 0;
}

/* Handles of one URL share crossings while they are connected to the same server as the same user. */
static void join_ferry(struct pg_store_conn *conn)
{
    char key[2048];
    int bytes = snprintf(key, sizeof key, "%s %s %s %s %s", PQhost(conn->pg), PQport(conn->pg),
                         PQuser(conn->pg), PQdb(conn->pg), conn->url);
    ol_ferry_leave(conn->ferry);
    conn->ferry = bytes < (int)sizeof key ? ol_ferry_join(key) : NULL;
}

static int connect_now(struct pg_store_conn *conn, outlog_err *err)
{
    // Defaults first: what the URL says comes later and wins.
    bool many_hosts = strchr(conn->url, ',') != NULL;
    const char *keys[] = {"fallback_application_name",
                          "connect_timeout",
                          "keepalives_idle",
                          "keepalives_interval",
                          "keepalives_count",
                          "tcp_user_timeout",
                          "target_session_attrs",
                          "client_encoding",
                          "dbname",
                          NULL};
    const char *values[] =
        {"outlog", "10",      "5", "5", "3", "20000", many_hosts ? "read-write" : "any",
         "UTF8",   conn->url, NULL};

    ol_ahead_drop(&conn->ahead);
    if (conn->pg)
        PQfinish(conn->pg);
    conn->prepared_count = 0;
    conn->base.in_transaction = false;
    conn->pg = PQconnectdbParams(keys, values, 1);
    if (!conn->pg)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    snprintf(conn->base.name, sizeof conn->base.name, "postgres://%.80s:%s/%.80s",
             PQhost(conn->pg) ? PQhost(conn->pg) : "", PQport(conn->pg) ? PQport(conn->pg) : "",
             PQdb(conn->pg) ? PQdb(conn->pg) : "");
    if (is_lost(conn)) {
        char message[300];
        snprintf(message, sizeof message, "%s", PQerrorMessage(conn->pg));
        one_line(message);
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "cannot connect to the store: %s; check --store and "
                       "that the server runs",
                       message);
    }
    PQsetNoticeReceiver(conn->pg, on_notice, conn);
    join_ferry(conn);
    return begin_session(conn, err);
}

static int postgres_open(const char *url, struct ol_conn **out, outlog_err *err)
{
    struct pg_store_conn *conn = calloc(1, sizeof *conn);
    if (!conn || !(conn->url = strdup(url))) {
        free(conn);
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    }
    conn->base.store = &ol_store_postgres;
    if (connect_now(conn, err) < 0) {
        ol_store_postgres.close(&conn->base);
        return -1;
    }
    // Of several hosts another may answer tomorrow; handles that were opened before share it all the same.
    conn->base.wake_key = ol_wake_key(strchr(url, ',') ? url : conn->base.name);
    *out = &conn->base;
    return 0;
}

int ol_postgres_borrow(struct pg_conn *pg, struct ol_conn **out, outlog_err *err)
{
    const char *encoding = PQparameterStatus(pg, "client_encoding");
    if (encoding && strcmp(encoding, "UTF8") != 0) // our text would be taken for another
        return ol_fail(err, OUTLOG_MISUSE,
                       "the connection speaks %s; set its client_encoding to UTF8", encoding);
    struct pg_store_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    conn->base.store = &ol_store_postgres;
    conn->base.is_borrowed = true;
    conn->pg = pg;
    snprintf(conn->base.name, sizeof conn->base.name, "postgres:%.80s", PQdb(pg) ? PQdb(pg) : "");
    *out = &conn->base;
    return 0;
}

struct pg_conn *ol_postgres_native(struct ol_conn *conn)
{
    return own(conn)->pg;
}

static void postgres_close(struct ol_conn *base)
{
    struct pg_store_conn *conn = own(base);
    ol_ahead_drop(&conn->ahead);
    if (!base->is_borrowed && conn->pg)
        PQfinish(conn->pg);
    ol_ferry_leave(conn->ferry);
    free(conn->url);
    free(conn);
}

/* Whether the server has gone while we were idle: then its end is closed, perhaps with a last
 * word. Asked before something is sent, this turns many an unknown outcome into none at all. */
static bool has_gone(struct pg_store_conn *conn)
{
    struct pollfd fd = {.fd = PQsocket(conn->pg), .events = POLLIN};
    for (int i = 0; i < 3 && !is_lost(conn) && poll(&fd, 1, 0) > 0; i++)
        PQconsumeInput(conn->pg);
    return is_lost(conn);
}

/* (4) Not found means that it is over; so does another server after a failover. */
static int end_session_in_doubt(struct pg_store_conn *conn, outlog_err *err)
{
    int64_t is_over = 1;
    outlog_err why;
    if (!conn->in_doubt.pid)
        return 0;
    bool is_named = strncmp(conn->in_doubt.started_at, "outlog ", 7) == 0;
    if (ol_number(&conn->base, is_named ? OL_Q_SESSION_END_NAMED : OL_Q_SESSION_END,
                  is_named
                      ? OL_PARAMS(ol_text(conn->in_doubt.started_at))
                      : OL_PARAMS(ol_int(conn->in_doubt.pid), ol_text(conn->in_doubt.started_at)),
                  &is_over, &why) < 0 &&
        why.code != OUTLOG_NOT_FOUND) {
        if (err)
            *err = why;
        return -1;
    }
    if (!is_over)
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "%s: the transaction whose outcome is unknown still runs (process %d); try "
                       "again",
                       conn->base.name, conn->in_doubt.pid);
    conn->in_doubt.pid = 0;
    return 0;
}

static int postgres_revive(struct ol_conn *base, outlog_err *err)
{
    struct pg_store_conn *conn = own(base);
    if (base->is_borrowed)
        return 0;
    if (has_gone(conn) && connect_now(conn, err) < 0)
        return -1;
    return end_session_in_doubt(conn, err);
}

/* --- transactions --- */

static int run(struct pg_store_conn *conn, const char *sql, outlog_err *err)
{
    PGresult *result = PQexec(quiet(conn), sql);
    ExecStatusType status = PQresultStatus(result);
    bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!ok)
        fail(conn, result, err);
    PQclear(result);
    return ok ? 0 : -1;
}

static int postgres_begin(struct ol_conn *base, outlog_err *err)
{
    char sql[512] = "begin isolation level read committed";
    if (base->is_pooled) {
        long long limit_ms = base->limit_ms;
        int bytes = snprintf(sql, sizeof sql, pooled_begin, limit_ms ? limit_ms : POOLED_LOCK_MS);
        if (limit_ms)
            snprintf(sql + bytes, sizeof sql - (size_t)bytes, pooled_limits, limit_ms, limit_ms);
    }
    if (run(own(base), sql, err) < 0)
        return -1;
    base->in_transaction = true;
    return 0;
}

static int postgres_snapshot(struct ol_conn *base, outlog_err *err)
{
    if (run(own(base), "begin isolation level repeatable read read only", err) < 0)
        return -1;
    base->in_transaction = true;
    return 0;
}

static void postgres_rollback(struct ol_conn *base)
{
    if (!is_lost(own(base)))
        run(own(base), "rollback", NULL);
    base->in_transaction = false;
}

static int postgres_commit(struct ol_conn *base, outlog_err *err)
{
    struct pg_store_conn *conn = own(base);
    int outcome = -1;

    conn->warned = false;
    base->in_transaction = false;
    if (has_gone(conn))
        return ol_fail(
            err, OUTLOG_UNAVAILABLE,
            "%s: the connection was lost before the commit; nothing was stored, try again",
            base->name);
    ol_fault("append.commit_sent");
    PGresult *result = PQexec(quiet(conn), "commit");
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        if (is_unknown(conn, result))
            fail_unknown(conn, doubtful(conn), err);
        else
            fail(conn, result, err);
    } else if (strcmp(PQcmdStatus(result), "COMMIT") != 0) {
        ol_fail(err, OUTLOG_STORE_ERROR, "%s: the transaction had failed and was rolled back",
                base->name);
    } else if (conn->warned) { // committed here, but the standby did not confirm
        fail_unknown(conn, doubtful(conn), err);
    } else {
        ol_fault("append.commit_done");
        ol_wake_signal(base->wake_key);
        outcome = 0;
    }
    PQclear(result);
    return outcome;
}

static int postgres_mark(struct ol_conn *base, outlog_err *err)
{
    return run(own(base), "savepoint outlog_mark", err);
}

static int postgres_release(struct ol_conn *base, bool ok, outlog_err *err)
{
    if (!ok && run(own(base), "rollback to savepoint outlog_mark", err) < 0)
        return -1;
    return run(own(base), "release savepoint outlog_mark", err);
}

static int postgres_script(struct ol_conn *base, const char *sql, outlog_err *err)
{
    return run(own(base), sql, err);
}

/* --- queries --- */

/* What PQexecParams wants, for at most as many parameters as a query can have. */
struct arguments {
    int count;
    Oid types[32];
    const char *values[32];
    int lengths[32];
    int formats[32];
    char numbers[32][32];
};

static void add_argument(struct arguments *to, const struct ol_value *value)
{
    int i = to->count++;
    to->types[i] = 0;
    to->formats[i] = 0;
    switch (value->type) {
    case OL_INT:
        snprintf(to->numbers[i], sizeof to->numbers[i], "%lld", (long long)value->number);
        to->values[i] = to->numbers[i];
        break;
    case OL_REAL:
        snprintf(to->numbers[i], sizeof to->numbers[i], "%.17g", value->real);
        to->values[i] = to->numbers[i];
        break;
    case OL_TEXT:
        assert(value->text[value->bytes] == '\0'); // libpq's text format ends at the NUL
        to->values[i] = value->text;
        break;
    default:
        to->values[i] = NULL;
    }
}

/* Prepare a statement once per connection; returns its slot, or -1 for one that is sent whole each
 * time. A borrowed connection may stand behind a pooler as well as one of ours (5). If the statement is wrong, executing it will say so. */
static int prepare(struct pg_store_conn *conn, enum ol_query_id id, uint64_t key,
                   const struct ol_statement_text *text, const struct arguments *arguments)
{
    char name[32];
    if (conn->base.is_borrowed || conn->base.is_pooled || conn->prepared_count == MOST_PREPARED)
        return -1;
    int slot = conn->prepared_count++; // a name is never used twice, also not after a failure
    snprintf(name, sizeof name, "ol_%d", slot);
    PGresult *result = PQprepare(quiet(conn), name, text->text, arguments->count, arguments->types);
    struct prepared *made = &conn->prepared[slot];
    *made = (struct prepared){.id = id, .key = key, .bound_count = text->bound_count};
    memcpy(made->bound, text->bound, sizeof made->bound);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        made->id = OL_QUERY_COUNT; // never found again
    PQclear(result);
    return made->id == id ? slot : -1;
}

/* A prepared statement ends up with one plan for all values; some need one for their own. */
static bool is_replanned(const struct ol_query *query, const struct ol_value *params)
{
    for (uint32_t i = 0; i < query->param_count; i++)
        if (query->replan_mask >> i & 1 && params[i].type != OL_ABSENT)
            return true;
    return false;
}

static int find_prepared(const struct pg_store_conn *conn, enum ol_query_id id, uint64_t key)
{
    for (int i = 0; i < conn->prepared_count; i++)
        if (conn->prepared[i].id == id && conn->prepared[i].key == key)
            return i;
    return -1;
}

static PGresult *execute(struct pg_store_conn *conn, int slot, const char *text,
                         const struct arguments *arguments)
{
    char name[32];
    if (slot < 0)
        return PQexecParams(quiet(conn), text, arguments->count, arguments->types,
                            arguments->values, arguments->lengths, arguments->formats, BINARY);
    snprintf(name, sizeof name, "ol_%d", slot);
    if (ol_ahead_is_busy(&conn->ahead) && !conn->base.in_transaction)
        return ol_ahead_execute(&conn->ahead, conn->pg,
                                &(struct ol_ahead_statement){name, arguments->count,
                                                             arguments->values, arguments->lengths,
                                                             arguments->formats});
    return PQexecPrepared(quiet(conn), name, arguments->count, arguments->values,
                          arguments->lengths, arguments->formats, BINARY);
}

/* What is asked ahead has numbers for arguments; the literal ones are part of the key. */
static struct ol_ahead_question question(const struct prepared *prepared,
                                         const struct ol_value *params)
{
    struct ol_ahead_question question = {.id = prepared->id,
                                         .key = prepared->key,
                                         .count = prepared->bound_count};
    assert(prepared->bound_count <= OL_AHEAD_NUMBERS);
    for (int i = 0; i < prepared->bound_count; i++) {
        assert(params[prepared->bound[i]].type == OL_INT);
        question.numbers[i] = params[prepared->bound[i]].number;
    }
    return question;
}

static void postgres_ahead(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params)
{
    struct pg_store_conn *conn = own(base);
    char name[32];
    int slot = find_prepared(conn, id, ol_statement_key(&ol_queries_postgres[id], params));
    if (slot < 0 || base->in_transaction || base->is_borrowed)
        return; // it will be asked when it is needed
    struct ol_ahead_question wish = question(&conn->prepared[slot], params);
    snprintf(name, sizeof name, "ol_%d", slot);
    ol_ahead_wish(&conn->ahead, name, &wish);
    conn->prepared[slot].is_asked_ahead = true;
}

static PGresult *answer_of_old(struct pg_store_conn *conn, int slot, const struct ol_value *params)
{
    if (slot < 0 || !conn->prepared[slot].is_asked_ahead || conn->base.in_transaction)
        return NULL;
    struct ol_ahead_question wish = question(&conn->prepared[slot], params);
    return ol_ahead_take(&conn->ahead, conn->pg, &wish);
}

static int postgres_query(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params,
                          struct ol_rows *rows, outlog_err *err)
{
    struct pg_store_conn *conn = own(base);
    const struct ol_query *query = &ol_queries_postgres[id];
    uint64_t key = ol_statement_key(query, params);
    struct ol_statement_text *text = &conn->text;
    struct arguments arguments = {0};

    int slot = find_prepared(conn, id, key);
    PGresult *result = answer_of_old(conn, slot, params);
    if (result) {
        rows->handle = result;
        rows->count = PQntuples(result);
        return 0;
    }
    if (slot < 0 && ol_statement_build(query, params, '$', text, err) < 0)
        return -1;
    const int *bound = slot < 0 ? text->bound : conn->prepared[slot].bound;
    int bound_count = slot < 0 ? text->bound_count : conn->prepared[slot].bound_count;
    for (int i = 0; i < bound_count; i++)
        add_argument(&arguments, &params[bound[i]]);
    if (slot < 0 && !is_replanned(query, params))
        slot = prepare(conn, id, key, text, &arguments);

    result = execute(conn, slot, text->text, &arguments);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        fail(conn, result, err);
        PQclear(result);
        return -1;
    }
    rows->handle = result;
    rows->count = PQntuples(result);
    rows->changed = strtoll(PQcmdTuples(result), NULL, 10);
    return 0;
}

/* --- several at once --- */

/* Let the server know the statement, where it may. */
static int know(struct pg_store_conn *conn, const struct ol_ask *ask, outlog_err *err)
{
    const struct ol_query *query = &ol_queries_postgres[ask->id];
    uint64_t key = ol_statement_key(query, ask->params);
    struct arguments arguments = {0};
    if (find_prepared(conn, ask->id, key) >= 0)
        return 0;
    if (ol_statement_build(query, ask->params, '$', &conn->text, err) < 0)
        return -1;
    for (int i = 0; i < conn->text.bound_count; i++)
        add_argument(&arguments, &ask->params[conn->text.bound[i]]);
    prepare(conn, ask->id, key, &conn->text, &arguments); // if not, it is sent whole
    return 0;
}

static bool send_ask(struct pg_store_conn *conn, const struct ol_ask *ask, outlog_err *err)
{
    const struct ol_query *query = &ol_queries_postgres[ask->id];
    struct arguments arguments = {0};
    char name[32];
    int slot = find_prepared(conn, ask->id, ol_statement_key(query, ask->params));
    if (slot < 0 && ol_statement_build(query, ask->params, '$', &conn->text, err) < 0)
        return false;
    const int *bound = slot < 0 ? conn->text.bound : conn->prepared[slot].bound;
    int bound_count = slot < 0 ? conn->text.bound_count : conn->prepared[slot].bound_count;
    for (int i = 0; i < bound_count; i++)
        add_argument(&arguments, &ask->params[bound[i]]);
    snprintf(name, sizeof name, "ol_%d", slot);
    return slot < 0
               ? PQsendQueryParams(conn->pg, conn->text.text, arguments.count, arguments.types,
                                   arguments.values, arguments.lengths, arguments.formats, BINARY)
               : PQsendQueryPrepared(conn->pg, name, arguments.count, arguments.values,
                                     arguments.lengths, arguments.formats, BINARY);
}

/* One result after the other, each followed by NULL; then the sync, which is the commit. The first that
 * failed speaks for all: what came after it was not run. */
static int collect_all(struct pg_store_conn *conn, struct ol_rows *rows, size_t count,
                       outlog_err *err)
{
    int outcome = 0;
    for (size_t i = 0; i <= count; i++) {
        PGresult *result = PQgetResult(conn->pg);
        ExecStatusType status = PQresultStatus(result);
        bool is_good = i < count ? status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK
                                 : status == PGRES_PIPELINE_SYNC;
        if (!is_good && outcome == 0) {
            fail(conn, result, err);
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

/* Statements without BEGIN up to a sync are one transaction: all of it crosses at once. */
static int postgres_together(struct ol_conn *base, const struct ol_ask *asks, size_t count,
                             struct ol_rows *rows, outlog_err *err)
{
    struct pg_store_conn *conn = own(base);

    for (size_t i = 0; i < count; i++)
        if (know(conn, &asks[i], err) < 0)
            return -1;
    PGconn *pg = quiet(conn);
    bool is_sent = PQenterPipelineMode(pg);
    for (size_t i = 0; is_sent && i < count; i++)
        is_sent = send_ask(conn, &asks[i], err);
    if (!is_sent || !PQpipelineSync(pg)) {
        fail(conn, NULL, err);
        return -1;
    }
    int outcome = collect_all(conn, rows, count, err);
    PQexitPipelineMode(pg);
    return outcome;
}

static int postgres_next(struct ol_rows *rows, outlog_err *err)
{
    (void)err; // the whole result is here already
    if (!rows->handle)
        return 0;
    if (++rows->row < rows->count)
        return 1;
    ol_end(rows);
    return 0;
}

static void postgres_end(struct ol_rows *rows)
{
    PQclear(rows->handle);
}

static bool postgres_is_null(const struct ol_rows *rows, int column)
{
    return PQgetisnull(rows->handle, rows->row, column);
}

static int64_t postgres_column_int(const struct ol_rows *rows, int column)
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
        assert(false); // a column that is no number
        return 0;
    }
}

static const char *postgres_column_text(const struct ol_rows *rows, int column, size_t *bytes)
{
    *bytes = 0;
    if (postgres_is_null(rows, column))
        return NULL;
    *bytes = (size_t)PQgetlength(rows->handle, rows->row, column);
    return PQgetvalue(rows->handle, rows->row, column);
}

/* PostgreSQL counts microseconds from 2000-01-01. */
#define EPOCH INT64_C(946684800000000)

static int64_t postgres_column_time(const struct ol_rows *rows, int column)
{
    return postgres_column_int(rows, column) + EPOCH;
}

static void postgres_column_uuid(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT])
{
    ol_uuid_from_bytes((const uint8_t *)PQgetvalue(rows->handle, rows->row, column), out);
}

/* --- append --- */

enum { BOOL_OID = 16, INT8_OID = 20, INT4_OID = 23, TEXT_OID = 25, UUID_OID = 2950 };
enum { INT8_ARRAY = 1016, INT4_ARRAY = 1007, TEXT_ARRAY = 1009, UUID_ARRAY = 2951 };

/* A one-dimensional array in PostgreSQL's binary form, built element by element. */
static void array_begin(struct ol_buf *to, Oid element, size_t count)
{
    uint32_t header[5] = {htobe32(1), htobe32(1), htobe32(element), htobe32((uint32_t)count),
                          htobe32(1)};
    ol_buf_add(to, header, sizeof header);
}

static void array_bytes(struct ol_buf *to, const void *bytes, size_t count)
{
    uint32_t length = htobe32((uint32_t)count);
    ol_buf_add(to, &length, sizeof length);
    ol_buf_add(to, bytes, count);
}

static void array_null(struct ol_buf *to)
{
    uint32_t length = htobe32(UINT32_MAX);
    ol_buf_add(to, &length, sizeof length);
}

static void array_text(struct ol_buf *to, const char *text)
{
    if (text)
        array_bytes(to, text, strlen(text));
    else
        array_null(to);
}

static void array_int8(struct ol_buf *to, int64_t number)
{
    uint64_t bytes = htobe64((uint64_t)number);
    array_bytes(to, &bytes, sizeof bytes);
}

static void array_int4(struct ol_buf *to, int number)
{
    uint32_t bytes = htobe32((uint32_t)number);
    array_bytes(to, &bytes, sizeof bytes);
}

static void array_uuid(struct ol_buf *to, const char *text)
{
    uint8_t bytes[16];
    if (!text) {
        array_null(to);
        return;
    }
    ol_uuid_to_bytes(text, bytes);
    array_bytes(to, bytes, sizeof bytes);
}

/* The columns of events_append, in the order of its parameters. */
enum column {
    HEAD_ORG_KEY,
    HEAD_AGGREGATE_TYPE,
    HEAD_AGGREGATE_ID,
    HEAD_COUNT,
    HEAD,
    NTH,
    ORG_ID,
    AGGREGATE_TYPE,
    AGGREGATE_ID,
    EVENT_TYPE,
    EVENT_VERSION,
    PAYLOAD,
    METADATA,
    ID,
    ACTOR_TYPE,
    ACTOR_ID,
    REQUEST_ID,
    CORRELATION_ID,
    CAUSATION_ID,
    IDEMPOTENCY_KEY,
    APP_ID,
    ENV_ID,
    VISIBILITY,
    EXPECTED_SEQ,
    WAIT_MS, /* the only one that is no array */
    COLUMN_COUNT
};

static const struct {
    Oid array, element;
} column_types[COLUMN_COUNT] = {
    [HEAD_ORG_KEY] = {TEXT_ARRAY, TEXT_OID},
    [HEAD_AGGREGATE_TYPE] = {TEXT_ARRAY, TEXT_OID},
    [HEAD_AGGREGATE_ID] = {TEXT_ARRAY, TEXT_OID},
    [HEAD_COUNT] = {INT8_ARRAY, INT8_OID},
    [HEAD] = {INT4_ARRAY, INT4_OID},
    [NTH] = {INT8_ARRAY, INT8_OID},
    [ORG_ID] = {TEXT_ARRAY, TEXT_OID},
    [AGGREGATE_TYPE] = {TEXT_ARRAY, TEXT_OID},
    [AGGREGATE_ID] = {TEXT_ARRAY, TEXT_OID},
    [EVENT_TYPE] = {TEXT_ARRAY, TEXT_OID},
    [EVENT_VERSION] = {INT4_ARRAY, INT4_OID},
    [PAYLOAD] = {TEXT_ARRAY, TEXT_OID},
    [METADATA] = {TEXT_ARRAY, TEXT_OID},
    [ID] = {UUID_ARRAY, UUID_OID},
    [ACTOR_TYPE] = {TEXT_ARRAY, TEXT_OID},
    [ACTOR_ID] = {TEXT_ARRAY, TEXT_OID},
    [REQUEST_ID] = {TEXT_ARRAY, TEXT_OID},
    [CORRELATION_ID] = {TEXT_ARRAY, TEXT_OID},
    [CAUSATION_ID] = {UUID_ARRAY, UUID_OID},
    [IDEMPOTENCY_KEY] = {TEXT_ARRAY, TEXT_OID},
    [APP_ID] = {TEXT_ARRAY, TEXT_OID},
    [ENV_ID] = {TEXT_ARRAY, TEXT_OID},
    [VISIBILITY] = {TEXT_ARRAY, TEXT_OID},
    [EXPECTED_SEQ] = {INT8_ARRAY, INT8_OID},
    [WAIT_MS] = {INT4_OID, INT4_OID},
};

static void fill_columns(const struct ol_write *write, struct ol_buf *columns)
{
    for (int i = 0; i < WAIT_MS; i++)
        array_begin(&columns[i], column_types[i].element,
                    i <= HEAD_COUNT ? write->head_count : write->count);
    for (size_t i = 0; i < write->head_count; i++) {
        const struct ol_write_head *head = &write->heads[i];
        array_text(&columns[HEAD_ORG_KEY], head->org_key);
        array_text(&columns[HEAD_AGGREGATE_TYPE], head->aggregate_type);
        array_text(&columns[HEAD_AGGREGATE_ID], head->aggregate_id);
        array_int8(&columns[HEAD_COUNT], head->count);
    }
    for (size_t i = 0; i < write->count; i++) {
        const struct ol_write_event *event = &write->events[i];
        const struct outlog_event *said = event->said;
        array_int4(&columns[HEAD], event->head + 1);
        array_int8(&columns[NTH], event->nth);
        array_text(&columns[ORG_ID], said->org_id);
        array_text(&columns[AGGREGATE_TYPE], said->aggregate_type);
        array_text(&columns[AGGREGATE_ID], said->aggregate_id);
        array_text(&columns[EVENT_TYPE], said->event_type);
        array_int4(&columns[EVENT_VERSION], event->event_version);
        array_bytes(&columns[PAYLOAD], said->payload, event->payload_bytes);
        array_text(&columns[METADATA], said->metadata);
        array_uuid(&columns[ID], event->id);
        array_text(&columns[ACTOR_TYPE], event->actor_type);
        array_text(&columns[ACTOR_ID], event->actor_id);
        array_text(&columns[REQUEST_ID], event->request_id);
        array_text(&columns[CORRELATION_ID], event->correlation_id);
        array_uuid(&columns[CAUSATION_ID], event->causation_id);
        array_text(&columns[IDEMPOTENCY_KEY], said->idempotency_key);
        array_text(&columns[APP_ID], said->app_id);
        array_text(&columns[ENV_ID], said->env_id);
        array_text(&columns[VISIBILITY], said->visibility);
        if (said->expected_seq)
            array_int8(&columns[EXPECTED_SEQ], *said->expected_seq);
        else
            array_null(&columns[EXPECTED_SEQ]);
    }
}

/* An array of nulls is sent as none: one of them costs the server nothing, many do. */
static bool is_all_null(const struct ol_buf *array, size_t count)
{
    enum { HEADER = 20, WORD = 4 };
    if (array->bytes != HEADER + count * WORD)
        return false;
    for (size_t i = HEADER; i < array->bytes; i++)
        if ((unsigned char)array->data[i] != 0xff)
            return false;
    return true;
}

static PGresult *send_batch(struct pg_store_conn *conn, const struct ol_write *write,
                            bool is_shared, outlog_err *err)
{
    const uint32_t wait_ms = htobe32(is_shared ? OL_FERRY_LOCK_MS : POOLED_LOCK_MS);
    const struct ol_query *query = &ol_queries_postgres[OL_Q_EVENTS_APPEND];
    struct ol_value params[COLUMN_COUNT];
    struct ol_statement_text *text = &conn->text;
    struct arguments arguments = {.count = COLUMN_COUNT};
    struct ol_buf columns[COLUMN_COUNT] = {{0}};
    PGresult *result = NULL;

    for (int i = 0; i < COLUMN_COUNT; i++)
        params[i] = ol_int(0); // all there; the values follow below
    int slot = find_prepared(conn, OL_Q_EVENTS_APPEND, ol_statement_key(query, params));
    if (slot < 0 && ol_statement_build(query, params, '$', text, err) < 0)
        return NULL;
    fill_columns(write, columns);
    if (is_shared || (conn->base.is_pooled && write->is_alone))
        ol_buf_add(&columns[WAIT_MS], &wait_ms, sizeof wait_ms);
    for (int i = 0; i < COLUMN_COUNT; i++) {
        if (columns[i].failed) {
            ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
            goto out;
        }
        arguments.types[i] = column_types[i].array;
        arguments.values[i] = is_all_null(&columns[i], write->count) ? NULL : columns[i].data;
        arguments.lengths[i] = (int)columns[i].bytes;
        arguments.formats[i] = BINARY;
    }
    if (slot < 0)
        slot = prepare(conn, OL_Q_EVENTS_APPEND, ol_statement_key(query, params), text, &arguments);
    result = execute(conn, slot, text->text, &arguments);
out:
    for (int i = 0; i < COLUMN_COUNT; i++)
        ol_buf_clear(&columns[i]);
    return result;
}

static PGresult *send_one(struct pg_store_conn *conn, const struct ol_write *write, outlog_err *err)
{
    const struct ol_write_event *event = &write->events[0];
    const struct ol_write_head *head = &write->heads[0];
    const struct outlog_event *said = event->said;
    struct ol_rows rows = {0};

    if (postgres_query(&conn->base, OL_Q_EVENT_APPEND,
                       OL_PARAMS(ol_text(*head->org_key ? head->org_key : NULL),
                                 ol_text(head->aggregate_type), ol_text(head->aggregate_id),
                                 ol_text(said->event_type), ol_int(event->event_version),
                                 ol_bytes(said->payload, event->payload_bytes),
                                 ol_text(said->metadata), ol_text(event->id),
                                 ol_text(event->actor_type), ol_text(event->actor_id),
                                 ol_text(event->request_id), ol_text(event->correlation_id),
                                 ol_text(event->causation_id), ol_text(said->idempotency_key),
                                 ol_text(said->app_id), ol_text(said->env_id),
                                 ol_text(said->visibility),
                                 said->expected_seq ? ol_int(*said->expected_seq) : ol_text(NULL)),
                       &rows, err) < 0)
        return NULL;
    return rows.handle;
}

/* A record in binary: how many fields, then for each its type, its length and its bytes; ours are
 * three numbers of eight bytes. */
static int64_t record_number(const PGresult *result, int field)
{
    enum { HEADER = 4, FIELD = 16 };
    uint64_t number;
    assert(PQgetlength(result, 0, 0) == HEADER + 3 * FIELD);
    memcpy(&number, PQgetvalue(result, 0, 0) + HEADER + field * FIELD + 8, sizeof number);
    return (int64_t)be64toh(number);
}

static void read_one(const PGresult *result, struct outlog_appended *out)
{
    out->event_id = record_number(result, 0);
    out->aggregate_seq = record_number(result, 1);
    out->occurred_at = record_number(result, 2) + EPOCH;
}

static void read_batch(struct ol_rows *rows, struct ol_write *write)
{
    for (rows->row = 0; rows->row < (int)write->count; rows->row++) {
        struct outlog_appended *out = write->events[rows->row].out;
        out->event_id = postgres_column_int(rows, 0);
        out->aggregate_seq = postgres_column_int(rows, 1);
        out->occurred_at = postgres_column_time(rows, 2);
    }
}

/* A single event has a statement of its own; only the one for many can be told how long to wait (5). */
static bool is_single(const struct pg_store_conn *conn, const struct ol_write *write)
{
    return write->count == 1 && !(conn->base.is_pooled && write->is_alone);
}

static void read_results(struct ol_conn *conn, PGresult *result, struct ol_write *write)
{
    struct ol_rows rows = {.conn = conn, .handle = result};
    assert(PQntuples(result) == (int)write->count);
    if (is_single(own(conn), write))
        read_one(result, write->events[0].out);
    else
        read_batch(&rows, write);
}

static PGresult *send_write(struct pg_store_conn *conn, const struct ol_write *write,
                            bool is_shared, outlog_err *err)
{
    conn->warned = false;
    ol_fault("append.insert");
    return is_single(conn, write) ? send_one(conn, write, err)
                                  : send_batch(conn, write, is_shared, err);
}

/* One write, or those of several handles as a transaction of its own. */
static struct ol_ferry_end cross(struct ol_conn *base, struct ol_write *write, bool is_shared,
                                 outlog_err *err)
{
    struct pg_store_conn *conn = own(base);
    struct ol_ferry_end end = {.fate = is_shared ? OL_FERRY_ALONE : OL_FERRY_FAILED};
    PGresult *result = send_write(conn, write, is_shared, err);
    bool is_ok = result && PQresultStatus(result) == PGRES_TUPLES_OK;

    // The server may have committed before it fell silent, or without its standby (2).
    if (write->is_alone && (is_lost(conn) || (is_ok && conn->warned) ||
                            (result && !is_ok && is_unknown(conn, result))))
        end = (struct ol_ferry_end){OL_FERRY_UNKNOWN, doubtful(conn)};
    else if (is_ok) {
        end.fate = OL_FERRY_DONE;
        read_results(base, result, write);
        if (write->is_alone)
            ol_wake_signal(base->wake_key);
    } else if (result && !is_shared)
        fail(conn, result, err);
    PQclear(result);
    return end;
}

static int postgres_write(struct ol_conn *base, struct ol_write *write, outlog_err *err)
{
    struct pg_store_conn *conn = own(base);
    struct ol_ferry_end end = {.fate = OL_FERRY_ALONE};

    if (write->is_alone)
        end = ol_ferry_carry(conn->ferry, base, write, cross, err);
    if (end.fate == OL_FERRY_ALONE)
        end = cross(base, write, false, err);
    if (end.fate == OL_FERRY_DONE)
        return 0;
    if (end.fate == OL_FERRY_UNKNOWN)
        fail_unknown(conn, end.in_doubt, err);
    if (err && err->index >= 0 &&
        err->index < (int)write->count) // of what was sent; some were there
        err->index = write->events[err->index].index;
    return -1;
}

/* Readable when the server says something unasked: a NOTIFY to a session that listens, or its end. */
static int postgres_wake_fd(struct ol_conn *base)
{
    return PQsocket(own(base)->pg);
}

/* What came along with the answer of a query counts too. */
static bool postgres_woken(struct ol_conn *base)
{
    struct pg_store_conn *conn = own(base);
    PGnotify *note;
    bool is_woken = PQconsumeInput(conn->pg) == 0;
    while ((note = PQnotifies(conn->pg))) {
        is_woken = true;
        PQfreemem(note);
    }
    return is_woken;
}

const struct ol_store ol_store_postgres = {
    .name = "postgres",
    .open = postgres_open,
    .close = postgres_close,
    .begin = postgres_begin,
    .commit = postgres_commit,
    .rollback = postgres_rollback,
    .snapshot = postgres_snapshot,
    .mark = postgres_mark,
    .release = postgres_release,
    .query = postgres_query,
    .ahead = postgres_ahead,
    .together = postgres_together,
    .next = postgres_next,
    .end = postgres_end,
    .is_null = postgres_is_null,
    .column_int = postgres_column_int,
    .column_text = postgres_column_text,
    .column_time = postgres_column_time,
    .column_uuid = postgres_column_uuid,
    .write = postgres_write,
    .script = postgres_script,
    .wake_fd = postgres_wake_fd,
    .woken = postgres_woken,
    .revive = postgres_revive,
    .has_gaps = true,
    .can_notify = true,
    .has_functions = true,
    .user = &ol_user_postgres,
    .queries = ol_queries_postgres,
    .migrations = ol_migrations_postgres,
    .bootstrap = ol_bootstrap_postgres,
};
