/* interface_c.c: the C library driven from a pipe, for test_interfaces.py.
 *
 *     interface_c STORE_URL
 *
 * Each line of standard input is one command, each line of standard output its answer: the result,
 * or {"error": {code, message, pointer, index, expected, actual}}. A text is a JSON string, or
 * {"hex": "…"} where it must hold bytes that no JSON string can. What the program may use of outlog
 * is what any user may: the header and the shared library. Only to read its commands it has files
 * of src/base/ compiled in.
 *
 *   {"do": "append", "events": [{…}, …]}     in the transaction that is open, else one of its own
 *   {"do": "begin"} {"do": "commit"} {"do": "rollback"}              the library's transaction
 *   {"do": "join"} {"do": "insert", "id": …} {"do": "end", "how": "commit"|"rollback"}
 *                                            the caller's, with a row of the caller's own table
 *   {"do": "sql", "sql": …}                  on the caller's connection
 *   {"do": "read"|"follow", "filter": {…}, "after": N, "limit": N, "timeout_ms": N}
 *   {"do": "run", "verb": "start_step", "id": …, "body": "{…}"}      in the open transaction
 *   run_get, run_list, run_resume, run_replay, run_verify
 *   get, resolve, trace, causality, settled, consumer_*, idempotent_begin, idempotent_end, hash,
 * key */
#include "base/json/json.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 2000 };

static outlog *handle;
static outlog_tx *own, *joined;
static PGconn *pg;
static sqlite3 *db;
static struct ol_arena arena; /* of the command being obeyed */
static struct ol_buf answer;

static _Noreturn void give_up(const char *why)
{
    fprintf(stderr, "interface_c: %s\n", why);
    exit(2);
}

/* --- reading commands --- */

static const char *from_hex(const char *hex)
{
    size_t bytes = strlen(hex) / 2;
    char *out = ol_arena_alloc(&arena, bytes + 1);
    unsigned byte;
    for (size_t i = 0; i < bytes; i++) {
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            give_up("bad hex");
        out[i] = (char)byte;
    }
    return out;
}

static const char *text(const struct ol_json *object, const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    if (value.type == OL_JSON_OBJECT)
        return from_hex(text(&value, "hex"));
    return ol_json_string(&value, &arena, NULL);
}

static int64_t number(const struct ol_json *object, const char *key, int64_t otherwise)
{
    struct ol_json value = ol_json_get(object, key);
    int64_t out = otherwise;
    ol_json_int(&value, &out);
    return out;
}

static bool truth(const struct ol_json *object, const char *key)
{
    return ol_json_get(object, key).type == OL_JSON_TRUE;
}

static struct outlog_new_event read_event(const struct ol_json *from)
{
    struct outlog_new_event event = {
        .org_id = text(from, "org_id"),
        .is_infrastructure = ol_json_get(from, "org_id").type == OL_JSON_NULL,
        .aggregate_type = text(from, "aggregate_type"),
        .aggregate_id = text(from, "aggregate_id"),
        .event_type = text(from, "event_type"),
        .event_version = (int)number(from, "event_version", 0),
        .payload = text(from, "payload"),
        .metadata = text(from, "metadata"),
        .id = text(from, "id"),
        .actor_type = text(from, "actor_type"),
        .actor_id = text(from, "actor_id"),
        .request_id = text(from, "request_id"),
        .correlation_id = text(from, "correlation_id"),
        .causation_id = text(from, "causation_id"),
        .idempotency_key = text(from, "idempotency_key"),
        .app_id = text(from, "app_id"),
        .env_id = text(from, "env_id"),
        .visibility = text(from, "visibility"),
    };
    if (ol_json_get(from, "expected_seq").type == OL_JSON_NUMBER) {
        int64_t *expected = ol_arena_alloc(&arena, sizeof *expected);
        *expected = number(from, "expected_seq", 0);
        event.expected_seq = expected;
    }
    return event;
}

