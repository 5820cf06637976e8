/* The circuit breaker (L5), with the clock set by hand. */
#include "relay/target/breaker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct outlog_outcome ok = {.kind = OUTLOG_PUBLISH_OK};
static const struct outlog_outcome failed = {.kind = OUTLOG_PUBLISH_FAILED};
static const struct outlog_outcome unknown = {.kind = OUTLOG_PUBLISH_UNKNOWN};
static const struct outlog_outcome permanent = {.kind = OUTLOG_PUBLISH_FAILED,
                                                .is_permanent = true};
static const struct outlog_outcome released = {.kind = OUTLOG_PUBLISH_RELEASED};

static void l5_opens_after_consecutive_failures_only(void **state)
{
    struct ol_breaker b;
    (void)state;
    ol_breaker_init(&b, 3, 100, 1000);
    ol_breaker_note(&b, &failed, 0);
    ol_breaker_note(&b, &unknown, 0);
    ol_breaker_note(&b, &ok, 0);
    ol_breaker_note(&b, &failed, 0);
    ol_breaker_note(&b, &permanent, 0); // it answered: it is alive
    ol_breaker_note(&b, &failed, 0);
    ol_breaker_note(&b, &failed, 0);
    assert_true(ol_breaker_admit(&b, 0));
    ol_breaker_note(&b, &failed, 0);
    assert_int_equal(ol_breaker_state(&b, 0), OL_BREAKER_OPEN);
    assert_false(ol_breaker_admit(&b, 99));
    assert_int_equal(ol_breaker_ready_at(&b), 100);
}

static void l5_half_open_lets_one_probe_through(void **state)
{
    struct ol_breaker b;
    (void)state;
    ol_breaker_init(&b, 1, 100, 1000);
    ol_breaker_note(&b, &failed, 0);
    assert_int_equal(ol_breaker_state(&b, 100), OL_BREAKER_HALF_OPEN);
    assert_true(ol_breaker_admit(&b, 100));
    assert_false(ol_breaker_admit(&b, 100));
    assert_false(ol_breaker_admit(&b, 5000));
    ol_breaker_note(&b, &ok, 5000);
    assert_int_equal(ol_breaker_state(&b, 5000), OL_BREAKER_CLOSED);
    assert_true(ol_breaker_admit(&b, 5000));
    assert_true(ol_breaker_admit(&b, 5000));
}

static void l5_pause_doubles_up_to_its_maximum_and_starts_afresh(void **state)
{
    static const int64_t pauses[] = {100, 200, 400, 800, 1000, 1000};
    struct ol_breaker b;
    int64_t now = 0;
    (void)state;
    ol_breaker_init(&b, 1, 100, 1000);
    ol_breaker_note(&b, &failed, now);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(ol_breaker_ready_at(&b), now + pauses[i]);
        assert_false(ol_breaker_admit(&b, now + pauses[i] - 1));
        now += pauses[i];
        assert_true(ol_breaker_admit(&b, now));
        ol_breaker_note(&b, &failed, now);
    }
    now = ol_breaker_ready_at(&b);
    assert_true(ol_breaker_admit(&b, now));
    ol_breaker_note(&b, &ok, now);
    ol_breaker_note(&b, &failed, now);
    assert_int_equal(ol_breaker_ready_at(&b), now + 100);
}

static void l5_released_probe_gives_its_place_back(void **state)
{
    struct ol_breaker b;
    (void)state;
    ol_breaker_init(&b, 1, 100, 1000);
    ol_breaker_note(&b, &failed, 0);
    assert_true(ol_breaker_admit(&b, 100));
    ol_breaker_note(&b, &released, 110);
    assert_true(ol_breaker_admit(&b, 110));
}

static void l5_late_results_while_open(void **state)
{
    struct ol_breaker b;
    (void)state;
    ol_breaker_init(&b, 1, 100, 1000);
    ol_breaker_note(&b, &failed, 0);
    ol_breaker_note(&b, &failed, 50); // sent before it opened: the pause does not grow
    assert_int_equal(ol_breaker_ready_at(&b), 100);
    ol_breaker_note(&b, &ok, 60); // it answered
    assert_int_equal(ol_breaker_state(&b, 60), OL_BREAKER_CLOSED);
}

static void l5_zero_failures_switch_it_off(void **state)
{
    struct ol_breaker b;
    (void)state;
    ol_breaker_init(&b, 0, 100, 1000);
    for (int i = 0; i < 1000; i++)
        ol_breaker_note(&b, &failed, i);
    assert_true(ol_breaker_admit(&b, 1000));
    assert_string_equal(ol_breaker_name(OL_BREAKER_HALF_OPEN), "half_open");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(l5_opens_after_consecutive_failures_only),
        cmocka_unit_test(l5_half_open_lets_one_probe_through),
        cmocka_unit_test(l5_pause_doubles_up_to_its_maximum_and_starts_afresh),
        cmocka_unit_test(l5_released_probe_gives_its_place_back),
        cmocka_unit_test(l5_late_results_while_open),
        cmocka_unit_test(l5_zero_failures_switch_it_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
