/* ext.c: outlog as a SQLite loadable extension.
 *
 *     select outlog_append('{"org_id":"acme","aggregate_type":"order",…}');
 *
 * The functions work on the connection that calls them, inside its transaction: their writes commit
 * or roll back with everything else (A1). Each takes one JSON object and returns JSON. */
#include "base/clock.h"
#include "ext/conn_state.h"
#include "log/event.h"
#include "log/event_json.h"
#include "log/log.h"
#include "outbox/enqueue.h"
#include "runs/command.h"
#include "store/migrate.h"
#include "store/sqlite/conn.h"

#include <sqlite3ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
SQLITE_EXTENSION_INIT1

static void set_error(sqlite3_context *context, const outlog_err *err)
{
    char message[sizeof err->message + 64];
    snprintf(message, sizeof message, "%s: %s", outlog_code_name(err->code), err->message);
    sqlite3_result_error(context, message, -1);
}

/* One of the writing functions: reads its JSON argument, and writes its JSON result to `out`. */
typedef int write_function(outlog_tx *tx, const char *text, size_t bytes, struct ol_arena *arena,
                           struct ol_buf *out, outlog_err *err);

static int append_event(outlog_tx *tx, const char *text, size_t bytes, struct ol_arena *arena,
                        struct ol_buf *out, outlog_err *err)
{
    struct outlog_new_event event;
    struct outlog_appended appended;
    if (ol_event_json_read(text, bytes, NULL, arena, &event, err) < 0 ||
        outlog_append(tx, &event, &appended, err) < 0)
        return -1;
    ol_event_write_appended(&appended, out);
    return 0;
}

static int enqueue_message(outlog_tx *tx, const char *text, size_t bytes, struct ol_arena *arena,
                           struct ol_buf *out, outlog_err *err)
{
    struct outlog_new_message request;
    struct outlog_enqueued enqueued;
    if (ol_message_json_read(text, bytes, arena, &request, err) < 0 ||
        outlog_enqueue(tx, &request, &enqueued, err) < 0)
        return -1;
    ol_buf_print(out, "{\"event_id\":\"%s\",\"duplicate\":%s}", enqueued.event_id,
                 enqueued.duplicate ? "true" : "false");
    return 0;
}

static int request_effect(outlog_tx *tx, const char *text, size_t bytes, struct ol_arena *arena,
                          struct ol_buf *out, outlog_err *err)
{
    struct outlog_new_effect request;
    struct outlog_effect_requested requested;
    if (ol_message_json_read_effect(text, bytes, arena, &request, err) < 0 ||
        outlog_request_effect(tx, &request, &requested, err) < 0)
        return -1;
    ol_buf_print(out, "{\"effect_id\":\"%s\",\"event_id\":\"%s\",\"duplicate\":%s}",
                 requested.effect_id, requested.message_id, requested.duplicate ? "true" : "false");
    return 0;
}

/* The user data of a function of ours. */
struct ext_function_data {
    struct ol_conn_state *state;
    write_function *write;
    const char *command; /* a command of runs, for functions without `write` */
};

static int run_command(outlog_tx *tx, const char *name, const char *text, size_t bytes,
                       struct ol_arena *arena, struct ol_buf *out, outlog_err *err)
{
    struct ol_run_call call;
    return ol_run_call_read(name, text, bytes, arena, &call, err) < 0
               ? -1
               : ol_run_command(tx, &call, out, NULL, err);
}

/* All writing functions: join the host's transaction, write, return the result. */
static void on_write(sqlite3_context *context, int count, sqlite3_value **values)
{
    const struct ext_function_data *data = sqlite3_user_data(context);
    struct ol_arena arena = {0};
    struct ol_buf out = {0};
    outlog_err err;
    outlog_tx *tx = NULL;

    (void)count;
    const char *text = (const char *)sqlite3_value_text(values[0]);
    if (!text)
        ol_fail(&err, OUTLOG_INVALID_JSON, "the argument is one JSON object");
    size_t bytes = (size_t)sqlite3_value_bytes(values[0]);
    if (!text || ol_conn_state_begin(data->state, &tx, &err) < 0 ||
        (data->write ? data->write(tx, text, bytes, &arena, &out, &err)
                     : run_command(tx, data->command, text, bytes, &arena, &out, &err)) < 0)
        set_error(context, &err);
    else if (out.failed)
        sqlite3_result_error_nomem(context);
    else
        sqlite3_result_text64(context, out.data, out.bytes, SQLITE_TRANSIENT, SQLITE_UTF8);
    ol_conn_state_end(data->state, tx);
    ol_buf_clear(&out);
    ol_arena_clear(&arena);
}

