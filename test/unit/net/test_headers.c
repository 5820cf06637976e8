/* Outgoing headers: H1-H3 of headers.h; traceparent. */
#include "base/traceparent.h"
#include "net/headers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void d1_control_bytes_never_reach_the_wire(void **state)
{
    struct ol_headers h = {0};
    outlog_err err;
    (void)state;
    for (int c = 1; c < 256; c++) {
        char value[] = {'a', (char)c, 'b', '\0'}, name[] = {'x', (char)c, 'y', '\0'};
        bool is_control = c < 0x20 || c == 0x7f;
        assert_int_equal(ol_headers_set(&h, "x-a", value, &err), is_control ? -1 : 0);
        assert_int_equal(ol_headers_offer(&h, "x-b", value, &err), is_control ? -1 : 0);
        if (strchr("\r\n\t :\"(),/;<=>?@[\\]{}", c) || is_control || c > 0x7f)
            assert_int_equal(ol_headers_offer(&h, name, "v", &err), -1);
        ol_headers_reset(&h);
    }
    assert_int_equal(ol_headers_offer(&h, "", "v", &err), -1);
    assert_int_equal(ol_headers_offer(&h, "x", "evil\r\nSet-Cookie: a=b", &err), -1);
    assert_null(strstr(err.message, "evil"));
    assert_int_equal(h.count, 0);
    ol_headers_clear(&h);
}

static void d1_framing_headers_cannot_be_set_from_outside(void **state)
{
    static const char *const names[] = {"Host",
                                        "content-LENGTH",
                                        "Transfer-Encoding",
                                        "Connection",
                                        "Upgrade",
                                        "Expect",
                                        "TE",
                                        "Trailer",
                                        "Keep-Alive",
                                        "Proxy-Authorization",
                                        "HTTP2-Settings"};
    struct ol_headers h = {0};
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(ol_headers_offer(&h, names[i], "1", &err), -1);
    assert_int_equal(h.count, 0);
    ol_headers_clear(&h);
}

static void d1_message_header_of_a_name_we_set_loses(void **state)
{
    struct ol_headers h = {0};
    outlog_err err;
    (void)state;
    assert_int_equal(ol_headers_set(&h, "Idempotency-Key", "ours", &err), 0);
    assert_int_equal(ol_headers_offer(&h, "idempotency-key", "theirs", &err), 0);
    assert_int_equal(ol_headers_offer(&h, "Webhook-Signature", "v1,forged", &err), 0);
    assert_int_equal(ol_headers_offer(&h, "ce-id", "forged", &err), 0);
    assert_int_equal(ol_headers_offer(&h, "outlog-attempt", "9", &err), 0);
    assert_int_equal(ol_headers_offer(&h, "X-Own", "kept", &err), 0);
    assert_int_equal(h.count, 2);
    assert_string_equal(ol_headers_line(&h, 0), "Idempotency-Key: ours");
    assert_string_equal(ol_headers_get(&h, "x-own"), "kept");
    assert_null(ol_headers_get(&h, "webhook-signature"));
    ol_headers_clear(&h);
}

static void d1_headers_are_bounded(void **state)
{
    struct ol_headers h = {0};
    outlog_err err;
    char name[16], big[OL_HEADER_VALUE + 2];
    (void)state;
    for (int i = 0; i < OL_HEADERS_MAX; i++) {
        snprintf(name, sizeof name, "x-%d", i);
        assert_int_equal(ol_headers_offer(&h, name, "", &err), 0);
    }
    assert_int_equal(ol_headers_offer(&h, "x-more", "", &err), -1);
    memset(big, 'a', sizeof big);
    big[sizeof big - 1] = '\0';
    ol_headers_reset(&h);
    assert_int_equal(ol_headers_offer(&h, "x", big, &err), -1);
    ol_headers_clear(&h);
}

