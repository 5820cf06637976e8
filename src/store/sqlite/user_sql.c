/* user_sql.c: a user's statements and tables in SQLite.
 *
 * Shadow tables are built in a file of their own beside the user's: FILE-outlog-NAME. A connection
 * to it has the user's file attached, so a name is searched in the new file first and then in the
 * user's. The swap copies the tables over in one transaction of the user's file; open readers keep
 * their snapshot. */
#include "store/user_sql.h"

#include "base/buf.h"
#include "store/sqlite/conn.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef OL_SQLITE_EXTENSION
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3
#else
#include <sqlite3.h>
#endif

enum { SHADOW_PATH_SIZE = 4096, OVERLAP_CALLS_MIN = 1000 };

/* --- errors --- */

static enum outlog_code find_code(int result)
{
    switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_INTERRUPT:
        return OUTLOG_UNAVAILABLE;
    case SQLITE_READONLY:
        return OUTLOG_READ_ONLY;
    case SQLITE_NOMEM:
        return OUTLOG_NO_MEMORY;
    default:
        return OUTLOG_STORE_ERROR;
    }
}

static int fail_user(sqlite3 *db, int result, outlog_err *err)
{
    return ol_fail(err, find_code(result), "%s", sqlite3_errmsg(db));
}

/* --- programs --- */

static void forget_program(struct ol_user_program *program)
{
    sqlite3_stmt **statements = program->handle;
    for (size_t i = 0; statements && i < program->count; i++)
        sqlite3_finalize(statements[i]);
    free(statements);
    program->handle = NULL;
}

static int prepare_statement(sqlite3 *db, const struct ol_user_statement *statement,
                             sqlite3_stmt **out, outlog_err *err)
{
    struct ol_buf text = {0};
    const char *rest = NULL;
    for (int i = 0; i <= statement->param_count; i++) {
        if (i)
            ol_buf_print(&text, "?%d", i);
        ol_buf_text(&text, statement->texts[i]);
    }
    int result = text.failed
                     ? SQLITE_NOMEM
                     : sqlite3_prepare_v3(db, text.data, -1, SQLITE_PREPARE_PERSISTENT, out, &rest);
    if (result != SQLITE_OK)
        fail_user(db, result, err);
    else if (sqlite3_bind_parameter_count(*out) > statement->param_count)
        result = ol_fail(err, OUTLOG_STORE_ERROR, "parameters are written :name, not ?");
    ol_buf_clear(&text);
    return result == SQLITE_OK ? 0 : -1;
}

static int prepare_program(struct ol_conn *conn, struct ol_user_program *program, outlog_err *err)
{
    sqlite3_stmt **statements = calloc(program->count + 1, sizeof(sqlite3_stmt *));
    if (!statements)
        return ol_no_memory(err);
    program->conn = conn;
    program->handle = statements;
    for (size_t i = 0; i < program->count; i++)
        if (prepare_statement(ol_sqlite_native(conn), &program->statements[i], &statements[i],
                              err) < 0) {
            if (err)
                err->index = (int)i;
            forget_program(program);
            return -1;
        }
    return 0;
}

/* --- running --- */

static int bind_value(sqlite3_stmt *statement, int slot, const struct ol_value *value)
{
    switch (value->type) {
    case OL_VALUE_INT:
        return sqlite3_bind_int64(statement, slot, value->number);
    case OL_VALUE_REAL:
        return sqlite3_bind_double(statement, slot, value->real);
    case OL_VALUE_TEXT:
        return sqlite3_bind_text64(statement, slot, value->text, value->bytes, SQLITE_STATIC,
                                   SQLITE_UTF8);
    default:
        return sqlite3_bind_null(statement, slot);
    }
}

static int run_calls(struct ol_user_program *program, const struct ol_user_call *calls,
                     size_t count, outlog_err *err)
{
    sqlite3_stmt **statements = program->handle;
    sqlite3 *db = ol_sqlite_native(program->conn);
    for (size_t i = 0; i < count; i++) {
        sqlite3_stmt *statement = statements[calls[i].statement];
        int params = program->statements[calls[i].statement].param_count, result = SQLITE_OK;
        for (int p = 0; p < params && result == SQLITE_OK; p++)
            result = bind_value(statement, p + 1, &calls[i].values[p]);
        while (result == SQLITE_OK || result == SQLITE_ROW)
            result = sqlite3_step(statement);
        if (result != SQLITE_DONE)
            fail_user(db, result, err);
        sqlite3_reset(statement);
        if (result == SQLITE_DONE && !sqlite3_get_autocommit(db))
            continue;
        if (result == SQLITE_DONE)
            ol_fail(err, OUTLOG_STORE_ERROR, "it must not end the transaction");
        if (err)
            err->index = (int)i;
        return -1;
    }
    return 0;
}

