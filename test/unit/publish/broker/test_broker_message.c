/* What a broker gets of a message (D4). */
#include "publish/broker/broker_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct ol_arena arena;
static struct ol_broker_message made;
static outlog_err err;

static int make(const char *json, const struct outlog_delivery *message)
{
    static const struct ol_broker_naming naming = {.forbidden = " *>", .ce_prefix = "ce-"};
    struct ol_settings *settings;
    assert_int_equal(ol_settings_open("d", json, strlen(json), OL_SETTINGS_USE, &settings, &err),
                     0);
    ol_arena_reset(&arena);
    int result = ol_broker_message_make(settings, &naming, message, &arena, &made, &err);
    ol_settings_close(settings);
    return result;
}

static const char *header(const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; i < made.header_count; i++)
        if (strcmp(made.headers[i].name, name) == 0) {
            assert_null(value); // a name is sent once
            value = made.headers[i].value;
        }
    return value;
}

#define NATS(more) "{\"type\":\"nats\",\"url\":\"nats://h\",\"subject\":\"a.{event_type}\"" more "}"

static struct outlog_delivery message = {.event_id = "e-1",
                                         .event_type = "order.paid",
                                         .org_id = "acme",
                                         .payload = "{\"n\":1}",
                                         .payload_bytes = 7,
                                         .ordering_key = "o",
                                         .created_at = 1767528300000001,
                                         .attempt = 2};

static void our_headers_come_first_and_cannot_be_replaced(void **state)
{
    const struct outlog_header own[] = {{"outlog-attempt", "9"}, {"x-a", "theirs"}, {"x-b", "b"}};
    (void)state;
    message.headers = own;
    message.header_count = 3;
    assert_int_equal(make(NATS(",\"headers\":{\"x-a\":\"ours\"}"), &message), 0);
    message.header_count = 0;
    assert_string_equal(made.name, "a.order.paid");
    assert_string_equal(made.id, "e-1");
    assert_string_equal(made.key, "o");
    assert_string_equal(made.content_type, "application/json");
    assert_int_equal(made.body_bytes, 7);
    assert_memory_equal(made.body, "{\"n\":1}", 7);
    assert_string_equal(header("outlog-event-id"), "e-1");
    assert_string_equal(header("idempotency-key"), "e-1");
    assert_string_equal(header("outlog-attempt"), "2");
    assert_string_equal(header("x-b"), "b");
    assert_null(header("outlog-replay"));
}

static void d8_cloudevents_are_attributes_or_the_body(void **state)
{
    (void)state;
    assert_int_equal(make(NATS(",\"envelope\":\"cloudevents-binary\",\"source\":\"/s\""), &message),
                     0);
    assert_string_equal(header("ce-type"), "order.paid");
    assert_string_equal(header("ce-source"), "/s");
    assert_int_equal(made.body_bytes, 7);
    assert_int_equal(make(NATS(",\"envelope\":\"cloudevents-structured\""), &message), 0);
    assert_null(header("ce-type"));
    assert_non_null(strstr(made.content_type, "application/cloudevents+json"));
    assert_non_null(strstr(made.body, "\"data\":{\"n\":1}"));
}

static void h1_no_value_starts_another_header(void **state)
{
    struct outlog_delivery evil = message;
    (void)state;
    evil.idempotency_key = "k\nx-evil: 1";
    assert_int_equal(make(NATS(""), &evil), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    assert_non_null(strstr(err.message, "idempotency-key"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_headers_come_first_and_cannot_be_replaced),
        cmocka_unit_test(d8_cloudevents_are_attributes_or_the_body),
        cmocka_unit_test(h1_no_value_starts_another_header),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ol_arena_clear(&arena);
    return failed;
}
