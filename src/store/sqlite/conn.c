/* conn.c: the store in a SQLite file.
 *
 * Also compiled into the loadable extension, where SQLite is reached through the host's API
 * pointer and the connection is always the host's own.
 *
 * 1  WAL and synchronous=FULL: an acknowledged commit survives power loss.
 * 2  A write transaction begins with BEGIN IMMEDIATE: it never fails half-way for a lock.
 * 3  An I/O error while committing is an unknown outcome: its frames may come back when the WAL is
 *    recovered. The handle first commits another transaction over them: then reads are final.
 * 4  What is acknowledged is in the file at the path (R4): a commit looks there before and after.
 */
#include "base/timestamp.h"
#include "store/sqlite/internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "store/sqlite/conn.h"
#include "store/sqlite/file.h"
#include "store/sqlite/writer_queue.h"
#include "store/user_sql.h"
#include "store/wake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { BUSY_TIMEOUT_MS = 10000 };

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

static enum outlog_code find_code(int result, const char *message, const char *path)
{
    switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
        return OUTLOG_UNAVAILABLE;
    case SQLITE_CANTOPEN: // even a reader needs the -wal and -shm files
        return path && is_write_protected(path) ? OUTLOG_READ_ONLY : OUTLOG_UNAVAILABLE;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return OUTLOG_READ_ONLY;
    case SQLITE_NOMEM:
        return OUTLOG_NO_MEMORY;
    case SQLITE_TOOBIG:
        return OUTLOG_TOO_LARGE;
    case SQLITE_CONSTRAINT:
        return strstr(message, "UNIQUE constraint failed: ") && strstr(message, "outlog_events")
                   ? OUTLOG_ID_CONFLICT // by id, number or sequence
                   : OUTLOG_INVALID_FIELD;
    default:
        if (result == SQLITE_IOERR_SHMSIZE) // the disk is full: the -shm file cannot grow
            return OUTLOG_UNAVAILABLE;
        if (strstr(message, "unsafe use of ")) // of JSON in a trigger, where the host forbids it
            return OUTLOG_MISUSE;
        return strstr(message, "no such table: outlog_") ||
                       strstr(message, "no such table: main.outlog_")
                   ? OUTLOG_NO_SCHEMA
                   : OUTLOG_STORE_ERROR;
    }
}

static const char *find_advice(enum outlog_code code, int result)
{
    switch (code) {
    case OUTLOG_UNAVAILABLE:
        return (result & 0xff) == SQLITE_CANTOPEN
                   ? "; check that it is a file in an existing folder, or try again"
                   : "; nothing was stored, try again";
    case OUTLOG_READ_ONLY:
        return "; the file or its folder cannot be written";
    case OUTLOG_NO_SCHEMA:
        return "; run `outlog init` first";
    case OUTLOG_MISUSE:
        return "; outlog's triggers need PRAGMA trusted_schema = ON";
    default:
        return "";
    }
}

int ol_sqlite_fail(struct ol_sqlite_conn *conn, int result, outlog_err *err)
{
    const char *message = sqlite3_errmsg(conn->db);
    if (ol_store_parse_error(err, message))
        return -1;
    enum outlog_code code = find_code(result, message, conn->path);
    bool is_stale = sqlite3_extended_errcode(conn->db) ==
                    SQLITE_BUSY_SNAPSHOT; // of the caller's transaction
    return ol_fail(
        err, code, "%s: %s%s", conn->base.name, message,
        is_stale
            ? "; another connection wrote after this transaction first read: roll it back, and "
              "begin it with BEGIN IMMEDIATE"
        : strstr(message, "no such table: main.") && code == OUTLOG_STORE_ERROR
            ? "; the query of a notification rule, or a trigger, needs it"
            : find_advice(code, result));
}

/* --- functions that our queries use --- */

/* outlog_after(us): the time so many microseconds from now, as text. */
static void on_after(sqlite3_context *context, int count, sqlite3_value **values)
{
    char text[OL_TIMESTAMP_TEXT];
    (void)count;
    ol_timestamp_format(ol_clock_wall_us() + sqlite3_value_int64(values[0]), text);
    sqlite3_result_text(context, text, -1, SQLITE_TRANSIENT);
}