static struct outlog_filter read_filter(const struct ol_json *command)
{
    struct ol_json from = ol_json_get(command, "filter");
    return (struct outlog_filter){
        .org_id = text(&from, "org_id"),
        .is_infrastructure = ol_json_get(&from, "org_id").type == OL_JSON_NULL,
        .event_type = text(&from, "event_type"),
        .aggregate_type = text(&from, "aggregate_type"),
        .aggregate_id = text(&from, "aggregate_id"),
        .correlation_id = text(&from, "correlation_id"),
        .app_id = text(&from, "app_id"),
        .env_id = text(&from, "env_id"),
        .visibility = text(&from, "visibility"),
        .since = number(&from, "since", 0),
        .until = number(&from, "until", 0),
        .raw = truth(&from, "raw"),
    };
}

static struct outlog_idempotency read_call(const struct ol_json *command)
{
    return (struct outlog_idempotency){.org_id = text(command, "org_id"),
                                       .actor_id = text(command, "actor_id"),
                                       .endpoint = text(command, "endpoint"),
                                       .key = text(command, "key"),
                                       .request = text(command, "request")};
}

/* --- writing answers --- */

static void put_text(const char *name, const char *value)
{
    ol_buf_print(&answer, "%s\"%s\":", answer.data[answer.bytes - 1] == '{' ? "" : ",", name);
    ol_buf_json_text(&answer, value);
}

static void put_int(const char *name, int64_t value)
{
    ol_buf_print(&answer, "%s\"%s\":%lld", answer.data[answer.bytes - 1] == '{' ? "" : ",", name,
                 (long long)value);
}

static void put_bool(const char *name, bool value)
{
    ol_buf_print(&answer, "%s\"%s\":%s", answer.data[answer.bytes - 1] == '{' ? "" : ",", name,
                 value ? "true" : "false");
}

static void put_error(const outlog_err *err)
{
    ol_buf_reset(&answer);
    ol_buf_text(&answer, "{\"error\":{");
    put_text("code", outlog_code_name(err->code));
    put_text("message", err->message);
    put_text("pointer", err->pointer);
    put_int("index", err->index);
    put_int("expected", err->expected);
    put_int("actual", err->actual);
    put_bool("is_retryable", outlog_code_is_retryable(err->code));
    ol_buf_text(&answer, "}}");
}

static void put_appended(const struct outlog_appended *appended)
{
    ol_buf_char(&answer, '{');
    put_int("event_id", appended->event_id);
    put_text("id", appended->id);
    put_int("aggregate_seq", appended->aggregate_seq);
    put_int("occurred_at", appended->occurred_at);
    put_text("correlation_id", appended->correlation_id);
    put_bool("duplicate", appended->duplicate);
    ol_buf_char(&answer, '}');
}

static void put_record(const struct outlog_event *record)
{
    if (strlen(record->payload) != record->payload_bytes)
        give_up("payload_bytes is not the payload's length");
    ol_buf_char(&answer, '{');
    put_int("event_id", record->event_id);
    put_text("id", record->id);
    put_text("causation_id", *record->causation_id ? record->causation_id : NULL);
    put_int("occurred_at", record->occurred_at);
    put_text("org_id", record->org_id);
    put_text("aggregate_type", record->aggregate_type);
    put_text("aggregate_id", record->aggregate_id);
    put_int("aggregate_seq", record->aggregate_seq);
    put_text("event_type", record->event_type);
    put_int("event_version", record->event_version);
    put_text("actor_type", record->actor_type);
    put_text("actor_id", record->actor_id);
    put_text("request_id", record->request_id);
    put_text("idempotency_key", record->idempotency_key);
    put_text("correlation_id", record->correlation_id);
    put_text("app_id", record->app_id);
    put_text("env_id", record->env_id);
    put_text("visibility", record->visibility);
    put_text("metadata", record->metadata); // as text, so that every byte can be compared
    put_text("payload", record->payload);
    put_int("depth", record->depth);
    ol_buf_char(&answer, '}');
}

static void put_page(const struct outlog_page *page)
{
    ol_buf_char(&answer, '{');
    put_int("next_after", page->next_after);
    put_int("settled", page->settled);
    ol_buf_text(&answer, ",\"events\":[");
    for (size_t i = 0; i < page->count; i++) {
        if (i)
            ol_buf_char(&answer, ',');
        put_record(&page->events[i]);
    }
    ol_buf_text(&answer, "]}");
}

