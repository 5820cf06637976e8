/* test_store.c: one suite for every store: statements, rows, savepoints, commits.
 *
 * A store is finished when this is green for it. PostgreSQL's part needs OUTLOG_TEST_POSTGRES. */
#include "store/event_fields.h"
#include "store/migrate.h"
#include "stores.h"

static struct ol_conn *conn_of(void **state)
{
    return ((struct fixture *)*state)->conn;
}

static bool is_sqlite(const struct ol_conn *conn)
{
    return strcmp(conn->store->name, "sqlite") == 0;
}

/* --- consumers, the simplest table, for our statements --- */

/* A new consumer starts at 0: on PostgreSQL no position beyond the settled one can be created, so
 * another one is set by the command that may. */
static int put_consumer(struct ol_conn *conn, const char *name, int64_t cursor, int64_t *changed,
                        outlog_err *err)
{
    int64_t created = 0;
    if (ol_store_exec(conn, OL_Q_CONSUMER_CREATE,
                      OL_PARAMS(ol_value_text(name), ol_value_text("{}"),
                                ol_value_int(cursor < 0 ? cursor : 0), ol_value_time(0)),
                      &created, err) < 0)
        return -1;
    if (changed)
        *changed = created;
    if (!created || cursor <= 0)
        return 0;
    return ol_store_exec(conn, OL_Q_CONSUMER_RESET,
                         OL_PARAMS(ol_value_text(name), ol_value_int(cursor), ol_value_time(0)),
                         NULL, err);
}

static int64_t read_cursor(struct ol_conn *conn, const char *name)
{
    struct ol_rows rows;
    outlog_err err;
    OK(ol_store_query(conn, OL_Q_CONSUMER_GET, OL_PARAMS(ol_value_text(name)), &rows, &err));
    int64_t cursor = ol_rows_next(&rows, &err) > 0 ? ol_rows_int(&rows, 1) : -1;
    ol_rows_end(&rows);
    return cursor;
}

/* --- statements, as text --- */

static const struct ol_query_piece pieces[] = {{"select a from t where n > ", 0, -1},
                                               {" and ", -1, -1},
                                               {"o = ", 1, 1},
                                               {" and ", -1, 1},
                                               {"m > ", 0, -1},
                                               {" and x is null ", -1, 2},
                                               {" limit ", 3, -1},
                                               {"\n", -1, -1},
                                               {NULL, -1, -1}};
static const struct ol_query query = {"sample", pieces, 4, 1u << 3, 0, "a b c d"};

static void statement_has_only_present_parts(void **state)
{
    struct ol_statement text;
    outlog_err err;
    (void)state;
    OK(ol_statement_build(&query,
                          OL_PARAMS(ol_value_int(7), ol_value_absent(), ol_value_absent(),
                                    ol_value_int(10)),
                          '$', &text, &err));
    assert_string_equal(text.text, "select a from t where n > $1 and m > $1 limit 10\n");
    assert_int_equal(text.bound_count, 1);
    assert_int_equal(text.bound[0], 0);

    OK(ol_statement_build(&query,
                          OL_PARAMS(ol_value_int(7), ol_value_text("x"), ol_value_int(1),
                                    ol_value_int(-3)),
                          '?', &text, &err));
    assert_string_equal(text.text,
                        "select a from t where n > ?1 and o = ?2 and m > ?1 and x is null "
                        " limit -3\n");
    assert_int_equal(text.bound_count, 2);
    assert_int_equal(text.bound[1], 1);
}

/* null is a value and stays in the statement; absent is the lack of a condition. */
static void null_is_not_absent_in_a_statement(void **state)
{
    struct ol_statement text;
    outlog_err err;
    (void)state;
    OK(ol_statement_build(&query,
                          OL_PARAMS(ol_value_int(7), ol_value_text(NULL), ol_value_absent(),
                                    ol_value_int(1)),
                          '$', &text, &err));
    assert_non_null(strstr(text.text, "o = $2"));
    assert_int_equal(ol_value_optional(NULL).type, OL_VALUE_ABSENT);
    assert_int_equal(ol_value_text(NULL).type, OL_VALUE_NULL);
}