/* outlog_until(time): how many microseconds that is from now; null for null. */
static void on_until(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t at;
    const char *text = (const char *)sqlite3_value_text(values[0]);
    (void)count;
    if (text && ol_timestamp_parse(text, strlen(text), &at) == 0)
        sqlite3_result_int64(context, at - ol_clock_wall_us());
}

/* outlog_unhex(text): the bytes; null for null. SQLite before 3.41 has no unhex(). */
static void on_unhex(sqlite3_context *context, int count, sqlite3_value **values)
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

/* On a caller's own connection too: they stay, and do no harm. A second call fails while the caller
 * has a statement open, which does no harm either. */
static void add_functions(sqlite3 *db)
{
    static const struct {
        const char *name;
        void (*call)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {{"outlog_after", on_after},
                     {"outlog_until", on_until},
                     {"outlog_unhex", on_unhex}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        sqlite3_create_function_v2(db, functions[i].name, 1, SQLITE_UTF8, NULL, functions[i].call,
                                   NULL, NULL, NULL);
}

/* --- opening --- */

/* SQLite's own busy handler sleeps longer and longer, up to 100 ms at a time: beside a process that
 * writes without a pause no other process gets the lock. One that retries often does. */
static int on_busy(void *data, int count)
{
    struct ol_sqlite_conn *conn = data;
    int64_t now = ol_clock_boot_us();
    if (count == 0)
        conn->busy_since = now;
    if (conn->is_late || now - conn->busy_since > BUSY_TIMEOUT_MS * INT64_C(1000))
        return 0;
    ol_clock_sleep_us(count < 10 ? 200 : 1000);
    return 1;
}

static int configure_conn(struct ol_sqlite_conn *conn, outlog_err *err)
{
    sqlite3_busy_handler(conn->db, on_busy, conn);
    sqlite3_extended_result_codes(conn->db, 1);
    add_functions(conn->db);
    // A switch to WAL mode needs the file exclusively, and SQLite does not call the busy handler.
    int64_t deadline = ol_clock_boot_us() + BUSY_TIMEOUT_MS * 1000;
    int result;
    while (((result = sqlite3_exec(conn->db,
                                   "pragma journal_mode=wal; pragma synchronous=full;"
                                   "pragma foreign_keys=on; pragma temp_store=memory;"
                                   "pragma wal_autocheckpoint=4000;",
                                   NULL, NULL, NULL)) &
            0xff) == SQLITE_BUSY &&
           ol_clock_boot_us() < deadline)
        sqlite3_sleep(5);
    // A read-only file can still be read: the first write returns the error.
    if (result != SQLITE_OK && (result & 0xff) != SQLITE_READONLY)
        return ol_sqlite_fail(conn, result, err);
    return 0;
}

/* Connections of one process to one file share a key, whatever path they used. */
static uint64_t make_wake_key(const char *path)
{
    char *real = realpath(path, NULL);
    uint64_t key = ol_wake_key(real ? real : path);
    free(real);
    return key;
}

const char *ol_sqlite_path(const char *url)
{
    const char *path = url + strlen("sqlite:");
    return strncmp(path, "//", 2) == 0 ? path + 2 : path;
}

bool ol_sqlite_is_missing(const char *url)
{
    char folder[4096];
    if (strncmp(url, "sqlite:", 7) != 0)
        return false;
    const char *path = ol_sqlite_path(url), *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) + 1 : 0;
    if (!*path || bytes >= sizeof folder || access(path, F_OK) == 0)
        return false;
    memcpy(folder, bytes ? path : "./", bytes ? bytes : 2);
    folder[bytes ? bytes : 2] = '\0';
    return access(folder, F_OK) == 0; // else opening it fails with a better error
}

static int sqlite_open(const char *url, struct ol_conn **out, outlog_err *err)
{
    const char *path = ol_sqlite_path(url);
    if (!*path)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "store sqlite: names no file; write sqlite:PATH");

    struct ol_sqlite_conn *conn = calloc(1, sizeof *conn);
    if (!conn || !(conn->path = strdup(path))) {
        free(conn);
        return ol_no_memory(err);
    }
    conn->base.store = &ol_store_sqlite;
    conn->watch_fd = -1;
    snprintf(conn->base.name, sizeof conn->base.name, "sqlite:%.200s", path);
    if (ol_sqlite_file_open(conn, err) < 0)
        goto failed;
    int result = sqlite3_open_v2(conn->path, &conn->db,
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                 NULL);
    if (result != SQLITE_OK) {
        ol_sqlite_fail(conn, result, err);
        goto failed;
    }
    if (configure_conn(conn, err) < 0 || ol_sqlite_file_check(conn, false, err) < 0)
        goto failed;
    conn->base.wake_key = make_wake_key(path);
    *out = &conn->base;
    return 0;
failed:
    conn->base.store->close(&conn->base);
    return -1;
}

