/* A destination's settings. */
#include "destinations/settings.h"
#include "publish/broker/broker_settings.h"
#include "publish/http/http_settings.h"
#include "publish/mail/smtp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static outlog_err err;

static struct ol_settings *read_in(const char *json, enum ol_settings_mode mode)
{
    struct ol_settings *settings = NULL;
    if (ol_settings_open("d", json, strlen(json), mode, &settings, &err) < 0)
        return NULL;
    return settings;
}

static struct ol_settings *read_ok(const char *json)
{
    struct ol_settings *settings = read_in(json, OL_SETTINGS_USE);
    if (!settings)
        fail_msg("%s", err.message);
    return settings;
}

static void config_of_the_contract_is_read(void **state)
{
    (void)state;
    setenv("BILLING_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1);
    struct ol_settings *s = read_ok(
        "{\"type\":\"webhook\",\"url\":\"https://billing.example/hooks\","
        "\"secret\":\"${BILLING_SECRET}\",\"guarantee\":\"at_most_once\",\"on_dead\":\"hold\","
        "\"timeout\":\"10s\",\"concurrency\":64,\"rate\":\"100/s\",\"allow_private\":false,"
        "\"retry\":{\"policy\":\"exponential\",\"base\":\"1s\",\"factor\":2,\"max\":\"5m\","
        "\"jitter\":0.2,\"max_attempts\":6},\"breaker\":{\"failures\":3,\"open\":\"2s\"},"
        "\"method\":\"PUT\",\"headers\":{\"x-a\":\"b\"},\"envelope\":\"cloudevents-binary\","
        "\"retry_on\":[404,\"5xx\"],\"keep\":\"failures\"}");
    const struct ol_webhook_settings *webhook = s->own;
    assert_string_equal(webhook->http.secrets[0], "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    assert_int_equal(s->guarantee, OL_AT_MOST_ONCE);
    assert_int_equal(s->on_dead, OL_ON_DEAD_HOLD);
    assert_int_equal(s->timeout_us, 10000000);
    assert_int_equal(s->rate_count, 100);
    assert_int_equal(s->rate_period_us, 1000000);
    assert_int_equal(s->retry.max_attempts, 6);
    assert_int_equal(s->breaker_failures, 3);
    assert_int_equal(s->breaker_open_us, 2000000);
    assert_int_equal(s->breaker_open_max_us, 30000000);
    assert_string_equal(webhook->http.method, "PUT");
    assert_int_equal(webhook->envelope, OL_ENVELOPE_CLOUDEVENTS_BINARY);
    const struct ol_status_set *retry_on = &webhook->http.retry_on;
    assert_true(ol_status_set_has(retry_on, 404) && ol_status_set_has(retry_on, 503));
    assert_false(ol_status_set_has(retry_on, 403));
    assert_int_equal(s->keep, OL_KEEP_FAILURES);
    ol_settings_close(s);
}

static void defaults_are_those_of_the_contract(void **state)
{
    (void)state;
    struct ol_settings *s = read_ok("{\"type\":\"webhook\",\"url\":\"https://a.example\"}");
    assert_int_equal(s->guarantee, OL_AT_LEAST_ONCE);
    assert_int_equal(s->on_dead, OL_ON_DEAD_SKIP);
    assert_int_equal(s->timeout_us, 10000000);
    assert_int_equal(s->concurrency, 64);
    assert_int_equal(s->breaker_failures, 20);
    assert_int_equal(s->breaker_open_us, 1000000);
    assert_int_equal(s->breaker_open_max_us, 30000000);
    assert_int_equal(s->retry.kind, OL_RETRY_UNSET);
    const struct ol_http_settings *http = s->own;
    assert_string_equal(http->method, "POST");
    assert_int_equal(http->secret_count, 0);
    ol_settings_close(s);
}

static void secrets_rotate_in_either_spelling(void **state)
{
    (void)state;
    struct ol_settings *s = read_ok("{\"type\":\"webhook\",\"url\":\"https://a.example\","
                                    "\"secrets\":[\"new\",\"old\"]}");
    const struct ol_http_settings *http = s->own;
    assert_int_equal(http->secret_count, 2);
    assert_string_equal(http->secrets[0], "new");
    ol_settings_close(s);
    s = read_ok("{\"type\":\"webhook\",\"url\":\"https://a.example\","
                "\"secret_previous\":\"old\",\"secret\":\"new\"}");
    http = s->own;
    assert_int_equal(http->secret_count, 2);
    assert_string_equal(http->secrets[0], "new");
    assert_string_equal(http->secrets[1], "old");
    ol_settings_close(s);
}

static void missing_variable_is_named(void **state)
{
    (void)state;
    unsetenv("OUTLOG_NOT_THERE");
    assert_null(read_in("{\"type\":\"webhook\",\"url\":\"https://a.example\","
                        "\"secret\":\"${OUTLOG_NOT_THERE}\"}",
                        OL_SETTINGS_USE));
    assert_string_equal(err.message, "destination d: secret: the environment variable "
                                     "OUTLOG_NOT_THERE is not set where the delivery runs");
    /* `apply` runs elsewhere: it takes the name as it is */
    struct ol_settings *s = read_in("{\"type\":\"webhook\",\"url\":\"${OUTLOG_NOT_THERE}\","
                                    "\"secret\":\"${OUTLOG_NOT_THERE}\",\"concurrency\":\"${N}\"}",
                                    OL_SETTINGS_CHECK);
    assert_non_null(s);
    ol_settings_close(s);
}

static void variables_are_replaced_everywhere_and_can_be_escaped(void **state)
{
    (void)state;
    setenv("OL_T_HOST", "h.example", 1);
    setenv("OL_T_QUOTE", "a\"b\\c", 1);
    setenv("OL_T_N", "7", 1);
    struct ol_settings *s =
        read_ok("{\"type\":\"webhook\",\"url\":\"https://${OL_T_HOST}/${OL_T_HOST}\","
                "\"headers\":{\"x-q\":\"${OL_T_QUOTE}\",\"x-e\":\"$${OL_T_N}\"},"
                "\"concurrency\":\"${OL_T_N}\"}");
    assert_string_equal(((const struct ol_http_settings *)s->own)->url,
                        "https://h.example/h.example");
    assert_string_equal(s->headers[0].value, "a\"b\\c");
    assert_string_equal(s->headers[1].value, "${OL_T_N}");
    assert_int_equal(s->concurrency, 7);
    ol_settings_close(s);
    setenv("OL_T_QUOTE", "\xff", 1);
    assert_null(read_in("{\"type\":\"null\",\"keep\":\"${OL_T_QUOTE}\"}", OL_SETTINGS_USE));
}

static void unknown_keys_are_refused_by_name(void **state)
{
    (void)state;
    assert_null(read_in("{\"type\":\"webhook\",\"url\":\"https://a.example\",\"timout\":\"1s\"}",
                        OL_SETTINGS_USE));
    assert_int_equal(err.code, OUTLOG_UNKNOWN_FIELD);
    assert_non_null(strstr(err.message, "timout"));
    assert_null(read_in("{\"type\":\"null\",\"url\":\"https://a.example\"}", OL_SETTINGS_USE));
    assert_int_equal(err.code, OUTLOG_UNKNOWN_FIELD);
    assert_non_null(strstr(err.message, "url"));
    assert_null(read_in("{\"type\":\"null\",\"retry\":{\"bse\":\"1s\"}}", OL_SETTINGS_USE));
    assert_int_equal(err.code, OUTLOG_UNKNOWN_FIELD);
    assert_null(read_in("{\"type\":\"null\",\"breaker\":{\"x\":1}}", OL_SETTINGS_USE));
    assert_int_equal(err.code, OUTLOG_UNKNOWN_FIELD);
}

static void wrong_values_are_refused(void **state)
{
    static const char *const wrong[] = {
        "{}",
        "[]",
        "{\"type\":\"pigeon\"}",
        "{\"type\":\"webhook\"}",
        "{\"type\":\"webhook\",\"url\":\"http://a.example\"}",
        "{\"type\":\"webhook\",\"url\":\"https://10.0.0.1\"}",
        "{\"type\":\"webhook\",\"url\":7}",
        "{\"type\":\"webhook\",\"request\":\"payload\"}",
        "{\"type\":\"webhook\",\"request\":\"payload\",\"url\":\"https://a\",\"allow_hosts\":[\"a\"]}",
        "{\"type\":\"webhook\",\"url\":\"https://a.example\",\"allow_hosts\":[\"a\"]}",
        "{\"type\":\"webhook\",\"url\":\"https://a.example\",\"secret\":\"whsec_?\"}",
        "{\"type\":\"webhook\",\"url\":\"https://a.example\",\"secret\":\"\"}",
        "{\"type\":\"webhook\",\"url\":\"https://a.example\",\"method\":\"TRACE\"}",
        "{\"type\":\"webhook\",\"url\":\"https://a.example\",\"headers\":{\"Host\":\"x\"}}",
        "{\"type\":\"webhook\",\"url\":\"https://a.example\",\"headers\":{\"x\":\"a\\nb\"}}",
        "{\"type\":\"webhook\",\"url\":\"https://a.example\",\"retry_on\":[99]}",
        "{\"type\":\"webhook\",\"url\":\"https://a.example\",\"retry_on\":\"5xx\"}",
        "{\"type\":\"null\",\"timeout\":\"0s\"}",
        "{\"type\":\"null\",\"timeout\":10}",
        "{\"type\":\"null\",\"concurrency\":0}",
        "{\"type\":\"null\",\"concurrency\":1.5}",
        "{\"type\":\"null\",\"rate\":\"fast\"}",
        "{\"type\":\"null\",\"rate\":\"0/s\"}",
        "{\"type\":\"null\",\"guarantee\":\"exactly_once\"}",
        "{\"type\":\"null\",\"preset\":\"x\"}",
        "{\"type\":\"null\",\"retry\":{\"policy\":\"schedule\"}}",
        "{\"type\":\"null\",\"retry\":{\"delays\":[\"1m\"],\"base\":\"1s\"}}",
        "{\"type\":\"null\",\"retry\":{\"max_attempts\":0}}",
        "{\"type\":\"null\",\"retry\":{\"jitter\":2}}",
        "{\"type\":\"exec\"}",
        "{\"type\":\"exec\",\"command\":[]}",
        "{\"type\":\"exec\",\"command\":\"./x\"}",
        "{\"type\":\"smtp\",\"url\":\"smtp://h\"}",
        "{\"type\":\"smtp\",\"url\":\"http://h\",\"from\":\"a@b.c\"}",
        "{\"type\":\"smtp\",\"url\":\"smtp://h/x\",\"from\":\"a@b.c\"}",
        "{\"type\":\"smtp\",\"url\":\"smtp://u@h\",\"from\":\"a@b.c\"}",
        "{\"type\":\"smtp\",\"url\":\"smtp://u:p@h\",\"tls\":\"none\",\"from\":\"a@b.c\"}",
        "{\"type\":\"smtp\",\"url\":\"smtp://u:p%4@h\",\"from\":\"a@b.c\"}",
        "{\"type\":\"smtp\",\"url\":\"smtp://\",\"from\":\"a@b.c\"}",
        "{\"type\":\"smtp\",\"url\":\"smtp://h\",\"user\":\"u\",\"from\":\"a@b.c\"}",
        "{\"type\":\"smtp\",\"url\":\"smtp://h\",\"hello\":\"a b\",\"from\":\"a@b.c\"}",
        "{\"type\":\"kafka\",\"brokers\":\"h:1\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (read_in(wrong[i], OL_SETTINGS_USE))
            fail_msg("%s was accepted", wrong[i]);
}

static void d2_mail_urls_are_taken_apart(void **state)
{
    static const struct {
        const char *extra, *url;
        enum ol_tls_mode tls;
    } cases[] = {
        {"\"url\":\"smtp://mail.example\"", "smtp://mail.example:587/outlog", OL_TLS_STARTTLS},
        {"\"url\":\"smtp://mail.example:2525/\"", "smtp://mail.example:2525/outlog",
         OL_TLS_STARTTLS},
        {"\"url\":\"smtps://mail.example\"", "smtps://mail.example:465/outlog", OL_TLS_IMPLICIT},
        {"\"url\":\"smtps://bob:p%40ss@mail.example:80\",\"hello\":\"me.example\"",
         "smtps://mail.example:80/me.example", OL_TLS_IMPLICIT},
        {"\"url\":\"smtp://[::1]\",\"tls\":\"none\"", "smtp://[::1]:25/outlog", OL_TLS_NONE},
        {"\"url\":\"smtp://[::1]:26\",\"tls\":\"none\"", "smtp://[::1]:26/outlog", OL_TLS_NONE},
    };
    char json[300];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(json, sizeof json, "{\"type\":\"smtp\",\"from\":\"a@b.example\",%s}",
                 cases[i].extra);
        struct ol_settings *s = read_ok(json);
        const struct ol_smtp_settings *smtp = s->own;
        assert_string_equal(smtp->url, cases[i].url);
        assert_int_equal(smtp->tls, cases[i].tls);
        if (smtp->user) {
            assert_string_equal(smtp->user, "bob");
            assert_string_equal(smtp->password, "p@ss");
        }
        ol_settings_close(s);
    }
}

static void n4_preset_notification_is_at_most_once_on_a_schedule(void **state)
{
    (void)state;
    struct ol_settings *s = read_ok("{\"type\":\"null\",\"preset\":\"notification\"}");
    assert_int_equal(s->guarantee, OL_AT_MOST_ONCE);
    assert_int_equal(s->retry.kind, OL_RETRY_SCHEDULE);
    assert_int_equal(s->retry.max_attempts, 5);
    assert_int_equal(s->retry.delays_us[3], INT64_C(3600000000));
    ol_settings_close(s);
    s = read_ok("{\"type\":\"null\",\"preset\":\"notification\",\"guarantee\":\"at_least_once\","
                "\"retry\":{\"max_attempts\":2}}");
    assert_int_equal(s->guarantee, OL_AT_LEAST_ONCE);
    assert_int_equal(s->retry.kind, OL_RETRY_SCHEDULE);
    assert_int_equal(s->retry.max_attempts, 2);
    ol_settings_close(s);
}

static void d4_settings_of_brokers_are_checked_by_their_publisher(void **state)
{
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"{\"type\":\"nats\"}", "destination d: url: it is missing"},
        {"{\"type\":\"nats\",\"url\":\"nats://h\"}", "destination d: subject: it is missing"},
        {"{\"type\":\"kafka\"}", "destination d: brokers: it is missing"},
        {"{\"type\":\"mqtt\",\"topic\":\"t\",\"url\":\"mqtt://a,mqtt://b\"}",
         "destination d: url: one address is wanted"},
        {"{\"type\":\"mqtt\",\"topic\":\"t\",\"url\":\"mqtt://a\",\"qos\":3}",
         "destination d: qos: a whole number from 0 to 2 is wanted"},
        {"{\"type\":\"mqtt\",\"topic\":\"t\",\"url\":\"mqtt://a\",\"protocol\":\"3.1.1\","
         "\"envelope\":\"cloudevents-binary\"}",
         "destination d: envelope: here CloudEvents are sent only as cloudevents-structured"},
        {"{\"type\":\"redis\",\"url\":\"redis://h\",\"stream\":\"{x}\"}",
         "destination d: stream: of {…} only {event_type}, {org_id}, {ordering_key} and"
         " {partition_key} are known"},
        {"{\"type\":\"redis\",\"url\":\"nats://h\",\"stream\":\"s\"}",
         "destination d: url: redis://host:port is wanted"},
        {"{\"type\":\"rabbitmq\",\"url\":\"amqp://h\",\"routing_key\":\"k\","
         "\"cert_file\":\"c\"}",
         "destination d: key_file: the two go together"},
        {"{\"type\":\"rabbitmq\",\"url\":\"amqp://h\",\"routing_key\":\"k\",\"topic\":\"t\"}",
         "destination d: topic: a destination of type rabbitmq has no such key"},
        {"{\"type\":\"pigeon\"}",
         "destination d: type: one of webhook, smtp, sor, exec, stdout, null, plugin, nats, kafka,"
         " rabbitmq, redis, mqtt, websocket, in_app is wanted"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(read_in(cases[i].json, OL_SETTINGS_USE));
        assert_string_equal(err.message, cases[i].message);
    }
}

static void e13_passwords_and_secret_headers_are_masked(void **state)
{
    (void)state;
    struct ol_settings *s = read_ok("{\"type\":\"redis\",\"url\":\"redis://u:p%40ss@h\","
                                    "\"stream\":\"s\",\"headers\":{\"x-api-key\":\"k\","
                                    "\"x-plain\":\"v\"}}");
    const struct ol_broker_settings *broker = s->own;
    assert_string_equal(broker->user, "u");
    assert_string_equal(broker->addresses[0].host, "h");
    assert_string_equal(s->masked[0], "p@ss");
    assert_string_equal(s->masked[1], "k");
    assert_null(s->masked[2]);
    ol_settings_close(s);
}

static void e13_errors_never_show_a_secret(void **state)
{
    (void)state;
    setenv("OL_T_SECRET", "whsec_?topsecret?", 1);
    assert_null(read_in("{\"type\":\"webhook\",\"url\":\"https://a.example\","
                        "\"secret\":\"${OL_T_SECRET}\"}",
                        OL_SETTINGS_USE));
    assert_null(strstr(err.message, "topsecret"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_of_the_contract_is_read),
        cmocka_unit_test(defaults_are_those_of_the_contract),
        cmocka_unit_test(secrets_rotate_in_either_spelling),
        cmocka_unit_test(missing_variable_is_named),
        cmocka_unit_test(variables_are_replaced_everywhere_and_can_be_escaped),
        cmocka_unit_test(unknown_keys_are_refused_by_name),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(d2_mail_urls_are_taken_apart),
        cmocka_unit_test(n4_preset_notification_is_at_most_once_on_a_schedule),
        cmocka_unit_test(d4_settings_of_brokers_are_checked_by_their_publisher),
        cmocka_unit_test(e13_passwords_and_secret_headers_are_masked),
        cmocka_unit_test(e13_errors_never_show_a_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