static void *run_overlap(void *context)
{
    const struct ol_user_program *program = context;
    program->overlap(program->context);
    return NULL;
}

/* Always one by one. There is no server that works in the background, so a second thread, which has
 * a connection of its own, does the overlapping work. */
static int apply_calls(struct ol_user_program *program, const struct ol_user_call *calls,
                       size_t count, bool one_by_one, outlog_err *err)
{
    pthread_t thread;
    bool has_thread = !one_by_one && count >= OVERLAP_CALLS_MIN && program->overlap &&
                      pthread_create(&thread, NULL, run_overlap, program) == 0;
    int result = run_calls(program, calls, count, err);
    if (has_thread)
        pthread_join(thread, NULL);
    return result;
}

/* --- tables --- */

/* Run `sql`, and free it. It is built here, as SQLite has no stored procedures. */
static int run_built(struct ol_conn *conn, struct ol_buf *sql, outlog_err *err)
{
    sqlite3 *db = ol_sqlite_native(conn);
    int result = sql->failed ? SQLITE_NOMEM : sqlite3_exec(db, sql->data, NULL, NULL, NULL);
    int outcome = result == SQLITE_OK ? 0 : fail_user(db, result, err);
    ol_buf_clear(sql);
    return outcome;
}

static void put_name(struct ol_buf *out, const char *name)
{
    ol_buf_char(out, '"');
    for (; *name; name++) {
        if (*name == '"')
            ol_buf_char(out, '"');
        ol_buf_char(out, *name);
    }
    ol_buf_char(out, '"');
}

static int run_script(struct ol_conn *conn, const char *sql, outlog_err *err)
{
    sqlite3 *db = ol_sqlite_native(conn);
    int result = sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK)
        return fail_user(db, result, err);
    return sqlite3_get_autocommit(db)
               ? ol_fail(err, OUTLOG_STORE_ERROR, "it must not end the transaction")
               : 0;
}

static int has_table(struct ol_conn *conn, const char *table, bool *out, outlog_err *err)
{
    (void)err;
    *out = sqlite3_table_column_metadata(ol_sqlite_native(conn), "main", table, NULL, NULL, NULL,
                                         NULL, NULL, NULL) == SQLITE_OK;
    return 0;
}

