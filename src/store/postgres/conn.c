/* conn.c: the store in PostgreSQL, through libpq.
 *
 * 1  Results come in binary: numbers, times and UUIDs are not printed and parsed again.
 * 2  A COMMIT whose answer did not arrive, or came with a warning, is an unknown outcome.
 * 3  Reads of the log rely on a new snapshot per statement, so our sessions are READ COMMITTED.
 * 4  After an unknown outcome the handle is used again only when the server's end of the lost
 *    connection is gone: what can be read then is final.
 * 5  Behind a pooler (PgBouncer in transaction mode) a session is ours for one transaction only:
 *    nothing is prepared, and settings are made for the transaction. The backend is found by our
 *    application_name, which a pooler carries over from session to session. */
#include "store/postgres/conn.h"

#include "base/fault.h"
#include "base/json/json.h"
#include "store/postgres/internal.h"
#include "store/user_sql.h"
#include "store/wake.h"

#include <endian.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every read walks an index in order and stops at its limit. For a table that was never analyzed
 * the planner estimates that it is cheaper to read a whole range and sort it. These settings forbid
 * that. */
static const char planner_settings[] =
    "set jit = off; set random_page_cost = 1.1; set enable_bitmapscan = off; set enable_seqscan = off;"
    "set client_min_messages = warning; set default_transaction_isolation = 'read committed'";

/* The same for a transaction (5); %lld is how long it may hang, in milliseconds. */
static const char pooled_begin[] =
    "begin isolation level read committed; set local jit = off; set local random_page_cost = 1.1;"
    "set local enable_bitmapscan = off; set local enable_seqscan = off; set local lock_timeout = %lld";
static const char pooled_limits[] =
    "; set local idle_in_transaction_session_timeout = %lld; set local statement_timeout = %lld";

PGconn *ol_postgres_idle_conn(struct ol_postgres_conn *conn)
{
    ol_prefetch_finish(&conn->prefetch, conn->pg);
    return conn->pg;
}

/* --- errors --- */

struct sqlstate_rule {
    const char *prefix; /* of the SQLSTATE; the first match wins */
    enum outlog_code code;
    const char *advice;
};

static const struct sqlstate_rule sqlstate_rules[] = {
    {"25006", OUTLOG_READ_ONLY, "; connect to the primary"},
    {"25P01", OUTLOG_MISUSE, "; begin the transaction before joining it"},
    {"25P02", OUTLOG_MISUSE, "; roll the transaction back"},
    {"42P01", OUTLOG_NO_SCHEMA, "; run `outlog init` first"}, // of ours; see find_rule()
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

/* The DETAIL of our own errors is JSON: expected, actual, index, pointer. */
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

/* Our statements call our tables outlog.…; any other missing table belongs to a statement of the
 * user. */
static const struct sqlstate_rule *find_rule(const char *sqlstate, const char *message)
{
    static const struct sqlstate_rule user_table =
        {"42P01", OUTLOG_STORE_ERROR, "; the query of a notification rule, or a trigger, needs it"};
    const struct sqlstate_rule *rule = sqlstate_rules;
    if (strcmp(sqlstate, user_table.prefix) == 0 && !strstr(message, "outlog."))
        return &user_table;
    while (strncmp(sqlstate, rule->prefix, strlen(rule->prefix)) != 0)
        rule++;
    return rule;
}

bool ol_postgres_is_lost(const struct ol_postgres_conn *conn)
{
    return PQstatus(conn->pg) != CONNECTION_OK;
}

/* Whether it is unknown if a transaction was committed (2): there was no answer, or the server went
 * away while sending it. An ordinary error has rolled back. */
bool ol_postgres_is_unknown(const struct ol_postgres_conn *conn, const PGresult *result)
{
    const char *severity = result ? PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED)
                                  : NULL;
    return ol_postgres_is_lost(conn) || !severity || strcmp(severity, "ERROR") != 0;
}

static void cut_at_newline(char *text)
{
    size_t bytes = strcspn(text, "\n");
    text[bytes] = '\0';
}

