/* internal.h: a connection to PostgreSQL, for the files that make up that store:
 *
 *   conn          the connection: errors, sessions, transactions, wake-ups
 *   query         statements and their rows
 *   append        appends, many events in one statement
 *   group_commit  appends of several threads in one transaction
 *   prefetch      a query that runs before its result is needed
 *   shutdown      connecting, and ending while the server does not answer
 *   user_sql      statements and tables of a user */
#ifndef OL_STORE_POSTGRES_INTERNAL_H
#define OL_STORE_POSTGRES_INTERNAL_H

#include "store/postgres/group_commit.h"
#include "store/postgres/prefetch.h"
#include "store/postgres/shutdown.h"
#include "store/store.h"

enum { OL_POSTGRES_BINARY = 1, OL_POSTGRES_PREPARED = 128, OL_POSTGRES_LOCK_MS = 10000 };

/* PostgreSQL counts microseconds from 2000-01-01. */
#define OL_POSTGRES_EPOCH INT64_C(946684800000000)

/* A statement that the server knows under the name "ol_<number>". */
struct ol_postgres_prepared {
    enum ol_query_id id;
    uint64_t key;
    int bound[32];
    int bound_count;
    bool is_prefetched; /* its result may be here already (store/postgres/prefetch.h) */
};

/* What the database lets our role append. */
enum ol_postgres_rights {
    OL_POSTGRES_RIGHTS_UNKNOWN, /* not asked yet */
    OL_POSTGRES_CHECKED,        /* events that it checks itself */
    OL_POSTGRES_TRUSTED         /* events that we have checked */
};

struct ol_postgres_conn {
    struct ol_conn base;
    PGconn *pg;
    struct ol_tracked_conn tracked;
    char *url;
    enum ol_postgres_rights rights;
    bool warned;                /* the server sent a warning since this was last cleared */
    struct ol_backend backend;  /* that serves this connection */
    struct ol_backend in_doubt; /* it may still commit a transaction of unknown outcome (4) */
    struct ol_postgres_prepared prepared[OL_POSTGRES_PREPARED];
    int prepared_count;
    struct ol_group_commit *group; /* NULL: appends are sent alone */
    struct ol_prefetch prefetch;
    struct ol_statement text; /* of the current statement, if it is not prepared */
};

/* What PQexecParams wants, for at most as many parameters as a query can have. */
struct ol_postgres_arguments {
    int count;
    Oid types[32];
    const char *values[32];
    int lengths[32];
    int formats[32];
    char numbers[32][32];
};

static inline struct ol_postgres_conn *ol_postgres_conn_from(struct ol_conn *conn)
{
    return (struct ol_postgres_conn *)conn;
}

/* The connection, with no prefetch in flight. */
PGconn *ol_postgres_idle_conn(struct ol_postgres_conn *conn);

/* --- errors --- */

/* Fills in err from the failed result, which may be NULL; always returns -1. */
int ol_postgres_fail(struct ol_postgres_conn *conn, const PGresult *result, outlog_err *err);

/* The same for an unknown outcome: `in_doubt` may still commit. */
int ol_postgres_fail_unknown(struct ol_postgres_conn *conn, struct ol_backend in_doubt,
                             outlog_err *err);

/* The backend that may still commit the statement that was just sent. */
struct ol_backend ol_postgres_backend_in_doubt(const struct ol_postgres_conn *conn);

bool ol_postgres_is_lost(const struct ol_postgres_conn *conn);
bool ol_postgres_is_unknown(const struct ol_postgres_conn *conn, const PGresult *result);

/* --- query.c --- */

/* The text of a query, in conn->text. Through a pooler it asks to be sent to the primary. */
int ol_postgres_build(struct ol_postgres_conn *conn, const struct ol_query *query,
                      const struct ol_value *params, outlog_err *err);

/* The number of a prepared statement, or -1. */
int ol_postgres_find_prepared(const struct ol_postgres_conn *conn, enum ol_query_id id,
                              uint64_t key);

/* Prepare a statement once per connection. Returns its number. -1: send its text each time. */
int ol_postgres_prepare(struct ol_postgres_conn *conn, enum ol_query_id id, uint64_t key,
                        const struct ol_statement *text,
                        const struct ol_postgres_arguments *arguments);

/* Wait until PQgetResult would not block, and call struct ol_idle_callback in the meantime. */
void ol_postgres_await(struct ol_postgres_conn *conn);

/* Like PQexec. */
PGresult *ol_postgres_run(struct ol_postgres_conn *conn, const char *sql);

/* Run the prepared statement of this number; -1: run the text. */
PGresult *ol_postgres_execute(struct ol_postgres_conn *conn, int slot, const char *text,
                              const struct ol_postgres_arguments *arguments);

/* See struct ol_store. */
int ol_postgres_query(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params,
                      struct ol_rows *rows, outlog_err *err);
void ol_postgres_prefetch(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params);
int ol_postgres_pipeline(struct ol_conn *base, const struct ol_pipelined_query *queries,
                         size_t count, struct ol_rows *rows, outlog_err *err);
int ol_postgres_next(struct ol_rows *rows, outlog_err *err);
void ol_postgres_end(struct ol_rows *rows);
bool ol_postgres_is_null(const struct ol_rows *rows, int column);
int64_t ol_postgres_column_int(const struct ol_rows *rows, int column);
const char *ol_postgres_column_text(const struct ol_rows *rows, int column, size_t *bytes);
int64_t ol_postgres_column_time(const struct ol_rows *rows, int column);
void ol_postgres_column_uuid(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT]);

/* --- append.c --- */

int ol_postgres_append(struct ol_conn *base, struct ol_append_batch *write, outlog_err *err);

#endif
