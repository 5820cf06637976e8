/* log.c: opening a store, and transactions. */
#include "log/log.h"

#include "log/position.h"

#ifndef OL_SQLITE_EXTENSION
#include "store/postgres/conn.h"
#endif
#include "store/migrate.h"
#include "store/sqlite/conn.h"

#include <stdlib.h>

int outlog_open(const char *url, outlog **out, outlog_err *err)
{
    *out = NULL;
    if (!url)
        return ol_fail(err, OUTLOG_MISUSE, "outlog_open: url is NULL");
    outlog *log = calloc(1, sizeof *log);
    if (!log)
        return ol_no_memory(err);
    int version;
    if (ol_store_open(url, &log->conn, err) < 0 || ol_migrate_version(log->conn, &version, err) < 0)
        goto failed;
    if (version > ol_migrate_latest(log->conn->store)) {
        ol_migrate_check(log->conn, err);
        goto failed;
    }
    *out = log;
    return 0;
failed:
    outlog_close(log);
    return -1;
}

void outlog_close(outlog *log)
{
    if (!log)
        return;
    outlog_rollback(log->tx);
    if (log->is_waiting)
        ol_waiter_close(&log->waiter);
    ol_registry_clear(&log->registry);
    ol_store_close(log->conn);
    free(log);
}

int outlog_init(outlog *log, int *from, int *to, outlog_err *err)
{
    int before, after;
    if (log->conn->store->reconnect(log->conn, err) < 0 ||
        ol_migrate(log->conn, &before, &after, err) < 0 || ol_registry_seed(log->conn, err) < 0 ||
        ol_position_note(log->conn, err) < 0)
        return -1;
    if (from)
        *from = before;
    if (to)
        *to = after;
    return 0;
}

int ol_log_ready(outlog *log, outlog_err *err)
{
    if (log->conn->store->reconnect(log->conn, err) < 0)
        return -1;
    if (log->is_checked && log->session == log->conn->session)
        return 0;
    if (ol_migrate_check(log->conn, err) < 0 || ol_position_note(log->conn, err) < 0)
        return -1;
    log->settled = log->window.settled = 0; // another session may be on another server
    log->session = log->conn->session;
    log->is_checked = true;
    return 0;
}

/* --- transactions --- */

static int join_shared(outlog_tx *tx, outlog_tx **out, outlog_err *err)
{
    if (tx->conn->store->mark(tx->conn, err) < 0)
        return -1;
    tx->depth++;
    *out = tx;
    return 0;
}

/* Keep the changes since the join in the transaction, or undo them. */
static int leave_shared(outlog_tx *tx, bool is_kept, outlog_err *err)
{
    tx->depth--;
    tx->has_failed = false;
    return tx->conn->store->release(tx->conn, is_kept, err);
}

int outlog_begin(outlog *log, outlog_tx **out, outlog_err *err)
{
    *out = NULL;
    if (log->tx && log->tx->is_shared)
        return join_shared(log->tx, out, err);
    if (log->tx)
        return ol_fail(err, OUTLOG_MISUSE, "outlog_begin: this handle has an open transaction");
    if (ol_log_ready(log, err) < 0 || ol_registry_refresh(&log->registry, log->conn, err) < 0)
        return -1;
    outlog_tx *tx = calloc(1, sizeof *tx);
    if (!tx)
        return ol_no_memory(err);
    if (log->conn->store->begin(log->conn, err) < 0) {
        free(tx);
        return -1;
    }
    tx->log = log;
    tx->conn = log->conn;
    tx->registry = &log->registry;
    log->tx = *out = tx;
    return 0;
}

static void free_tx(outlog_tx *tx)
{
    if (tx->log)
        tx->log->tx = NULL;
    else
        ol_store_close(tx->conn);
    ol_registry_clear(&tx->own_registry);
    ol_arena_clear(&tx->arena);
    free(tx);
}

int outlog_commit(outlog_tx *tx, outlog_err *err)
{
    if (!tx || !tx->log)
        return ol_fail(err, OUTLOG_MISUSE, "outlog_commit: the transaction is the caller's own");
    if (tx->has_failed) {
        ol_fail(err, OUTLOG_STORE_ERROR, "%s: the transaction had failed and was rolled back",
                tx->conn->name);
        outlog_rollback(tx);
        return -1;
    }
    if (tx->depth)
        return leave_shared(tx, true, err);
    int result = tx->conn->store->commit(tx->conn, err);
    free_tx(tx);
    return result;
}

void outlog_rollback(outlog_tx *tx)
{
    outlog_err ignored;
    if (!tx || !tx->log)
        return;
    if (tx->depth) {
        tx->has_failed = leave_shared(tx, false, &ignored) < 0;
        return;
    }
    tx->conn->store->rollback(tx->conn);
    free_tx(tx);
}

/* Takes ownership of `conn`, also when it fails. */
static int join_host(struct ol_conn *conn, outlog_tx **out, outlog_err *err)
{
    outlog_tx *tx = calloc(1, sizeof *tx);
    if (!tx) {
        ol_store_close(conn);
        return ol_no_memory(err);
    }
    tx->conn = conn;
    tx->registry = &tx->own_registry;
    // A missing schema must not fail the caller's transaction.
    if (conn->store->mark(conn, err) < 0)
        goto failed;
    bool ok = ol_migrate_check(conn, err) == 0 && ol_registry_refresh(tx->registry, conn, err) == 0;
    if (conn->store->release(conn, ok, ok ? err : NULL) < 0 || !ok)
        goto failed;
    *out = tx;
    return 0;
failed:
    free_tx(tx);
    return -1;
}

#ifndef OL_SQLITE_EXTENSION
int outlog_join_postgres(struct pg_conn *pg, outlog_tx **out, outlog_err *err)
{
    struct ol_conn *conn;
    *out = NULL;
    return ol_postgres_borrow(pg, &conn, err) < 0 ? -1 : join_host(conn, out, err);
}
#endif

int outlog_join_sqlite(struct sqlite3 *db, outlog_tx **out, outlog_err *err)
{
    struct ol_conn *conn;
    *out = NULL;
    return ol_sqlite_borrow(db, &conn, err) < 0 ? -1 : join_host(conn, out, err);
}

void outlog_leave(outlog_tx *tx)
{
    if (tx && !tx->log)
        free_tx(tx);
}