int ol_postgres_fail(struct ol_postgres_conn *conn, const PGresult *result, outlog_err *err)
{
    char message[300];
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *primary = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;

    snprintf(message, sizeof message, "%s", primary ? primary : PQerrorMessage(conn->pg));
    cut_at_newline(message);
    if (!state)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "%s: %s; nothing was stored, try again",
                       conn->base.name, *message ? message : "connection lost");
    if (strcmp(state, "OL000") == 0 && ol_store_parse_error(err, message)) {
        if (err)
            read_detail(err, PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
        return -1;
    }
    const struct sqlstate_rule *rule = find_rule(state, message);
    return ol_fail(err, rule->code, "%s: %s%s", conn->base.name, message, rule->advice);
}

struct ol_backend ol_postgres_backend_in_doubt(const struct ol_postgres_conn *conn)
{
    return ol_postgres_is_lost(conn) ? conn->backend : (struct ol_backend){0};
}

int ol_postgres_fail_unknown(struct ol_postgres_conn *conn, struct ol_backend in_doubt,
                             outlog_err *err)
{
    if (in_doubt.pid)
        conn->in_doubt = in_doubt;
    return ol_fail(err, OUTLOG_OUTCOME_UNKNOWN,
                   "%s: no clear answer to the commit; the events may be stored or not: look them "
                   "up by id, or repeat them with the same id",
                   conn->base.name);
}

/* --- connecting --- */

static void on_notice(void *argument, const PGresult *result)
{
    struct ol_postgres_conn *conn = argument;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (severity && strcmp(severity, "WARNING") == 0 &&
        !(message && strncmp(message, "outlog:", 7) == 0)) // our own warnings leave no doubt
        conn->warned = true;
}

static int exec_setting(struct ol_postgres_conn *conn, const char *sql, outlog_err *err)
{
    ol_shutdown_begin_wait(&conn->tracked);
    PGresult *result = PQexec(conn->pg, sql);
    ol_shutdown_end_wait(&conn->tracked);
    bool ok = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (!ok)
        ol_postgres_fail(conn, result, err);
    PQclear(result);
    return ok ? 0 : -1;
}

/* (5) The name is unique: a backend that works under it works for this connection. */
static int begin_pooled(struct ol_postgres_conn *conn, outlog_err *err)
{
    char id[OL_UUID_TEXT], sql[80];
    ol_uuid_make(id);
    conn->backend.pid = PQbackendPID(conn->pg); // the pooler's own number, not used to find it
    snprintf(conn->backend.started_at, sizeof conn->backend.started_at, "outlog %.23s", id + 13);
    snprintf(sql, sizeof sql, "set application_name = '%.40s'",
             conn->backend.started_at); // lint: sql
    return exec_setting(conn, sql, err);
}

/* Is the server at another address than the one libpq connected to? It is so behind a pooler that
 * keeps a session per client, and behind a router, which does no harm. */
static bool is_elsewhere(const struct ol_postgres_conn *conn, const char *address, const char *port)
{
    const char *host = PQhost(conn->pg), *reached = PQhostaddr(conn->pg);
    bool is_socket = host && *host == '/';
    return strcmp(port, PQport(conn->pg)) != 0 ||
           strcmp(address, is_socket || !reached ? "" : reached) != 0;
}