static void on_init(sqlite3_context *context, int count, sqlite3_value **values)
{
    sqlite3 *db = sqlite3_context_db_handle(context);
    struct ol_conn *conn = NULL;
    int from, to;
    outlog_err err;

    (void)count, (void)values;
    if (!sqlite3_get_autocommit(db))
        ol_fail(&err, OUTLOG_MISUSE, "outlog_init() cannot run inside a transaction");
    else if (ol_sqlite_borrow(db, &conn, &err) == 0 && ol_migrate(conn, &from, &to, &err) == 0 &&
             ol_registry_seed(conn, &err) == 0) {
        sqlite3_result_int(context, to);
        ol_store_close(conn);
        return;
    }
    ol_store_close(conn);
    set_error(context, &err);
}

static void on_settled(sqlite3_context *context, int count, sqlite3_value **values)
{
    const struct ext_function_data *data = sqlite3_user_data(context);
    int64_t position;
    outlog_err err;
    outlog_tx *tx;

    (void)count, (void)values;
    if (ol_conn_state_begin(data->state, &tx, &err) < 0 ||
        ol_store_number(tx->conn, OL_Q_EVENTS_SETTLED, OL_NO_PARAMS, &position, &err) < 0)
        set_error(context, &err);
    else
        sqlite3_result_int64(context, position);
    ol_conn_state_end(data->state, tx);
}

static void on_request_hash(sqlite3_context *context, int count, sqlite3_value **values)
{
    char hash[65];
    outlog_err err;
    const char *text = (const char *)sqlite3_value_text(values[0]);
    size_t bytes = (size_t)sqlite3_value_bytes(values[0]); // it may contain a NUL

    (void)count;
    if (ol_idempotency_request_hash(text ? text : "", bytes, hash, &err) < 0)
        set_error(context, &err);
    else
        sqlite3_result_text(context, hash, -1, SQLITE_TRANSIENT);
}

struct projection_wait {
    const char *name;
    int64_t event_id;
    double timeout_s;
};

static int read_wait(const char *text, size_t bytes, struct ol_arena *arena,
                     struct projection_wait *out, outlog_err *err)
{
    struct ol_json object;
    struct ol_json_iter it = {0};
    *out = (struct projection_wait){.timeout_s = 5};
    if (ol_json_parse(text, bytes, &object, err) < 0)
        return -1;
    while (ol_json_next(&object, &it)) {
        bool is_right;
        if (ol_json_equals(&it.key, "name"))
            is_right = (out->name = ol_json_string(&it.value, arena, NULL)) != NULL;
        else if (ol_json_equals(&it.key, "event_id"))
            is_right = ol_json_int(&it.value, &out->event_id);
        else if (ol_json_equals(&it.key, "timeout"))
            is_right = it.value.type == OL_JSON_NULL ||
                       (it.value.type == OL_JSON_NUMBER &&
                        (out->timeout_s = strtod(it.value.text, NULL)) >= 0 &&
                        out->timeout_s <= 3600);
        else
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD,
                           "name, event_id and timeout (seconds, a number) are known");
        if (!is_right)
            return ol_fail(err, OUTLOG_INVALID_FIELD, "%.*s must be %s", (int)it.key.bytes - 2,
                           it.key.text + 1,
                           ol_json_equals(&it.key, "name")       ? "a string"
                           : ol_json_equals(&it.key, "event_id") ? "a whole number"
                                                                 : "0 to 3600 seconds");
    }
    return out->name && out->event_id > 0
               ? 0
               : ol_fail(err, OUTLOG_INVALID_FIELD, "name and event_id are wanted");
}

/* Poll until the projection is there, on a connection of our own: the host's connection keeps the
 * snapshot of the statement that called us. */
static int poll_projection(struct ol_conn *conn, const struct projection_wait *wait,
                           int64_t *reached, outlog_err *err)
{
    int64_t deadline = ol_clock_boot_us() + (int64_t)(wait->timeout_s * 1e6);
    for (int pause_ms = 2;; pause_ms = pause_ms < 25 ? pause_ms * 2 : 50) {
        if (ol_store_number(conn, OL_Q_CHECKPOINT_POSITION, OL_PARAMS(ol_value_text(wait->name)),
                            reached, err) < 0) {
            if (err->code == OUTLOG_NOT_FOUND)
                ol_fail(err, OUTLOG_NOT_FOUND,
                        "no projection %.60s; `outlog projections` lists them", wait->name);
            return -1;
        }
        int64_t left_ms = (deadline - ol_clock_boot_us()) / 1000;
        if (*reached >= wait->event_id || left_ms <= 0)
            return 0;
        sqlite3_sleep(left_ms < pause_ms ? (int)left_ms : pause_ms);
    }
}

