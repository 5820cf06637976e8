/* shutdown.h: a daemon that is asked to end does not wait for a silent server.
 *
 * A server that is gone says so: whoever asks is told at once. One that is frozen, or at the end of
 * a cable that was pulled, says nothing, and a statement waits for it as long as the socket lives.
 * While a daemon runs that is right, for the server may come back. From the moment it is asked to
 * end the store is asked whether it is there. If so, everything is finished as ever; if it has not
 * answered for two seconds (for each host of the URL, as they are asked one after the other), every
 * connection of the process ends as if the server had closed it, and no other is made.
 *
 * F1  What was sent and not answered is an unknown outcome, as after any lost connection.
 * F2  A socket is cut by a descriptor of our own: libpq closes its own when it likes, and then the
 * number may be somebody else's. F3  A store that is there is also asked what it does for us: a
 * connection whose answer is waited for, on which nothing has come for two seconds, and for which
 * its server does nothing meanwhile, is dead, and is cut alone. Of several hosts one is asked;
 * connections to another are dead, as it was silent or is not the one to write to. F4  A connection
 * is made by a thread that can be left behind: libpq does not say what it waits for. F5  A server
 * does not know that a line is dead, and keeps the locks of its transaction for as long as it
 * believes in it: what comes after on another connection would wait for them. So it is told to end
 * whoever stands still in a transaction for a line that was cut.
 *
 * Only daemons ask for this; in other programs connections are made and kept as libpq does. */
#ifndef OL_STORE_POSTGRES_SHUTDOWN_H
#define OL_STORE_POSTGRES_SHUTDOWN_H

#include "outlog.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pg_conn;

/* --- for daemons --- */

/* Once, before connections are made: a farewell can be said to this store. Nothing to do for
 * SQLite. */
int ol_shutdown_prepare(const char *store, outlog_err *err);

/* The process was asked to end. May be called by a signal's handler, and more than once. */
void ol_shutdown_begin(void);

/* Has the store been given up? Nothing can be stored by this process any more. */
bool ol_shutdown_is_over(void);

/* Last of all: returns the status to exit with, unless a thread was left behind (F4); then it ends
 * the process with it. */
int ol_shutdown_end(int status);

/* --- for the store --- */

/* A connection that can be cut. */
struct ol_tracked_conn {
    struct ol_tracked_conn *next;
    int fd; /* of our own (F2) */
    bool is_held;
    char host[128];    /* and port */
    atomic_int pid;    /* who serves it (F3); 0: behind a pooler nobody knows */
    atomic_uint waits; /* odd while an answer is waited for; no two waits have the same number */
    /* as it was when it was last looked at */
    unsigned seen;
    uint64_t received;
    int64_t silent_at; /* boot clock: since when nothing has changed */
};

/* Connect. Look at its status; NULL: memory is out, or the store has been given up. */
struct pg_conn *ol_shutdown_connect(const char *url);

/* From here on it can be cut; until let go, which comes before PQfinish. */
void ol_shutdown_track(struct ol_tracked_conn *line, struct pg_conn *pg);
void ol_shutdown_untrack(struct ol_tracked_conn *line);

/* Around each wait for an answer. */
static inline void ol_shutdown_wait(struct ol_tracked_conn *line)
{
    atomic_fetch_add(&line->waits, 1);
}

static inline void ol_shutdown_mark_alive(struct ol_tracked_conn *line)
{
    atomic_fetch_add(&line->waits, 1);
}

#endif
