/* test_turnstile.c: first come, first served; who waits too long steps out of the queue. */
#include "store/sqlite/writer_queue.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEY = 7, LONG_US = 30000000, THREADS = 5 };

static atomic_int standing, served[THREADS], place;

static void *stand(void *argument)
{
    int number = *(int *)argument;
    atomic_fetch_add(&standing, 1);
    if (ol_writer_queue_lock(KEY, LONG_US)) {
        atomic_store(&served[number], atomic_fetch_add(&place, 1) + 1);
        ol_writer_queue_unlock(KEY);
    }
    return NULL;
}

/* They are let in one by one: nobody sees a thread lie down, so a moment has to do; who comes too
 * late stands further back, and then only one order is possible all the same. */
static void in_the_order_they_came(void **state)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    (void)state;
    assert_true(ol_writer_queue_lock(KEY, 0));
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, stand, &numbers[i]);
        while (atomic_load(&standing) <= i)
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

static void who_waits_too_long_goes(void **state)
{
    (void)state;
    assert_true(ol_writer_queue_lock(KEY, 0));
    assert_false(ol_writer_queue_lock(KEY, 1000));
    ol_writer_queue_unlock(KEY);
    assert_true(ol_writer_queue_lock(KEY, 0)); // nobody is left in the queue
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_the_order_they_came),
                                       cmocka_unit_test(who_waits_too_long_goes),
                                       cmocka_unit_test(databases_do_not_wait_for_each_other)};
    return cmocka_run_group_tests_name("turnstile", tests, NULL, NULL);
}
