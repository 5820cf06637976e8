/* CloudEvents 1.0, by their bytes (D8). */
#include "publish/cloudevents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct outlog_delivery message = {
    .event_id = "0190e6a0-0000-7000-8000-000000000001",
    .org_id = "acme gmbh",
    .destination = "hook",
    .event_type = "order.created",
    .payload = "{ \"n\": 1.0 }",
    .payload_bytes = 12,
    .idempotency_key = "k\"1%",
    .correlation_id = "c-1",
    .aggregate_type = "order",
    .aggregate_id = "\xc3\xa9-1",
    .created_at = 1767528300000001,
    .attempt = 1,
};

static void d8_binary_mode_maps_attributes_to_headers(void **state)
{
    struct ol_headers h = {0};
    outlog_err err;
    (void)state;
    assert_int_equal(ol_cloudevents_binary(&message, NULL, &h, &err), 0);
    assert_string_equal(ol_headers_get(&h, "ce-specversion"), "1.0");
    assert_string_equal(ol_headers_get(&h, "ce-id"), message.event_id);
    assert_string_equal(ol_headers_get(&h, "ce-type"), "order.created");
    assert_string_equal(ol_headers_get(&h, "ce-source"), "/outlog/acme%2520gmbh");
    assert_string_equal(ol_headers_get(&h, "ce-subject"), "order/%C3%A9-1");
    assert_string_equal(ol_headers_get(&h, "ce-time"), "2026-01-04T12:05:00.000001Z");
    assert_string_equal(ol_headers_get(&h, "ce-idempotencykey"), "k%221%25");
    assert_string_equal(ol_headers_get(&h, "ce-orgid"), "acme%20gmbh");
    assert_null(ol_headers_get(&h, "ce-datacontenttype")); // Content-Type has it
    assert_null(ol_headers_get(&h, "ce-causationid"));
    ol_headers_clear(&h);
}

static void d8_structured_mode_keeps_json_bytes(void **state)
{
    struct ol_buf out = {0};
    struct ol_json event, data;
    (void)state;
    assert_int_equal(ol_cloudevents_structured(&message, "/shop", &out), 0);
    assert_int_equal(ol_json_parse(out.data, out.bytes, &event, NULL), 0);
    data = ol_json_get(&event, "data");
    assert_int_equal(data.bytes, 12);
    assert_memory_equal(data.text, "{ \"n\": 1.0 }", 12);
    struct ol_json source = ol_json_get(&event, "source"),
                   type = ol_json_get(&event, "datacontenttype");
    assert_true(ol_json_equals(&source, "/shop"));
    assert_true(ol_json_equals(&type, "application/json"));
    assert_int_equal(ol_json_get(&event, "data_base64").type, OL_JSON_NONE);
    ol_buf_clear(&out);
}

static void d8_other_bytes_become_base64(void **state)
{
    struct outlog_delivery binary = message;
    struct ol_buf out = {0};
    struct ol_json event, data;
    (void)state;
    binary.payload = "\0\xff{";
    binary.payload_bytes = 3;
    for (int i = 0; i < 2; i++) { // another type, and a JSON type without JSON
        binary.content_type = i ? "application/json" : "image/png";
        ol_buf_reset(&out);
        assert_int_equal(ol_cloudevents_structured(&binary, NULL, &out), 0);
        assert_int_equal(ol_json_parse(out.data, out.bytes, &event, NULL), 0);
        data = ol_json_get(&event, "data_base64");
        assert_true(ol_json_equals(&data, "AP97"));
        assert_int_equal(ol_json_get(&event, "data").type, OL_JSON_NONE);
    }
    ol_buf_clear(&out);
}

static void d8_json_types_are_recognised(void **state)
{
    (void)state;
    assert_true(ol_cloudevents_is_json(NULL));
    assert_true(ol_cloudevents_is_json("application/json"));
    assert_true(ol_cloudevents_is_json("Application/JSON; charset=utf-8"));
    assert_true(ol_cloudevents_is_json("application/vnd.a+json;v=1"));
    assert_false(ol_cloudevents_is_json("application/jsonx"));
    assert_false(ol_cloudevents_is_json("text/plain; a=b/json"));
    assert_false(ol_cloudevents_is_json("json"));
    assert_false(ol_cloudevents_is_json(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d8_binary_mode_maps_attributes_to_headers),
        cmocka_unit_test(d8_structured_mode_keeps_json_bytes),
        cmocka_unit_test(d8_other_bytes_become_base64),
        cmocka_unit_test(d8_json_types_are_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
