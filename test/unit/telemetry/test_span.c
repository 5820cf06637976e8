/* What a collector gets, by its bytes (M4). */
#include "telemetry/span.h"

#include "outlog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define HEAD                                                                                                  \
    "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":"                 \
    "{\"stringValue\":\"outlog\"}},{\"key\":\"service.version\",\"value\":{\"stringValue\":\"" OUTLOG_VERSION \
    "\"}}]},\"scopeSpans\":[{\"scope\":{\"name\":\"outlog\"},\"spans\":["

static void m4_spans_are_otlp_json(void **state)
{
    struct ol_span spans[2] = {{.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
                                .span_id = "00f067aa0ba902b7",
                                .name = "append",
                                .kind = OL_SPAN_SERVER,
                                .start_us = 1700000000000001,
                                .end_us = 1700000000000002},
                               {.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
                                .span_id = "00f067aa0ba902b8",
                                .parent_id = "00f067aa0ba902b7",
                                .name = "publish",
                                .kind = OL_SPAN_PRODUCER,
                                .start_us = 1,
                                .end_us = 2,
                                .attempt = 3,
                                .is_error = true,
                                .error = "\"no\"",
                                .destination = "hook"}};
    struct ol_buf out = {0};
    (void)state;
    ol_span_json(spans, 2, &out);
    assert_string_equal(
        out.data, HEAD
        "{\"traceId\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"spanId\":\"00f067aa0ba902b7\",\"name\":"
        "\"append\",\"kind\":2,\"startTimeUnixNano\":\"1700000000000001000\",\"endTimeUnixNano\":"
        "\"1700000000000002000\",\"attributes\":[],\"status\":{}},"
        "{\"traceId\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"spanId\":\"00f067aa0ba902b8\","
        "\"parentSpanId\":\"00f067aa0ba902b7\",\"name\":\"publish\",\"kind\":4,\"startTimeUnixNano\":"
        "\"1000\",\"endTimeUnixNano\":\"2000\",\"attributes\":[{\"key\":\"outlog.destination\","
        "\"value\":{\"stringValue\":\"hook\"}},{\"key\":\"outlog.attempt\",\"value\":{\"intValue\":"
        "\"3\"}}],\"status\":{\"code\":2,\"message\":\"\\\"no\\\"\"}}]}]}]}");
    ol_buf_clear(&out);
}

static void m4_texts_are_cut_at_a_character(void **state)
{
    char field[5];
    (void)state;
    OL_SPAN_TEXT(field, "abcdef");
    assert_string_equal(field, "abcd");
    OL_SPAN_TEXT(field, "abc\xc3\xa4");
    assert_string_equal(field, "abc");
    OL_SPAN_TEXT(field, "ab\xc3\xa4");
    assert_string_equal(field, "ab\xc3\xa4");
    OL_SPAN_TEXT(field, NULL);
    assert_string_equal(field, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(m4_spans_are_otlp_json),
                                       cmocka_unit_test(m4_texts_are_cut_at_a_character)};
    return cmocka_run_group_tests_name("span", tests, NULL, NULL);
}
