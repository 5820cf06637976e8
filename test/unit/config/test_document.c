/* Checking outlog.yaml, as JSON, without a store: which key an error names, and where. */
#include "config/apply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check_error(const char *json, const char *pointer, const char *part)
{
    outlog_err err = {0};
    assert_int_equal(ol_config_check(json, strlen(json), &err), -1);
    assert_string_equal(err.pointer, pointer);
    if (!strstr(err.message, part))
        fail_msg("'%s' is not in '%s'", part, err.message);
}

static void a_complete_document_is_valid(void **state)
{
    static const char json[] =
        "{\"destinations\":{\"d\":{\"type\":\"webhook\",\"url\":\"https://d.example/\"}},"
        "\"routes\":[{\"on\":\"order.*\",\"to\":\"d\"}],"
        "\"event_types\":{\"strict\":[\"acme\"],\"order.placed\":{\"version\":1}},"
        "\"types\":{\"SEND_EMAIL\":{\"retry\":{\"max_attempts\":3}}},"
        "\"sinks\":{\"archive\":{\"to\":\"d\",\"from\":\"beginning\"}},"
        "\"alerts\":{\"to\":\"d\"},\"retention\":{\"messages\":\"forever\"},"
        "\"relay\":{\"lease\":\"30s\",\"lanes\":8,\"wakeup\":\"notify\"},\"serve\":null}";
    outlog_err err = {0};
    (void)state;
    if (ol_config_check(json, strlen(json), &err) < 0)
        fail_msg("%s: %s", err.pointer, err.message);
}

static void an_unknown_key_is_named_with_its_position(void **state)
{
    (void)state;
    check_error("{\"destination\":{}}", "/destination", "unknown key destination");
    check_error("{\"relay\":{\"leese\":\"30s\"}}", "/relay/leese", "unknown key leese");
    check_error("{\"routes\":[{\"on\":\"a\",\"to\":\"b\",\"too\":1}]}", "/routes/0/too",
                "unknown key too");
}

static void a_value_out_of_range_is_refused(void **state)
{
    (void)state;
    check_error("{\"relay\":{\"lease\":\"1ms\"}}", "/relay/lease", "from 1s to 1h");
    check_error("{\"relay\":{\"lanes\":257}}", "/relay/lanes", "from 1 to 256");
    check_error("{\"relay\":{\"wakeup\":\"call\"}}", "/relay/wakeup", "poll or notify");
    check_error("{\"retention\":{\"idempotency\":\"1h\"}}", "/retention/idempotency", "24h");
    check_error("{\"serve\":{\"origins\":[\"https://a.example/path\"]}}", "/serve/origins",
                "without a path");
}

static void a_collectors_key_must_come_from_the_environment(void **state)
{
    (void)state;
    check_error("{\"tracing\":{\"headers\":{\"x-api-key\":\"abc\"}}}", "/tracing/headers",
                "of the environment");
}

static void a_route_may_be_there_once(void **state)
{
    (void)state;
    check_error("{\"routes\":[{\"on\":\"a\",\"to\":\"b\"},{\"to\":\"b\",\"on\":\"a\"}]}",
                "/routes/1", "twice");
}

static void an_error_inside_a_retry_policy_has_the_whole_pointer(void **state)
{
    (void)state;
    check_error("{\"types\":{\"T\":{\"retry\":{\"factor\":0}}}}", "/types/T/retry/factor",
                "T: retry.factor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complete_document_is_valid),
        cmocka_unit_test(an_unknown_key_is_named_with_its_position),
        cmocka_unit_test(a_value_out_of_range_is_refused),
        cmocka_unit_test(a_collectors_key_must_come_from_the_environment),
        cmocka_unit_test(a_route_may_be_there_once),
        cmocka_unit_test(an_error_inside_a_retry_policy_has_the_whole_pointer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
