/* file.h: the file that a connection has open, and whether it is still where its path says (R4).
 *
 * Another process may delete, rename or replace the file of an open connection. SQLite would go on
 * with a file that nobody will find again. So a commit first looks at the path, and after it once
 * more; that is two calls of stat(), a microsecond beside the fsync. */
#ifndef OL_STORE_SQLITE_FILE_H
#define OL_STORE_SQLITE_FILE_H

#include "store/sqlite/internal.h"

/* Before SQLite opens conn->path. Creates a missing file, for its owner alone: SQLite gives the
 * same mode to -wal and -shm. Never creates one, and accepts no other, while this process has the
 * file at that path open. */
int ol_sqlite_file_open(struct ol_sqlite_conn *conn, outlog_err *err);

/* Before SQLite closes it, which may delete the WAL; and after. */
void ol_sqlite_file_leave(struct ol_sqlite_conn *conn);
void ol_sqlite_file_close(struct ol_sqlite_conn *conn);

/* OUTLOG_UNAVAILABLE: the file, or its WAL, is not at its path any more. `is_writing`: also
 * OUTLOG_READ_ONLY, nobody may write the file. Once SQLite has read the file. */
int ol_sqlite_file_check(struct ol_sqlite_conn *conn, bool is_writing, outlog_err *err);

#endif