/* Equal keys for equal texts, over every shape and some limits: no two texts share a key. */
static void statement_key_is_that_of_the_text(void **state)
{
    static struct {
        uint64_t key;
        char text[256];
    } seen[64];
    size_t count = 0;
    outlog_err err;
    (void)state;
    for (int shape = 0; shape < 4; shape++)
        for (int64_t limit = 1; limit <= 10000; limit *= 10)
            for (int64_t value = 0; value < 2; value++) {
                struct ol_statement text;
                const struct ol_value params[] = {ol_value_int(value),
                                                  shape & 1 ? ol_value_text("o")
                                                            : ol_value_absent(),
                                                  shape & 2 ? ol_value_int(1) : ol_value_absent(),
                                                  ol_value_int(limit)};
                uint64_t key = ol_statement_key(&query, params);
                OK(ol_statement_build(&query, params, '$', &text, &err));
                size_t i = 0;
                while (i < count && strcmp(seen[i].text, text.text) != 0)
                    i++;
                for (size_t j = 0; j < count; j++)
                    assert_int_equal(seen[j].key == key, j == i);
                if (i == count) {
                    seen[count].key = key;
                    snprintf(seen[count++].text, sizeof seen[0].text, "%.255s", text.text);
                }
            }
    assert_int_equal(count, 4 * 5);
}

static void statement_too_long_is_refused(void **state)
{
    static char word[9000];
    struct ol_query_piece long_pieces[] = {{word, -1, -1}, {NULL, -1, -1}};
    struct ol_query long_query = {"long", long_pieces, 0, 0, 0, ""};
    struct ol_statement text;
    outlog_err err;
    (void)state;
    memset(word, 'x', sizeof word - 1);
    assert_int_equal(ol_statement_build(&long_query, OL_NO_PARAMS, '$', &text, &err), -1);
    assert_int_equal(err.code, OUTLOG_MISUSE);
}