/* A backend other than the one libpq connected to means that a pooler is in between. */
static int begin_session(struct ol_postgres_conn *conn, outlog_err *err)
{
    struct ol_rows rows;
    conn->backend = (struct ol_backend){0};
    conn->base.is_pooled = conn->base.is_proxied = true; // until we know better
    if (ol_store_query(&conn->base, OL_Q_BACKEND_IDENTITY, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    if (ol_rows_next(&rows, err) > 0) {
        conn->backend.pid = (int)ol_rows_int(&rows, 1);
        snprintf(conn->backend.started_at, sizeof conn->backend.started_at, "%s",
                 ol_rows_text(&rows, 0, NULL));
        conn->base.is_proxied =
            is_elsewhere(conn, ol_rows_text(&rows, 2, NULL), ol_rows_text(&rows, 3, NULL));
    }
    ol_rows_end(&rows);
    conn->base.is_pooled = conn->backend.pid != PQbackendPID(conn->pg);
    conn->base.is_proxied |= conn->base.is_pooled;
    if (conn->base.is_pooled)
        return begin_pooled(conn, err);
    atomic_store(&conn->tracked.pid, conn->backend.pid);
    if (exec_setting(conn, planner_settings, err) < 0 ||
        ol_store_exec(&conn->base, OL_Q_BACKEND_LOCK_TIMEOUT, OL_NO_PARAMS, NULL, err) < 0)
        return -1;
    return conn->base.limit_ms
               ? ol_store_limit_hang(&conn->base, conn->base.limit_query, conn->base.limit_ms, err)
               : 0;
}

/* Handles of one URL share commits while they are connected to the same server as the same user. */
static void join_group(struct ol_postgres_conn *conn)
{
    char key[2048];
    int bytes = snprintf(key, sizeof key, "%s %s %s %s %s", PQhost(conn->pg), PQport(conn->pg),
                         PQuser(conn->pg), PQdb(conn->pg), conn->url);
    ol_group_commit_leave(conn->group);
    conn->group = bytes < (int)sizeof key ? ol_group_commit_join(key) : NULL;
}

static int connect_now(struct ol_postgres_conn *conn, outlog_err *err)
{
    ol_prefetch_drop(&conn->prefetch);
    ol_shutdown_untrack(&conn->tracked);
    PQfinish(conn->pg);
    conn->prepared_count = 0;
    conn->base.in_transaction = false;
    conn->base.session++;
    conn->pg = ol_shutdown_connect(conn->url);
    if (!conn->pg && ol_shutdown_is_over())
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "cannot connect to the store: it does not answer, and this process ends");
    if (!conn->pg)
        return ol_no_memory(err);
    snprintf(conn->base.name, sizeof conn->base.name, "postgres://%.80s:%s/%.80s",
             PQhost(conn->pg) ? PQhost(conn->pg) : "", PQport(conn->pg) ? PQport(conn->pg) : "",
             PQdb(conn->pg) ? PQdb(conn->pg) : "");
    if (ol_postgres_is_lost(conn)) {
        char message[300];
        snprintf(message, sizeof message, "%s", PQerrorMessage(conn->pg));
        cut_at_newline(message);
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "cannot connect to the store: %s; check --store and "
                       "that the server runs",
                       message);
    }
    PQsetNoticeReceiver(conn->pg, on_notice, conn);
    ol_shutdown_track(&conn->tracked, conn->pg);
    join_group(conn);
    return begin_session(conn, err);
}

static int postgres_open(const char *url, struct ol_conn **out, outlog_err *err)
{
    struct ol_postgres_conn *conn = calloc(1, sizeof *conn);
    if (!conn || !(conn->url = strdup(url))) {
        free(conn);
        return ol_no_memory(err);
    }
    conn->base.store = &ol_store_postgres;
    if (connect_now(conn, err) < 0) {
        ol_store_postgres.close(&conn->base);
        return -1;
    }
    // With several hosts the URL is the key: handles that reached another host share it as well.
    conn->base.wake_key = ol_wake_key(strchr(url, ',') ? url : conn->base.name);
    *out = &conn->base;
    return 0;
}

int ol_postgres_borrow(struct pg_conn *pg, struct ol_conn **out, outlog_err *err)
{
    const char *encoding = PQparameterStatus(pg, "client_encoding");
    if (encoding && strcmp(encoding, "UTF8") != 0) // our text would be misread
        return ol_fail(err, OUTLOG_MISUSE, "the connection uses client_encoding %s; set it to UTF8",
                       encoding);
    struct ol_postgres_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return ol_no_memory(err);
    conn->base.store = &ol_store_postgres;
    conn->base.is_borrowed = true;
    conn->pg = pg;
    snprintf(conn->base.name, sizeof conn->base.name, "postgres:%.80s", PQdb(pg) ? PQdb(pg) : "");
    *out = &conn->base;
    return 0;
}

