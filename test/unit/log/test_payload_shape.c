/* test_payload_shape.c: payloads of registered event types (E10), and the types that ship. */
#include "log/payload_shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct ol_json parsed(const char *text)
{
    struct ol_json value;
    outlog_err err;
    if (ol_json_parse(text, strlen(text), &value, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return value;
}

static const char shape_text[] =
    "{\"run_id\":\"string\",\"step_index\":\"number\",\"output_result\":\"any\","
    "\"signal_id\":\"string?\",\"ok\":\"boolean?\",\"x/y\":\"object?\",\"list\":\"array?\"}";

static void e10_payload_of_the_shape_passes(void **state)
{
    static const char *const payloads[] = {
        "{\"run_id\":\"r\",\"step_index\":5,\"output_result\":null}",
        "{\"output_result\":{},\"step_index\":0.5,\"run_id\":\"\"}",
        "{\"run_id\":\"r\",\"step_index\":5,\"output_result\":[],\"signal_id\":null,\"ok\":false}",
        "{\"run_id\":\"r\",\"step_index\":5,\"output_result\":1,\"signal_id\":\"s\",\"ok\":true}",
        "{\"run_id\":\"r\",\"step_index\":5,\"output_result\":1,\"x/y\":{},\"list\":[]}",
        "{\"run_id\":\"r\",\"step_index\":5,\"output_result\":1,\"more\":{\"run_id\":1}}",
        "{\"\\u0072un_id\":\"r\",\"step_index\":5,\"output_result\":1}",
    };
    struct ol_json shape = parsed(shape_text);
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < COUNT(payloads); i++) {
        struct ol_json payload = parsed(payloads[i]);
        if (ol_payload_shape_check(&shape, &payload, &err) < 0)
            fail_msg("%s: %s", payloads[i], err.message);
    }
}

static void e10_wrong_member_is_named(void **state)
{
    static const char *const cases[][3] = {
        {"{\"step_index\":5,\"output_result\":1}", "/run_id",
         "/run_id is missing: this event type needs \"string\""},
        {"{\"run_id\":null,\"step_index\":5,\"output_result\":1}", "/run_id",
         "/run_id has another type: this event type needs \"string\""},
        {"{\"run_id\":\"r\",\"step_index\":\"5\",\"output_result\":1}", "/step_index",
         "/step_index has another type: this event type needs \"number\""},
        {"{\"run_id\":\"r\",\"step_index\":5}", "/output_result",
         "/output_result is missing: this event type needs \"any\""},
        {"{\"run_id\":\"r\",\"step_index\":5,\"output_result\":1,\"signal_id\":7}", "/signal_id",
         "/signal_id has another type: this event type needs \"string?\""},
        {"{\"run_id\":\"r\",\"step_index\":5,\"output_result\":1,\"x/y\":[]}", "/x~1y",
         "/x~1y has another type: this event type needs \"object?\""},
        {"{\"run_id\":\"r\",\"step_index\":5,\"output_result\":1,\"list\":{}}", "/list",
         "/list has another type: this event type needs \"array?\""},
        {"{\"run_id\":\"r\",\"step_index\":5,\"output_result\":1,\"ok\":0}", "/ok",
         "/ok has another type: this event type needs \"boolean?\""},
        {"[]", "", "the payload must be an object"},
    };
    struct ol_json shape = parsed(shape_text);
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ol_json payload = parsed(cases[i][0]);
        outlog_err err = {0};
        assert_int_equal(ol_payload_shape_check(&shape, &payload, &err), -1);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        assert_string_equal(err.pointer, cases[i][1]);
        assert_string_equal(err.message, cases[i][2]);
    }
}

static void e10_wrong_shape_is_named(void **state)
{
    static const char *const cases[][2] = {{"{\"a\":\"text\"}", "/a"},     {"{\"a\":1}", "/a"},
                                           {"{\"a\":\"string??\"}", "/a"}, {"{\"a\":\"?\"}", "/a"},
                                           {"{\"a\":\"\"}", "/a"},         {"[]", ""}};
    struct ol_json payload = parsed("{\"a\":\"b\"}");
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ol_json shape = parsed(cases[i][0]);
        outlog_err err = {0};
        assert_int_equal(ol_payload_shape_valid(&shape, &err), -1);
        assert_string_equal(err.pointer, cases[i][1]);
        assert_int_equal(ol_payload_shape_check(&shape, &payload, &err), -1);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    }
}

/* --- the registry that ships ---------------------------------------------------------------- */

static char *registry_text;