static void invalid_url_is_refused(void **state)
{
    static const char *const urls[] = {"", "mysql://x", "sqlite", "/tmp/x.db", "Postgres://x"};
    struct ol_conn *conn;
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < COUNT(urls); i++) {
        assert_int_equal(ol_store_open(urls[i], &conn, &err), -1);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        assert_null(conn);
    }
    assert_int_equal(ol_store_open("sqlite:", &conn, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    assert_int_equal(ol_store_open("postgres://127.0.0.1:1/none", &conn, &err), -1);
    assert_int_equal(err.code, OUTLOG_UNAVAILABLE);
    assert_null(strchr(err.message, '\n'));
}

/* --- rows --- */

static void rows_have_text_number_and_time(void **state)
{
    struct ol_conn *conn = conn_of(state);
    struct ol_rows rows;
    struct ol_arena arena = {0};
    outlog_err err;
    bool failed = false;
    size_t bytes;
    const int64_t now = INT64_C(1767528300123456);
    const char *name = "Grüße \"it's\" \\ %s $1 ?1 \xf0\x9f\x90\x98";

    OK(ol_store_exec(conn, OL_Q_CONSUMER_CREATE,
                     OL_PARAMS(ol_value_text(name), ol_value_text("{\"org_id\":\"\"}"),
                               ol_value_int(0), ol_value_time(now)),
                     NULL, &err));
    OK(ol_store_exec(conn, OL_Q_CONSUMER_RESET,
                     OL_PARAMS(ol_value_text(name), ol_value_int(INT64_MAX), ol_value_time(now)),
                     NULL, &err));
    OK(ol_store_query(conn, OL_Q_CONSUMER_GET, OL_PARAMS(ol_value_text(name)), &rows, &err));
    assert_int_equal(ol_rows_next(&rows, &err), 1);
    assert_string_equal(ol_rows_text(&rows, 0, &bytes), name);
    assert_int_equal(bytes, strlen(name));
    assert_true(ol_rows_int(&rows, 1) == INT64_MAX);
    assert_string_equal(ol_rows_copy(&rows, 2, &arena, &failed), "{\"org_id\":\"\"}");
    assert_true(ol_rows_time(&rows, 3) == now);
    assert_false(failed || ol_rows_is_null(&rows, 0));
    assert_int_equal(ol_rows_next(&rows, &err), 0);
    assert_int_equal(ol_rows_next(&rows, &err), 0); // the end stays the end
    ol_rows_end(&rows);
    ol_rows_end(&rows);
    ol_arena_clear(&arena);
}

static void rows_have_null_boolean_and_real(void **state)
{
    struct ol_conn *conn = conn_of(state);
    struct ol_rows rows;
    outlog_err err;
    int found = 0, checks = 0;
    size_t bytes = 7;

    OK(ol_store_exec(conn, OL_Q_EVENT_TYPE_PUT,
                     OL_PARAMS(ol_value_text("store.tested"), ol_value_int(INT32_MAX),
                               ol_value_text(NULL), ol_value_text("{}"), ol_value_text(NULL),
                               ol_value_text(""), ol_value_int(0)),
                     NULL, &err));
    OK(ol_store_query(conn, OL_Q_EVENT_TYPE_LIST, OL_NO_PARAMS, &rows, &err));
    while (ol_rows_next(&rows, &err) > 0) {
        bool is_builtin = ol_rows_int(&rows, 6);
        if (strcmp(ol_rows_text(&rows, 0, NULL), "store.tested") != 0) {
            assert_true(is_builtin);
            continue;
        }
        found++;
        assert_false(is_builtin);
        assert_int_equal(ol_rows_int(&rows, 1), INT32_MAX);
        assert_true(ol_rows_is_null(&rows, 2) && ol_rows_is_null(&rows, 4));
        assert_null(ol_rows_text(&rows, 2, &bytes));
        assert_int_equal(bytes, 0);
        assert_string_equal(ol_rows_text(&rows, 3, NULL), "{}");
        assert_false(ol_rows_is_null(&rows, 5)); // "" is not null
        assert_string_equal(ol_rows_text(&rows, 5, &bytes), "");
    }
    ol_rows_end(&rows);
    assert_int_equal(found, 1);

    OK(ol_store_exec(conn, OL_Q_SECRET_RULE_ADD,
                     OL_PARAMS(ol_value_text("test-rule"), ol_value_text("warn"), ol_value_int(1),
                               ol_value_text("p"), ol_value_real(3.25), ol_value_int(0),
                               ol_value_text(NULL)),
                     NULL, &err));
    OK(ol_store_query(conn, OL_Q_DOCTOR_CHECKS, OL_NO_PARAMS, &rows, &err));
    for (; ol_rows_next(&rows, &err) > 0; checks++)
        assert_in_range(ol_rows_int(&rows, 1), 0, 2);
    ol_rows_end(&rows);
    assert_true(checks >= 3);
}

static void rows_have_uuids(void **state)
{
    static const char id[] = "01890a5d-ac96-774b-bcce-b302099a8057";
    struct ol_conn *conn = conn_of(state);
    struct ol_rows rows;
    char out[OL_UUID_TEXT];
    outlog_err err;

    OK(conn->store->script(
        conn,
        is_sqlite(conn)
            ? "insert into outlog_events (id, occurred_at, aggregate_type, aggregate_id, aggregate_seq,"
              " event_type, actor_type, actor_id, request_id, correlation_id, payload) values "
              "('01890a5d-ac96-774b-bcce-b302099a8057', '2026-01-04T12:05:00.123456Z', 'a', 'b', 1, 't',"
              " 'system', 's', 'r', 'c', '{}')"
            : "insert into outlog.events (id, occurred_at, aggregate_type, aggregate_id, aggregate_seq,"
              " event_type, actor_type, actor_id, request_id, correlation_id, payload) values "
              "('01890a5d-ac96-774b-bcce-b302099a8057', '2026-01-04T12:05:00.123456Z', 'a', 'b', 1, 't',"
              " 'system', 's', 'r', 'c', '{}')",
        &err));
    OK(ol_store_query(conn, OL_Q_EVENT_GET, OL_PARAMS(ol_value_text(id), ol_value_absent()), &rows,
                      &err));
    assert_int_equal(ol_rows_next(&rows, &err), 1);
    ol_rows_uuid(&rows, OL_EVENT_ID, out);
    assert_string_equal(out, id);
    ol_rows_uuid(&rows, OL_EVENT_CAUSATION_ID, out); // no cause
    assert_string_equal(out, "");
    assert_true(ol_rows_time(&rows, OL_EVENT_OCCURRED_AT) == INT64_C(1767528300123456));
    assert_true(ol_rows_is_null(&rows, OL_EVENT_ORG_ID)); // no org
    ol_rows_end(&rows); // before the last row: the statement can be used again
    int64_t event_id;
    OK(ol_store_number(conn, OL_Q_EVENT_GET, OL_PARAMS(ol_value_text(id), ol_value_absent()),
                       &event_id, &err));
    assert_true(event_id > 0);
}

static void number_without_a_row_is_not_found(void **state)
{
    int64_t number;
    outlog_err err;
    assert_int_equal(ol_store_number(conn_of(state), OL_Q_CONSUMER_GET,
                                     OL_PARAMS(ol_value_text("nobody")), &number, &err),
                     -1);
    assert_int_equal(err.code, OUTLOG_NOT_FOUND);
}

static void long_text_is_read_back(void **state)
{
    enum { BYTES = 300000 };
    struct ol_conn *conn = conn_of(state);
    struct ol_rows rows;
    outlog_err err;
    size_t bytes;
    char *about = malloc(BYTES + 1);
    assert_non_null(about);
    for (size_t i = 0; i < BYTES; i++)
        about[i] = (char)('a' + i % 26);
    about[BYTES] = '\0';
    OK(ol_store_exec(conn, OL_Q_EVENT_TYPE_PUT,
                     OL_PARAMS(ol_value_text("!long"), ol_value_int(1), ol_value_text(NULL),
                               ol_value_text(NULL), ol_value_text(NULL),
                               ol_value_bytes(about, BYTES), ol_value_int(0)),
                     NULL, &err));
    OK(ol_store_query(conn, OL_Q_EVENT_TYPE_LIST, OL_NO_PARAMS, &rows, &err));
    assert_int_equal(ol_rows_next(&rows, &err), 1); // the first by name
    const char *text = ol_rows_text(&rows, 5, &bytes);
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(text, about, BYTES);
    ol_rows_end(&rows);
    free(about);
}

/* More shapes of a statement than a connection keeps prepared. */
static void statements_may_outnumber_the_prepared_ones(void **state)
{
    struct ol_conn *conn = conn_of(state);
    struct ol_rows rows;
    outlog_err err;
    int64_t changed;
    OK(put_consumer(conn, "shape-1", 0, &changed, &err));
    OK(put_consumer(conn, "shape-2", 0, &changed, &err));
    for (int round = 0; round < 2; round++)
        for (int64_t limit = 1; limit <= 300; limit++) {
            int count = 0;
            OK(ol_store_query(conn, OL_Q_CONSUMER_LIST,
                              OL_PARAMS(ol_value_text("shape-"), ol_value_int(limit)), &rows,
                              &err));
            while (ol_rows_next(&rows, &err) > 0)
                count += strncmp(ol_rows_text(&rows, 0, NULL), "shape-", 6) == 0;
            ol_rows_end(&rows);
            assert_int_equal(count, limit < 2 ? 1 : 2);
        }
}

/* --- writes --- */

static void changed_is_the_number_of_rows(void **state)
{
    struct ol_conn *conn = conn_of(state);
    outlog_err err;
    int64_t changed;
    OK(put_consumer(conn, "count", 5, &changed, &err));
    assert_int_equal(changed, 1);
    OK(put_consumer(conn, "count", 9, &changed, &err)); // it exists: on conflict do nothing
    assert_int_equal(changed, 0);
    static const struct {
        const char *name;
        int64_t to, changed;
    } resets[] = {{"count", 6, 1}, {"absent", 6, 0}, {"count", 3, 1}};
    for (size_t i = 0; i < COUNT(resets); i++) {
        OK(ol_store_exec(conn, OL_Q_CONSUMER_RESET,
                         OL_PARAMS(ol_value_text(resets[i].name), ol_value_int(resets[i].to),
                                   ol_value_time(0)),
                         &changed, &err));
        assert_int_equal(changed, resets[i].changed);
        assert_int_equal(read_cursor(conn, resets[i].name), changed ? resets[i].to : -1);
    }
    OK(ol_store_exec(conn, OL_Q_CONSUMER_DELETE, OL_PARAMS(ol_value_text("count")), &changed,
                     &err));
    assert_int_equal(changed, 1);
    OK(ol_store_exec(conn, OL_Q_CONSUMER_DELETE, OL_PARAMS(ol_value_text("count")), &changed,
                     &err));
    assert_int_equal(changed, 0);
}

/* E7: by its name and with the same error on every store; the connection can still be used. */
static void text_that_is_not_utf8_is_refused_by_name(void **state)
{
    struct ol_conn *conn = conn_of(state);
    const struct ol_value wrong[] = {ol_value_text("a\xff"), ol_value_bytes("a\0b", 3),
                                     ol_value_text("\xed\xa0\x80")};
    struct ol_rows rows;
    outlog_err err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ol_store_query(conn, OL_Q_CONSUMER_GET, &wrong[i], &rows, &err), -1);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        assert_string_equal(err.message, "name is not UTF-8");
        assert_string_equal(err.pointer, "/name");
    }
    assert_int_equal(ol_store_query(conn, OL_Q_CONSUMER_CREATE,
                                    OL_PARAMS(ol_value_text("fine"), ol_value_text("{\"\xff\":1}"),
                                              ol_value_int(0), ol_value_time(0)),
                                    &rows, &err),
                     -1);
    assert_string_equal(err.message, "filters is not UTF-8");
    assert_int_equal(read_cursor(conn, "fine"), -1);
}

