/* test_group_commit.c: appends of many threads in few transactions, each with its own outcome.
 *
 * The first part has a writer of its own, so that the contents of a batch are known; the second
 * needs PostgreSQL. */
#include "log/log.h"
#include "store/migrate.h"
#include "store/postgres/group_commit.h"
#include "store/temp_store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define OK(call) assert_true_or_say((call) >= 0, &err)

static void assert_true_or_say(bool ok, const outlog_err *err)
{
    if (!ok)
        fail_msg("%s [%s]", err->message, outlog_code_name(err->code));
}

static void wait_until(const atomic_int *number, int min)
{
    for (int i = 0; atomic_load(number) < min; i++) {
        if (i > 10000)
            fail_msg("waited 10 s for %d, it is %d", min, atomic_load(number));
        usleep(1000);
    }
}

/* --- with a writer of our own --- */

enum { APPENDS = 5 };

static struct {
    pthread_mutex_t open; /* a lone append waits for it */
    atomic_int begun, lone, shared;
    enum ol_commit_status status; /* of a shared batch */
    size_t events, heads;
    int64_t nths;
} fake = {.open = PTHREAD_MUTEX_INITIALIZER};

static struct ol_commit_result write_fake(struct ol_conn *conn, struct ol_append_batch *all,
                                          bool is_shared, outlog_err *err)
{
    struct ol_commit_result result = {.status = OL_COMMIT_DONE};
    (void)conn;
    atomic_fetch_add(&fake.begun, 1);
    if (!is_shared) {
        assert_non_null(err);
        pthread_mutex_lock(&fake.open);
        pthread_mutex_unlock(&fake.open);
        atomic_fetch_add(&fake.lone, 1);
        return result;
    }
    fake.events = all->count;
    fake.heads = all->head_count;
    for (size_t i = 0; i < all->count; i++)
        fake.nths += all->events[i].nth;
    result = (struct ol_commit_result){fake.status, {.pid = 42}};
    atomic_fetch_add(&fake.shared, 1);
    return result;
}

struct append {
    struct ol_group_commit *group;
    struct outlog_new_event event;
    struct ol_append_batch_event row;
    struct ol_append_batch write;
    struct ol_conn conn;
    struct ol_commit_result result;
    atomic_int *finished;
    pthread_t thread;
};

static void *run_append(void *argument)
{
    struct append *append = argument;
    outlog_err err;
    append->row = (struct ol_append_batch_event){.said = &append->event};
    append->write = (struct ol_append_batch){.events = &append->row, .count = 1, .is_alone = true};
    append->result =
        ol_group_commit_write(append->group, &append->conn, &append->write, write_fake, &err);
    atomic_fetch_add(append->finished, 1);
    return NULL;
}

static void start_appends(struct append *all, size_t from, size_t count,
                          struct ol_group_commit *group, atomic_int *finished)
{
    static const char *const orders[] = {"o-1", "o-2", "o-1", "o-3", "o-1", "o-2", "o-4"};
    for (size_t i = from; i < from + count; i++) {
        all[i] = (struct append){.group = group, .finished = finished};
        all[i].event = (struct outlog_new_event){.org_id = "acme",
                                                 .aggregate_type = "order",
                                                 .aggregate_id = orders[i]};
        pthread_create(&all[i].thread, NULL, run_append, &all[i]);
    }
}

/* Two appends are written alone and held; the others queue behind them and share a batch. */
static void run_shared_batch(struct append *all, enum ol_commit_status status)
{
    struct ol_group_commit *group = ol_group_commit_join("here");
    atomic_int finished = 0;

    fake.status = status;
    fake.events = fake.heads = 0;
    fake.nths = 0;
    atomic_store(&fake.begun, 0);
    atomic_store(&fake.shared, 0);
    pthread_mutex_lock(&fake.open);
    start_appends(all, 0, 1, group, &finished);
    wait_until(&fake.begun, 1);
    start_appends(all, 1, 1, group, &finished);
    wait_until(&fake.begun, 2);
    start_appends(all, 2, APPENDS, group, &finished);
    // These two are held so long that the others no longer wait for them (F2).
    wait_until(&finished, APPENDS);
    assert_int_equal(atomic_load(&finished), APPENDS);
    pthread_mutex_unlock(&fake.open);
    for (size_t i = 0; i < APPENDS + 2; i++)
        pthread_join(all[i].thread, NULL);
    ol_group_commit_leave(group);
    assert_int_equal(all[0].result.status, OL_COMMIT_DONE);
    assert_int_equal(all[1].result.status, OL_COMMIT_DONE);
}

static void f2_appends_do_not_wait_for_a_blocked_batch(void **state)
{
    struct append all[APPENDS + 2];
    (void)state;
    run_shared_batch(all, OL_COMMIT_DONE);
    for (size_t i = 2; i < APPENDS + 2; i++)
        assert_int_equal(all[i].result.status, OL_COMMIT_DONE);
}