static void o1_headers_are_read_from_json(void **state)
{
    struct ol_arena arena = {0};
    struct outlog_header *list;
    size_t count;
    outlog_err err;
    (void)state;
    assert_int_equal(ol_headers_parse("{\"a\":\"x\\u0041\",\"n\":1.50,\"t\":true}", &arena, &list,
                                      &count, &err),
                     0);
    assert_int_equal(count, 3);
    assert_string_equal(list[0].value, "xA");
    assert_string_equal(list[1].value, "1.50");
    assert_string_equal(list[2].value, "true");
    assert_int_equal(ol_headers_parse(NULL, &arena, &list, &count, &err), 0);
    assert_int_equal(count, 0);
    assert_int_equal(ol_headers_parse("null", &arena, &list, &count, &err), 0);
    assert_int_equal(ol_headers_parse("[]", &arena, &list, &count, &err), -1);
    assert_int_equal(ol_headers_parse("{\"a\":{}}", &arena, &list, &count, &err), -1);
    assert_int_equal(ol_headers_parse("{\"a\":", &arena, &list, &count, &err), -1);
    ol_arena_clear(&arena);
}

static void t4_traceparent_keeps_the_trace_with_the_attempts_span(void **state)
{
    static const char from[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    char first[OL_TRACEPARENT_TEXT], second[OL_TRACEPARENT_TEXT];
    (void)state;
    assert_true(ol_traceparent_next(from, "m", 1, first));
    assert_true(ol_traceparent_next(from, "m", 2, second));
    assert_int_equal(strlen(first), 55);
    assert_memory_equal(first, from, 36);
    assert_string_equal(first + 52, "-01");
    assert_memory_not_equal(first + 36, from + 36, 16);
    assert_memory_not_equal(first + 36, second + 36, 16);
    /* a later version is re-emitted as 00 */
    assert_true(ol_traceparent_next("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what",
                                    "m", 1, first));
    assert_memory_equal(first, "00-", 3);
}

static void t4_bad_traceparent_is_not_sent(void **state)
{
    static const char *const bad[] =
        {"",
         "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
         "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
         "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
         "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
         "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
         "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
         "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
         "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
    char out[OL_TRACEPARENT_TEXT];
    (void)state;
    assert_false(ol_traceparent_next(NULL, "m", 1, out));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ol_traceparent_next(bad[i], "m", 1, out));
}

static void check_stored(const char *metadata, const char *expected)
{
    struct ol_arena arena = {0};
    assert_string_equal(
        ol_traceparent_store("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", metadata,
                             &arena),
        expected);
    ol_arena_clear(&arena);
}

static void t4_metadata_says_where_it_came_from(void **state)
{
#define CAME "{\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\""
    (void)state;
    check_stored(NULL, CAME "}");
    check_stored(" {} ", CAME "}");
    check_stored("{\"a\": 1}", CAME ",\"a\": 1}");
    check_stored("{\"traceparent\":\"mine\"}", "{\"traceparent\":\"mine\"}");
    check_stored("[1]", "[1]"); /* the store refuses it */
}

static void t4_a_correlation_id_names_a_trace(void **state)
{
    char id[OL_TRACEPARENT_TRACE_TEXT];
    (void)state;
    ol_traceparent_make_trace_id("0190a0b0-c0d0-7e0f-8000-000000000001", id);
    assert_string_equal(id, "0190a0b0c0d07e0f8000000000000001");
    ol_traceparent_make_trace_id("order 17", id);
    assert_int_equal(strspn(id, "0123456789abcdef"), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d1_control_bytes_never_reach_the_wire),
        cmocka_unit_test(d1_framing_headers_cannot_be_set_from_outside),
        cmocka_unit_test(d1_message_header_of_a_name_we_set_loses),
        cmocka_unit_test(d1_headers_are_bounded),
        cmocka_unit_test(o1_headers_are_read_from_json),
        cmocka_unit_test(t4_traceparent_keeps_the_trace_with_the_attempts_span),
        cmocka_unit_test(t4_bad_traceparent_is_not_sent),
        cmocka_unit_test(t4_metadata_says_where_it_came_from),
        cmocka_unit_test(t4_a_correlation_id_names_a_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