static void broken_constraint_is_an_invalid_field(void **state)
{
    struct ol_conn *conn = conn_of(state);
    outlog_err err;
    assert_int_equal(put_consumer(conn, "negative", -1, NULL, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    assert_null(strchr(err.message, '\n'));
    assert_int_equal(put_consumer(conn, "", 0, NULL, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    assert_int_equal(put_consumer(conn, "negative", -1, NULL, NULL), -1); // err may be NULL
    assert_int_equal(read_cursor(conn, "negative"), -1);
}

/* --- transactions --- */

static void transaction_is_all_or_nothing(void **state)
{
    struct ol_conn *conn = conn_of(state);
    const struct ol_store *store = conn->store;
    struct ol_conn *other;
    outlog_err err;

    OK(ol_store_open(((struct fixture *)*state)->scratch.url, &other, &err));
    OK(store->begin(conn, &err));
    assert_true(conn->in_transaction);
    OK(put_consumer(conn, "tx", 1, NULL, &err));
    assert_int_equal(read_cursor(conn, "tx"), 1);
    assert_int_equal(read_cursor(other, "tx"), -1); // unseen before the commit
    store->rollback(conn);
    assert_false(conn->in_transaction);
    assert_int_equal(read_cursor(conn, "tx"), -1);

    OK(store->begin(conn, &err));
    OK(put_consumer(conn, "tx", 2, NULL, &err));
    OK(store->commit(conn, &err));
    assert_false(conn->in_transaction);
    assert_int_equal(read_cursor(other, "tx"), 2);
    ol_store_close(other);
}

static void mark_undoes_or_keeps(void **state)
{
    struct ol_conn *conn = conn_of(state);
    const struct ol_store *store = conn->store;
    outlog_err err;

    OK(store->begin(conn, &err));
    OK(put_consumer(conn, "before", 1, NULL, &err));
    OK(store->mark(conn, &err));
    OK(put_consumer(conn, "undone", 1, NULL, &err));
    OK(store->release(conn, false, &err));
    OK(store->mark(conn, &err));
    OK(put_consumer(conn, "kept", 1, NULL, &err));
    OK(store->release(conn, true, &err));
    OK(store->mark(conn, &err)); // an error inside leaves the transaction usable (A2)
    assert_int_equal(put_consumer(conn, "wrong", -1, NULL, &err), -1);
    OK(store->release(conn, false, &err));
    OK(put_consumer(conn, "after", 1, NULL, &err));
    OK(store->commit(conn, &err));
    static const char *const there[] = {"before", "kept", "after"};
    for (size_t i = 0; i < COUNT(there); i++)
        assert_int_equal(read_cursor(conn, there[i]), 1);
    assert_int_equal(read_cursor(conn, "undone"), -1);
}

/* Never "committed" when it was not: PostgreSQL rolls back a transaction in which something failed.
 */
static void commit_of_a_failed_transaction_is_no_success(void **state)
{
    struct ol_conn *conn = conn_of(state);
    outlog_err err;
    OK(conn->store->begin(conn, &err));
    OK(put_consumer(conn, "half", 1, NULL, &err));
    assert_int_equal(put_consumer(conn, "wrong", -1, NULL, &err), -1);
    int committed = conn->store->commit(conn, &err);
    assert_int_equal(read_cursor(conn, "half"), committed == 0 ? 1 : -1);
    assert_int_equal(committed == 0, is_sqlite(conn));
    if (committed < 0)
        assert_int_equal(err.code, OUTLOG_STORE_ERROR);
    OK(put_consumer(conn, "next", 1, NULL, &err)); // and the connection can still be used
}

/* --- schema --- */

static void store_without_schema_is_reported(void **state)
{
    struct ol_temp_store scratch;
    struct ol_conn *conn;
    outlog_err err;
    int version = -1, from, to;

    OK(ol_temp_store_open(((struct fixture *)*state)->scratch.url, &scratch, &err));
    OK(ol_store_open(scratch.url, &conn, &err));
    OK(ol_migrate_version(conn, &version, &err));
    assert_int_equal(version, 0);
    assert_int_equal(ol_migrate_check(conn, &err), -1);
    assert_int_equal(err.code, OUTLOG_NO_SCHEMA);
    assert_int_equal(put_consumer(conn, "x", 1, NULL, &err), -1);
    assert_int_equal(err.code, OUTLOG_NO_SCHEMA);
    assert_non_null(strstr(err.message, "outlog init"));

    OK(ol_migrate(conn, &from, &to, &err));
    assert_int_equal(from, 0);
    assert_int_equal(to, ol_migrate_latest(conn->store));
    OK(ol_migrate(conn, &from, &to, &err));
    assert_int_equal(from, to);
    OK(ol_migrate_check(conn, &err));

    OK(ol_store_exec(conn, OL_Q_SCHEMA_APPLIED,
                     OL_PARAMS(ol_value_int(to + 1), ol_value_text("later")), NULL, &err));
    assert_int_equal(ol_migrate(conn, &from, &to, &err), -1);
    assert_int_equal(err.code, OUTLOG_NEWER_SCHEMA);
    assert_int_equal(ol_migrate_check(conn, &err), -1);
    assert_int_equal(err.code, OUTLOG_NEWER_SCHEMA);
    ol_store_close(conn);
    OK(ol_temp_store_close(&scratch, &err));
}

static void revive_does_nothing_to_a_healthy_connection(void **state)
{
    struct ol_conn *conn = conn_of(state);
    outlog_err err;
    for (int i = 0; i < 3; i++)
        OK(conn->store->reconnect(conn, &err));
    OK(put_consumer(conn, "alive", 1, NULL, &err));
}

/* Rule 5 of the lanes: also for a session that was opened to find the outcome of a commit. */
static void limits_hold_for_the_session_after_a_lost_one(void **state)
{
    struct fixture *fixture = *state;
    struct ol_conn *conn;
    outlog_err err;
    if (is_sqlite(fixture->conn))
        skip();
    OK(ol_store_open(fixture->scratch.url, &conn, &err));
    OK(ol_store_limit_hang(conn, OL_Q_RELAY_SESSION, 4321, &err));
    OK(fixture->conn->store
           ->script(fixture->conn,
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
                    "where datname = current_database() and pid <> pg_backend_pid()",
                    &err));
    OK(conn->store->reconnect(conn, &err));
    OK(conn->store->script(conn,
                           "do $$ begin if current_setting('lock_timeout') <> '4321ms' "
                           "then raise exception 'no limit'; end if; end $$",
                           &err));
    ol_store_close(conn);
}

static void password_is_in_no_message(void **state)
{
    struct ol_conn *conn = conn_of(state);
    outlog_err err;
    assert_null(strstr(conn->name, "@"));
    assert_int_equal(put_consumer(conn, "", 0, NULL, &err), -1);
    assert_non_null(strstr(err.message, conn->name));
}

/* --- the suite, once per store --- */

static const struct CMUnitTest texts[] = {
    cmocka_unit_test(statement_has_only_present_parts),
    cmocka_unit_test(null_is_not_absent_in_a_statement),
    cmocka_unit_test(statement_key_is_that_of_the_text),
    cmocka_unit_test(statement_too_long_is_refused),
    cmocka_unit_test(invalid_url_is_refused),
};

static const struct CMUnitTest suite[] = {
    cmocka_unit_test(rows_have_text_number_and_time),
    cmocka_unit_test(rows_have_null_boolean_and_real),
    cmocka_unit_test(rows_have_uuids),
    cmocka_unit_test(number_without_a_row_is_not_found),
    cmocka_unit_test(long_text_is_read_back),
    cmocka_unit_test(statements_may_outnumber_the_prepared_ones),
    cmocka_unit_test(changed_is_the_number_of_rows),
    cmocka_unit_test(text_that_is_not_utf8_is_refused_by_name),
    cmocka_unit_test(broken_constraint_is_an_invalid_field),
    cmocka_unit_test(transaction_is_all_or_nothing),
    cmocka_unit_test(mark_undoes_or_keeps),
    cmocka_unit_test(commit_of_a_failed_transaction_is_no_success),
    cmocka_unit_test(store_without_schema_is_reported),
    cmocka_unit_test(revive_does_nothing_to_a_healthy_connection),
    cmocka_unit_test(limits_hold_for_the_session_after_a_lost_one),
    cmocka_unit_test(password_is_in_no_message),
};

int main(void)
{
    return run_with_stores("store", texts, COUNT(texts), suite, COUNT(suite));
}
