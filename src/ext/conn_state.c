/* conn_state.c: the reference-counted state, and the virtual table that owns its statements. */
#include "ext/conn_state.h"

#include <sqlite3ext.h>
#include <stdlib.h>
SQLITE_EXTENSION_INIT3

struct ol_conn_state {
    int users; /* references: the table, its module and the functions */
    sqlite3 *db;
    outlog_tx *tx;   /* NULL: the next call joins */
    bool is_watched; /* outlog_statements is connected: it is notified when the connection closes */
    bool is_busy;    /* a call is running; a nested call joins by itself */
};

static void drop_statements(struct ol_conn_state *state)
{
    outlog_leave(state->tx);
    state->tx = NULL;
}

/* --- outlog_statements --- */

struct statements_table {
    sqlite3_vtab base;
    struct ol_conn_state *state;
};

static int table_connect(sqlite3 *db, void *state, int count, const char *const *words,
                         sqlite3_vtab **out, char **message)
{
    (void)count, (void)words, (void)message;
    int result = sqlite3_declare_vtab(db, "create table x (n)"); // lint: sql
    if (result != SQLITE_OK)
        return result;
    struct statements_table *table = sqlite3_malloc(sizeof *table);
    if (!table)
        return SQLITE_NOMEM;
    *table = (struct statements_table){.state = ol_conn_state_retain(state)};
    table->state->is_watched = true;
    *out = &table->base;
    return SQLITE_OK;
}

/* SQLite may have destroyed the module before: when the extension was loaded a second time. */
static int table_disconnect(sqlite3_vtab *base)
{
    struct statements_table *table = (struct statements_table *)base;
    table->state->is_watched = false;
    drop_statements(table->state);
    ol_conn_state_release(table->state);
    sqlite3_free(table);
    return SQLITE_OK;
}

static int table_plan(sqlite3_vtab *base, sqlite3_index_info *info)
{
    (void)base;
    info->estimatedRows = 0;
    return SQLITE_OK;
}

static int table_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
    (void)base;
    *out = sqlite3_malloc(sizeof **out);
    return *out ? SQLITE_OK : SQLITE_NOMEM;
}

static int table_close(sqlite3_vtab_cursor *cursor)
{
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int table_filter(sqlite3_vtab_cursor *cursor, int index, const char *name, int count,
                        sqlite3_value **values)
{
    (void)cursor, (void)index, (void)name, (void)count, (void)values;
    return SQLITE_OK;
}

static int table_next(sqlite3_vtab_cursor *cursor)
{
    (void)cursor;
    return SQLITE_OK;
}

static int table_is_at_end(sqlite3_vtab_cursor *cursor)
{
    (void)cursor;
    return 1;
}

static int table_column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int column)
{
    (void)cursor, (void)context, (void)column;
    return SQLITE_OK;
}

static int table_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out)
{
    (void)cursor;
    *out = 0;
    return SQLITE_OK;
}

static const sqlite3_module table_module = {
    .xConnect = table_connect,
    .xBestIndex = table_plan,
    .xDisconnect = table_disconnect,
    .xOpen = table_open,
    .xClose = table_close,
    .xFilter = table_filter,
    .xNext = table_next,
    .xEof = table_is_at_end,
    .xColumn = table_column,
    .xRowid = table_rowid,
};

/* Preparing a statement that names the table connects it. It may fail. */
static void connect_table(struct ol_conn_state *state)
{
    sqlite3_stmt *statement = NULL;
    sqlite3_prepare_v2(state->db, "select 1 from outlog_statements", -1, &statement, // lint: sql
                       NULL);
    sqlite3_finalize(statement);
}

/* --- the state --- */

void ol_conn_state_release(struct ol_conn_state *state)
{
    if (--state->users > 0)
        return;
    drop_statements(state);
    free(state);
}

static void on_module_destroyed(void *state)
{
    ol_conn_state_release(state);
}

struct ol_conn_state *ol_conn_state_open(sqlite3 *db)
{
    struct ol_conn_state *state = calloc(1, sizeof *state);
    if (!state)
        return NULL;
    state->db = db;
    state->users = 2;
    if (sqlite3_create_module_v2(db, "outlog_statements", &table_module, state,
                                 on_module_destroyed) ==
        SQLITE_OK) // on failure SQLite calls on_module_destroyed() too
        return state;
    ol_conn_state_release(state);
    return NULL;
}

struct ol_conn_state *ol_conn_state_retain(struct ol_conn_state *state)
{
    state->users++;
    return state;
}

int ol_conn_state_begin(struct ol_conn_state *state, outlog_tx **out, outlog_err *err)
{
    *out = NULL;
    if (state->is_busy)
        return outlog_join_sqlite(state->db, out, err);
    if (!state->tx) {
        if (outlog_join_sqlite(state->db, &state->tx, err) < 0)
            return -1;
        if (!state->is_watched)
            connect_table(state);
    } else if (ol_registry_refresh(state->tx->registry, state->tx->conn, err) < 0) {
        return -1;
    }
    ol_arena_reset(&state->tx->arena);
    state->is_busy = true;
    *out = state->tx;
    return 0;
}

void ol_conn_state_end(struct ol_conn_state *state, outlog_tx *tx)
{
    if (tx != state->tx) {
        outlog_leave(tx);
        return;
    }
    state->is_busy = false;
    if (!state->is_watched)
        drop_statements(state);
}
