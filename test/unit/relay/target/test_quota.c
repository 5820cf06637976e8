/* Limits that the threads of one relay share (L5), with the clock set by hand. */
#include "relay/target/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>

#define SECOND INT64_C(1000000)
#define STORE 7

static struct ol_quota_member join(const char *name, int concurrency)
{
    struct ol_quota_member member = {0};
    assert_true(
        ol_quota_join(&member, STORE, name, &(struct ol_settings){.concurrency = concurrency}));
    return member;
}

static int take_all(struct ol_quota_member *member, int64_t now)
{
    int count = 0;
    while (count < 100 && ol_quota_take(member, 1, now))
        count++;
    return count;
}

static void give_all(struct ol_quota_member *member, int count)
{
    while (count-- > 0)
        ol_quota_give(member, 1);
}

static void l5_one_place_is_one_for_all_threads(void **state)
{
    struct ol_quota_member a = join("d", 1), b = join("d", 1);
    int a_count = 0, b_count = 0;
    (void)state;
    for (int64_t now = 0; now < 10 * SECOND; now += 10000) { // both want it all the time
        bool has_a = ol_quota_take(&a, 1, now), has_b = ol_quota_take(&b, 1, now);
        assert_false(has_a && has_b);
        a_count += has_a;
        b_count += has_b;
        give_all(&a, has_a);
        give_all(&b, has_b);
    }
    assert_int_equal(a_count + b_count, 1000); // and none is lost
    assert_in_range(a_count, 400, 600);
    ol_quota_leave(&a);
    ol_quota_leave(&b);
}

static void l5_who_is_alone_has_all_places(void **state)
{
    struct ol_quota_member a = join("d", 5), b = join("d", 5);
    int64_t now = 100 * SECOND, interval;
    (void)state;
    assert_int_equal(take_all(&a, now), 5);
    assert_int_equal(ol_quota_places(&b, now, &interval), 0);
    give_all(&a, 5);
    int shared = take_all(&a, now + 1); // b has asked, and gets its share
    assert_in_range(shared, 2, 3);
    assert_int_equal(take_all(&b, now + 1), 5 - shared);
    give_all(&a, shared);
    give_all(&b, 5 - shared);
    assert_int_equal(take_all(&a, now + SECOND), 5); // b has long stopped asking
    give_all(&a, 5);
    ol_quota_leave(&a);
    ol_quota_leave(&b);
}

static void l5_each_destination_has_its_own(void **state)
{
    struct ol_quota_member a = join("one", 1), b = join("other", 1);
    (void)state;
    assert_true(ol_quota_take(&a, 1, 0) && ol_quota_take(&b, 1, 0));
    give_all(&a, 1);
    give_all(&b, 1);
    ol_quota_leave(&a);
    ol_quota_leave(&b);
}

static void l5_changed_settings_keep_the_count(void **state)
{
    struct ol_quota_member old = join("d", 5);
    (void)state;
    assert_int_equal(take_all(&old, SECOND), 5);
    struct ol_quota_member changed = join("d", 6); // the same thread, opened again
    assert_int_equal(take_all(&changed, SECOND + 1), 1);
    give_all(&old, 5);
    ol_quota_leave(&old);
    assert_int_equal(take_all(&changed, SECOND + 2), 5);
    give_all(&changed, 6);
    ol_quota_leave(&changed);
}

static void l5_the_rate_is_divided_among_those_who_want_it(void **state)
{
    struct ol_settings settings = {.rate_count = 10, .rate_period_us = SECOND};
    struct ol_quota_member a = {0}, b = {0};
    int64_t interval;
    int count = 0;
    (void)state;
    assert_true(ol_quota_join(&a, STORE, "d", &settings) &&
                ol_quota_join(&b, STORE, "d", &settings));
    assert_int_equal(ol_quota_places(&a, SECOND, &interval), INT_MAX);
    assert_int_equal(interval, SECOND / 10);
    ol_quota_places(&b, SECOND, &interval);
    assert_int_equal(interval, SECOND / 5);
    for (int64_t now = SECOND; now < 11 * SECOND; now += 1000)
        for (int i = 0; i < 2; i++)
            if (ol_quota_take(i ? &a : &b, 1, now)) {
                ol_quota_give(i ? &a : &b, 1);
                count++;
            }
    assert_in_range(count, 100, 104);
    ol_quota_leave(&a);
    ol_quota_leave(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(l5_one_place_is_one_for_all_threads),
        cmocka_unit_test(l5_who_is_alone_has_all_places),
        cmocka_unit_test(l5_each_destination_has_its_own),
        cmocka_unit_test(l5_changed_settings_keep_the_count),
        cmocka_unit_test(l5_the_rate_is_divided_among_those_who_want_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