int ol_sqlite_borrow(struct sqlite3 *db, struct ol_conn **out, outlog_err *err)
{
    struct ol_sqlite_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return ol_no_memory(err);
    const char *path = sqlite3_db_filename(db, "main");
    conn->base = (struct ol_conn){.store = &ol_store_sqlite, .is_borrowed = true};
    conn->db = db;
    conn->watch_fd = -2;
    add_functions(db);
    snprintf(conn->base.name, sizeof conn->base.name, "sqlite:%.200s", path ? path : "");
    conn->base.wake_key = path && *path ? make_wake_key(path) : 0;
    *out = &conn->base;
    return 0;
}

struct sqlite3 *ol_sqlite_native(struct ol_conn *conn)
{
    return ol_sqlite_conn_from(conn)->db;
}

void ol_sqlite_lock_writer(struct ol_sqlite_conn *conn)
{
    if (conn->has_turn || conn->base.is_borrowed)
        return;
    conn->has_turn = ol_writer_queue_lock(conn->base.wake_key, BUSY_TIMEOUT_MS * INT64_C(1000));
    conn->is_late = !conn->has_turn;
}

void ol_sqlite_unlock_writer(struct ol_sqlite_conn *conn)
{
    if (conn->has_turn)
        ol_writer_queue_unlock(conn->base.wake_key);
    conn->has_turn = conn->is_late = false;
}

static void sqlite_close(struct ol_conn *base)
{
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(base);
    for (int id = 0; id < OL_QUERY_COUNT; id++)
        while (conn->prepared[id]) {
            struct ol_sqlite_prepared *next = conn->prepared[id]->next;
            sqlite3_finalize(conn->prepared[id]->statement);
            free(conn->prepared[id]);
            conn->prepared[id] = next;
        }
    if (conn->watch_fd >= 0)
        close(conn->watch_fd);
    ol_sqlite_unlock_writer(conn);
    ol_sqlite_file_leave(conn);
    if (!base->is_borrowed)
        sqlite3_close(conn->db);
    ol_sqlite_file_close(conn);
    free(conn->path);
    free(conn);
}

/* --- transactions --- */

static int exec_script(struct ol_sqlite_conn *conn, const char *sql, outlog_err *err)
{
    int result = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? 0 : ol_sqlite_fail(conn, result, err);
}

/* A writer needs the same index pages again in its next transaction, so it caches more of them than
 * a reader. */
static void widen_cache(struct ol_sqlite_conn *conn)
{
    if (!conn->has_wide_cache)
        sqlite3_exec(conn->db, "pragma cache_size=-16000", NULL, NULL, NULL);
    conn->has_wide_cache = true;
}

int ol_sqlite_begin(struct ol_conn *base, outlog_err *err)
{
    widen_cache(ol_sqlite_conn_from(base));
    ol_sqlite_lock_writer(ol_sqlite_conn_from(base));
    if (exec_script(ol_sqlite_conn_from(base), "begin immediate", err) < 0) {
        ol_sqlite_unlock_writer(ol_sqlite_conn_from(base));
        return -1;
    }
    base->in_transaction = true;
    return 0;
}