struct pg_conn *ol_postgres_native(struct ol_conn *conn)
{
    return ol_postgres_conn_from(conn)->pg;
}

static void postgres_close(struct ol_conn *base)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    ol_prefetch_drop(&conn->prefetch);
    ol_shutdown_untrack(&conn->tracked);
    if (!base->is_borrowed)
        PQfinish(conn->pg);
    ol_group_commit_leave(conn->group);
    free(conn->url);
    free(conn);
}

/* Whether the server closed the connection while it was idle, perhaps with a last message. Checked
 * before a statement is sent, this turns many unknown outcomes into known ones. */
static bool is_closed_by_server(struct ol_postgres_conn *conn)
{
    struct pollfd fd = {.fd = PQsocket(conn->pg), .events = POLLIN};
    for (int i = 0; i < 3 && !ol_postgres_is_lost(conn) && poll(&fd, 1, 0) > 0; i++)
        PQconsumeInput(conn->pg);
    return ol_postgres_is_lost(conn);
}

/* (4) Not found means that it has ended; so does another server after a failover. */
static int terminate_backend_in_doubt(struct ol_postgres_conn *conn, outlog_err *err)
{
    int64_t has_ended = 1;
    outlog_err why;
    if (!conn->in_doubt.pid)
        return 0;
    bool is_named = strncmp(conn->in_doubt.started_at, "outlog ", 7) == 0;
    if (ol_store_number(&conn->base,
                        is_named ? OL_Q_BACKEND_TERMINATE_NAMED : OL_Q_BACKEND_TERMINATE,
                        is_named ? OL_PARAMS(ol_value_text(conn->in_doubt.started_at))
                                 : OL_PARAMS(ol_value_int(conn->in_doubt.pid),
                                             ol_value_text(conn->in_doubt.started_at)),
                        &has_ended, &why) < 0 &&
        why.code != OUTLOG_NOT_FOUND) {
        if (err)
            *err = why;
        return -1;
    }
    if (!has_ended)
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "%s: the transaction whose outcome is unknown still runs (process %d); try "
                       "again",
                       conn->base.name, conn->in_doubt.pid);
    conn->in_doubt.pid = 0;
    return 0;
}

static int postgres_reconnect(struct ol_conn *base, outlog_err *err)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    if (base->is_borrowed)
        return 0;
    if (is_closed_by_server(conn) && connect_now(conn, err) < 0)
        return -1;
    return terminate_backend_in_doubt(conn, err);
}

/* --- transactions --- */

static int exec_script(struct ol_postgres_conn *conn, const char *sql, outlog_err *err)
{
    PGresult *result = ol_postgres_run(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!ok)
        ol_postgres_fail(conn, result, err);
    PQclear(result);
    return ok ? 0 : -1;
}

static int postgres_begin(struct ol_conn *base, outlog_err *err)
{
    char sql[512] = "begin isolation level read committed";
    if (base->is_pooled) {
        long long limit_ms = base->limit_ms;
        int bytes =
            snprintf(sql, sizeof sql, pooled_begin, limit_ms ? limit_ms : OL_POSTGRES_LOCK_MS);
        if (limit_ms)
            snprintf(sql + bytes, sizeof sql - (size_t)bytes, pooled_limits, limit_ms, limit_ms);
    }
    if (exec_script(ol_postgres_conn_from(base), sql, err) < 0)
        return -1;
    base->in_transaction = true;
    return 0;
}

static int postgres_snapshot(struct ol_conn *base, outlog_err *err)
{
    if (exec_script(ol_postgres_conn_from(base), "begin isolation level repeatable read read only",
                    err) < 0)
        return -1;
    base->in_transaction = true;
    return 0;
}

static void postgres_rollback(struct ol_conn *base)
{
    if (!ol_postgres_is_lost(ol_postgres_conn_from(base)))
        exec_script(ol_postgres_conn_from(base), "rollback", NULL);
    base->in_transaction = false;
}

