/* internal.h: a connection to a SQLite file, for the files that make up that store:
 *
 *   conn          the connection: errors, transactions, wake-ups
 *   file          whether the file is still where its path says
 *   query         statements and their rows
 *   append        appends, many events in few statements
 *   writer_queue  writers of one process take turns
 *   user_sql      statements and tables of a user
 *   tune          settings for the whole process, for our own programs */
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
    int64_t busy_since;          /* boot clock: when the lock was first found taken */
    bool has_turn;               /* it holds the lock of the writer queue */
    bool is_late;                /* it has waited there for as long as it may wait */
    bool has_wide_cache;         /* set at its first write */
    char *path;                  /* absolute, as it was given: a link stays a link */
    struct ol_sqlite_file *file; /* at that path; NULL: in memory, or the caller's connection */
    bool is_reader;              /* it has read the file: the WAL is open */
    int watch_fd;                /* inotify on the WAL; -1: not opened yet, -2: not available */
    bool is_in_doubt;            /* a commit failed half-way (3) */
    struct ol_sqlite_prepared *prepared[OL_QUERY_COUNT];
};

static inline struct ol_sqlite_conn *ol_sqlite_conn_from(struct ol_conn *conn)
{
    return (struct ol_sqlite_conn *)conn;
}

/* Fills in err from SQLite's error; always returns -1. */
int ol_sqlite_fail(struct ol_sqlite_conn *conn, int result, outlog_err *err);

/* A commit was done, but not in the file at its path (R4): returns -1, the outcome is unknown. */
int ol_sqlite_check_committed(struct ol_sqlite_conn *conn, outlog_err *err);

/* Before and after a write: take turns with the other writers of this process. Does nothing for a
 * borrowed connection, whose transactions belong to its owner. */
void ol_sqlite_lock_writer(struct ol_sqlite_conn *conn);
void ol_sqlite_unlock_writer(struct ol_sqlite_conn *conn);

/* See struct ol_store. */
int ol_sqlite_begin(struct ol_conn *base, outlog_err *err);
int ol_sqlite_commit(struct ol_conn *base, outlog_err *err);
void ol_sqlite_rollback(struct ol_conn *base);

/* --- query.c --- */

/* The query for `rows` rows of these parameters, prepared once per connection. NULL: see err. */
struct ol_sqlite_prepared *ol_sqlite_prepare(struct ol_sqlite_conn *conn, enum ol_query_id id,
                                             const struct ol_value *params, size_t rows,
                                             outlog_err *err);

/* Bind the parameters of one row, counted from 0. */
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
