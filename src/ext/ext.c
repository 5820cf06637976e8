/* ext.c: outlog as a SQLite loadable extension.
 *
 *     select outlog_append('{"org_id":"acme","aggregate_type":"order",…}');
 *
 * The functions work on the connection that calls them, inside its transaction: what they write
 * commits or rolls back with everything else (A1). Each takes one JSON object and returns JSON. */
#include "log/draft.h"
#include "log/event.h"
#include "log/log.h"
#include "store/migrate.h"
#include "store/sqlite.h"

#include <sqlite3ext.h>
#include <stdio.h>
#include <string.h>
SQLITE_EXTENSION_INIT1

static void answer_error(sqlite3_context *context, const outlog_err *err)
{
    char message[sizeof err->message + 64];
    snprintf(message, sizeof message, "%s: %s", outlog_code_name(err->code), err->message);
    sqlite3_result_error(context, message, -1);
}

static void append(sqlite3_context *context, int count, sqlite3_value **values)
{
    struct ol_arena arena = {0};
    struct ol_buf out = {0};
    struct outlog_event event;
    struct outlog_appended appended;
    outlog_err err;
    outlog_tx *tx = NULL;

    (void)count;
    const char *text = (const char *)sqlite3_value_text(values[0]);
    if (!text)
        ol_fail(&err, OUTLOG_INVALID_JSON, "outlog_append takes one JSON object");
    if (!text || outlog_join_sqlite(sqlite3_context_db_handle(context), &tx, &err) < 0 ||
        ol_draft_read(text, (size_t)sqlite3_value_bytes(values[0]), NULL, &arena, &event, &err) <
            0 ||
        outlog_append(tx, &event, &appended, &err) < 0) {
        answer_error(context, &err);
        goto out;
    }
    ol_appended_json(&appended, &out);
    if (out.failed)
        sqlite3_result_error_nomem(context);
    else
        sqlite3_result_text64(context, out.data, out.bytes, SQLITE_TRANSIENT, SQLITE_UTF8);
out:
    outlog_leave(tx); // keeps no statement open: the host could not close its connection
    ol_buf_clear(&out);
    ol_arena_clear(&arena);
}

static void init(sqlite3_context *context, int count, sqlite3_value **values)
{
    sqlite3 *db = sqlite3_context_db_handle(context);
    struct ol_conn *conn = NULL;
    int from, to;
    outlog_err err;

    (void)count, (void)values;
    if (!sqlite3_get_autocommit(db))
        ol_fail(&err, OUTLOG_MISUSE, "outlog_init() cannot run inside a transaction");
    else if (ol_sqlite_borrow(db, &conn, &err) == 0 &&
             ol_migrate(conn, &from, &to, &err) == 0 && ol_registry_seed(conn, &err) == 0) {
        sqlite3_result_int(context, to);
        ol_close(conn);
        return;
    }
    ol_close(conn);
    answer_error(context, &err);
}

static void settled(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t position;
    outlog_err err;
    outlog_tx *tx;

    (void)count, (void)values;
    if (outlog_join_sqlite(sqlite3_context_db_handle(context), &tx, &err) < 0 ||
        ol_number(tx->conn, OL_Q_EVENTS_SETTLED, OL_NO_PARAMS, &position, &err) < 0)
        answer_error(context, &err);
    else
        sqlite3_result_int64(context, position);
    outlog_leave(tx);
}

static void request_hash(sqlite3_context *context, int count, sqlite3_value **values)
{
    char hash[65];
    outlog_err err;
    const char *text = (const char *)sqlite3_value_text(values[0]);

    (void)count;
    if (outlog_request_hash(text ? text : "", hash, &err) < 0)
        answer_error(context, &err);
    else
        sqlite3_result_text(context, hash, -1, SQLITE_TRANSIENT);
}

static void version(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count, (void)values;
    sqlite3_result_text(context, OUTLOG_VERSION, -1, SQLITE_STATIC);
}

__attribute__((visibility("default"))) int
sqlite3_outlog_init(sqlite3 *db, char **message, const sqlite3_api_routines *api);

int sqlite3_outlog_init(sqlite3 *db, char **message, const sqlite3_api_routines *api)
{
    static const struct {
        const char *name;
        int arguments;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {{"outlog_append", 1, append},
                     {"outlog_init", 0, init},
                     {"outlog_settled", 0, settled},
                     {"outlog_request_hash", 1, request_hash},
                     {"outlog_version", 0, version}};
    enum { FLAGS = SQLITE_UTF8 | SQLITE_DIRECTONLY };

    SQLITE_EXTENSION_INIT2(api)
    (void)message;
    int result = SQLITE_OK;
    for (size_t i = 0; result == SQLITE_OK && i < sizeof functions / sizeof *functions; i++)
        result = sqlite3_create_function_v2(db, functions[i].name, functions[i].arguments, FLAGS,
                                            NULL, functions[i].run, NULL, NULL, NULL);
    return result;
}