static int sqlite_snapshot(struct ol_conn *base, outlog_err *err)
{
    if (exec_script(ol_sqlite_conn_from(base), "begin", err) < 0)
        return -1;
    base->in_transaction = true;
    return 0;
}

void ol_sqlite_rollback(struct ol_conn *base)
{
    sqlite3_exec(ol_sqlite_conn_from(base)->db, "rollback", NULL, NULL, NULL);
    base->in_transaction = false;
    ol_sqlite_unlock_writer(ol_sqlite_conn_from(base));
}

int ol_sqlite_check_committed(struct ol_sqlite_conn *conn, outlog_err *err)
{
    outlog_err why;
    if (ol_sqlite_file_check(conn, false, &why) == 0)
        return 0;
    return ol_fail(err, OUTLOG_OUTCOME_UNKNOWN,
                   "%s: its file was moved or deleted while it was committed to; the events may be "
                   "lost: look them up by id, or repeat them with the same id",
                   conn->base.name);
}

int ol_sqlite_commit(struct ol_conn *base, outlog_err *err)
{
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(base);

    if (ol_sqlite_file_check(conn, true, err) < 0) {
        ol_sqlite_rollback(base);
        return -1;
    }
    ol_fault("append.commit_sent");
    int result = sqlite3_exec(conn->db, "commit", NULL, NULL, NULL);
    base->in_transaction = false;
    if (result == SQLITE_OK) {
        ol_sqlite_unlock_writer(conn);
        ol_fault("append.commit_done");
        ol_wake_signal(base->wake_key);
        return ol_sqlite_check_committed(conn, err);
    }
    ol_sqlite_fail(conn, result, err);
    sqlite3_exec(conn->db, "rollback", NULL, NULL, NULL);
    ol_sqlite_unlock_writer(conn);
    if ((result & 0xff) == SQLITE_IOERR) {
        conn->is_in_doubt = true;
        ol_fail(err, OUTLOG_OUTCOME_UNKNOWN,
                "%s: the disk failed while committing (%s); the events may be stored or not: look "
                "them up by id, or repeat them with the same id",
                base->name, sqlite3_errstr(result));
    }
    return -1;
}

/* A file that went away may come back. Frames of a failed commit may still be in its WAL (3). */
static int sqlite_reconnect(struct ol_conn *base, outlog_err *err)
{
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(base);
    if (!base->in_transaction && ol_sqlite_file_check(conn, false, err) < 0)
        return -1;
    if (!conn->is_in_doubt)
        return 0;
    if (exec_script(conn,
                    "begin immediate; update outlog_schema_migrations set name = name; commit",
                    err) < 0) {
        sqlite3_exec(conn->db, "rollback", NULL, NULL, NULL);
        return -1;
    }
    conn->is_in_doubt = false;
    return 0;
}

/* Outside of a transaction a savepoint is a deferred transaction: once it has read, a concurrent
 * writer makes its first write fail at once, whatever busy timeout the caller has set. So it begins
 * with a write that changes nothing, which waits for the lock as long as the caller allows. Other
 * errors are ignored here: the statements that follow report them better. */
static int sqlite_mark(struct ol_conn *base, outlog_err *err)
{
    static const char write[] =
        "update outlog_schema_migrations set name = name where false"; // lint: sql
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(base);
    bool is_first = sqlite3_get_autocommit(conn->db);
    int has_moved = 0;

    if (base->is_borrowed &&
        sqlite3_file_control(conn->db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved) == SQLITE_OK &&
        has_moved)
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "%s: the file was deleted, renamed or replaced while it was open; nothing "
                       "was stored: close it and open it again",
                       base->name); // (4)

    if (exec_script(conn, "savepoint outlog_mark", err) < 0)
        return -1;
    int result = is_first ? sqlite3_exec(conn->db, write, NULL, NULL, NULL) : SQLITE_OK;
    if ((result & 0xff) != SQLITE_BUSY)
        return 0;
    ol_sqlite_fail(conn, result, err);
    sqlite3_exec(conn->db, "release outlog_mark", NULL, NULL, NULL);
    return -1;
}

