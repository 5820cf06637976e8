/* sqlite.c: the store in a SQLite file.
 *
 * Also compiled into the loadable extension, where SQLite is reached through the host's API
 * pointer and the connection is always the host's own.
 *
 * 1  WAL and synchronous=FULL: an acknowledged commit survives power loss.
 * 2  A write transaction begins with BEGIN IMMEDIATE: it never fails half-way for a lock.
 * 3  An I/O error while committing is an unknown outcome: what was written may come back when the
 *    WAL is recovered. The handle first commits something over it; what can be read is then final. */
#include "store/write.h"

#include "base/clock.h"
#include "base/fault.h"
#include "store/sqlite.h"
#include "store/store.h"
#include "store/turnstile.h"
#include "store/user.h"
#include "store/wake.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#ifdef OL_SQLITE_EXTENSION
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3
#else
#include <sqlite3.h>
#endif

enum { BUSY_TIMEOUT_MS = 10000 };

/* A prepared query for one shape of parameters; an INSERT may take many rows at once. */
struct prepared {
    uint64_t key;
    size_t rows;
    sqlite3_stmt *statement;
    int bound[32];
    int bound_count;
    struct prepared *next;
};

struct sqlite_conn {
    struct ol_conn base;
    sqlite3 *db;
    int64_t busy_since; /* boot clock: when the lock was first found taken */
    bool has_turn;      /* at the turnstile */
    bool is_late;       /* it waited there for as long as it may wait */
    char *path;
    int watch_fd;     /* inotify on the WAL; -1: not asked for yet, -2: not to be had */
    bool is_in_doubt; /* a commit failed half-way (3) */
    struct prepared *prepared[OL_QUERY_COUNT];
};

static struct sqlite_conn *own(struct ol_conn *conn)
{
    return (struct sqlite_conn *)conn;
}

/* --- errors --- */

/* Whether the folder of a file cannot be written: its mode, or a read-only mount. */
static bool is_write_protected(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    return access(folder, W_OK) < 0 && (errno == EROFS || errno == EACCES);
}

static enum outlog_code code_of(int result, const char *message, const char *path)
{
    switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
        return OUTLOG_UNAVAILABLE;
    case SQLITE_CANTOPEN: // WAL needs its two companions even to read
        return path && is_write_protected(path) ? OUTLOG_READ_ONLY : OUTLOG_UNAVAILABLE;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return OUTLOG_READ_ONLY;
    case SQLITE_NOMEM:
        return OUTLOG_NO_MEMORY;
    case SQLITE_TOOBIG:
        return OUTLOG_TOO_LARGE;
    case SQLITE_CONSTRAINT:
        return result == SQLITE_CONSTRAINT_UNIQUE && strstr(message, "outlog_events.id")
                   ? OUTLOG_ID_CONFLICT
                   : OUTLOG_INVALID_FIELD;
    default:
        if (result == SQLITE_IOERR_SHMSIZE) // a full disk, met at the shared memory file
            return OUTLOG_UNAVAILABLE;
        return strstr(message, "no such table: outlog_") ? OUTLOG_NO_SCHEMA : OUTLOG_STORE_ERROR;
    }
}

static const char *advice(enum outlog_code code)
{
    switch (code) {
    case OUTLOG_UNAVAILABLE:
        return "; nothing was stored, try again";
    case OUTLOG_READ_ONLY:
        return "; the file or its folder cannot be written";
    case OUTLOG_NO_SCHEMA:
        return "; run `outlog init` first";
    default:
        return "";
    }
}

static int fail(struct sqlite_conn *conn, int result, outlog_err *err)
{
    const char *message = sqlite3_errmsg(conn->db);
    if (ol_err_from_text(err, message))
        return -1;
    enum outlog_code code = code_of(result, message, conn->path);
    bool is_stale = sqlite3_extended_errcode(conn->db) == SQLITE_BUSY_SNAPSHOT; // a caller's own
    return ol_fail(err, code, "%s: %s%s", conn->base.name, message,
                   is_stale
                       ? "; another wrote since this transaction first read: roll it back, and "
                         "begin it with BEGIN IMMEDIATE"
                       : advice(code));
}

