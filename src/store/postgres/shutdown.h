/* shutdown.h: after SIGTERM a daemon does not wait forever for a server that does not answer.
 *
 * A server that has gone away closes its connections, and a statement fails at once. A server that
 * is frozen, or behind a broken network, sends nothing, and a statement waits for it as long as the
 * socket lives. While a daemon runs that is right, for the server may come back. After SIGTERM a
 * thread probes the store. While the store answers, all work is finished normally. When it has not
 * answered for two seconds (for each host of the URL, as they are tried one after the other), every
 * connection of the process is cut, as if the server had closed it, and no new one is made.
 *
 * F1  A statement that was sent and not answered has an unknown outcome, as after any lost
 *     connection.
 * F2  A socket is cut through a duplicate descriptor: libpq closes its own at any time, and the
 *     number may then belong to another file.
 * F3  The probe also asks the server about our other connections. A connection that waits for a
 *     result is dead when nothing has arrived on it for two seconds and its backend is idle
 *     meanwhile: only this connection is cut. Of several hosts one answers the probe. Connections
 * to another host are dead, as that host was silent or is not the one to write to. F4  A connection
 * is made by a thread that can be abandoned: libpq offers no way to interrupt a connect, or to see
 * what it waits for. F5  A server does not notice that a connection is dead, and keeps the locks of
 * its transaction until it does: our next statement on another connection would wait for them. So
 * the probe terminates the backends of cut connections that are idle in a transaction.
 *
 * Only daemons use this; in other programs connections are made and kept as libpq does. */
#ifndef OL_STORE_POSTGRES_SHUTDOWN_H
#define OL_STORE_POSTGRES_SHUTDOWN_H

#include "outlog.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pg_conn;

/* --- for daemons --- */

/* Once, before connections are made: watch over connections to this store from now on. Does nothing
 * for SQLite. */
int ol_shutdown_prepare(const char *store, outlog_err *err);

/* The process was asked to end. Safe in a signal handler, and may be called more than once. */
void ol_shutdown_begin(void);

/* Has the store been given up? Then this process can store nothing any more. */
bool ol_shutdown_is_over(void);

/* The last call before exit. Returns `status`, the status to exit with. When a thread was abandoned
 * (F4) it ends the process with that status instead. */
int ol_shutdown_end(int status);

/* --- for the store --- */

/* A connection that can be cut. */
struct ol_tracked_conn {
    struct ol_tracked_conn *next;
    int fd; /* our duplicate (F2) */
    bool is_tracked;
    char host[128];    /* and port */
    atomic_int pid;    /* of its backend (F3); 0: unknown, as behind a pooler */
    atomic_uint waits; /* odd while a result is awaited; each wait has a number of its own */
    /* as it was at the last probe */
    unsigned seen;
    uint64_t received;
    int64_t silent_at; /* boot clock: since when nothing has changed */
};

/* Connect. The caller checks PQstatus(). NULL: out of memory, or the store has been given up. */
struct pg_conn *ol_shutdown_connect(const char *url);

/* From track on the connection can be cut. Untrack it before PQfinish. */
void ol_shutdown_track(struct ol_tracked_conn *tracked, struct pg_conn *pg);
void ol_shutdown_untrack(struct ol_tracked_conn *tracked);

/* Around each wait for a result. */
static inline void ol_shutdown_begin_wait(struct ol_tracked_conn *tracked)
{
    atomic_fetch_add(&tracked->waits, 1);
}

static inline void ol_shutdown_end_wait(struct ol_tracked_conn *tracked)
{
    atomic_fetch_add(&tracked->waits, 1);
}

#endif
