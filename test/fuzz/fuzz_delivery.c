/* fuzz_delivery.c: a message as a publisher sends it: CloudEvents, names from templates, mail.
 *
 * Whatever its texts are, headers stay one line each, a structured event is JSON, a subject has no
 * byte that its broker forbids, and every line of a mail ends in CRLF and is short enough (M1). The
 * input is the fields of the message, each ended by NUL, and then the payload. */
#include "fuzz.h"

#include "base/json/json.h"
#include "destinations/name_template.h"
#include "publish/cloudevents.h"
#include "publish/mail/mime.h"

enum { FIELD_COUNT = 13 };

static void check_binary(const struct outlog_delivery *message, const char *source)
{
    struct ol_headers headers = {0};
    outlog_err err;
    if (ol_cloudevents_binary(message, source, &headers, &err) < 0)
        check_err(&err);
    for (size_t i = 0; i < headers.count; i++) {
        const char *line = ol_headers_line(&headers, i);
        check(strncmp(line, "ce-", 3) == 0 && strstr(line, ": "));
        for (const char *at = line; *at; at++)
            check((unsigned char)*at >= 0x20 && (unsigned char)*at < 0x7f);
    }
    ol_headers_clear(&headers);
}

static void check_structured(const struct outlog_delivery *message, const char *source)
{
    struct ol_buf out = {0};
    struct ol_json event;
    check(ol_cloudevents_structured(message, source, &out) == 0);
    check(ol_json_parse_wrapped(out.data, out.bytes, &event, NULL) == 0);
    struct ol_json data = ol_json_get(&event, "data"), raw = ol_json_get(&event, "data_base64");
    check((data.type == OL_JSON_NONE) != (raw.type == OL_JSON_NONE));
    ol_buf_clear(&out);
}

static void check_name(const struct outlog_delivery *message, const char *template)
{
    struct ol_arena arena = {0};
    const char *name;
    outlog_err err;
    if (ol_name_template_unknown_field(template))
        return;
    if (ol_name_template_fill(template, message, "*>+#", 200, &arena, &name, &err) < 0)
        check_err(&err);
    else if (name != template)
        check(strlen(name) <= 200);
    ol_arena_clear(&arena);
}

static void check_lines(const char *text, size_t bytes)
{
    size_t line = 0;
    for (size_t i = 0; i < bytes; i++, line++) {
        check(text[i] != '\0' && line <= 998);
        if (text[i] == '\r')
            check(i + 1 < bytes && text[i + 1] == '\n');
        if (text[i] == '\n') {
            check(i > 0 && text[i - 1] == '\r');
            line = 0;
        }
    }
}

static void check_mail(const struct outlog_delivery *message, const char *from)
{
    struct ol_arena arena = {0};
    struct ol_buf out = {0};
    struct ol_mailbox box = {.address = "a@b.example"}, given;
    struct ol_mime_mail mail;
    struct ol_mime_input input = {.message = message, .from = &box, .now_us = 1700000000000000};
    outlog_err err;
    if (ol_mailbox_parse(from, "from", &arena, &given, &err) == 0)
        box = given;
    else
        check_err(&err);
    if (ol_mime_build(&input, &arena, &mail, &out, &err) == 0) {
        check(mail.recipient_count > 0 && mail.recipient_count <= OL_MIME_RECIPIENTS);
        check_lines(out.data, out.bytes);
        for (size_t i = 0; i < mail.recipient_count; i++)
            check(!strpbrk(mail.recipients[i], "\r\n <>") && strchr(mail.recipients[i], '@'));
    } else {
        check_err(&err);
    }
    ol_buf_clear(&out);
    ol_arena_clear(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = copy_text(data, bytes), *at = text, *end = text + bytes;
    const char *fields[FIELD_COUNT] = {0};
    for (int i = 0; i < FIELD_COUNT && at < end; i++, at += strlen(at) + 1)
        if (*at && ol_utf8_is_valid(at, strlen(at)))
            fields[i] = at;
    at = at < end ? at : end;
    struct outlog_header header = {fields[10] ? fields[10] : "x", fields[11] ? fields[11] : "y"};
    struct outlog_delivery message = {.event_id = "0190b5f0-0000-7000-8000-000000000001",
                                      .org_id = fields[0] ? fields[0] : "acme",
                                      .destination = "mail",
                                      .event_type = fields[1] ? fields[1] : "order.created",
                                      .content_type = fields[2],
                                      .idempotency_key = fields[3],
                                      .partition_key = fields[4],
                                      .correlation_id = fields[5],
                                      .causation_id = fields[6],
                                      .aggregate_type = fields[7],
                                      .aggregate_id = fields[8],
                                      .traceparent = fields[9],
                                      .headers = &header,
                                      .header_count = 1,
                                      .payload = at,
                                      .payload_bytes = (size_t)(end - at),
                                      .created_at = 1700000000000000,
                                      .attempt = 1};
    check_binary(&message, fields[12]);
    check_structured(&message, fields[12]);
    check_name(&message, fields[12] ? fields[12] : "orders.{event_type}");
    check_mail(&message, fields[12] ? fields[12] : "A <a@b.example>");
    free(text);
    return 0;
}