static int sqlite_release(struct ol_conn *base, bool ok, outlog_err *err)
{
    if (!ok && exec_script(ol_sqlite_conn_from(base), "rollback to outlog_mark", err) < 0)
        return -1;
    return exec_script(ol_sqlite_conn_from(base), "release outlog_mark", err);
}

static int sqlite_script(struct ol_conn *base, const char *sql, outlog_err *err)
{
    return exec_script(ol_sqlite_conn_from(base), sql, err);
}

static int sqlite_check_writable(struct ol_conn *base, outlog_err *err)
{
    return ol_sqlite_file_check(ol_sqlite_conn_from(base), true, err);
}

/* --- wake-ups --- */

/* The WAL file changes with every commit of any process, and is written page by page: the first
 * write wakes us, and those that follow within a moment are read together. Events that are left
 * unread cost the writer next to nothing. */
enum { WAL_BURST_US = 300 };

static int sqlite_wake_fd(struct ol_conn *base)
{
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(base);
    if (conn->watch_fd != -1)
        return conn->watch_fd;
    char wal[4096];
    snprintf(wal, sizeof wal, "%s-wal", conn->path);
    conn->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (conn->watch_fd >= 0 && inotify_add_watch(conn->watch_fd, wal, IN_MODIFY) < 0) {
        close(conn->watch_fd);
        conn->watch_fd = -1; // no WAL yet: try again next time
        return -1;
    }
    if (conn->watch_fd < 0)
        conn->watch_fd = -2;
    return conn->watch_fd;
}

static bool sqlite_drain_wake(struct ol_conn *base)
{
    int fd = ol_sqlite_conn_from(base)->watch_fd;
    char dropped[4096];
    if (fd < 0 || read(fd, dropped, sizeof dropped) <= 0)
        return false;
    ol_clock_sleep_us(WAL_BURST_US);
    while (read(fd, dropped, sizeof dropped) > 0)
        ;
    return true;
}

/* --- run files --- */

/* Beside the database: whoever works on it is on this machine. Never the database file itself:
 * closing a descriptor of it would drop SQLite's own locks. */
static bool sqlite_run_folder(const struct ol_conn *base, char *out, size_t bytes)
{
    const char *path = ((const struct ol_sqlite_conn *)base)->path;
    char *real = path ? realpath(path, NULL) : NULL;
    int needed = real ? snprintf(out, bytes, "%s-runs", real) : -1;
    free(real);
    return needed > 0 && (size_t)needed < bytes;
}

const struct ol_store ol_store_sqlite = {
    .name = "sqlite",
    .open = sqlite_open,
    .close = sqlite_close,
    .begin = ol_sqlite_begin,
    .commit = ol_sqlite_commit,
    .rollback = ol_sqlite_rollback,
    .snapshot = sqlite_snapshot,
    .mark = sqlite_mark,
    .release = sqlite_release,
    .query = ol_sqlite_query,
    .next = ol_sqlite_next,
    .end = ol_sqlite_end,
    .is_null = ol_sqlite_is_null,
    .column_int = ol_sqlite_column_int,
    .column_text = ol_sqlite_column_text,
    .column_time = ol_sqlite_column_time,
    .column_uuid = ol_sqlite_column_uuid,
    .append = ol_sqlite_append,
    .script = sqlite_script,
    .wake_fd = sqlite_wake_fd,
    .drain_wake = sqlite_drain_wake,
    .reconnect = sqlite_reconnect,
    .run_folder = sqlite_run_folder,
    .check_writable = sqlite_check_writable,
    .has_globs = true,
    .user_sql = &ol_user_sql_sqlite,
    .queries = ol_queries_sqlite,
    .migrations = ol_migrations_sqlite,
    .bootstrap = ol_bootstrap_sqlite,
};
