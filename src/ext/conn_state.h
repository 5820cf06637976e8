/* conn_state.h: the state that a connection with the extension keeps from call to call.
 *
 * It has prepared statements and the registry. A host cannot close its connection while our
 * prepared statements exist, so a virtual table without rows, outlog_statements, owns them: SQLite
 * disconnects virtual tables first when it closes a connection. Where that table cannot be
 * connected, each call prepares its own statements. */
#ifndef OL_EXT_CONN_STATE_H
#define OL_EXT_CONN_STATE_H

#include "log/log.h"

struct ol_conn_state;
struct sqlite3;

/* Create the state of a connection; the caller releases it. NULL: it failed. Every function that is
 * registered with it retains it as long as it is registered. */
struct ol_conn_state *ol_conn_state_open(struct sqlite3 *db);
struct ol_conn_state *ol_conn_state_retain(struct ol_conn_state *state);
void ol_conn_state_release(struct ol_conn_state *state);

/* Join the host's transaction for one call. `tx` is valid until ol_conn_state_end(). */
int ol_conn_state_begin(struct ol_conn_state *state, outlog_tx **out, outlog_err *err);
void ol_conn_state_end(struct ol_conn_state *state, outlog_tx *tx); /* NULL: nothing */

#endif
