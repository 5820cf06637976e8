/* test_ferry.c: appends of many threads in few transactions, each with its own end.
 *
 * The first part sails with a crossing of its own making, so that who is aboard is known; the
 * second needs PostgreSQL. */
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

static void wait_until(const atomic_int *number, int least)
{
    for (int i = 0; atomic_load(number) < least; i++) {
        if (i > 10000)
            fail_msg("waited 10 s for %d, it is %d", least, atomic_load(number));
        usleep(1000);
    }
}

/* --- crossings of our own making --- */

enum { PASSENGERS = 5 };

static struct {
    pthread_mutex_t open; /* a lone crossing passes here */
    atomic_int begun, lone, shared;
    enum ol_commit_status fate; /* of a shared crossing */
    size_t aboard, heads;
    int64_t nths;
} sea = {.open = PTHREAD_MUTEX_INITIALIZER};

static struct ol_commit_result cross(struct ol_conn *captain, struct ol_append_batch *all,
                                     bool is_shared, outlog_err *err)
{
    struct ol_commit_result end = {.fate = OL_COMMIT_DONE};
    (void)captain;
    atomic_fetch_add(&sea.begun, 1);
    if (!is_shared) {
        assert_non_null(err);
        pthread_mutex_lock(&sea.open);
        pthread_mutex_unlock(&sea.open);
        atomic_fetch_add(&sea.lone, 1);
        return end;
    }
    sea.aboard = all->count;
    sea.heads = all->head_count;
    for (size_t i = 0; i < all->count; i++)
        sea.nths += all->events[i].nth;
    end = (struct ol_commit_result){sea.fate, {.pid = 42}};
    atomic_fetch_add(&sea.shared, 1);
    return end;
}

struct traveller {
    struct ol_group_commit *ferry;
    struct outlog_new_event event;
    struct ol_append_batch_event row;
    struct ol_append_batch write;
    struct ol_conn conn;
    struct ol_commit_result end;
    atomic_int *arrived;
    pthread_t thread;
};

static void *travel(void *argument)
{
    struct traveller *traveller = argument;
    outlog_err err;
    traveller->row = (struct ol_append_batch_event){.said = &traveller->event};
    traveller->write =
        (struct ol_append_batch){.events = &traveller->row, .count = 1, .is_alone = true};
    traveller->end =
        ol_group_commit_write(traveller->ferry, &traveller->conn, &traveller->write, cross, &err);
    atomic_fetch_add(traveller->arrived, 1);
    return NULL;
}

static void set_out(struct traveller *all, size_t from, size_t count, struct ol_group_commit *ferry,
                    atomic_int *arrived)
{
    static const char *const orders[] = {"o-1", "o-2", "o-1", "o-3", "o-1", "o-2", "o-4"};
    for (size_t i = from; i < from + count; i++) {
        all[i] = (struct traveller){.ferry = ferry, .arrived = arrived};
        all[i].event = (struct outlog_new_event){.org_id = "acme",
                                                 .aggregate_type = "order",
                                                 .aggregate_id = orders[i]};
        pthread_create(&all[i].thread, NULL, travel, &all[i]);
    }
}

/* Two cross alone and are held; the others gather. What became of those? */
static void gather(struct traveller *all, enum ol_commit_status fate)
{
    struct ol_group_commit *ferry = ol_group_commit_join("here");
    atomic_int arrived = 0;

    sea.fate = fate;
    sea.aboard = sea.heads = 0;
    sea.nths = 0;
    atomic_store(&sea.begun, 0);
    atomic_store(&sea.shared, 0);
    pthread_mutex_lock(&sea.open);
    set_out(all, 0, 1, ferry, &arrived);
    wait_until(&sea.begun, 1);
    set_out(all, 1, 1, ferry, &arrived);
    wait_until(&sea.begun, 2);
    set_out(all, 2, PASSENGERS, ferry, &arrived);
    // Held so long that the others sail without waiting for these two (F2).
    wait_until(&arrived, PASSENGERS);
    assert_int_equal(atomic_load(&arrived), PASSENGERS);
    pthread_mutex_unlock(&sea.open);
    for (size_t i = 0; i < PASSENGERS + 2; i++)
        pthread_join(all[i].thread, NULL);
    ol_group_commit_leave(ferry);
    assert_int_equal(all[0].end.fate, OL_COMMIT_DONE);
    assert_int_equal(all[1].end.fate, OL_COMMIT_DONE);
}