static int postgres_commit(struct ol_conn *base, outlog_err *err)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    int outcome = -1;

    conn->warned = false;
    base->in_transaction = false;
    if (is_closed_by_server(conn))
        return ol_fail(
            err, OUTLOG_UNAVAILABLE,
            "%s: the connection was lost before the commit; nothing was stored, try again",
            base->name);
    ol_fault("append.commit_sent");
    PGresult *result = ol_postgres_run(conn, "commit");
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        if (ol_postgres_is_unknown(conn, result))
            ol_postgres_fail_unknown(conn, ol_postgres_backend_in_doubt(conn), err);
        else
            ol_postgres_fail(conn, result, err);
    } else if (strcmp(PQcmdStatus(result), "COMMIT") != 0) {
        ol_fail(err, OUTLOG_STORE_ERROR, "%s: the transaction had failed and was rolled back",
                base->name);
    } else if (conn->warned) { // committed here, but the standby did not confirm
        ol_postgres_fail_unknown(conn, ol_postgres_backend_in_doubt(conn), err);
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
    return exec_script(ol_postgres_conn_from(base), "savepoint outlog_mark", err);
}

static int postgres_release(struct ol_conn *base, bool ok, outlog_err *err)
{
    if (!ok &&
        exec_script(ol_postgres_conn_from(base), "rollback to savepoint outlog_mark", err) < 0)
        return -1;
    return exec_script(ol_postgres_conn_from(base), "release savepoint outlog_mark", err);
}

static int postgres_script(struct ol_conn *base, const char *sql, outlog_err *err)
{
    return exec_script(ol_postgres_conn_from(base), sql, err);
}

/* --- wake-ups --- */

/* Readable when the server sends something unasked: a NOTIFY, or the end of the connection. */
static int postgres_wake_fd(struct ol_conn *base)
{
    return PQsocket(ol_postgres_conn_from(base)->pg);
}

/* Also counts notifications that arrived with the result of a query. */
static bool postgres_drain_wake(struct ol_conn *base)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    PGnotify *note;
    bool is_woken = PQconsumeInput(conn->pg) == 0;
    while ((note = PQnotifies(conn->pg))) {
        is_woken = true;
        PQfreemem(note);
    }
    return is_woken;
}

/* --- run files --- */

/* The server may be anywhere: the folder is one of this machine, for all stores. Never /tmp, where
 * others may write and where old files are removed. */
static bool postgres_run_folder(const struct ol_conn *base, char *out, size_t bytes)
{
    const char *runtime = getenv("RUNTIME_DIRECTORY"), *xdg = getenv("XDG_RUNTIME_DIR");
    int needed;
    (void)base;
    if (runtime && *runtime) // of a systemd unit; the first of a list
        needed = snprintf(out, bytes, "%.*s", (int)strcspn(runtime, ":"), runtime);
    else if (xdg && *xdg)
        needed = snprintf(out, bytes, "%s/outlog", xdg);
    else
        needed = snprintf(out, bytes, "/run/outlog");
    return needed > 0 && (size_t)needed < bytes;
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
    .query = ol_postgres_query,
    .prefetch = ol_postgres_prefetch,
    .pipeline = ol_postgres_pipeline,
    .next = ol_postgres_next,
    .end = ol_postgres_end,
    .is_null = ol_postgres_is_null,
    .column_int = ol_postgres_column_int,
    .column_text = ol_postgres_column_text,
    .column_time = ol_postgres_column_time,
    .column_uuid = ol_postgres_column_uuid,
    .append = ol_postgres_append,
    .script = postgres_script,
    .wake_fd = postgres_wake_fd,
    .drain_wake = postgres_drain_wake,
    .reconnect = postgres_reconnect,
    .run_folder = postgres_run_folder,
    .has_gaps = true,
    .answers_whole = true,
    .has_sessions = true,
    .can_notify = true,
    .has_functions = true,
    .user_sql = &ol_user_sql_postgres,
    .queries = ol_queries_postgres,
    .migrations = ol_migrations_postgres,
    .bootstrap = ol_bootstrap_postgres,
};
