/* Limits of a destination (L5), with the clock set by hand. */
#include "relay/target/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000)

static void l5_concurrency_bounds_what_is_in_flight(void **state)
{
    struct ol_limits l;
    (void)state;
    ol_limits_init(&l, 2, 0, 0, 0);
    assert_true(ol_limits_take(&l, 1, 0));
    assert_true(ol_limits_take(&l, 1, 0));
    assert_false(ol_limits_take(&l, 1, 0));
    assert_int_equal(ol_limits_ready_at(&l, 1, 0), INT64_MAX);
    ol_limits_give(&l, 1);
    assert_true(ol_limits_take(&l, 1, 0));
}

static void l5_budget_bounds_bytes_but_never_stops_a_large_one(void **state)
{
    struct ol_limits l;
    (void)state;
    ol_limits_init(&l, 0, 0, 0, 100);
    assert_true(ol_limits_take(&l, 60, 0));
    assert_false(ol_limits_take(&l, 41, 0));
    assert_true(ol_limits_take(&l, 40, 0));
    ol_limits_give(&l, 60);
    assert_false(ol_limits_take(&l, 1000, 0));
    ol_limits_give(&l, 40);
    assert_true(ol_limits_take(&l, 1000, 0)); // alone
    assert_false(ol_limits_take(&l, 1, 0));
    ol_limits_give(&l, 1000);
    assert_int_equal(l.in_flight_bytes, 0);
}

static void l5_rate_is_kept_over_time(void **state)
{
    struct ol_limits l;
    int sent = 0;
    (void)state;
    ol_limits_init(&l, 0, 100, SECOND, 0);
    for (int64_t now = 0; now < 10 * SECOND; now += 1000)
        while (ol_limits_take(&l, 1, now))
            sent++;
    assert_true(sent >= 1000 && sent <= 1000 + 25);
}

static void l5_idle_time_is_not_saved_up(void **state)
{
    struct ol_limits l;
    int sent = 0;
    (void)state;
    ol_limits_init(&l, 0, 100, SECOND, 0);
    assert_true(ol_limits_take(&l, 1, 0));
    while (ol_limits_take(&l, 1, 3600 * SECOND))
        sent++;
    assert_true(sent >= 1 && sent <= 25); // a quarter of a second's worth, not an hour's
}

static void l5_slow_rate_tells_when_to_come_back(void **state)
{
    struct ol_limits l;
    (void)state;
    ol_limits_init(&l, 0, 6, 60 * SECOND, 0);
    assert_true(ol_limits_take(&l, 1, 5));
    assert_false(ol_limits_take(&l, 1, 5));
    assert_int_equal(ol_limits_ready_at(&l, 1, 5), 10 * SECOND + 5);
    assert_false(ol_limits_take(&l, 1, 10 * SECOND + 4));
    assert_true(ol_limits_take(&l, 1, 10 * SECOND + 5));
}

static void l5_no_limits_mean_no_limits(void **state)
{
    struct ol_limits l;
    (void)state;
    ol_limits_init(&l, 0, 0, 0, 0);
    for (int i = 0; i < 100000; i++)
        assert_true(ol_limits_take(&l, 1 << 20, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(l5_concurrency_bounds_what_is_in_flight),
        cmocka_unit_test(l5_budget_bounds_bytes_but_never_stops_a_large_one),
        cmocka_unit_test(l5_rate_is_kept_over_time),
        cmocka_unit_test(l5_idle_time_is_not_saved_up),
        cmocka_unit_test(l5_slow_rate_tells_when_to_come_back),
        cmocka_unit_test(l5_no_limits_mean_no_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