static void on_wait_projection(sqlite3_context *context, int count, sqlite3_value **values)
{
    const char *path = sqlite3_db_filename(sqlite3_context_db_handle(context), "main");
    const char *text = (const char *)sqlite3_value_text(values[0]);
    size_t bytes = (size_t)sqlite3_value_bytes(values[0]);
    struct ol_arena arena = {0};
    struct ol_buf out = {0};
    struct ol_conn *conn = NULL;
    struct projection_wait wait;
    int64_t reached = 0;
    outlog_err err;

    (void)count;
    const char *url = path && *path ? ol_arena_print(&arena, "sqlite:%s", path) : NULL;
    bool is_writing = sqlite3_txn_state(sqlite3_context_db_handle(context), "main") ==
                      SQLITE_TXN_WRITE;
    if (!url)
        ol_fail(&err, OUTLOG_MISUSE, "a database in memory has no projections");
    else if (is_writing)
        ol_fail(&err, OUTLOG_MISUSE,
                "no projection moves while this transaction may write; commit, then wait");
    if (!url || is_writing || read_wait(text ? text : "", bytes, &arena, &wait, &err) < 0 ||
        ol_store_open(url, &conn, &err) < 0 || poll_projection(conn, &wait, &reached, &err) < 0) {
        set_error(context, &err);
    } else {
        ol_buf_text(&out, "{\"name\":");
        ol_buf_json_text(&out, wait.name);
        ol_buf_print(&out, ",\"last_applied_event_id\":%lld,\"reached\":%s}", (long long)reached,
                     reached >= wait.event_id ? "true" : "false");
        if (out.failed)
            sqlite3_result_error_nomem(context);
        else
            sqlite3_result_text64(context, out.data, out.bytes, SQLITE_TRANSIENT, SQLITE_UTF8);
    }
    ol_store_close(conn);
    ol_buf_clear(&out);
    ol_arena_clear(&arena);
}

static void on_version(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count, (void)values;
    sqlite3_result_text(context, OUTLOG_VERSION, -1, SQLITE_STATIC);
}

/* --- loading --- */

struct ext_function {
    const char *name;
    int arguments;
    void (*run)(sqlite3_context *, int, sqlite3_value **);
    write_function *write;
    const char *command;
};

static const struct ext_function functions[] = {
    {"outlog_append", 1, on_write, append_event, NULL},
    {"outlog_enqueue", 1, on_write, enqueue_message, NULL},
    {"outlog_request_effect", 1, on_write, request_effect, NULL},
    {"outlog_receive_signal", 1, on_write, NULL, "receive_signal"},
    {"outlog_start_run", 1, on_write, NULL, "start_run"},
    {"outlog_start_step", 1, on_write, NULL, "start_step"},
    {"outlog_complete_step", 1, on_write, NULL, "complete_step"},
    {"outlog_fail_step", 1, on_write, NULL, "fail_step"},
    {"outlog_skip_step", 1, on_write, NULL, "skip_step"},
    {"outlog_retry_step", 1, on_write, NULL, "retry_step"},
    {"outlog_correct_step", 1, on_write, NULL, "correct_step"},
    {"outlog_call_tool", 1, on_write, NULL, "call_tool"},
    {"outlog_end_tool", 1, on_write, NULL, "end_tool"},
    {"outlog_checkpoint_run", 1, on_write, NULL, "checkpoint_run"},
    {"outlog_end_run", 1, on_write, NULL, "end_run"},
    {"outlog_init", 0, on_init, NULL, NULL},
    {"outlog_settled", 0, on_settled, NULL, NULL},
    {"outlog_request_hash", 1, on_request_hash, NULL, NULL},
    {"outlog_wait_projection", 1, on_wait_projection, NULL, NULL},
    {"outlog_version", 0, on_version, NULL, NULL},
};

static void free_function_data(void *argument)
{
    struct ext_function_data *data = argument;
    ol_conn_state_release(data->state);
    sqlite3_free(data);
}

static int add_function(sqlite3 *db, const struct ext_function *function,
                        struct ol_conn_state *state)
{
    enum { EXT_FUNCTION_FLAGS = SQLITE_UTF8 | SQLITE_DIRECTONLY };
    struct ext_function_data *data = sqlite3_malloc(sizeof *data);
    if (!data)
        return SQLITE_NOMEM;
    *data =
        (struct ext_function_data){ol_conn_state_retain(state), function->write, function->command};
    return sqlite3_create_function_v2(db, function->name, function->arguments, EXT_FUNCTION_FLAGS,
                                      data, function->run, NULL, NULL,
                                      free_function_data); // also called when it fails
}

__attribute__((visibility("default"))) int sqlite3_outlog_init(sqlite3 *db, char **message,
                                                               const sqlite3_api_routines *api);

int sqlite3_outlog_init(sqlite3 *db, char **message, const sqlite3_api_routines *api)
{
    SQLITE_EXTENSION_INIT2(api)
    (void)message;
    struct ol_conn_state *state = ol_conn_state_open(db);
    int result = state ? SQLITE_OK : SQLITE_ERROR;
    for (size_t i = 0; result == SQLITE_OK && i < sizeof functions / sizeof *functions; i++)
        result = add_function(db, &functions[i], state);
    if (state)
        ol_conn_state_release(state);
    return result;
}