static void shared_batch_numbers_each_aggregate(void **state)
{
    struct append all[APPENDS + 2];
    (void)state;
    for (int i = 0; i < 20; i++) { // until all five share a batch: o-1 twice, o-3, o-2, o-4
        run_shared_batch(all, OL_COMMIT_DONE);
        if (fake.events == APPENDS)
            break;
    }
    assert_int_equal(fake.events, APPENDS);
    assert_int_equal(fake.heads, 4);
    assert_int_equal(fake.nths, 6);
}

static void f1_appends_of_a_refused_batch_are_sent_alone(void **state)
{
    struct append all[APPENDS + 2];
    (void)state;
    for (int i = 0; i < 20; i++) {
        run_shared_batch(all, OL_COMMIT_ALONE);
        if (fake.events == APPENDS)
            break;
    }
    for (size_t i = 2; i < APPENDS + 2; i++)
        assert_int_equal(all[i].result.status, OL_COMMIT_ALONE);
}

static void f3_unknown_is_unknown_for_the_whole_batch(void **state)
{
    struct append all[APPENDS + 2];
    (void)state;
    for (int i = 0; i < 20; i++) {
        run_shared_batch(all, OL_COMMIT_UNKNOWN);
        if (fake.events == APPENDS)
            break;
    }
    for (size_t i = 2; i < APPENDS + 2; i++) {
        assert_int_equal(all[i].result.status, OL_COMMIT_UNKNOWN);
        assert_int_equal(all[i].result.in_doubt.pid, 42);
    }
}

/* --- on PostgreSQL --- */

enum { WRITERS = 8, ROUNDS = 60 };

static struct ol_temp_store store;

struct writer {
    int number;
    const char *aggregate_id; /* NULL: one of its own */
    const int64_t *expected_seq;
    int rounds;
    int stored, refused, unknown, failed, resolved;
    char text[32];
    pthread_t thread;
};

static struct outlog_new_event make_event(struct writer *writer)
{
    snprintf(writer->text, sizeof writer->text, "w-%d", writer->number);
    return (struct outlog_new_event){.org_id = "acme",
                                     .aggregate_type = "order",
                                     .aggregate_id = writer->aggregate_id ? writer->aggregate_id
                                                                          : writer->text,
                                     .event_type = "order.created",
                                     .payload = "{}",
                                     .expected_seq = writer->expected_seq};
}

static void resolve_unknown(outlog *log, const char *id, struct writer *writer)
{
    outlog_err err;
    bool stored = false;
    for (int i = 0; outlog_resolve(log, id, &stored, NULL, &err) < 0; i++) {
        if (i > 1000) {
            fprintf(stderr, "%s\n", err.message);
            abort();
        }
        usleep(10000);
    }
    writer->unknown++;
    writer->resolved += stored;
}

static void *append_all(void *argument)
{
    struct writer *writer = argument;
    struct outlog_new_event event = make_event(writer);
    struct outlog_appended out;
    outlog_err err;
    outlog *log = NULL;

    while (outlog_open(store.url, &log, &err) < 0) // the connection may be killed at once
        if (err.code != OUTLOG_UNAVAILABLE)
            abort();
    for (int i = 0; i < writer->rounds; i++) {
        if (outlog_append_now(log, &event, 1, &out, &err) == 0)
            writer->stored++;
        else if (err.code == OUTLOG_OUTCOME_UNKNOWN)
            resolve_unknown(log, out.id, writer);
        else if (err.code == OUTLOG_SEQUENCE_CONFLICT && err.index == 0)
            writer->refused++;
        else
            writer->failed++;
    }
    outlog_close(log);
    return NULL;
}

static void start_writers(struct writer *writers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pthread_create(&writers[i].thread, NULL, append_all, &writers[i]);
}

static void join_writers(struct writer *writers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pthread_join(writers[i].thread, NULL);
}

/* How many events there are, and that every aggregate counts 1, 2, 3 …. */
static int64_t count_events(const char *aggregate_id)
{
    struct outlog_page page = {0};
    outlog *log;
    outlog_err err;
    int64_t count = 0;
    OK(outlog_open(store.url, &log, &err));
    OK(outlog_read(log,
                   &(struct outlog_filter){.aggregate_type = "order", .aggregate_id = aggregate_id},
                   0, 10000, &page, &err));
    for (size_t i = 0; i < page.count; i++)
        assert_int_equal(page.events[i].aggregate_seq, ++count);
    outlog_page_clear(&page);
    outlog_close(log);
    return count;
}

static void e4_threads_on_one_aggregate_leave_no_gap(void **state)
{
    struct writer writers[WRITERS];
    (void)state;
    for (int i = 0; i < WRITERS; i++)
        writers[i] = (struct writer){.number = i, .aggregate_id = "hot", .rounds = ROUNDS};
    start_writers(writers, WRITERS);
    join_writers(writers, WRITERS);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(writers[i].stored, ROUNDS);
    assert_int_equal(count_events("hot"), WRITERS * ROUNDS);
}

