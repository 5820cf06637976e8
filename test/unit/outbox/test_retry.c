/* Retry policies (R1, R2, N4). Chance and clock are set by hand. */
#include "outbox/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)

static struct ol_retry parse(const char *json)
{
    struct ol_json object;
    struct ol_retry retry;
    outlog_err err;
    assert_int_equal(ol_json_parse(json, strlen(json), &object, &err), 0);
    if (ol_retry_parse(&object, &retry, &err) < 0)
        fail_msg("%s", err.message);
    return retry;
}

/* The policy of a message that is neither an effect nor a notification. */
static void resolve(const char *event_type, int max_attempts, const struct ol_retry *type,
                    const struct ol_retry *destination, struct ol_retry *out)
{
    struct ol_retry_subject message = {.event_type = event_type, .max_attempts = max_attempts};
    ol_retry_resolve(&message, type, destination, out);
}

static void resolve_effect(const char *event_type, struct ol_retry *out)
{
    struct ol_retry_subject effect = {.class = OL_RETRY_EFFECT, .event_type = event_type};
    ol_retry_resolve(&effect, NULL, NULL, out);
}

static void r1_an_effect_waits_2_4_8_seconds(void **state)
{
    struct ol_retry policy;
    (void)state;
    resolve_effect("CALL_CUSTOMER", &policy);
    for (int n = 1; n <= 5; n++)
        assert_int_equal(ol_retry_wait_us(&policy, n, 0, 0), SECOND << n); // S0: 2, 4, 8 s …
}

static void p10_every_other_message_is_tried_for_a_day(void **state)
{
    static const int64_t seconds[] = {5, 30, 120, 600, 1800, 3600, 7200, 14400, 28800, 28800};
    static const char *const types[] = {"order.created", "SEND_EMAIL", "API_CALL", "SOR_UPDATE"};
    struct outlog_outcome failed = {.kind = OUTLOG_PUBLISH_FAILED};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct ol_retry policy;
        int64_t wait, total = 0;
        resolve(types[i], 0, NULL, NULL, &policy);
        assert_int_equal(policy.max_attempts, 11);
        for (int n = 1; n <= 10; n++) {
            assert_int_equal(ol_retry_decide(&policy, false, n, &failed, 0, &wait),
                             OL_DECISION_RETRY);
            assert_int_equal(wait, seconds[n - 1] * SECOND);
            assert_true(ol_retry_wait_us(&policy, n, 0.9, 0) > wait); // jitter
            total += wait;
        }
        assert_true(total > 23 * 60 * MINUTE && total < 25 * 60 * MINUTE);
        assert_int_equal(ol_retry_decide(&policy, false, 11, &failed, 0, &wait), OL_DECISION_DEAD);
    }
}

static void n4_a_notification_needs_no_preset(void **state)
{
    struct ol_retry_subject message = {.class = OL_RETRY_NOTIFICATION,
                                       .event_type = "task.assigned"};
    struct ol_retry policy, settings = parse("{\"base\":\"7s\",\"max_attempts\":9}");
    (void)state;
    assert_int_equal(ol_retry_classify(NULL, OL_NOTIFICATION_CONTENT_TYPE), OL_RETRY_NOTIFICATION);
    assert_int_equal(ol_retry_classify("EFFECT", "application/json"), OL_RETRY_EFFECT);
    assert_int_equal(ol_retry_classify("order", NULL), OL_RETRY_MESSAGE);
    ol_retry_resolve(&message, NULL, NULL, &policy);
    assert_int_equal(policy.max_attempts, 5);
    assert_int_equal(ol_retry_wait_us(&policy, 3, 0.9, 0), 15 * MINUTE);
    ol_retry_resolve(&message, NULL, &settings, &policy);
    assert_int_equal(policy.max_attempts, 9);
    assert_int_equal(policy.base_us, 7 * SECOND);
}

