/* log.h: the open store and the transaction, as the library sees them from inside. */
#ifndef OL_LOG_LOG_H
#define OL_LOG_LOG_H

#include "log/registry.h"
#include "store/store.h"
#include "store/wake.h"

/* The last time window that was asked for, as a range of event_ids. */
struct ol_read_window_cache {
    int64_t since, until, first, last;
    int64_t settled; /* what was settled when we looked: late events of the window lie above it */
};

struct outlog {
    struct ol_conn *conn;
    struct ol_registry registry;
    struct ol_waiter waiter; /* opened by the first outlog_follow() */
    bool is_waiting;
    bool is_checked; /* the schema is there and of our version */
    int64_t settled; /* as last heard; it only grows */
    struct ol_read_window_cache window;
    outlog_tx *tx; /* the open transaction, if any */
};

struct outlog_tx {
    outlog *log; /* NULL: the caller's own connection */
    struct ol_conn *conn;
    struct ol_registry *registry;
    struct ol_registry own_registry; /* for a caller's own connection */
    struct ol_arena arena;           /* what lives as long as the transaction */
    bool has_failed; /* half of a command may be in it: it can only be rolled back */
    bool is_shared;  /* outlog_begin() on its handle joins it: a savepoint, for whoever began inside
                      */
    int depth;       /* how many have joined */
};

/* Every call on a handle begins here: the connection is alive, the schema is ours. */
int ol_log_ready(outlog *log, outlog_err *err);

/* outlog_request_hash() of a text that may hold a NUL, which is refused as any other wrong byte. */
int ol_idempotency_request_hash(const char *request, size_t bytes, char out[65], outlog_err *err);

/* A call in several transactions commits its key before them and its answer after them; until then
 * a repeat is told that it is under way. When it has failed the key is forgotten: what is left can
 * be asked for again. */
int ol_idempotency_forget(outlog_tx *tx, const struct outlog_idempotency *call, outlog_err *err);

/* As outlog_append_many(), without a look for the ids that events bring: they are taken to be new.
 * One that is stored already makes the store refuse all of them; the caller undoes that and asks
 * again the other way. */
int ol_append_new_ids(outlog_tx *tx, const struct outlog_new_event *events, size_t count,
                      struct outlog_appended *out, outlog_err *err);

/* The same as a transaction of its own, in one statement, which waits no longer than `wait_ms` for
 * anybody's lock. No event has a key or a cause. */
int ol_append_autocommit(outlog *log, const struct outlog_new_event *events, size_t count,
                         int wait_ms, struct outlog_appended *out, outlog_err *err);

#endif
