/* store.h: the narrow waist between outlog's logic and a database.
 *
 * A connection runs named queries (sql/, see query.h) and does not know what they mean. The logic
 * above is written once; a difference between stores is either data (a field of ol_store) or behind
 * one of these functions. A connection belongs to one thread at a time. */
#ifndef OL_STORE_STORE_H
#define OL_STORE_STORE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/uuid.h"
#include "queries.h"

struct ol_conn;
struct ol_rows;
struct ol_waiter;
struct ol_append_batch;
struct ol_user_sql;

/* --- parameters --- */

enum ol_value_type { OL_VALUE_ABSENT, OL_VALUE_NULL, OL_VALUE_INT, OL_VALUE_REAL, OL_VALUE_TEXT };

struct ol_value {
    enum ol_value_type type;
    int64_t number;
    double real;
    const char *text;
    size_t bytes;
};

struct ol_value ol_value_int(int64_t number);
struct ol_value ol_value_real(double real);
struct ol_value ol_value_text(const char *text); /* NULL becomes null */
struct ol_value ol_value_bytes(const char *text, size_t bytes);
struct ol_value ol_value_optional(const char *text); /* NULL: its part of the query is left out */
struct ol_value ol_value_time(int64_t time_us);      /* as RFC 3339 text */
struct ol_value ol_value_absent(void);

#define OL_PARAMS(...) ((const struct ol_value[]){__VA_ARGS__})
#define OL_NO_PARAMS ((const struct ol_value[]){{0}})

/* A query with its parameters, one of several that are sent in one round trip. */
struct ol_pipelined_query {
    enum ol_query_id id;
    const struct ol_value *params;
};

/* --- the implementations --- */

struct ol_store {
    const char *name; /* "sqlite", "postgres" */

    /* Connect. Creates nothing except an empty SQLite file. */
    int (*open)(const char *url, struct ol_conn **out, outlog_err *err);
    void (*close)(struct ol_conn *conn);

    /* A read-write transaction. commit: OUTLOG_OUTCOME_UNKNOWN when it may or may not be stored. */
    int (*begin)(struct ol_conn *conn, outlog_err *err);
    int (*commit)(struct ol_conn *conn, outlog_err *err);
    void (*rollback)(struct ol_conn *conn);

    /* A read-only transaction on one snapshot of the store. Ended by rollback. */
    int (*snapshot)(struct ol_conn *conn, outlog_err *err);

    /* A savepoint. On release `ok` keeps the changes since the mark, else they are undone. */
    int (*mark)(struct ol_conn *conn, outlog_err *err);
    int (*release)(struct ol_conn *conn, bool ok, outlog_err *err);

    /* Run a named query. rows->changed is the number of rows that a write touched. */
    int (*query)(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params,
                 struct ol_rows *rows, outlog_err *err);

    /* A hint: this query with these numbers will be run after the next statement. The store may run
     * it already; the result then shows the data at the end of that statement, or later. NULL: the
     * store has no server that could work in the meantime. */
    void (*prefetch)(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params);

    /* ol_store_pipeline(). NULL: the store has one lane, so it is not needed. */
    int (*pipeline)(struct ol_conn *conn, const struct ol_pipelined_query *queries, size_t count,
                    struct ol_rows *rows, outlog_err *err);

    /* Go to the next row: 1, or 0 at the end, or -1. */
    int (*next)(struct ol_rows *rows, outlog_err *err);
    void (*end)(struct ol_rows *rows);
    bool (*is_null)(const struct ol_rows *rows, int column);
    int64_t (*column_int)(const struct ol_rows *rows, int column);
    const char *(*column_text)(const struct ol_rows *rows, int column, size_t *bytes);
    int64_t (*column_time)(const struct ol_rows *rows, int column);
    void (*column_uuid)(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT]);

    /* Append checked events (store/append_batch.h) inside a transaction, or as a transaction of
     * their own when batch->is_alone. The one hot path that each store implements itself. */
    int (*append)(struct ol_conn *conn, struct ol_append_batch *batch, outlog_err *err);

    /* Run a script of many statements (migrations). */
    int (*script)(struct ol_conn *conn, const char *sql, outlog_err *err);

    /* A descriptor that becomes readable when another process may have committed. -1: there is
     * none, so poll. */
    int (*wake_fd)(struct ol_conn *conn);

    /* Has a wake-up arrived since the last call? Consumes all of them. */
    bool (*drain_wake)(struct ol_conn *conn);

    /* Reconnect if the connection is lost. Does nothing on a healthy one. */
    int (*reconnect)(struct ol_conn *conn, outlog_err *err);

    /* Where runs on this machine put their run files (base/run_file.h). False: nowhere. */
    bool (*run_folder)(const struct ol_conn *conn, char *out, size_t bytes);

    /* Would a write be refused, as far as can be seen without one? NULL: nothing can be seen. */
    int (*check_writable)(struct ol_conn *conn, outlog_err *err);

    bool has_gaps; /* ids are assigned before commit: a lower one may appear after a higher one */
    bool answers_whole; /* all rows of a result are in memory before the first can be read */
    bool has_sessions;  /* a server that holds locks for as long as a connection lives */
    bool can_notify;    /* LISTEN and NOTIFY: writers can wake a sleeping relay */
    bool has_globs; /* routes are matched by GLOB and JSON paths; else by LIKE and JSON pointers */
    bool has_functions;                 /* commands of runs are functions of the database itself */
    const struct ol_user_sql *user_sql; /* runs a user's own statements (store/user_sql.h) */
    const struct ol_query *queries;
    const struct ol_migration *migrations;
    const char *bootstrap;
};

