/* conn_state.h: what a connection that loaded the extension keeps from call to call.
 *
 * Prepared statements and the registry. A host could not close its connection while statements of
 * ours are there, so they hang on a virtual table, outlog_statements (it has no rows): SQLite
 * disconnects those first of all when it closes a connection. Where the table is not to be had,
 * each call prepares its own statements. */
#ifndef OL_EXT_CONN_STATE_H
#define OL_EXT_CONN_STATE_H

#include "log/log.h"

struct ol_conn_state;
struct sqlite3;

/* A door of the connection, to be released; NULL when it cannot be. Every function that is
 * registered with it keeps it by ol_conn_state_retain(), as long as it is registered. */
struct ol_conn_state *ol_conn_state_open(struct sqlite3 *db);
struct ol_conn_state *ol_conn_state_retain(struct ol_conn_state *door);
void ol_conn_state_release(struct ol_conn_state *door);

/* Take part in the host's transaction for one call. Between the two nothing of `tx` is kept. */
int ol_conn_state_begin(struct ol_conn_state *door, outlog_tx **out, outlog_err *err);
void ol_conn_state_end(struct ol_conn_state *door, outlog_tx *tx); /* NULL: nothing */

#endif