static void n4_notification_waits_1_5_15_60_minutes(void **state)
{
    static const int64_t minutes[] = {1, 5, 15, 60};
    struct ol_retry preset, policy;
    struct outlog_outcome refused = {.kind = OUTLOG_PUBLISH_FAILED, .surely_not_sent = true};
    int64_t wait;
    (void)state;
    assert_true(ol_retry_preset("notification", &preset));
    assert_false(ol_retry_preset("other", &preset));
    assert_true(ol_retry_preset("notification", &preset));
    resolve("task.assigned", 0, NULL, &preset, &policy);
    for (int n = 1; n <= 4; n++) {
        assert_int_equal(ol_retry_decide(&policy, true, n, &refused, 0.9, &wait),
                         OL_DECISION_RETRY);
        assert_int_equal(wait, minutes[n - 1] * MINUTE);
    }
    assert_int_equal(ol_retry_decide(&policy, true, 5, &refused, 0.9, &wait), OL_DECISION_DEAD);
}

static void r1_defaults_by_type(void **state)
{
    static const struct {
        const char *type;
        int max_attempts;
        int64_t base_us;
    } cases[] = {{"SEND_EMAIL", 4, 2 * SECOND},
                 {"API_CALL", 6, SECOND},
                 {"SOR_UPDATE", 2, 5 * SECOND},
                 {"anything", 4, SECOND}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct ol_retry policy;
        resolve_effect(cases[i].type, &policy);
        assert_int_equal(policy.max_attempts, cases[i].max_attempts);
        assert_int_equal(policy.base_us, cases[i].base_us);
        assert_int_equal(ol_retry_wait_us(&policy, 1, 0, 0), 2 * cases[i].base_us);
    }
}

static void r1_jitter_only_adds(void **state)
{
    struct ol_retry policy;
    (void)state;
    resolve_effect("x", &policy);
    assert_int_equal(ol_retry_wait_us(&policy, 2, 0, 0), 4 * SECOND);
    assert_int_equal(ol_retry_wait_us(&policy, 2, 0.5, 0), 4 * SECOND + 4 * SECOND / 10);
    assert_true(ol_retry_wait_us(&policy, 2, 0.999999, 0) <= 4 * SECOND + 8 * SECOND / 10);
}

static void r1_wait_is_capped_and_does_not_overflow(void **state)
{
    struct ol_retry policy;
    struct ol_retry settings = parse("{\"base\":\"1s\",\"factor\":10,\"max\":\"1h\",\"jitter\":0}");
    (void)state;
    resolve("x", 0, NULL, &settings, &policy);
    assert_int_equal(ol_retry_wait_us(&policy, 3, 0, 0), 1000 * SECOND);
    assert_int_equal(ol_retry_wait_us(&policy, 4, 0, 0), 3600 * SECOND);
    assert_int_equal(ol_retry_wait_us(&policy, 1000000, 0.5, 0), 3600 * SECOND);
}

static void r1_most_specific_word_counts(void **state)
{
    struct ol_retry type = parse("{\"max_attempts\":3}");
    struct ol_retry destination = parse("{\"base\":\"7s\",\"max_attempts\":9}");
    struct ol_retry policy;
    (void)state;
    resolve("SEND_EMAIL", 12, &type, &destination, &policy);
    assert_int_equal(policy.max_attempts, 12);
    resolve("SEND_EMAIL", 0, &type, &destination, &policy);
    assert_int_equal(policy.max_attempts, 3);
    assert_int_equal(policy.base_us, 7 * SECOND);
    resolve("SEND_EMAIL", 0, NULL, &destination, &policy);
    assert_int_equal(policy.max_attempts, 9);
    resolve_effect("SEND_EMAIL", &policy);
    assert_int_equal(policy.max_attempts, 4);
}

