/* log.h: the open store and the transaction, for the library's own code. */
#ifndef OL_LOG_LOG_H
#define OL_LOG_LOG_H

#include "log/registry.h"
#include "store/store.h"
#include "store/wake.h"

/* The last time window that was read, as a range of event_ids. */
struct ol_read_window_cache {
    int64_t since, until, first, last;
    int64_t settled; /* at that time: late events of the window are above it */
};

struct outlog {
    struct ol_conn *conn;
    struct ol_registry registry;
    struct ol_waiter waiter; /* opened by the first outlog_follow() */
    bool is_waiting;
    bool is_checked;           /* the schema exists and has our version */
    int64_t settled;           /* the highest that was read; see position.c */
    char log_id[OL_UUID_TEXT]; /* as last read, with its server */
    int64_t server;
    uint64_t session; /* that is_checked and the position are of */
    struct ol_read_window_cache window;
    outlog_tx *tx; /* the open transaction, if any */
};

struct outlog_tx {
    outlog *log; /* NULL: the caller's own connection */
    struct ol_conn *conn;
    struct ol_registry *registry;
    struct ol_registry own_registry; /* for a caller's own connection */
    struct ol_arena arena;           /* what lives as long as the transaction */
    bool has_failed; /* it may contain half of a command: it can only be rolled back */
    bool is_record;  /* of what happened: no org's shape refuses its events (L8) */
    bool is_shared;  /* outlog_begin() on its handle joins it, with a savepoint */
    int depth;       /* how many times it was joined */
};

/* Every call on a handle begins here: it reconnects if needed, and checks the schema once. */
int ol_log_ready(outlog *log, outlog_err *err);

/* outlog_request_hash() of a text that may contain a NUL, which is refused as an invalid byte. */
int ol_idempotency_request_hash(const char *request, size_t bytes, char out[65], outlog_err *err);

/* A call in several transactions commits its key before them and its answer after them; until then
 * a repeat gets OUTLOG_IDEMPOTENCY_IN_PROGRESS. When the call has failed, forget its key, so that
 * the remaining work can be requested again. */
int ol_idempotency_forget(outlog_tx *tx, const struct outlog_idempotency *call, outlog_err *err);

/* Like outlog_append_many(), for the events that only outlog's own commands write (X1): `outlog.*`
 * and the states of signals, runs, steps and effects. */
int ol_append_own(outlog_tx *tx, const struct outlog_new_event *events, size_t count,
                  struct outlog_appended *out, outlog_err *err);

/* Like outlog_append_many(), but assumes that the ids of the events are new and does not look them
 * up. If one is stored already, the store refuses the whole call; the caller rolls back and calls
 * outlog_append_many() instead. */
int ol_append_new_ids(outlog_tx *tx, const struct outlog_new_event *events, size_t count,
                      struct outlog_appended *out, outlog_err *err);

/* The same as a transaction of its own, in one statement, which waits at most `wait_ms` for a lock.
 * No event may have an idempotency key or a cause. */
int ol_append_autocommit(outlog *log, const struct outlog_new_event *events, size_t count,
                         int wait_ms, struct outlog_appended *out, outlog_err *err);

#endif