extern const struct ol_store ol_store_sqlite, ol_store_postgres;

/* What else to do while a connection waits for its server: `call` is made when `fd` is readable. It
 * must not use the connection. A store without a server never calls it. */
struct ol_idle_callback {
    int fd;
    void (*call)(void *user); /* NULL: nothing */
    void *user;
};

/* Where a store is, as text; see ol_conn. */
enum { OL_PLACE_TEXT = 64 };

/* What every connection has; the implementation's own struct begins with it. */
struct ol_conn {
    const struct ol_store *store;
    char name[256];            /* which database, for messages: never a password */
    uint64_t wake_key;         /* connections of this process to the same database share it */
    uint64_t session;          /* grows with each reconnect */
    char place[OL_PLACE_TEXT]; /* which file, where the database does not know that itself */
    bool in_transaction;
    bool is_borrowed;             /* the caller's connection: never closed, never reconfigured */
    bool is_pooled;               /* behind a pooler: each transaction may run in another session */
    bool is_proxied;              /* something is in between, which may know several servers */
    int64_t limit_ms;             /* how long a transaction may hang; 0: no limit was set */
    enum ol_query_id limit_query; /* sets the limit in a new session */
    struct ol_idle_callback idle;
};

/* An open result. Start from {0}; ol_rows_end() may be called on it at any time. */
struct ol_rows {
    struct ol_conn *conn;
    void *handle;
    int row, count;
    int64_t changed;
};

/* --- use --- */

/* Open by URL: "sqlite:PATH" or a libpq URL. */
int ol_store_open(const char *url, struct ol_conn **out, outlog_err *err);
void ol_store_close(struct ol_conn *conn);

int ol_store_query(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params,
                   struct ol_rows *rows, outlog_err *err);
void ol_store_prefetch(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params);

/* Run queries in order, as one transaction and in one round trip. Not inside a transaction. rows[i]
 * is the result of queries[i]; the caller ends each. -1: there are no rows, and nothing was stored
 * unless the code is OUTLOG_OUTCOME_UNKNOWN or OUTLOG_UNAVAILABLE. */
int ol_store_pipeline(struct ol_conn *conn, const struct ol_pipelined_query *queries, size_t count,
                      struct ol_rows *rows, outlog_err *err);
int ol_rows_next(struct ol_rows *rows, outlog_err *err);
void ol_rows_end(struct ol_rows *rows);

/* Run a query for its effect; *changed (may be NULL) gets the number of rows written. */
int ol_store_exec(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params,
                  int64_t *changed, outlog_err *err);

/* Run a query for one number. OUTLOG_NOT_FOUND without a row. */
int ol_store_number(struct ol_conn *conn, enum ol_query_id id, const struct ol_value *params,
                    int64_t *out, outlog_err *err);

/* From now on a session that hangs for limit_ms releases its locks. `query` sets this in the
 * session, and again in each new session after a lost connection. Behind a pooler no session is
 * ours: each transaction begins with the limit instead. */
int ol_store_limit_hang(struct ol_conn *conn, enum ol_query_id query, int64_t limit_ms,
                        outlog_err *err);

/* Wait until another connection may have committed, or the time has passed. Drains the wake-ups. */
void ol_store_await(struct ol_conn *conn, struct ol_waiter *waiter, int timeout_ms);

bool ol_rows_is_null(const struct ol_rows *rows, int column);
int64_t ol_rows_int(const struct ol_rows *rows, int column);
int64_t ol_rows_time(const struct ol_rows *rows, int column); /* 0 for null */
void ol_rows_uuid(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT]);

/* The text in place, valid until the next row; NULL for null. *bytes may be NULL. */
const char *ol_rows_text(const struct ol_rows *rows, int column, size_t *bytes);

/* A copy in the arena; NULL for null (and when memory is out; then *failed is set). */
const char *ol_rows_copy(const struct ol_rows *rows, int column, struct ol_arena *arena,
                         bool *failed);

/* --- for the implementations --- */

/* The text of a query for these parameters, and which of them it binds, in order. */
struct ol_statement {
    char text[8192];
    int bound[32];
    int bound_count;
};
int ol_statement_build(const struct ol_query *query, const struct ol_value *params, char marker,
                       struct ol_statement *out, outlog_err *err);

/* Refuses a text that is not UTF-8 and names the parameter: the same error on every store. */
int ol_statement_check(const struct ol_query *query, const struct ol_value *params,
                       outlog_err *err);

/* Equal for two calls whose statement text is equal. Depends on which optional parameters are
 * present, and on the values of the literal ones. */
uint64_t ol_statement_key(const struct ol_query *query, const struct ol_value *params);

/* Turn "code: message" into its error; false when `message` does not begin with one of ours. */
bool ol_store_parse_error(outlog_err *err, const char *message);

#endif