static int has_rows(struct ol_conn *conn, const char *table, bool *out, outlog_err *err)
{
    struct ol_buf sql = {0};
    sqlite3 *db = ol_sqlite_native(conn);
    sqlite3_stmt *statement = NULL;
    ol_buf_text(&sql, "select 1 from main."); // lint: sql
    put_name(&sql, table);
    ol_buf_text(&sql, " limit 1");
    int result = sql.failed ? SQLITE_NOMEM : sqlite3_prepare_v2(db, sql.data, -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    *out = result == SQLITE_ROW;
    int outcome = result == SQLITE_ROW || result == SQLITE_DONE ? 0 : fail_user(db, result, err);
    sqlite3_finalize(statement);
    ol_buf_clear(&sql);
    return outcome;
}

static int refuse_filled(struct ol_conn *conn, const struct ol_user_swap *swap, outlog_err *err)
{
    for (size_t i = 0; i < swap->table_count; i++) {
        bool is_there, is_filled = false;
        if (has_table(conn, swap->tables[i], &is_there, err) < 0 ||
            (is_there && has_rows(conn, swap->tables[i], &is_filled, err) < 0))
            return -1;
        if (is_filled)
            return ol_fail(
                err, OUTLOG_ILLEGAL_TRANSITION,
                "table %s exists and is not empty, and no projection has filled it; drop "
                "it or choose another name",
                swap->tables[i]);
    }
    return 0;
}

static int clear_tables(struct ol_conn *conn, const struct ol_user_swap *swap, outlog_err *err)
{
    for (size_t i = 0; i < swap->table_count; i++) {
        struct ol_buf sql = {0};
        ol_buf_text(&sql, "delete from main."); // lint: sql
        put_name(&sql, swap->tables[i]);
        if (run_built(conn, &sql, err) < 0)
            return -1;
    }
    return 0;
}

/* --- shadow tables --- */

static void format_shadow_path(const char *path, const char *name, char out[SHADOW_PATH_SIZE])
{
    snprintf(out, SHADOW_PATH_SIZE, "%.3900s-outlog-%.60s", path, name);
}

static int shadow_open(const char *url, const char *name, struct ol_conn **out, outlog_err *err)
{
    char path[SHADOW_PATH_SIZE], shadow[SHADOW_PATH_SIZE + 8];
    format_shadow_path(ol_sqlite_path(url), name, path);
    snprintf(shadow, sizeof shadow, "sqlite:%s", path);
    if (ol_store_open(shadow, out, err) < 0)
        return -1;
    // Fewer fsyncs: a shadow that a power cut damages is rebuilt.
    sqlite3_exec(ol_sqlite_native(*out), "pragma synchronous = normal", NULL, NULL, NULL);
    if (ol_store_exec(*out, OL_Q_LIVE_ATTACH, OL_PARAMS(ol_value_text(ol_sqlite_path(url))), NULL,
                      err) == 0)
        return 0;
    ol_store_close(*out);
    *out = NULL;
    return -1;
}

/* Deferred: BEGIN IMMEDIATE would lock the attached file of the user too. */
static int shadow_begin(struct ol_conn *shadow, outlog_err *err)
{
    if (run_script(shadow, "begin", err) < 0)
        return -1;
    shadow->in_transaction = true;
    return 0;
}

static int shadow_drop(struct ol_conn *live, const char *name, outlog_err *err)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    const char *path = sqlite3_db_filename(ol_sqlite_native(live), "main");
    char shadow[SHADOW_PATH_SIZE], each[SHADOW_PATH_SIZE + 8];
    (void)err; // a file that stays is never used: it has another rebuild_id
    format_shadow_path(path ? path : "", name, shadow);
    for (int i = 0; i < 3; i++) {
        snprintf(each, sizeof each, "%s%s", shadow, endings[i]);
        unlink(each);
    }
    return 0;
}

/* The writable columns of a table, as a list. */
static int put_columns(struct ol_conn *conn, const char *table, struct ol_buf *out, outlog_err *err)
{
    sqlite3 *db = ol_sqlite_native(conn);
    sqlite3_stmt *statement = NULL;
    const char *comma = "";
    static const char sql[] = "select name from pragma_table_info(?1, 'main')"; // lint: sql
    int result = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_bind_text(statement, 1, table, -1, SQLITE_STATIC);
    while (result == SQLITE_OK || result == SQLITE_ROW) {
        result = sqlite3_step(statement);
        if (result != SQLITE_ROW)
            break;
        ol_buf_text(out, comma);
        put_name(out, (const char *)sqlite3_column_text(statement, 0));
        comma = ", ";
    }
    int outcome = result == SQLITE_DONE ? 0 : fail_user(db, result, err);
    sqlite3_finalize(statement);
    return outcome;
}

static int copy_table(struct ol_conn *live, const char *table, outlog_err *err)
{
    struct ol_buf sql = {0}, columns = {0};
    int result = -1;
    if (put_columns(live, table, &columns, err) == 0) {
        ol_buf_text(&sql, "insert into main."); // lint: sql
        put_name(&sql, table);
        ol_buf_print(&sql, " (%s) select %s from outlog_aside.", columns.data, columns.data);
        put_name(&sql, table);
        result = columns.failed ? ol_no_memory(err) : run_built(live, &sql, err);
    }
    ol_buf_clear(&sql);
    ol_buf_clear(&columns);
    return result;
}

