/* conn.h: using a host's own PostgreSQL connection. */
#ifndef OL_STORE_POSTGRES_CONN_H
#define OL_STORE_POSTGRES_CONN_H

#include "base/err.h"

struct ol_conn;
struct pg_conn;

/* Wrap the host's PGconn; ol_store_close() frees the wrapper and leaves the connection alone. */
int ol_postgres_borrow(struct pg_conn *pg, struct ol_conn **out, outlog_err *err);

/* The PGconn of a connection. */
struct pg_conn *ol_postgres_native(struct ol_conn *conn);

#endif