static void put_consumer(const struct outlog_consumer *consumer)
{
    ol_buf_char(&answer, '{');
    put_text("name", consumer->name);
    put_int("cursor_event_id", consumer->cursor_event_id);
    put_int("lag", consumer->lag);
    put_text("filters", consumer->filters);
    ol_buf_char(&answer, '}');
}

static void put_one(const char *name, int64_t value)
{
    ol_buf_char(&answer, '{');
    put_int(name, value);
    ol_buf_char(&answer, '}');
}

/* --- appending --- */

static int append(const struct ol_json *command, outlog_err *err)
{
    static struct outlog_new_event events[MOST_EVENTS];
    static struct outlog_appended appended[MOST_EVENTS];
    struct ol_json list = ol_json_get(command, "events");
    struct ol_json_iter it = {0};
    outlog_tx *tx = joined ? joined : own;
    size_t count = 0;
    int result;

    while (count < MOST_EVENTS && ol_json_next(&list, &it))
        events[count++] = read_event(&it.value);
    if (!tx)
        result = outlog_append_now(handle, events, count, appended, err);
    else if (count == 1)
        result = outlog_append(tx, events, appended, err);
    else
        result = outlog_append_many(tx, events, count, appended, err);
    if (result < 0)
        return -1;
    ol_buf_text(&answer, "{\"events\":[");
    for (size_t i = 0; i < count; i++) {
        if (i)
            ol_buf_char(&answer, ',');
        put_appended(&appended[i]);
    }
    ol_buf_text(&answer, "]}");
    return 0;
}

/* --- runs --- */

static int run_command(const struct ol_json *command, outlog_err *err)
{
    static struct outlog_json json; // used again and again
    struct outlog_run_call call = {.verb = text(command, "verb"),
                                   .id = text(command, "id"),
                                   .org_id = text(command, "org_id"),
                                   .actor_type = text(command, "actor_type"),
                                   .actor_id = text(command, "actor_id"),
                                   .request_id = text(command, "request_id"),
                                   .idempotency_key = text(command, "key"),
                                   .body = text(command, "body")};
    if (outlog_run_command(joined ? joined : own, &call, &json, err) < 0)
        return -1;
    ol_buf_print(&answer, "{\"is_replay\":%s,\"answer\":", json.is_replay ? "true" : "false");
    ol_buf_add(&answer, json.text, json.bytes);
    ol_buf_char(&answer, '}');
    return 0;
}

static int run_look(const struct ol_json *command, const char *verb, outlog_err *err)
{
    static struct outlog_json json;
    const char *id = text(command, "id");
    int result;
    if (strcmp(verb, "run_get") == 0)
        result = outlog_run_get(handle, id, &json, err);
    else if (strcmp(verb, "run_resume") == 0)
        result = outlog_run_resume(handle, id, &json, err);
    else if (strcmp(verb, "run_replay") == 0)
        result = outlog_run_replay(handle, id, &json, err);
    else if (strcmp(verb, "run_verify") == 0)
        result = outlog_run_verify(handle, id, &json, err);
    else
        result = outlog_run_list(handle, text(command, "status"), text(command, "after"),
                                 (size_t)number(command, "limit", 100), &json, err);
    if (result == 0)
        ol_buf_add(&answer, json.text, json.bytes);
    return result;
}

/* --- the caller's own connection --- */

