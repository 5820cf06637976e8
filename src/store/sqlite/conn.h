/* conn.h: using a host's own SQLite connection. */
#ifndef OL_STORE_SQLITE_CONN_H
#define OL_STORE_SQLITE_CONN_H

#include "base/err.h"

struct ol_conn;
struct sqlite3;

/* Is the store a SQLite file that does not exist, in a folder that does? Opening it would create an
 * empty file. */
bool ol_sqlite_is_missing(const char *url);

/* The path in a URL: sqlite:PATH; also sqlite:///absolute and sqlite://relative, as other programs
 * write it. */
const char *ol_sqlite_path(const char *url);

/* Wrap the host's handle; ol_store_close() frees the wrapper and leaves the handle alone. */
int ol_sqlite_borrow(struct sqlite3 *db, struct ol_conn **out, outlog_err *err);

/* The SQLite handle of a connection. */
struct sqlite3 *ol_sqlite_native(struct ol_conn *conn);

#endif
