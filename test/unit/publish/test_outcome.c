/* Outcomes of HTTP responses and mail replies (R2). */
#include "publish/http/http_settings.h"
#include "publish/outcome.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NOW INT64_C(1767528300000000) /* 2026-01-04T12:05:00Z, a Sunday */

static struct outlog_outcome outcome;
static struct ol_buf memory;

static void http(enum ol_http_reach reach, int status, const char *retry_after,
                 const char *retry_on)
{
    char json[200];
    struct ol_settings *settings;
    snprintf(json, sizeof json, "{\"type\":\"webhook\",\"url\":\"https://a.example\"%s%s}",
             retry_on ? ",\"retry_on\":" : "", retry_on ? retry_on : "");
    assert_int_equal(ol_settings_open("d", json, strlen(json), OL_SETTINGS_USE, &settings, NULL),
                     0);
    struct ol_http_response response = {.reach = reach,
                                        .status = status,
                                        .retry_after = retry_after,
                                        .body = "token=abc",
                                        .body_bytes = 9,
                                        .error = "why"};
    const struct ol_http_settings *own = settings->own;
    ol_outcome_http(&response, settings, &own->retry_on, NOW, &memory, &outcome);
    ol_settings_close(settings);
}

static void d1_any_2xx_is_success(void **state)
{
    (void)state;
    for (int status = 200; status < 300; status++) {
        http(OL_REACH_ANSWERED, status, "", NULL);
        assert_int_equal(outcome.kind, OUTLOG_PUBLISH_OK);
        assert_null(outcome.error);
    }
    assert_string_equal(outcome.response, "token=***");
}

static void r2_client_errors_are_permanent_but_408_425_429(void **state)
{
    (void)state;
    for (int status = 300; status < 600; status++) {
        bool is_permanent = status < 500 && status != 408 && status != 425 && status != 429;
        http(OL_REACH_ANSWERED, status, "", NULL);
        assert_int_equal(outcome.kind, OUTLOG_PUBLISH_FAILED);
        assert_int_equal(outcome.status, status);
        assert_int_equal(outcome.is_permanent, is_permanent);
        bool is_refused = status == 429 || (status >= 500 && status != 502 && status != 504);
        assert_int_equal(outcome.surely_not_sent, is_refused);
        assert_non_null(outcome.error);
    }
}

static void r2_retry_on_widens_what_is_tried_again(void **state)
{
    (void)state;
    http(OL_REACH_ANSWERED, 404, "", "[404,\"3xx\"]");
    assert_false(outcome.is_permanent);
    http(OL_REACH_ANSWERED, 302, "", "[404,\"3xx\"]");
    assert_false(outcome.is_permanent);
    http(OL_REACH_ANSWERED, 409, "", "[404,\"3xx\"]");
    assert_true(outcome.is_permanent);
}

static void r2_retry_after_comes_through(void **state)
{
    (void)state;
    http(OL_REACH_ANSWERED, 503, "7", NULL);
    assert_int_equal(outcome.retry_after_us, 7000000);
    assert_true(outcome.surely_not_sent);
    http(OL_REACH_ANSWERED, 502, "7", NULL); // the gateway does not know what was done behind it
    assert_false(outcome.surely_not_sent);
}

static void r2_retry_after_takes_seconds_and_the_three_dates(void **state)
{
    (void)state;
    assert_int_equal(ol_outcome_retry_after_us("120", NOW), 120000000);
    assert_int_equal(ol_outcome_retry_after_us("Sun, 04 Jan 2026 12:06:00 GMT", NOW), 60000000);
    assert_int_equal(ol_outcome_retry_after_us("Sunday, 04-Jan-26 12:06:00 GMT", NOW), 60000000);
    assert_int_equal(ol_outcome_retry_after_us("Sun Jan  4 12:06:00 2026", NOW), 60000000);
    assert_int_equal(ol_outcome_retry_after_us("Sun, 04 Jan 2026 12:04:00 GMT", NOW), 0);
    assert_int_equal(ol_outcome_retry_after_us("99999999999999999999", NOW), OL_RETRY_AFTER_MAX_US);
    assert_int_equal(ol_outcome_retry_after_us("-5", NOW), 0);
    assert_int_equal(ol_outcome_retry_after_us("5 apples", NOW), 0);
    assert_int_equal(ol_outcome_retry_after_us("", NOW), 0);
    assert_int_equal(ol_outcome_retry_after_us("Sun, 04 Foo 2026 12:06:00 GMT", NOW), 0);
    assert_int_equal(ol_outcome_retry_after_us("Sun, 99 Jan 2026 12:06:00 GMT", NOW), 0);
}

static void l2_lost_answers_are_unknown_and_missing_connections_are_not(void **state)
{
    (void)state;
    http(OL_REACH_LOST, 0, "", NULL);
    assert_int_equal(outcome.kind, OUTLOG_PUBLISH_UNKNOWN);
    http(OL_REACH_NOTHING, 0, "", NULL);
    assert_int_equal(outcome.kind, OUTLOG_PUBLISH_FAILED);
    assert_true(outcome.surely_not_sent);
    assert_false(outcome.is_permanent);
    assert_string_equal(outcome.error, "why");
}

static void mail(enum ol_http_reach reach, int status, bool is_before_message)
{
    static const char json[] =
        "{\"type\":\"smtp\",\"url\":\"smtp://a.example\",\"from\":\"a@b.c\"}";
    struct ol_settings *settings;
    assert_int_equal(ol_settings_open("d", json, sizeof json - 1, OL_SETTINGS_USE, &settings, NULL),
                     0);
    struct ol_http_response response = {.reach = reach,
                                        .status = status,
                                        .is_before_message = is_before_message,
                                        .retry_after = "",
                                        .body = "550 no\r\n",
                                        .body_bytes = 8,
                                        .error = "why"};
    ol_outcome_mail(&response, settings, &memory, &outcome);
    ol_settings_close(settings);
}

static void r2_smtp_5xx_is_permanent_and_4xx_is_not(void **state)
{
    (void)state;
    mail(OL_REACH_REFUSED, 550, false);
    assert_int_equal(outcome.kind, OUTLOG_PUBLISH_FAILED);
    assert_true(outcome.is_permanent && outcome.surely_not_sent);
    assert_string_equal(outcome.error, "refused by the mail server: 550 no");
    mail(OL_REACH_REFUSED, 451, false);
    assert_true(!outcome.is_permanent && outcome.surely_not_sent);
    mail(OL_REACH_REFUSED, 535, true); // a wrong password is not permanent
    assert_false(outcome.is_permanent);
    mail(OL_REACH_LOST, 354, false);
    assert_int_equal(outcome.kind, OUTLOG_PUBLISH_UNKNOWN);
    mail(OL_REACH_ANSWERED, 250, false);
    assert_int_equal(outcome.kind, OUTLOG_PUBLISH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d1_any_2xx_is_success),
        cmocka_unit_test(r2_client_errors_are_permanent_but_408_425_429),
        cmocka_unit_test(r2_retry_on_widens_what_is_tried_again),
        cmocka_unit_test(r2_retry_after_comes_through),
        cmocka_unit_test(r2_retry_after_takes_seconds_and_the_three_dates),
        cmocka_unit_test(l2_lost_answers_are_unknown_and_missing_connections_are_not),
        cmocka_unit_test(r2_smtp_5xx_is_permanent_and_4xx_is_not),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ol_buf_clear(&memory);
    return failed;
}