static void r1_schedule_repeats_its_last_delay(void **state)
{
    struct ol_retry destination =
        parse("{\"policy\":\"schedule\",\"delays\":[\"1s\",\"1m\"],\"max_attempts\":5}");
    struct ol_retry bare = parse("{\"delays\":[\"1s\",\"1m\"]}"), policy;
    (void)state;
    resolve("x", 0, NULL, &destination, &policy);
    assert_int_equal(ol_retry_wait_us(&policy, 1, 0.9, 0), SECOND);
    assert_int_equal(ol_retry_wait_us(&policy, 2, 0.9, 0), MINUTE);
    assert_int_equal(ol_retry_wait_us(&policy, 4, 0.9, 0), MINUTE);
    resolve("x", 0, NULL, &bare, &policy);
    assert_int_equal(policy.max_attempts, 3); // one more than there are delays
    /* a type with a base means exponential, whatever the destination sets */
    struct ol_retry type = parse("{\"base\":\"2s\"}");
    resolve("x", 0, &type, &destination, &policy);
    assert_int_equal(policy.kind, OL_RETRY_EXPONENTIAL);
    assert_int_equal(policy.max_attempts, 5);
}

static void r2_retry_after_is_honoured_and_capped(void **state)
{
    struct ol_retry policy;
    (void)state;
    resolve_effect("x", &policy);
    assert_int_equal(ol_retry_wait_us(&policy, 1, 0, 90 * SECOND), 90 * SECOND);
    assert_int_equal(ol_retry_wait_us(&policy, 1, 0, SECOND), 2 * SECOND); // never shorter
    assert_int_equal(ol_retry_wait_us(&policy, 1, 0, INT64_MAX), OL_RETRY_AFTER_MAX_US);
}

static void r2_verdicts(void **state)
{
    struct ol_retry policy;
    struct outlog_outcome ok = {.kind = OUTLOG_PUBLISH_OK};
    struct outlog_outcome failed = {.kind = OUTLOG_PUBLISH_FAILED};
    struct outlog_outcome permanent = {.kind = OUTLOG_PUBLISH_FAILED, .is_permanent = true};
    struct outlog_outcome unknown = {.kind = OUTLOG_PUBLISH_UNKNOWN};
    struct outlog_outcome not_sent = {.kind = OUTLOG_PUBLISH_FAILED, .surely_not_sent = true};
    struct outlog_outcome released = {.kind = OUTLOG_PUBLISH_RELEASED};
    int64_t wait;
    (void)state;
    resolve_effect("x", &policy);
    assert_int_equal(ol_retry_decide(&policy, false, 4, &ok, 0, &wait), OL_DECISION_DONE);
    assert_int_equal(ol_retry_decide(&policy, false, 3, &failed, 0, &wait), OL_DECISION_RETRY);
    assert_int_equal(ol_retry_decide(&policy, false, 4, &failed, 0, &wait), OL_DECISION_DEAD);
    assert_int_equal(ol_retry_decide(&policy, false, 1, &permanent, 0, &wait), OL_DECISION_DEAD);
    assert_int_equal(ol_retry_decide(&policy, false, 1, &unknown, 0, &wait), OL_DECISION_RETRY);
    assert_int_equal(ol_retry_decide(&policy, false, 9, &released, 0, &wait), OL_DECISION_RELEASE);
    /* at_most_once: only what surely was not sent */
    assert_int_equal(ol_retry_decide(&policy, true, 1, &failed, 0, &wait), OL_DECISION_DEAD);
    assert_int_equal(ol_retry_decide(&policy, true, 1, &unknown, 0, &wait), OL_DECISION_DEAD);
    assert_int_equal(ol_retry_decide(&policy, true, 1, &not_sent, 0, &wait), OL_DECISION_RETRY);
    assert_int_equal(ol_retry_decide(&policy, true, 4, &not_sent, 0, &wait), OL_DECISION_DEAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r1_an_effect_waits_2_4_8_seconds),
        cmocka_unit_test(p10_every_other_message_is_tried_for_a_day),
        cmocka_unit_test(n4_a_notification_needs_no_preset),
        cmocka_unit_test(n4_notification_waits_1_5_15_60_minutes),
        cmocka_unit_test(r1_defaults_by_type),
        cmocka_unit_test(r1_jitter_only_adds),
        cmocka_unit_test(r1_wait_is_capped_and_does_not_overflow),
        cmocka_unit_test(r1_most_specific_word_counts),
        cmocka_unit_test(r1_schedule_repeats_its_last_delay),
        cmocka_unit_test(r2_retry_after_is_honoured_and_capped),
        cmocka_unit_test(r2_verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