static void f2_nobody_waits_for_a_crossing_that_is_held(void **state)
{
    struct traveller all[PASSENGERS + 2];
    (void)state;
    gather(all, OL_COMMIT_DONE);
    for (size_t i = 2; i < PASSENGERS + 2; i++)
        assert_int_equal(all[i].end.fate, OL_COMMIT_DONE);
}

static void shared_crossing_numbers_each_aggregate_anew(void **state)
{
    struct traveller all[PASSENGERS + 2];
    (void)state;
    for (int i = 0; i < 20; i++) { // until all five went together: o-1 twice, o-3, o-2, o-4
        gather(all, OL_COMMIT_DONE);
        if (sea.aboard == PASSENGERS)
            break;
    }
    assert_int_equal(sea.aboard, PASSENGERS);
    assert_int_equal(sea.heads, 4);
    assert_int_equal(sea.nths, 6);
}

static void f1_refused_crossing_sends_each_alone(void **state)
{
    struct traveller all[PASSENGERS + 2];
    (void)state;
    for (int i = 0; i < 20; i++) {
        gather(all, OL_COMMIT_ALONE);
        if (sea.aboard == PASSENGERS)
            break;
    }
    for (size_t i = 2; i < PASSENGERS + 2; i++)
        assert_int_equal(all[i].end.fate, OL_COMMIT_ALONE);
}

static void f3_unknown_is_unknown_for_all_aboard(void **state)
{
    struct traveller all[PASSENGERS + 2];
    (void)state;
    for (int i = 0; i < 20; i++) {
        gather(all, OL_COMMIT_UNKNOWN);
        if (sea.aboard == PASSENGERS)
            break;
    }
    for (size_t i = 2; i < PASSENGERS + 2; i++) {
        assert_int_equal(all[i].end.fate, OL_COMMIT_UNKNOWN);
        assert_int_equal(all[i].end.in_doubt.pid, 42);
    }
}

/* --- on PostgreSQL --- */

enum { WRITERS = 8, ROUNDS = 60 };

static struct ol_temp_store scratch;

struct writer {
    int number;
    const char *aggregate_id; /* NULL: one of its own */
    const int64_t *expected_seq;
    int rounds;
    int stored, refused, unknown, failed, resolved;
    char text[32];
    pthread_t thread;
};

static struct outlog_new_event event_of(struct writer *writer)
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

static void settle_doubt(outlog *log, const char *id, struct writer *writer)
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
    struct outlog_new_event event = event_of(writer);
    struct outlog_appended out;
    outlog_err err;
    outlog *log = NULL;

    while (outlog_open(scratch.url, &log, &err) < 0) // it may be killed at birth
        if (err.code != OUTLOG_UNAVAILABLE)
            abort();
    for (int i = 0; i < writer->rounds; i++) {
        if (outlog_append_now(log, &event, 1, &out, &err) == 0)
            writer->stored++;
        else if (err.code == OUTLOG_OUTCOME_UNKNOWN)
            settle_doubt(log, out.id, writer);
        else if (err.code == OUTLOG_SEQUENCE_CONFLICT && err.index == 0)
            writer->refused++;
        else
            writer->failed++;
    }
    outlog_close(log);
    return NULL;
}

static void start(struct writer *writers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pthread_create(&writers[i].thread, NULL, append_all, &writers[i]);
}

static void join(struct writer *writers, size_t count)
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
    OK(outlog_open(scratch.url, &log, &err));
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
    start(writers, WRITERS);
    join(writers, WRITERS);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(writers[i].stored, ROUNDS);
    assert_int_equal(count_events("hot"), WRITERS * ROUNDS);
}

static void f1_neighbours_of_a_conflict_are_stored(void **state)
{
    static const int64_t wrong = 1000000;
    struct writer writers[WRITERS];
    (void)state;
    for (int i = 0; i < WRITERS; i++)
        writers[i] = (struct writer){.number = 100 + i, .rounds = ROUNDS};
    writers[0].expected_seq = &wrong;
    start(writers, WRITERS);
    join(writers, WRITERS);
    assert_int_equal(writers[0].refused, ROUNDS);
    for (int i = 1; i < WRITERS; i++) {
        assert_int_equal(writers[i].stored, ROUNDS);
        assert_int_equal(count_events(writers[i].text), ROUNDS);
    }
}