static int move_tables(struct ol_conn *live, const struct ol_user_swap *swap, outlog_err *err)
{
    int64_t built;
    if (ol_store_number(live, OL_Q_SHADOW_POSITION, OL_NO_PARAMS, &built, err) < 0)
        return -1;
    if (built != swap->event_id)
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "another worker has applied more events to the rebuilt tables; try again");
    for (size_t i = 0; i < swap->table_count; i++) {
        struct ol_buf sql = {0};
        ol_buf_text(&sql, "drop table if exists main.");
        put_name(&sql, swap->tables[i]);
        if (run_built(live, &sql, err) < 0)
            return -1;
    }
    if (run_script(live, swap->create, err) < 0)
        return -1;
    for (size_t i = 0; i < swap->table_count; i++)
        if (copy_table(live, swap->tables[i], err) < 0)
            return -1;
    return 0;
}

static int shadow_swap(struct ol_conn *live, const struct ol_user_swap *swap, outlog_err *err)
{
    const char *path = sqlite3_db_filename(ol_sqlite_native(live), "main");
    char shadow[SHADOW_PATH_SIZE];
    int result = -1;

    format_shadow_path(path ? path : "", swap->name, shadow);
    if (ol_store_exec(live, OL_Q_SHADOW_ATTACH, OL_PARAMS(ol_value_text(shadow)), NULL, err) < 0)
        return -1;
    if (live->store->begin(live, err) == 0) {
        if (swap->record(swap->context, live, err) < 0 || move_tables(live, swap, err) < 0)
            live->store->rollback(live);
        else
            result = live->store->commit(live, err);
    }
    outlog_err ignored; // a failure to detach must not hide the swap's
    if (ol_store_exec(live, OL_Q_SHADOW_DETACH, OL_NO_PARAMS, NULL, &ignored) == 0 && result == 0)
        shadow_drop(live, swap->name, NULL);
    return result;
}

static void put_text(struct ol_buf *out, const char *text)
{
    ol_buf_char(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            ol_buf_char(out, '\'');
        ol_buf_char(out, *text);
    }
    ol_buf_char(out, '\'');
}

/* A trigger cannot run a string as SQL, so each query becomes a trigger of its own. */
static void put_lookup(const char *name, const char *rule, const char *sql, struct ol_buf *out)
{
    static const char head[] = "create trigger "; // lint: sql
    static const char guard[] =
        " after insert on outlog_events when exists ("
        "select 1 from outlog_notification_rules where name = "; // lint: sql
    static const char body[] =
        " and new.event_type glob pattern) begin "
        "insert into outlog_notifying (event_id, rule, recipient) " // lint: sql
        "select new.event_id, ";                                    // lint: sql
    ol_buf_text(out, head);
    put_name(out, name);
    ol_buf_text(out, guard);
    put_text(out, rule);
    ol_buf_text(out, body);
    put_text(out, rule);
    ol_buf_text(out, ", looked_up.* from (");
    ol_buf_text(out, sql);
    ol_buf_text(out, "\n) looked_up; end");
}

/* SQLite compiles a trigger with the statement that fires it: prepare one, and run nothing. */
static int check_trigger(struct ol_conn *conn, outlog_err *err)
{
    static const char sql[] = "insert into outlog_events (event_id) values (null)"; // lint: sql
    sqlite3 *db = ol_sqlite_native(conn);
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    sqlite3_finalize(statement);
    return result == SQLITE_OK ? 0 : fail_user(db, result, err);
}

static int set_lookup(struct ol_conn *conn, const char *rule, const char *sql, outlog_err *err)
{
    struct ol_buf text = {0}, name = {0};
    ol_buf_print(&name, "outlog_lookup %s", rule);
    ol_buf_text(&text, "drop trigger if exists ");
    put_name(&text, name.data);
    ol_buf_text(&text, "; ");
    if (sql)
        put_lookup(name.data, rule, sql, &text);
    int result = text.failed || name.failed ? ol_no_memory(err) : run_script(conn, text.data, err);
    if (result == 0 && sql)
        result = check_trigger(conn, err);
    ol_buf_clear(&text);
    ol_buf_clear(&name);
    return result;
}

const struct ol_user_sql ol_user_sql_sqlite = {
    .prepare = prepare_program,
    .apply = apply_calls,
    .forget = forget_program,
    .script = run_script,
    .has_table = has_table,
    .refuse_filled = refuse_filled,
    .clear = clear_tables,
    .shadow_open = shadow_open,
    .shadow_begin = shadow_begin,
    .shadow_drop = shadow_drop,
    .shadow_swap = shadow_swap,
    .set_lookup = set_lookup,
};