/* --- functions that our queries use --- */

/* outlog_after(us): a time that many microseconds from now, as text. */
static void after(sqlite3_context *context, int count, sqlite3_value **values)
{
    char text[OL_TIME_TEXT];
    (void)count;
    ol_time_format(ol_clock_wall_us() + sqlite3_value_int64(values[0]), text);
    sqlite3_result_text(context, text, -1, SQLITE_TRANSIENT);
}

/* outlog_until(time): how many microseconds that is from now; null for null. */
static void until(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t at;
    const char *text = (const char *)sqlite3_value_text(values[0]);
    (void)count;
    if (text && ol_time_parse(text, strlen(text), &at) == 0)
        sqlite3_result_int64(context, at - ol_clock_wall_us());
}

/* outlog_unhex(text): the bytes; null for null. SQLite before 3.41 has no unhex(). */
static void unhex(sqlite3_context *context, int count, sqlite3_value **values)
{
    const char *text = (const char *)sqlite3_value_text(values[0]);
    int bytes = sqlite3_value_bytes(values[0]) / 2;
    unsigned char *out = text ? sqlite3_malloc(bytes + 1) : NULL;
    (void)count;
    for (int i = 0; out && i < bytes; i++) {
        unsigned char high = (unsigned char)text[2 * i], low = (unsigned char)text[2 * i + 1];
        out[i] = (unsigned char)((high <= '9' ? high - '0' : high - 'a' + 10) << 4 |
                                 (low <= '9' ? low - '0' : low - 'a' + 10));
    }
    if (out)
        sqlite3_result_blob(context, out, bytes, sqlite3_free);
}

/* On a caller's own connection too: they stay, and do no harm. Repeats fail while the caller has a
 * statement open, which is fine. */
