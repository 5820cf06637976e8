/* A mail, by its bytes (D2). */
#include "publish/mail/mime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct ol_arena arena;
static struct ol_mime_mail mail;
static struct ol_buf text;
static outlog_err err;

static int build(const char *payload, const char *key)
{
    struct ol_mailbox from;
    struct outlog_header header = {"X-Campaign", "spring"}, evil = {"To", "evil@b.example"};
    struct outlog_header headers[] = {header, evil};
    struct outlog_delivery message = {
        .event_id = "0190e6a0-0000-7000-8000-000000000001",
        .org_id = "acme",
        .destination = "mail",
        .event_type = "SEND_EMAIL",
        .payload = payload,
        .payload_bytes = strlen(payload),
        .idempotency_key = key,
        .headers = headers,
        .header_count = 2,
    };
    ol_arena_reset(&arena);
    ol_buf_reset(&text);
    assert_int_equal(ol_mailbox_parse("Shop <shop@a.example>", "from", &arena, &from, &err), 0);
    struct ol_mime_input input = {.message = &message,
                                  .from = &from,
                                  .now_us = INT64_C(1767528300000000)};
    return ol_mime_build(&input, &arena, &mail, &text, &err);
}

static void d2_html_and_text_become_alternatives(void **state)
{
    (void)state;
    assert_int_equal(
        build("{\"to\":[\"c@x.example\"],\"subject\":\"Hi\",\"body_html\":\"<p>h</p>\","
              "\"body_text\":\".\\r\\n.t\",\"cc\":[\"C@x.example\",\"d@x.example\"],"
              "\"reply_to\":\"r@x.example\"}",
              "k"),
        0);
    assert_int_equal(mail.recipient_count, 2); // each once
    assert_non_null(strstr(text.data, "From: \"Shop\" <shop@a.example>\r\nTo: c@x.example\r\n"
                                      "Cc: C@x.example,\r\n d@x.example\r\n"
                                      "Reply-To: r@x.example\r\nSubject: Hi\r\n"
                                      "Date: Sun, 04 Jan 2026 12:05:00 +0000\r\n"));
    assert_non_null(strstr(text.data, "Content-Type: multipart/alternative; boundary="));
    const char *plain = strstr(text.data, "text/plain"), *html = strstr(text.data, "text/html");
    assert_true(plain && html && plain < html);
    assert_non_null(strstr(text.data, "PHA+aDwvcD4=\r\n")); // <p>h</p>
    assert_non_null(strstr(text.data, "Lg0KLnQ=\r\n"));     // no line begins with a dot
    assert_non_null(strstr(text.data, "X-Campaign: spring\r\n"));
    assert_null(strstr(text.data, "evil"));
}

static void d2_message_id_depends_on_the_key_alone(void **state)
{
    char first[sizeof mail.message_id];
    (void)state;
    assert_int_equal(build("{\"to\":\"c@x.example\",\"subject\":\"a\",\"body_html\":\"x\"}", "k1"),
                     0);
    memcpy(first, mail.message_id, sizeof first);
    assert_int_equal(build("{\"to\":\"c@x.example\",\"subject\":\"b\",\"body_text\":\"y\"}", "k1"),
                     0);
    assert_string_equal(mail.message_id, first);
    assert_int_equal(build("{\"to\":\"c@x.example\",\"subject\":\"b\",\"body_text\":\"y\"}", "k2"),
                     0);
    assert_string_not_equal(mail.message_id, first);
    /* S0's payload may bring the key itself */
    assert_int_equal(build("{\"to\":\"c@x.example\",\"subject\":\"b\",\"body_text\":\"y\","
                           "\"idempotency_key\":\"k1\"}",
                           "k2"),
                     0);
    assert_string_equal(mail.message_id, first);
    assert_non_null(strstr(first, "@a.example>"));
}

static void d2_subject_beyond_ascii_becomes_encoded_words(void **state)
{
    (void)state;
    assert_int_equal(
        build("{\"to\":\"c@x.example\",\"subject\":\"Gr\u00fc\u00dfe\",\"body_text\":\"y\"}", "k"),
        0);
    assert_non_null(strstr(text.data, "Subject: =?UTF-8?B?R3LDvMOfZQ==?=\r\n"));
    /* long: several words, none cut inside a character, no line over 78 */
    assert_int_equal(
        build(
            "{\"to\":\"c@x.example\",\"subject\":\""
            "\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac"
            "a\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac"
            "\",\"body_text\":\"y\"}",
            "k"),
        0);
    size_t line = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        line = text.data[i] == '\n' ? 0 : line + 1;
        assert_true(line <= 90);
    }
    assert_non_null(strstr(text.data, "?=\r\n =?UTF-8?B?"));
    /* text that looks like an encoded word is encoded, so that no reader decodes it */
    assert_int_equal(
        build("{\"to\":\"c@x.example\",\"subject\":\"=?UTF-8?B?eA==?=\",\"body_text\":\"y\"}", "k"),
        0);
    assert_null(strstr(text.data, "Subject: =?UTF-8?B?eA==?=\r\n"));
}

static void d2_every_line_ends_in_crlf(void **state)
{
    (void)state;
    assert_int_equal(build("{\"to\":[\"\\\"J. \\\\\\\"X\\\" <c@x.example>\"],\"subject\":\"Hi\","
                           "\"body_html\":\"a\\nb\",\"body_text\":\"c\\nd\"}",
                           "k"),
                     0);
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] == '\n')
            assert_true(i > 0 && text.data[i - 1] == '\r');
        if (text.data[i] == '\r')
            assert_true(text.data[i + 1] == '\n');
    }
}

static void d2_injection_is_refused(void **state)
{
    static const char *const bad[] = {
        "{\"to\":\"c@x.example\\r\\nBcc: e@x.example\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"c@x.example>\\r\\nDATA\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"a <c@x.example\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"<c@x.example> SIZE=1\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"c@x.example,d@x.example\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"c d@x.example\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"c@\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"@x\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"c..d@x.example\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"c@x.example.\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"\u00e9@x.example\",\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":[],\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":[7],\"subject\":\"s\",\"body_text\":\"t\"}",
        "{\"to\":\"c@x.example\",\"subject\":\"s\\r\\nBcc: e@x.example\",\"body_text\":\"t\"}",
        "{\"to\":\"c@x.example\",\"subject\":\"s\\u0001\",\"body_text\":\"t\"}",
        "{\"to\":\"c@x.example\",\"subject\":\"s\"}",
        "{\"to\":\"c@x.example\",\"body_text\":\"t\"}",
        "{\"to\":\"c@x.example\",\"subject\":\"s\",\"body_txt\":\"t\"}",
        "{\"to\":\"c@x.example\",\"subject\":\"s\",\"body_text\":\"t\",\"reply_to\":\"x\\ny@z.q\"}",
        "[]",
        "not json",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (build(bad[i], "k") == 0)
            fail_msg("%s became a mail", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d2_html_and_text_become_alternatives),
        cmocka_unit_test(d2_message_id_depends_on_the_key_alone),
        cmocka_unit_test(d2_subject_beyond_ascii_becomes_encoded_words),
        cmocka_unit_test(d2_every_line_ends_in_crlf),
        cmocka_unit_test(d2_injection_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ol_arena_clear(&arena);
    ol_buf_clear(&text);
    return failed;
}