static void f1_appends_beside_a_conflict_are_stored(void **state)
{
    static const int64_t wrong = 1000000;
    struct writer writers[WRITERS];
    (void)state;
    for (int i = 0; i < WRITERS; i++)
        writers[i] = (struct writer){.number = 100 + i, .rounds = ROUNDS};
    writers[0].expected_seq = &wrong;
    start_writers(writers, WRITERS);
    join_writers(writers, WRITERS);
    assert_int_equal(writers[0].refused, ROUNDS);
    for (int i = 1; i < WRITERS; i++) {
        assert_int_equal(writers[i].stored, ROUNDS);
        assert_int_equal(count_events(writers[i].text), ROUNDS);
    }
}

/* A transaction holds a lock on an aggregate: appends to it wait, and no others. */
static void f2_a_locked_aggregate_does_not_block_others(void **state)
{
    struct writer held = {.number = 200, .aggregate_id = "held", .rounds = 1};
    struct writer writers[WRITERS], waiting[2] = {held, held};
    struct outlog_new_event event = make_event(&held);
    struct outlog_appended out;
    outlog *log;
    outlog_tx *tx;
    outlog_err err;
    (void)state;

    OK(outlog_open(store.url, &log, &err));
    OK(outlog_begin(log, &tx, &err));
    OK(outlog_append(tx, &event, &out, &err));
    start_writers(waiting, 2);
    for (int i = 0; i < WRITERS; i++)
        writers[i] = (struct writer){.number = 210 + i, .rounds = ROUNDS};
    start_writers(writers, WRITERS);
    join_writers(writers, WRITERS); // while `held` is locked
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(writers[i].stored, ROUNDS);
    OK(outlog_commit(tx, &err));
    join_writers(waiting, 2);
    assert_int_equal(waiting[0].stored + waiting[1].stored, 2);
    assert_int_equal(count_events("held"), 3);
    outlog_close(log);
}

/* Backends are killed again and again: acknowledged appends are stored, failed ones are not, and
 * unknown ones can be resolved by each thread of the batch. */
static void f3_unknown_outcomes_of_killed_backends_are_resolved(void **state)
{
    struct writer writers[WRITERS];
    struct ol_conn *conn;
    outlog_err err;
    int unknown = 0;
    (void)state;

    OK(ol_store_open(store.url, &conn, &err));
    for (int i = 0; i < WRITERS; i++)
        writers[i] = (struct writer){.number = 300 + i, .rounds = 4 * ROUNDS};
    start_writers(writers, WRITERS);
    for (int i = 0; i < 12; i++) {
        usleep(20000);
        OK(conn->store->script(conn,
                               "select pg_terminate_backend(pid) from pg_stat_activity where "
                               "datname = current_database() and pid <> pg_backend_pid()",
                               &err));
    }
    join_writers(writers, WRITERS);
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(count_events(writers[i].text), writers[i].stored + writers[i].resolved);
        assert_int_equal(writers[i].refused, 0);
        unknown += writers[i].unknown;
    }
    print_message("# %d unknown\n", unknown);
    ol_store_close(conn);
}

static void open_store(const char *beside)
{
    outlog *log;
    outlog_err err = {0};
    if (ol_temp_store_open(beside, &store, &err) < 0 || outlog_open(store.url, &log, &err) < 0 ||
        outlog_init(log, NULL, NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    outlog_close(log);
}

int main(void)
{
    static const struct CMUnitTest alone[] = {
        cmocka_unit_test(f2_appends_do_not_wait_for_a_blocked_batch),
        cmocka_unit_test(shared_batch_numbers_each_aggregate),
        cmocka_unit_test(f1_appends_of_a_refused_batch_are_sent_alone),
        cmocka_unit_test(f3_unknown_is_unknown_for_the_whole_batch),
    };
    static const struct CMUnitTest on_postgres[] = {
        cmocka_unit_test(e4_threads_on_one_aggregate_leave_no_gap),
        cmocka_unit_test(f1_appends_beside_a_conflict_are_stored),
        cmocka_unit_test(f2_a_locked_aggregate_does_not_block_others),
        cmocka_unit_test(f3_unknown_outcomes_of_killed_backends_are_resolved),
    };
    struct CMUnitTest tests[COUNT(alone) + COUNT(on_postgres)];
    const char *postgres = getenv("OUTLOG_TEST_POSTGRES");
    size_t count = COUNT(alone);
    outlog_err err;

    memcpy(tests, alone, sizeof alone);
    if (postgres) {
        open_store(postgres);
        memcpy(tests + count, on_postgres, sizeof on_postgres);
        count += COUNT(on_postgres);
    }
    int failed = _cmocka_run_group_tests("group_commit", tests, count, NULL, NULL);
    if (postgres)
        ol_temp_store_close(&store, &err);
    return failed;
}