static void add_functions(sqlite3 *db)
{
    static const struct {
        const char *name;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {{"outlog_after", after}, {"outlog_until", until}, {"outlog_unhex", unhex}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        sqlite3_create_function_v2(db, functions[i].name, 1, SQLITE_UTF8, NULL, functions[i].run,
                                   NULL, NULL, NULL);
}

/* --- life --- */

/* SQLite's own way is to sleep the longer the longer it has waited, up to 100 ms at a time: beside a
 * process that writes without a pause nobody else gets a turn. Who looks often gets one. */
static int on_busy(void *data, int count)
{
    struct sqlite_conn *conn = data;
    int64_t now = ol_clock_boot_us();
    if (count == 0)
        conn->busy_since = now;
    if (conn->is_late || now - conn->busy_since > BUSY_TIMEOUT_MS * INT64_C(1000))
        return 0;
    ol_clock_sleep_us(count < 10 ? 200 : 1000);
    return 1;
}

static int configure(struct sqlite_conn *conn, outlog_err *err)
{
    sqlite3_busy_handler(conn->db, on_busy, conn);
    sqlite3_extended_result_codes(conn->db, 1);
    add_functions(conn->db);
    // A new file becomes a WAL one in a moment when it is nobody else's; SQLite does not wait for it.
    int64_t deadline = ol_clock_boot_us() + BUSY_TIMEOUT_MS * 1000;
    int result;
    while (((result = sqlite3_exec(conn->db,
                                   "pragma journal_mode=wal; pragma synchronous=full;"
                                   "pragma foreign_keys=on; pragma temp_store=memory;",
                                   NULL, NULL, NULL)) &
            0xff) == SQLITE_BUSY &&
           ol_clock_boot_us() < deadline)
        sqlite3_sleep(5);
    // A file we may only read is still worth reading: the first write will say so.
    if (result != SQLITE_OK && (result & 0xff) != SQLITE_READONLY)
        return fail(conn, result, err);
    return 0;
}

/* Connections of one process to one file share a key, whatever path they used. */
static uint64_t wake_key(const char *path)
{
    char *real = realpath(path, NULL);
    uint64_t key = ol_wake_key(real ? real : path);
    free(real);
    return key;
}

static int sqlite_open(const char *url, struct ol_conn **out, outlog_err *err)
{
    const char *path = url + strlen("sqlite:");
    if (strncmp(path, "//", 2) == 0) // sqlite:///absolute and sqlite://relative, as others write it
        path += 2;
    if (!*path)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "store sqlite: names no file; say sqlite:PATH");

    struct sqlite_conn *conn = calloc(1, sizeof *conn);
    if (!conn || !(conn->path = strdup(path))) {
        free(conn);
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    }
    conn->base.store = &ol_store_sqlite;
    conn->watch_fd = -1;
    snprintf(conn->base.name, sizeof conn->base.name, "sqlite:%.200s", path);
    int result = sqlite3_open_v2(path, &conn->db,
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                 NULL);
    if (result != SQLITE_OK) {
        fail(conn, result, err);
        goto failed;
    }
    if (configure(conn, err) < 0)
        goto failed;
    conn->base.wake_key = wake_key(path);
    *out = &conn->base;
    return 0;
failed:
    conn->base.store->close(&conn->base);
    return -1;
}

int ol_sqlite_borrow(struct sqlite3 *db, struct ol_conn **out, outlog_err *err)
{
    struct sqlite_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    const char *path = sqlite3_db_filename(db, "main");
    conn->base = (struct ol_conn){.store = &ol_store_sqlite, .is_borrowed = true};
    conn->db = db;
    conn->watch_fd = -2;
    add_functions(db);
    snprintf(conn->base.name, sizeof conn->base.name, "sqlite:%.200s", path ? path : "");
    conn->base.wake_key = path && *path ? wake_key(path) : 0;
    *out = &conn->base;
    return 0;
}

struct sqlite3 *ol_sqlite_native(struct ol_conn *conn)
{
    return own(conn)->db;
}

/* Before a write: behind the other writers of this process. A borrowed connection's transactions are its
 * owner's. */
static void enter(struct sqlite_conn *conn)
{
    if (conn->has_turn || conn->base.is_borrowed)
        return;
    conn->has_turn = ol_turnstile_enter(conn->base.wake_key, BUSY_TIMEOUT_MS * INT64_C(1000));
    conn->is_late = !conn->has_turn;
}

static void leave(struct sqlite_conn *conn)
{
    if (conn->has_turn)
        ol_turnstile_leave(conn->base.wake_key);
    conn->has_turn = conn->is_late = false;
}

static void sqlite_close(struct ol_conn *base)
{
    struct sqlite_conn *conn = own(base);
    for (int id = 0; id < OL_QUERY_COUNT; id++)
        while (conn->prepared[id]) {
            struct prepared *next = conn->prepared[id]->next;
            sqlite3_finalize(conn->prepared[id]->statement);
            free(conn->prepared[id]);
            conn->prepared[id] = next;
        }
    if (conn->watch_fd >= 0)
        close(conn->watch_fd);
    leave(conn);
    if (!base->is_borrowed)
        sqlite3_close(conn->db);
    free(conn->path);
    free(conn);
}

/* --- transactions --- */

static int run(struct sqlite_conn *conn, const char *sql, outlog_err *err)
{
    int result = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? 0 : fail(conn, result, err);
}

static int sqlite_begin(struct ol_conn *base, outlog_err *err)
{
    enter(own(base));
    if (run(own(base), "begin immediate", err) < 0) {
        leave(own(base));
        return -1;
    }
    base->in_transaction = true;
    return 0;
}

static int sqlite_snapshot(struct ol_conn *base, outlog_err *err)
{
    if (run(own(base), "begin", err) < 0)
        return -1;
    base->in_transaction = true;
    return 0;
}

static void sqlite_rollback(struct ol_conn *base)
{
    sqlite3_exec(own(base)->db, "rollback", NULL, NULL, NULL);
    base->in_transaction = false;
    leave(own(base));
}

static int sqlite_commit(struct ol_conn *base, outlog_err *err)
{
    struct sqlite_conn *conn = own(base);

    ol_fault("append.commit_sent");
    int result = sqlite3_exec(conn->db, "commit", NULL, NULL, NULL);
    base->in_transaction = false;
    if (result == SQLITE_OK) {
        leave(conn);
        ol_fault("append.commit_done");
        ol_wake_signal(base->wake_key);
        return 0;
    }
    fail(conn, result, err);
    sqlite3_exec(conn->db, "rollback", NULL, NULL, NULL);
    leave(conn);
    if ((result & 0xff) == SQLITE_IOERR) {
        conn->is_in_doubt = true;
        ol_fail(err, OUTLOG_OUTCOME_UNKNOWN,
                "%s: the disk failed while committing (%s); the events may be stored or not: look "
                "them up by id, or repeat them with the same id",
                base->name, sqlite3_errstr(result));
    }
    return -1;
}

/* A file does not go away, but the frames of a failed commit may still lie in its WAL (3). */
static int sqlite_revive(struct ol_conn *base, outlog_err *err)
{
    struct sqlite_conn *conn = own(base);
    if (!conn->is_in_doubt)
        return 0;
    if (run(conn, "begin immediate; update outlog_schema_migrations set name = name; commit", err) <
        0) {
        sqlite3_exec(conn->db, "rollback", NULL, NULL, NULL);
        return -1;
    }
    conn->is_in_doubt = false;
    return 0;
}

static int sqlite_mark(struct ol_conn *base, outlog_err *err)
{
    return run(own(base), "savepoint outlog_mark", err);
}

static int sqlite_release(struct ol_conn *base, bool ok, outlog_err *err)
{
    if (!ok && run(own(base), "rollback to outlog_mark", err) < 0)
        return -1;
    return run(own(base), "release outlog_mark", err);
}

static int sqlite_script(struct ol_conn *base, const char *sql, outlog_err *err)
{
    return run(own(base), sql, err);
}

/* --- queries --- */

/* Make the INSERT of one row one of many: repeat the row of its VALUES. Parameters without a number
 * are counted as they come, so the second row's follow the first one's. */
static bool repeat_values(struct ol_statement_text *text, size_t rows)
{
    char one[sizeof text->text];
    char *at = strstr(text->text, "values ("), *end = text->text + sizeof text->text;
    assert(at);
    size_t bytes = 0;
    at += strlen("values ");
    for (const char *from = at; bytes == 0 || one[bytes - 1] != ')'; from++)
        if (*from < '0' || *from > '9') // only parameters stand there
            one[bytes++] = *from;
    const char *rest = strchr(at, ')') + 1;
    size_t rest_bytes = strlen(rest) + 1;
    char *rest_at = at + rows * (bytes + 1) - 1;
    if (rest_at + rest_bytes > end)
        return false;
    memmove(rest_at, rest, rest_bytes);
    for (size_t i = 0; i < rows; i++) {
        if (i > 0)
            *at++ = ',';
        memcpy(at, one, bytes);
        at += bytes;
    }
    return true;
}

static struct prepared *prepare(struct sqlite_conn *conn, enum ol_query_id id,
                                const struct ol_value *params, size_t rows, outlog_err *err)
{
    const struct ol_query *query = &ol_queries_sqlite[id];
    uint64_t key = ol_statement_key(query, params);
    struct prepared *found;

    for (found = conn->prepared[id]; found; found = found->next)
        if (found->key == key && found->rows == rows)
            return found;

    struct ol_statement_text text;
    if (ol_statement_build(query, params, '?', &text, err) < 0)
        return NULL;
    if (rows > 1 && !repeat_values(&text, rows)) {
        ol_fail(err, OUTLOG_MISUSE, "query %s is too long", query->name);
        return NULL;
    }
    if (!(found = calloc(1, sizeof *found))) {
        ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
        return NULL;
    }
    int result = sqlite3_prepare_v3(conn->db, text.text, -1, SQLITE_PREPARE_PERSISTENT,
                                    &found->statement, NULL);
    if (result != SQLITE_OK) {
        free(found);
        fail(conn, result, err);
        return NULL;
    }
    found->key = key;
    found->rows = rows;
    found->bound_count = text.bound_count;
    memcpy(found->bound, text.bound, sizeof found->bound);
    found->next = conn->prepared[id];
    conn->prepared[id] = found;
    return found;
}

static int bind(sqlite3_stmt *statement, int slot, const struct ol_value *value)
{
    switch (value->type) {
    case OL_INT:
        return sqlite3_bind_int64(statement, slot, value->number);
    case OL_REAL:
        return sqlite3_bind_double(statement, slot, value->real);
    case OL_TEXT:
        return sqlite3_bind_text64(statement, slot, value->text, value->bytes, SQLITE_STATIC,
                                   SQLITE_UTF8);
    default:
        return sqlite3_bind_null(statement, slot);
    }
}

/* Bind the parameters of one row, the first one's being row 0. */
static int bind_row(struct sqlite_conn *conn, const struct prepared *prepared, size_t row,
                    const struct ol_value *params, outlog_err *err)
{
    for (int i = 0; i < prepared->bound_count; i++) {
        int result = bind(prepared->statement, (int)row * prepared->bound_count + i + 1,
                          &params[prepared->bound[i]]);
        if (result != SQLITE_OK)
            return fail(conn, result, err);
    }
    return 0;
}

static int sqlite_query(struct ol_conn *base, enum ol_query_id id, const struct ol_value *params,
                        struct ol_rows *rows, outlog_err *err)
{
    struct sqlite_conn *conn = own(base);
    struct prepared *prepared = prepare(conn, id, params, 1, err);
    if (!prepared)
        return -1;
    assert(!sqlite3_stmt_busy(prepared->statement));
    if (bind_row(conn, prepared, 0, params, err) < 0)
        return -1;
    rows->handle = prepared->statement;
    return 0;
}

static int sqlite_next(struct ol_rows *rows, outlog_err *err)
{
    struct sqlite_conn *conn = own(rows->conn);
    if (!rows->handle)
        return 0;
    if (!conn->base.in_transaction && !sqlite3_stmt_readonly(rows->handle))
        enter(conn);
    int result = sqlite3_step(rows->handle);
    if (result == SQLITE_ROW) {
        rows->row++;
        return 1;
    }
    if (result == SQLITE_DONE) {
        rows->changed = sqlite3_changes64(conn->db);
        ol_end(rows);
        return 0;
    }
    fail(conn, result, err);
    ol_end(rows);
    return -1;
}

static void sqlite_end(struct ol_rows *rows)
{
    sqlite3_reset(rows->handle);
    sqlite3_clear_bindings(rows->handle); // they point into the caller's memory
    if (!rows->conn->in_transaction)
        leave(own(rows->conn)); // a write by itself is committed now
}

static bool sqlite_is_null(const struct ol_rows *rows, int column)
{
    return sqlite3_column_type(rows->handle, column) == SQLITE_NULL;
}

static int64_t sqlite_column_int(const struct ol_rows *rows, int column)
{
    return sqlite3_column_int64(rows->handle, column);
}

static const char *sqlite_column_text(const struct ol_rows *rows, int column, size_t *bytes)
{
    const char *text = (const char *)sqlite3_column_text(rows->handle, column);
    *bytes = (size_t)sqlite3_column_bytes(rows->handle, column);
    return text;
}

static int64_t sqlite_column_time(const struct ol_rows *rows, int column)
{
    size_t bytes;
    int64_t time_us = 0;
    const char *text = sqlite_column_text(rows, column, &bytes);
    if (!text || ol_time_parse(text, bytes, &time_us) < 0)
        return 0;
    return time_us;
}

static void sqlite_column_uuid(const struct ol_rows *rows, int column, char out[OL_UUID_TEXT])
{
    size_t bytes;
    snprintf(out, OL_UUID_TEXT, "%s", sqlite_column_text(rows, column, &bytes));
}

/* --- append --- */

enum { MOST_ROWS = 64, MOST_PARAMS = 20 };

/* A write on its way: what all its events have in common. */
struct batch {
    struct ol_write *write;
    int64_t last_id; /* the highest event_id before it */
    char now[OL_TIME_TEXT];
};

/* Fills in the parameters of row `i`. */
typedef void fill_row(const struct batch *batch, size_t i, struct ol_value *params);

/* Insert many rows with few statements. One for each row would open and close a dozen b-trees and,
 * because of the triggers, keep a copy of every page it touches so that this one row could be
 * undone: together more than the insert itself. Powers of two, so that few forms are prepared. */
static int insert_rows(struct sqlite_conn *conn, enum ol_query_id id, const struct batch *batch,
                       size_t count, fill_row *fill, outlog_err *err)
{
    struct ol_value params[MOST_PARAMS];
    size_t rows;
    for (size_t at = 0; at < count; at += rows) {
        for (rows = MOST_ROWS; rows > count - at; rows /= 2)
            ;
        fill(batch, at, params);
        struct prepared *prepared = prepare(conn, id, params, rows, err);
        if (!prepared)
            return -1;
        struct ol_rows result = {.conn = &conn->base, .handle = prepared->statement};
        for (size_t i = 0; i < rows; i++) {
            fill(batch, at + i, params);
            if (bind_row(conn, prepared, i, params, err) < 0) {
                ol_end(&result);
                return -1;
            }
        }
        if (ol_next(&result, err) < 0)
            return -1;
    }
    return 0;
}

static void fill_head(const struct batch *batch, size_t i, struct ol_value *params)
{
    const struct ol_write_head *head = &batch->write->heads[i];
    params[0] = ol_text(head->org_key);
    params[1] = ol_text(head->aggregate_type);
    params[2] = ol_text(head->aggregate_id);
    params[3] = ol_int(head->count);
}

static int take_heads(struct sqlite_conn *conn, const struct batch *batch, outlog_err *err)
{
    struct ol_write *write = batch->write;
    if (insert_rows(conn, OL_Q_HEAD_ADD, batch, write->head_count, fill_head, err) < 0)
        return -1;
    for (size_t i = 0; i < write->head_count; i++) {
        struct ol_write_head *head = &write->heads[i];
        int64_t last;
        if (ol_number(&conn->base, OL_Q_HEAD_GET,
                      OL_PARAMS(ol_text(head->org_key), ol_text(head->aggregate_type),
                                ol_text(head->aggregate_id)),
                      &last, err) < 0)
            return -1;
        head->base = last - head->count;
    }
    return 0;
}

/* Number the events; refuse one that was to have another number. */
static int number_events(const struct batch *batch, outlog_err *err)
{
    for (size_t i = 0; i < batch->write->count; i++) {
        struct ol_write_event *event = &batch->write->events[i];
        const struct ol_write_head *head = &batch->write->heads[event->head];
        const int64_t *expected = event->said->expected_seq;
        int64_t seq = head->base + event->nth;
        if (expected && *expected != seq - 1) {
            ol_fail(err, OUTLOG_SEQUENCE_CONFLICT,
                    "%s/%s: expected sequence %lld, actual %lld; read it again and decide anew",
                    head->aggregate_type, head->aggregate_id, (long long)*expected,
                    (long long)(seq - 1));
            if (err) {
                err->expected = *expected;
                err->actual = seq - 1;
                err->index = event->index;
            }
            return -1;
        }
        event->out->event_id = batch->last_id + (int64_t)i + 1;
        event->out->aggregate_seq = seq;
    }
    return 0;
}

static void fill_event(const struct batch *batch, size_t i, struct ol_value *params)
{
    const struct ol_write_event *event = &batch->write->events[i];
    const struct ol_write_head *head = &batch->write->heads[event->head];
    const struct outlog_event *said = event->said;
    const struct ol_value values[MOST_PARAMS] = {
        ol_int(event->out->event_id),
        ol_text(event->id),
        ol_text(batch->now),
        ol_text(*head->org_key ? head->org_key : NULL),
        ol_text(head->aggregate_type),
        ol_text(head->aggregate_id),
        ol_int(event->out->aggregate_seq),
        ol_text(said->event_type),
        ol_int(event->event_version),
        ol_text(event->actor_type),
        ol_text(event->actor_id),
        ol_text(event->request_id),
        ol_text(said->idempotency_key),
        ol_text(event->correlation_id),
        ol_text(event->causation_id),
        ol_text(said->app_id),
        ol_text(said->env_id),
        ol_text(said->visibility),
        ol_text(said->metadata),
        ol_bytes(said->payload, event->payload_bytes),
    };
    memcpy(params, values, sizeof values);
}

static int sqlite_write(struct ol_conn *base, struct ol_write *write, outlog_err *err)
{
    struct sqlite_conn *conn = own(base);
    struct batch batch = {.write = write};
    int64_t now_us = ol_clock_wall_us();

    if (write->is_alone && sqlite_begin(base, err) < 0)
        return -1;
    ol_time_format(now_us, batch.now);
    if (take_heads(conn, &batch, err) < 0 ||
        ol_number(base, OL_Q_EVENT_LAST, OL_NO_PARAMS, &batch.last_id, err) < 0 ||
        number_events(&batch, err) < 0)
        goto failed;
    ol_fault("append.insert");
    if (insert_rows(conn, OL_Q_EVENT_INSERT, &batch, write->count, fill_event, err) < 0)
        goto failed;
    for (size_t i = 0; i < write->count; i++)
        write->events[i].out->occurred_at = now_us;
    return write->is_alone ? sqlite_commit(base, err) : 0;
failed:
    if (write->is_alone)
        sqlite_rollback(base);
    return -1;
}

/* --- waiting --- */

/* The WAL file changes with every commit of any process, and is written page by page: the first write
 * tells, and those that follow within a moment are not worth a look each. Left unread they cost the
 * writer next to nothing. */
enum { MOMENT_US = 300 };

static int sqlite_wake_fd(struct ol_conn *base)
{
    struct sqlite_conn *conn = own(base);
    if (conn->watch_fd != -1)
        return conn->watch_fd;
    char wal[4096];
    snprintf(wal, sizeof wal, "%s-wal", conn->path);
    conn->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (conn->watch_fd >= 0 && inotify_add_watch(conn->watch_fd, wal, IN_MODIFY) < 0) {
        close(conn->watch_fd);
        conn->watch_fd = -1; // no WAL yet: ask again next time
        return -1;
    }
    if (conn->watch_fd < 0)
        conn->watch_fd = -2;
    return conn->watch_fd;
}

static bool sqlite_woken(struct ol_conn *base)
{
    int fd = own(base)->watch_fd;
    char dropped[4096];
    if (fd < 0 || read(fd, dropped, sizeof dropped) <= 0)
        return false;
    ol_clock_sleep_us(MOMENT_US);
    while (read(fd, dropped, sizeof dropped) > 0)
        ;
    return true;
}

const struct ol_store ol_store_sqlite = {
    .name = "sqlite",
    .open = sqlite_open,
    .close = sqlite_close,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .snapshot = sqlite_snapshot,
    .mark = sqlite_mark,
    .release = sqlite_release,
    .query = sqlite_query,
    .next = sqlite_next,
    .end = sqlite_end,
    .is_null = sqlite_is_null,
    .column_int = sqlite_column_int,
    .column_text = sqlite_column_text,
    .column_time = sqlite_column_time,
    .column_uuid = sqlite_column_uuid,
    .write = sqlite_write,
    .script = sqlite_script,
    .wake_fd = sqlite_wake_fd,
    .woken = sqlite_woken,
    .revive = sqlite_revive,
    .has_globs = true,
    .user = &ol_user_sqlite,
    .queries = ol_queries_sqlite,
    .migrations = ol_migrations_sqlite,
    .bootstrap = ol_bootstrap_sqlite,
};
