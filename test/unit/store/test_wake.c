/* test_wake.c: a signal wakes the waiters of its key, and no others. */
#include "store/wake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

static void a_signal_wakes_every_waiter_of_its_key_once(void **state)
{
    struct ol_waiter one, two, other;
    uint64_t key = ol_wake_key("sqlite:/tmp/a"), another = ol_wake_key("sqlite:/tmp/b");
    (void)state;
    assert_int_not_equal(key, another);
    assert_int_not_equal(key, 0);
    assert_int_equal(ol_waiter_open(&one, key), 0);
    assert_int_equal(ol_waiter_open(&two, key), 0);
    assert_int_equal(ol_waiter_open(&other, another), 0);
    ol_wake_signal(key);
    ol_wake_signal(key);
    assert_true(ol_waiter_wait(&one, -1, 0));
    assert_false(ol_waiter_wait(&one, -1, 0)); // both signals were consumed
    assert_true(ol_waiter_wait(&two, -1, 0));
    assert_false(ol_waiter_wait(&other, -1, 0));
    ol_waiter_close(&two);
    ol_wake_signal(key);
    assert_true(ol_waiter_wait(&one, -1, 0));
    ol_waiter_close(&one);
    ol_waiter_close(&one);
    ol_waiter_close(&other);
    ol_wake_signal(key); // no waiters
}

static void another_descriptor_wakes_and_is_not_read(void **state)
{
    struct ol_waiter waiter;
    int fd = eventfd(1, EFD_NONBLOCK);
    (void)state;
    assert_int_equal(ol_waiter_open(&waiter, ol_wake_key("x")), 0);
    assert_true(ol_waiter_wait(&waiter, fd, 0));
    assert_true(ol_waiter_wait(&waiter, fd, 0));
    ol_waiter_close(&waiter);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_wakes_every_waiter_of_its_key_once),
        cmocka_unit_test(another_descriptor_wakes_and_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
