/* conn_state.c: the statements of a connection, and the virtual table that ends with it. */
#include "ext/conn_state.h"

#include <sqlite3ext.h>
#include <stdlib.h>
SQLITE_EXTENSION_INIT3

struct ol_conn_state {
    int users; /* the table, its module and the functions, each gone at its own time */
    sqlite3 *db;
    outlog_tx *tx;   /* NULL: the next call joins */
    bool is_watched; /* outlog_statements is connected and will tell us of the end */
    bool is_busy;    /* a call within a call is on its own */
};

static void forget(struct ol_conn_state *door)
{
    outlog_leave(door->tx);
    door->tx = NULL;
}

/* --- outlog_statements --- */

struct watch {
    sqlite3_vtab base;
    struct ol_conn_state *door;
};

static int watch_connect(sqlite3 *db, void *door, int count, const char *const *words,
                         sqlite3_vtab **out, char **message)
{
    (void)count, (void)words, (void)message;
    int result = sqlite3_declare_vtab(db, "create table x (n)"); // lint: sql
    if (result != SQLITE_OK)
        return result;
    struct watch *watch = sqlite3_malloc(sizeof *watch);
    if (!watch)
        return SQLITE_NOMEM;
    *watch = (struct watch){.door = ol_conn_state_retain(door)};
    watch->door->is_watched = true;
    *out = &watch->base;
    return SQLITE_OK;
}

/* SQLite may have let go of the module before: of one that was loaded again. */
static int watch_disconnect(sqlite3_vtab *base)
{
    struct watch *watch = (struct watch *)base;
    watch->door->is_watched = false;
    forget(watch->door);
    ol_conn_state_release(watch->door);
    sqlite3_free(watch);
    return SQLITE_OK;
}

static int watch_plan(sqlite3_vtab *base, sqlite3_index_info *info)
{
    (void)base;
    info->estimatedRows = 0;
    return SQLITE_OK;
}

static int watch_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
    (void)base;
    *out = sqlite3_malloc(sizeof **out);
    return *out ? SQLITE_OK : SQLITE_NOMEM;
}

static int watch_close(sqlite3_vtab_cursor *cursor)
{
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int watch_filter(sqlite3_vtab_cursor *cursor, int index, const char *name, int count,
                        sqlite3_value **values)
{
    (void)cursor, (void)index, (void)name, (void)count, (void)values;
    return SQLITE_OK;
}

static int watch_next(sqlite3_vtab_cursor *cursor)
{
    (void)cursor;
    return SQLITE_OK;
}

static int watch_is_at_end(sqlite3_vtab_cursor *cursor)
{
    (void)cursor;
    return 1;
}

static int watch_column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int column)
{
    (void)cursor, (void)context, (void)column;
    return SQLITE_OK;
}

static int watch_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out)
{
    (void)cursor;
    *out = 0;
    return SQLITE_OK;
}

static const sqlite3_module watch_module = {
    .xConnect = watch_connect,
    .xBestIndex = watch_plan,
    .xDisconnect = watch_disconnect,
    .xOpen = watch_open,
    .xClose = watch_close,
    .xFilter = watch_filter,
    .xNext = watch_next,
    .xEof = watch_is_at_end,
    .xColumn = watch_column,
    .xRowid = watch_rowid,
};

/* A statement that names the table connects it; failing is fine. */
static void watch(struct ol_conn_state *door)
{
    sqlite3_stmt *statement = NULL;
    sqlite3_prepare_v2(door->db, "select 1 from outlog_statements", -1, &statement, // lint: sql
                       NULL);
    sqlite3_finalize(statement);
}

/* --- the door --- */

void ol_conn_state_release(struct ol_conn_state *door)
{
    if (--door->users > 0)
        return;
    forget(door);
    free(door);
}

static void module_ends(void *door)
{
    ol_conn_state_release(door);
}

struct ol_conn_state *ol_conn_state_open(sqlite3 *db)
{
    struct ol_conn_state *door = calloc(1, sizeof *door);
    if (!door)
        return NULL;
    door->db = db;
    door->users = 2;
    if (sqlite3_create_module_v2(db, "outlog_statements", &watch_module, door, module_ends) ==
        SQLITE_OK) // the module's use ends also when it fails
        return door;
    ol_conn_state_release(door);
    return NULL;
}

struct ol_conn_state *ol_conn_state_retain(struct ol_conn_state *door)
{
    door->users++;
    return door;
}

int ol_conn_state_begin(struct ol_conn_state *door, outlog_tx **out, outlog_err *err)
{
    *out = NULL;
    if (door->is_busy)
        return outlog_join_sqlite(door->db, out, err);
    if (!door->tx) {
        if (outlog_join_sqlite(door->db, &door->tx, err) < 0)
            return -1;
        if (!door->is_watched)
            watch(door);
    } else if (ol_registry_refresh(door->tx->registry, door->tx->conn, err) < 0) {
        return -1;
    }
    ol_arena_reset(&door->tx->arena);
    door->is_busy = true;
    *out = door->tx;
    return 0;
}

void ol_conn_state_end(struct ol_conn_state *door, outlog_tx *tx)
{
    if (tx != door->tx) {
        outlog_leave(tx);
        return;
    }
    door->is_busy = false;
    if (!door->is_watched)
        forget(door);
}
