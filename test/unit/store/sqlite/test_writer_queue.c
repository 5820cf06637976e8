/* test_writer_queue.c: first come, first served; a writer that waits too long leaves the queue. */
#include "store/sqlite/writer_queue.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEY = 7, LONG_US = 30000000, THREADS = 5 };

static atomic_int started, served[THREADS], served_count;

static void *run_writer(void *argument)
{
    int number = *(int *)argument;
    atomic_fetch_add(&started, 1);
    if (ol_writer_queue_lock(KEY, LONG_US)) {
        atomic_store(&served[number], atomic_fetch_add(&served_count, 1) + 1);
        ol_writer_queue_unlock(KEY);
    }
    return NULL;
}

/* The threads start one by one. A thread that sleeps in the queue cannot be seen, so the test gives
 * each a moment to get there. */
static void writers_are_served_in_order_of_arrival(void **state)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    (void)state;
    assert_true(ol_writer_queue_lock(KEY, 0));
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, run_writer, &numbers[i]);
        while (atomic_load(&started) <= i)
            usleep(1000);
        usleep(50000);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(atomic_load(&served[i]), 0);
    ol_writer_queue_unlock(KEY);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(atomic_load(&served[i]), i + 1);
}

static void a_writer_leaves_after_its_timeout(void **state)
{
    (void)state;
    assert_true(ol_writer_queue_lock(KEY, 0));
    assert_false(ol_writer_queue_lock(KEY, 1000));
    ol_writer_queue_unlock(KEY);
    assert_true(ol_writer_queue_lock(KEY, 0)); // the queue is empty
    ol_writer_queue_unlock(KEY);
}

static void databases_do_not_wait_for_each_other(void **state)
{
    (void)state;
    assert_true(ol_writer_queue_lock(KEY, 0));
    assert_true(ol_writer_queue_lock(KEY + 1, 0));
    assert_true(ol_writer_queue_lock(0, 0)); // no key, no queue
    assert_true(ol_writer_queue_lock(0, 0));
    ol_writer_queue_unlock(KEY + 1);
    ol_writer_queue_unlock(KEY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(writers_are_served_in_order_of_arrival),
                                       cmocka_unit_test(a_writer_leaves_after_its_timeout),
                                       cmocka_unit_test(databases_do_not_wait_for_each_other)};
    return cmocka_run_group_tests_name("writer_queue", tests, NULL, NULL);
}