static int load_registry(void **state)
{
    const char *path = getenv("OUTLOG_EVENT_TYPES");
    FILE *file = fopen(path ? path : "sql/event_types.json", "rb");
    (void)state;
    if (!file)
        return -1;
    registry_text = calloc(1, 1 << 20);
    size_t bytes = fread(registry_text, 1, (1 << 20) - 1, file);
    fclose(file);
    return bytes > 0 ? 0 : -1;
}

static int free_registry(void **state)
{
    (void)state;
    free(registry_text);
    return 0;
}

static void e10_shipped_types_are_complete(void **state)
{
    static const char *const names[] = {
        "SIGNAL_RECEIVED",      "SIGNAL_PROCESSING_STARTED",
        "SIGNAL_PROCESSED",     "SIGNAL_PROCESSING_FAILED",
        "RUN_STARTED",          "RUN_CHECKPOINT_CREATED",
        "RUN_COMPLETED",        "RUN_FAILED",
        "RUN_CANCELLED",        "STEP_STARTED",
        "STEP_COMPLETED",       "STEP_FAILED",
        "STEP_SKIPPED",         "STEP_RETRIED",
        "STEP_CORRECTED",       "EFFECT_REQUESTED",
        "EFFECT_EXECUTING",     "EFFECT_COMPLETED",
        "EFFECT_FAILED",        "EFFECT_RETRYING",
        "EFFECT_DEAD_LETTERED", "TOOL_CALLED",
        "TOOL_COMPLETED",       "TOOL_FAILED",
        "matter.created",       "matter.updated",
        "task.created",         "task.assigned",
        "task.completed",       "document.uploaded",
        "invoice.created",      "invoice.sent",
        "payment.received",     "payment.failed",
        "user.invited",         "user.joined",
        "user_message",         "user_edit",
        "user_delete",          "system_event",
    };
    struct ol_json registry = parsed(registry_text);
    struct ol_json_iter it = {0};
    size_t count = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++)
        if (ol_json_get(&registry, names[i]).type != OL_JSON_OBJECT)
            fail_msg("%s is not in the registry", names[i]);
    while (ol_json_next(&registry, &it)) {
        struct ol_json shape = ol_json_get(&it.value, "shape");
        struct ol_json version = ol_json_get(&it.value, "version");
        int64_t number = 0;
        outlog_err err;
        if (ol_payload_shape_valid(&shape, &err) < 0)
            fail_msg("%.*s: %s", (int)it.key.bytes, it.key.text, err.message);
        assert_true(ol_json_int(&version, &number) && number == 1);
        assert_int_equal(ol_json_get(&it.value, "aggregate_type").type, OL_JSON_STRING);
        assert_int_equal(ol_json_get(&it.value, "about").type, OL_JSON_STRING);
        count++;
    }
    assert_int_equal(count, COUNT(names));
}

/* The payloads that S0 3.3 and S4 show as examples. */
static void e10_examples_of_the_seeds_pass(void **state)
{
    static const char *const cases[][2] = {
        {"RUN_STARTED", "{\"run_id\":\"run-uuid\",\"signal_id\":\"signal-uuid\","
                        "\"run_type\":\"SIGNAL_PROCESSING\",\"orchestrator_version\":\"v1.2.3\"}"},
        {"STEP_COMPLETED", "{\"step_id\":\"step-uuid\",\"run_id\":\"run-uuid\",\"step_index\":5,"
                           "\"step_type\":\"SPECIALIST_CALL\",\"output_result\":{},"
                           "\"duration_ms\":1523}"},
        {"EFFECT_FAILED", "{\"effect_id\":\"effect-uuid\",\"run_id\":\"run-uuid\","
                          "\"effect_type\":\"SEND_EMAIL\",\"error_code\":\"SMTP_TIMEOUT\","
                          "\"error_message\":\"Connection timeout after 30s\",\"retry_count\":2,"
                          "\"next_retry_at\":\"2026-01-04T12:05:00Z\"}"},
        {"user_message", "{\"text\":\"hello\",\"requestId\":\"q-1\"}"},
        {"task.assigned", "{\"assignee\":\"u-1\"}"},
    };
    struct ol_json registry = parsed(registry_text);
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ol_json type = ol_json_get(&registry, cases[i][0]);
        struct ol_json shape = ol_json_get(&type, "shape"), payload = parsed(cases[i][1]);
        outlog_err err;
        if (ol_payload_shape_check(&shape, &payload, &err) < 0)
            fail_msg("%s: %s", cases[i][0], err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e10_payload_of_the_shape_passes),
        cmocka_unit_test(e10_wrong_member_is_named),
        cmocka_unit_test(e10_wrong_shape_is_named),
        cmocka_unit_test(e10_shipped_types_are_complete),
        cmocka_unit_test(e10_examples_of_the_seeds_pass),
    };
    return cmocka_run_group_tests(tests, load_registry, free_registry);
}