static void caller_sql(const char *sql)
{
    if (db && sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        give_up(sqlite3_errmsg(db));
    if (!pg)
        return;
    PGresult *result = PQexec(pg, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        give_up(PQresultErrorMessage(result));
    PQclear(result);
}

static void caller_insert(const char *id)
{
    char *sql = sqlite3_mprintf("insert into interface_orders (id) values (%Q)", id);
    caller_sql(sql);
    sqlite3_free(sql);
}

static int caller_join(outlog_err *err)
{
    // Deferred, it would fail wherever another writes between its first read and its first write.
    caller_sql(pg ? "begin" : "begin immediate");
    int result = pg ? outlog_join_postgres(pg, &joined, err) : outlog_join_sqlite(db, &joined, err);
    if (result < 0)
        caller_sql("rollback");
    return result;
}

static void caller_end(const char *how)
{
    outlog_leave(joined);
    joined = NULL;
    caller_sql(how);
}

static void caller_connect(const char *url)
{
    if (strncmp(url, "sqlite:", 7) != 0) {
        pg = PQconnectdb(url);
        if (PQstatus(pg) != CONNECTION_OK)
            give_up(PQerrorMessage(pg));
    } else if (sqlite3_open(url + 7, &db) != SQLITE_OK || sqlite3_busy_timeout(db, 10000)) {
        give_up("cannot open the file");
    }
}

/* --- verbs --- */

static int read_events(const struct ol_json *command, const char *verb, outlog_err *err)
{
    static struct outlog_page page; // used again and again, as a reader would
    struct outlog_filter filter = read_filter(command);
    int64_t after = number(command, "after", 0);
    size_t limit = (size_t)number(command, "limit", 100);
    int timeout_ms = (int)number(command, "timeout_ms", 0);
    const char *name = text(command, "name"), *id = text(command, "id");
    int result;

    if (strcmp(verb, "read") == 0)
        result = outlog_read(handle, &filter, after, limit, &page, err);
    else if (strcmp(verb, "follow") == 0)
        result = outlog_follow(handle, &filter, after, limit, timeout_ms, &page, err);
    else if (strcmp(verb, "consumer_read") == 0)
        result = outlog_consumer_read(handle, name, limit, timeout_ms, &page, err);
    else if (strcmp(verb, "get") == 0)
        result = outlog_get(handle, id, &page, err);
    else if (strcmp(verb, "trace") == 0)
        result = outlog_trace(handle, &filter, id, &page, err);
    else
        result = outlog_causality(handle, id, truth(command, "down") ? OUTLOG_DOWN : OUTLOG_UP,
                                  &page, err);
    if (result == 0)
        put_page(&page);
    else
        outlog_page_clear(&page);
    return result;
}

static int consumer(const struct ol_json *command, const char *verb, outlog_err *err)
{
    const char *name = text(command, "name");
    struct outlog_filter filter = read_filter(command);
    struct outlog_consumer found[50];
    int64_t to = truth(command, "end") ? OUTLOG_END : number(command, "to", 0);
    bool flag = false;
    size_t count = 0;
    int result;

    if (strcmp(verb, "consumer_create") == 0) {
        if ((result = outlog_consumer_create(handle, name, &filter, to, &flag, err)) == 0)
            put_one("created", flag);
    } else if (strcmp(verb, "consumer_get") == 0) {
        if ((result = outlog_consumer_get(handle, name, found, err)) == 0)
            put_consumer(found);
    } else if (strcmp(verb, "consumer_list") == 0) {
        if ((result = outlog_consumer_list(handle, found, 50, &count, err)) < 0)
            return -1;
        ol_buf_text(&answer, "{\"consumers\":[");
        for (size_t i = 0; i < count && i < 50; i++) {
            ol_buf_text(&answer, i ? "," : "");
            put_consumer(&found[i]);
        }
        ol_buf_text(&answer, "]}");
    } else if (strcmp(verb, "consumer_commit") == 0) {
        if ((result = outlog_consumer_commit(handle, name, to, &flag, err)) == 0)
            put_one("moved", flag);
    } else if (strcmp(verb, "consumer_reset") == 0) {
        result = outlog_consumer_reset(handle, name, to, err);
    } else if (strcmp(verb, "consumer_reset_to_time") == 0) {
        result = outlog_consumer_reset_to_time(handle, name, to, err);
    } else {
        result = outlog_consumer_delete(handle, name, err);
    }
    return result;
}

static int idempotent(const struct ol_json *command, const char *verb, outlog_err *err)
{
    struct outlog_idempotency call = read_call(command);
    outlog_tx *tx = joined ? joined : own;
    const char *response;

    if (strcmp(verb, "idempotent_end") == 0)
        return outlog_idempotent_end(tx, &call, text(command, "response"), err);
    if (outlog_idempotent_begin(tx, &call, &response, err) < 0)
        return -1;
    ol_buf_char(&answer, '{');
    put_text("response", response);
    ol_buf_char(&answer, '}');
    return 0;
}

static int ask(const struct ol_json *command, const char *verb, outlog_err *err)
{
    struct outlog_appended appended;
    char out[1024];
    int64_t settled;
    bool stored;

    if (strcmp(verb, "settled") == 0) {
        if (outlog_settled(handle, &settled, err) < 0)
            return -1;
        put_one("settled", settled);
    } else if (strcmp(verb, "resolve") == 0) {
        if (outlog_resolve(handle, text(command, "id"), &stored, &appended, err) < 0)
            return -1;
        if (stored)
            put_appended(&appended);
        else
            put_one("stored", 0);
    } else if (strcmp(verb, "hash") == 0) {
        if (outlog_request_hash(text(command, "request"), out, err) < 0)
            return -1;
        ol_buf_print(&answer, "{\"hash\":\"%s\"}", out);
    } else if (strcmp(verb, "key") == 0) {
        if (outlog_derived_key(text(command, "aggregate_type"), text(command, "aggregate_id"),
                               text(command, "event_type"), text(command, "payload"), out,
                               sizeof out, err) < 0)
            return -1;
        ol_buf_char(&answer, '{');
        put_text("key", out);
        ol_buf_char(&answer, '}');
    } else {
        give_up(verb);
    }
    return 0;
}

static int finish(const char *verb, outlog_err *err)
{
    outlog_tx *tx = own;
    own = NULL;
    if (strcmp(verb, "commit") == 0)
        return outlog_commit(tx, err);
    outlog_rollback(tx);
    return 0;
}

static int obey(const struct ol_json *command, outlog_err *err)
{
    static const char *const readers[] = {"read", "follow", "consumer_read",
                                          "get",  "trace",  "causality"};
    const char *verb = text(command, "do");

    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(verb, readers[i]) == 0)
            return read_events(command, verb, err);
    if (strcmp(verb, "append") == 0)
        return append(command, err);
    if (strcmp(verb, "begin") == 0)
        return outlog_begin(handle, &own, err);
    if (strcmp(verb, "commit") == 0 || strcmp(verb, "rollback") == 0)
        return finish(verb, err);
    if (strcmp(verb, "join") == 0)
        return caller_join(err);
    if (strcmp(verb, "join_outside") == 0) // a mistake: there is no transaction to join
        return pg ? outlog_join_postgres(pg, &joined, err) : 0;
    if (strcmp(verb, "run") == 0)
        return run_command(command, err);
    if (strncmp(verb, "run_", 4) == 0)
        return run_look(command, verb, err);
    if (strncmp(verb, "consumer_", 9) == 0)
        return consumer(command, verb, err);
    if (strncmp(verb, "idempotent_", 11) == 0)
        return idempotent(command, verb, err);
    if (strcmp(verb, "sql") == 0)
        caller_sql(text(command, "sql"));
    else if (strcmp(verb, "insert") == 0)
        caller_insert(text(command, "id"));
    else if (strcmp(verb, "end") == 0)
        caller_end(text(command, "how"));
    else
        return ask(command, verb, err);
    return 0;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    struct ol_json command;
    outlog_err err;

    if (argc != 2)
        give_up("usage: interface_c STORE_URL");
    if (outlog_open(argv[1], &handle, &err) < 0)
        give_up(err.message);
    caller_connect(argv[1]);
    while ((bytes = getline(&line, &room, stdin)) > 0) {
        ol_arena_reset(&arena);
        ol_buf_reset(&answer);
        if (ol_json_parse(line, (size_t)bytes, &command, &err) < 0)
            give_up(err.message);
        // What an error leaves out must not be what a former one said.
        memset(&err, 0x55, sizeof err);
        err.message[sizeof err.message - 1] = err.pointer[sizeof err.pointer - 1] = '\0';
        if (obey(&command, &err) < 0)
            put_error(&err);
        else if (answer.bytes == 0)
            ol_buf_text(&answer, "{}");
        printf("%s\n", answer.data);
        fflush(stdout);
    }
    outlog_rollback(own);
    outlog_leave(joined);
    outlog_close(handle);
    PQfinish(pg);
    sqlite3_close(db);
    ol_arena_clear(&arena);
    ol_buf_clear(&answer);
    free(line);
    return 0;
}