/* Somebody's transaction holds an aggregate: those who want it wait, and nobody else. */
static void f2_neighbours_of_a_held_aggregate_go_on(void **state)
{
    struct writer held = {.number = 200, .aggregate_id = "held", .rounds = 1};
    struct writer writers[WRITERS], waiting[2] = {held, held};
    struct outlog_new_event event = event_of(&held);
    struct outlog_appended out;
    outlog *log;
    outlog_tx *tx;
    outlog_err err;
    (void)state;

    OK(outlog_open(scratch.url, &log, &err));
    OK(outlog_begin(log, &tx, &err));
    OK(outlog_append(tx, &event, &out, &err));
    start(waiting, 2);
    for (int i = 0; i < WRITERS; i++)
        writers[i] = (struct writer){.number = 210 + i, .rounds = ROUNDS};
    start(writers, WRITERS);
    join(writers, WRITERS); // while `held` is held
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(writers[i].stored, ROUNDS);
    OK(outlog_commit(tx, &err));
    join(waiting, 2);
    assert_int_equal(waiting[0].stored + waiting[1].stored, 2);
    assert_int_equal(count_events("held"), 3);
    outlog_close(log);
}

/* The server's processes are killed again and again: what was acknowledged is there, what failed is
 * not, and what is unknown can be resolved by everyone who was aboard. */
static void f3_killed_servers_leave_no_doubt_unresolved(void **state)
{
    struct writer writers[WRITERS];
    struct ol_conn *conn;
    outlog_err err;
    int unknown = 0;
    (void)state;

    OK(ol_store_open(scratch.url, &conn, &err));
    for (int i = 0; i < WRITERS; i++)
        writers[i] = (struct writer){.number = 300 + i, .rounds = 4 * ROUNDS};
    start(writers, WRITERS);
    for (int i = 0; i < 12; i++) {
        usleep(20000);
        OK(conn->store->script(conn,
                               "select pg_terminate_backend(pid) from pg_stat_activity where "
                               "datname = current_database() and pid <> pg_backend_pid()",
                               &err));
    }
    join(writers, WRITERS);
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(count_events(writers[i].text), writers[i].stored + writers[i].resolved);
        assert_int_equal(writers[i].refused, 0);
        unknown += writers[i].unknown;
    }
    print_message("# %d unknown\n", unknown);
    ol_store_close(conn);
}

static void open_scratch(const char *beside)
{
    outlog *log;
    outlog_err err = {0};
    if (ol_temp_store_open(beside, &scratch, &err) < 0 ||
        outlog_open(scratch.url, &log, &err) < 0 || outlog_init(log, NULL, NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    outlog_close(log);
}

int main(void)
{
    static const struct CMUnitTest alone[] = {
        cmocka_unit_test(f2_nobody_waits_for_a_crossing_that_is_held),
        cmocka_unit_test(shared_crossing_numbers_each_aggregate_anew),
        cmocka_unit_test(f1_refused_crossing_sends_each_alone),
        cmocka_unit_test(f3_unknown_is_unknown_for_all_aboard),
    };
    static const struct CMUnitTest on_postgres[] = {
        cmocka_unit_test(e4_threads_on_one_aggregate_leave_no_gap),
        cmocka_unit_test(f1_neighbours_of_a_conflict_are_stored),
        cmocka_unit_test(f2_neighbours_of_a_held_aggregate_go_on),
        cmocka_unit_test(f3_killed_servers_leave_no_doubt_unresolved),
    };
    struct CMUnitTest tests[COUNT(alone) + COUNT(on_postgres)];
    const char *postgres = getenv("OUTLOG_TEST_POSTGRES");
    size_t count = COUNT(alone);
    outlog_err err;

    memcpy(tests, alone, sizeof alone);
    if (postgres) {
        open_scratch(postgres);
        memcpy(tests + count, on_postgres, sizeof on_postgres);
        count += COUNT(on_postgres);
    }
    int failed = _cmocka_run_group_tests("ferry", tests, count, NULL, NULL);
    if (postgres)
        ol_temp_store_close(&scratch, &err);
    return failed;
}
