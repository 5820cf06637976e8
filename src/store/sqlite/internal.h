/* internal.h: a connection to a SQLite file, for the files that make up that store:
 *
 *   sqlite        the connection: errors, transactions, waking
 *   sqlite_query  statements and their rows
 *   sqlite_write  appends, many events in few statements */
#ifndef OL_STORE_SQLITE_INTERNAL_H
#define OL_STORE_SQLITE_INTERNAL_H

#include "store/store.h"

#ifdef OL_SQLITE_EXTENSION
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3
#else
#include <sqlite3.h>
#endif

/* A prepared query for one shape of parameters; an INSERT may take many rows at once. */
struct ol_sqlite_prepared {
    uint64_t key;
    size_t rows;
    sqlite3_stmt *statement;
    int bound[32];
    int bound_count;
    struct ol_sqlite_prepared *next;
};

struct ol_sqlite_conn {
    struct ol_conn base;
    sqlite3 *db;
    int64_t busy_since; /* boot clock: when the lock was first found taken */
    bool has_turn;      /* at the turnstile */
    bool is_late;       /* it waited there for as long as it may wait */
    bool is_wide;       /* it has written, and keeps more pages since */
    char *path;
    int watch_fd;     /* inotify on the WAL; -1: not asked for yet, -2: not to be had */
    bool is_in_doubt; /* a commit failed half-way (3) */
    struct ol_sqlite_prepared *prepared[OL_QUERY_COUNT];
};

static inline struct ol_sqlite_conn *ol_sqlite_conn_from(struct ol_conn *conn)
{
    return (struct ol_sqlite_conn *)conn;
}

/* Says what went wrong; always -1. */
int ol_sqlite_fail(struct ol_sqlite_conn *conn, int result, outlog_err *err);

/* Before a write: behind the other writers of this process; and after it. A borrowed connection's
 * transactions are its owner's. */
void ol_sqlite_lock_writer(struct ol_sqlite_conn *conn);
void ol_sqlite_unlock_writer(struct ol_sqlite_conn *conn);

/* See struct ol_store. */
int ol_sqlite_begin(struct ol_conn *base, outlog_err *err);
int ol_sqlite_commit(struct ol_conn *base, outlog_err *err);
void ol_sqlite_rollback(struct ol_conn *base);

/* --- query.c --- */

/* The query for `rows` rows of these parameters, prepared once per connection. NULL: err says why.
 */
struct ol_sqlite_prepared *ol_sqlite_prepare(struct ol_sqlite_conn *conn, enum ol_query_id id,
                                             const struct ol_value *params, size_t rows,
                                             outlog_err *err);

/* Bind the parameters of one row, the first one's being row 0. */
int ol_sqlite_bind_row(struct ol_sqlite_conn *conn, const struct ol_sqlite_prepared *prepared,
                       size_t row, const struct ol_value *params, outlog_err *err);

int ol_sqlite_query(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params,
                    struct ol_rows *rows, outlog_err *err);
int ol_sqlite_next(struct ol_rows *rows, outlog_err *err);
void ol_sqlite_end(struct ol_rows *rows);
bool ol_sqlite_is_null(const struct ol_rows *rows, int column);
int64_t ol_sqlite_column_int(const struct ol_rows *rows, int column);
const char *ol_sqlite_column_text(const struct ol_rows *rows, int column, size_t *bytes);
int64_t ol_sqlite_column_time(const struct ol_rows *rows, int column);
void ol_sqlite_column_uuid(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT]);

/* --- append.c --- */

int ol_sqlite_append(struct ol_conn *base, struct ol_append_batch *write, outlog_err *err);

#endif
