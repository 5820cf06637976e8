/* mime.c: addresses, encoded words and parts of a mail; mime.h has the invariants M1 to M3. */
#include "publish/mail/mime.h"

#include "base/base64.h"
#include "base/sha256.h"
#include "base/traceparent.h"
#include "net/headers.h"
#include "publish/publisher.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* --- addresses -------------------------------------------------------------------------------- */

static int refuse_address(outlog_err *err, const char *what, const char *why)
{
    return ol_fail(err, OUTLOG_INVALID_FIELD, "%s: %s", what, why);
}

static int check_address(const char *address, const char *what, outlog_err *err)
{
    static const char atom[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "!#$%&'*+/=?^_`{|}~.-";
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    const char *at = strrchr(address, '@');
    if (!at || at == address || at[1] == '\0')
        return refuse_address(err, what, "an address like a@b.example is wanted");
    size_t local = (size_t)(at - address), domain = strlen(at + 1);
    if (local > 64 || domain > 255)
        return refuse_address(err, what, "an address is longer than mail allows");
    if (strspn(address, atom) != local || strspn(at + 1, name) != domain)
        return refuse_address(err, what, "an address has a character that mail servers refuse");
    if (address[0] == '.' || at[-1] == '.' || strstr(address, "..") || at[1] == '.' ||
        at[1] == '-' || at[domain] == '.')
        return refuse_address(err, what, "an address has a dot or hyphen in the wrong place");
    return 0;
}

static bool is_clean(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

int ol_mailbox_parse(const char *text, const char *what, struct ol_arena *arena,
                     struct ol_mailbox *out, outlog_err *err)
{
    size_t bytes = strlen(text);
    const char *open = strrchr(text, '<');

    *out = (struct ol_mailbox){0};
    if (!is_clean(text))
        return refuse_address(err, what, "an address has a control byte");
    if (!open) {
        out->address = ol_arena_copy(arena, text, bytes);
        return out->address ? check_address(out->address, what, err) : ol_no_memory(err);
    }
    if (text[bytes - 1] != '>')
        return refuse_address(err, what, "after the address a > is wanted");
    const char *end = open;
    while (end > text && end[-1] == ' ')
        end--;
    if (end - text >= 2 && *text == '"' && end[-1] == '"') { // "A Name" <a@b>
        text++;
        end--;
    }
    out->address = ol_arena_copy(arena, open + 1, (size_t)(strlen(open) - 2));
    out->name = end > text ? ol_arena_copy(arena, text, (size_t)(end - text)) : NULL;
    if (!out->address || (end > text && !out->name))
        return ol_no_memory(err);
    return check_address(out->address, what, err);
}

/* --- header text ------------------------------------------------------------------------------ */

enum {
    MIME_PLAIN_MAX = 900,
    MIME_WORD_BYTES = 45
}; // 45 bytes are 60 characters of base64: a word of 72

static bool is_plain(const char *text)
{
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || (unsigned char)*at > 0x7e)
            return false;
    return strlen(text) <= MIME_PLAIN_MAX && !strstr(text, "=?");
}

/* RFC 2047, B encoding; a word ends at a whole character and has a line of its own. */
static void add_words(struct ol_buf *out, const char *text)
{
    size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        size_t part = bytes - at < MIME_WORD_BYTES ? bytes - at : MIME_WORD_BYTES;
        while (part > 1 && at + part < bytes && ((unsigned char)text[at + part] & 0xc0) == 0x80)
            part--;
        ol_buf_text(out, at ? "\r\n =?UTF-8?B?" : "=?UTF-8?B?");
        ol_base64_encode(out, text + at, part, 0);
        ol_buf_text(out, "?=");
        at += part;
    }
}

static void add_unstructured(struct ol_buf *out, const char *name, const char *text)
{
    ol_buf_print(out, "%s: ", name);
    if (is_plain(text))
        ol_buf_text(out, text);
    else
        add_words(out, text);
    ol_buf_text(out, "\r\n");
}

static void add_mailbox(struct ol_buf *out, const struct ol_mailbox *box)
{
    if (!box->name) {
        ol_buf_text(out, box->address);
        return;
    }
    if (is_plain(box->name)) {
        ol_buf_char(out, '"');
        for (const char *at = box->name; *at; at++) {
            if (*at == '"' || *at == '\\')
                ol_buf_char(out, '\\');
            ol_buf_char(out, *at);
        }
        ol_buf_char(out, '"');
    } else {
        add_words(out, box->name);
    }
    ol_buf_print(out, " <%s>", box->address);
}

static void add_mailboxes(struct ol_buf *out, const char *name, const struct ol_mailbox *boxes,
                          size_t count)
{
    if (count == 0)
        return;
    ol_buf_print(out, "%s: ", name);
    for (size_t i = 0; i < count; i++) {
        if (i)
            ol_buf_text(out, ",\r\n ");
        add_mailbox(out, &boxes[i]);
    }
    ol_buf_text(out, "\r\n");
}

static void add_date(struct ol_buf *out, int64_t now_us)
{
    static const char days[] = "SunMonTueWedThuFriSat",
                      months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t seconds = (time_t)(now_us / 1000000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    ol_buf_print(out, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d +0000\r\n", days + 3 * tm.tm_wday,
                 tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
                 tm.tm_sec);
}

/* --- the payload ------------------------------------------------------------------------------ */

struct mail_draft {
    struct ol_mailbox to[OL_MIME_RECIPIENTS], cc[OL_MIME_RECIPIENTS], reply_to;
    size_t to_count, cc_count;
    const char *subject, *body_html, *body_text, *key;
    size_t html_bytes, text_bytes;
};

/* One address, or a list of them. */
static int read_mailboxes(const struct ol_json *value, const char *what, struct ol_arena *arena,
                          struct ol_mailbox *boxes, size_t *count, outlog_err *err)
{
    struct ol_json_iter it = {0};
    if (value->type == OL_JSON_STRING) {
        const char *text = ol_json_string(value, arena, NULL);
        *count = 1;
        return text ? ol_mailbox_parse(text, what, arena, boxes, err) : ol_no_memory(err);
    }
    *count = 0;
    while (value->type == OL_JSON_ARRAY && ol_json_next(value, &it)) {
        const char *text = ol_json_string(&it.value, arena, NULL);
        if (!text)
            return refuse_address(err, what, "a list of addresses is wanted");
        if (*count == OL_MIME_RECIPIENTS)
            return refuse_address(err, what, "more than 100 addresses");
        if (ol_mailbox_parse(text, what, arena, &boxes[(*count)++], err) < 0)
            return -1;
    }
    return *count ? 0 : refuse_address(err, what, "at least one address is wanted");
}

static int read_text(const struct ol_json *value, const char *what, struct ol_arena *arena,
                     const char **out, size_t *bytes, outlog_err *err)
{
    *out = ol_json_string(value, arena, bytes);
    return *out ? 0 : ol_fail(err, OUTLOG_INVALID_FIELD, "%s: a text is wanted", what);
}

static int read_payload_key(const struct ol_json_iter *it, struct ol_arena *arena,
                            struct mail_draft *d, outlog_err *err)
{
    size_t count;
    if (ol_json_equals(&it->key, "to"))
        return read_mailboxes(&it->value, "payload.to", arena, d->to, &d->to_count, err);
    if (ol_json_equals(&it->key, "cc"))
        return read_mailboxes(&it->value, "payload.cc", arena, d->cc, &d->cc_count, err);
    if (ol_json_equals(&it->key, "reply_to")) {
        const char *text = ol_json_string(&it->value, arena, NULL);
        return text ? ol_mailbox_parse(text, "payload.reply_to", arena, &d->reply_to, err)
                    : refuse_address(err, "payload.reply_to", "an address is wanted");
    }
    if (ol_json_equals(&it->key, "subject"))
        return read_text(&it->value, "payload.subject", arena, &d->subject, &count, err);
    if (ol_json_equals(&it->key, "body_html"))
        return read_text(&it->value, "payload.body_html", arena, &d->body_html, &d->html_bytes,
                         err);
    if (ol_json_equals(&it->key, "body_text"))
        return read_text(&it->value, "payload.body_text", arena, &d->body_text, &d->text_bytes,
                         err);
    if (ol_json_equals(&it->key, "idempotency_key"))
        return read_text(&it->value, "payload.idempotency_key", arena, &d->key, &count, err);
    return ol_fail(err, OUTLOG_UNKNOWN_FIELD,
                   "payload: unknown key; to, cc, reply_to, subject, body_html, body_text and"
                   " idempotency_key are known");
}

static int read_draft(const struct outlog_delivery *message, struct ol_arena *arena,
                      struct mail_draft *d, outlog_err *err)
{
    struct ol_json payload;
    struct ol_json_iter it = {0};

    d->key = ol_publisher_message_key(message);
    if (ol_json_parse(message->payload, message->payload_bytes, &payload, err) < 0)
        return -1;
    while (ol_json_next(&payload, &it))
        if (it.value.type != OL_JSON_NULL && read_payload_key(&it, arena, d, err) < 0)
            return -1;
    if (d->to_count == 0)
        return refuse_address(err, "payload.to", "at least one address is wanted");
    if (!d->subject || !is_clean(d->subject) || strlen(d->subject) > 4096)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "payload.subject: a text of one line, at most 4096 bytes, is wanted");
    if (!d->body_html && !d->body_text)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "payload: body_html or body_text is wanted");
    return 0;
}

/* --- the mail --------------------------------------------------------------------------------- */

static int add_recipients(struct ol_mime_mail *mail, const struct ol_mailbox *boxes, size_t count,
                          outlog_err *err)
{
    for (size_t i = 0; i < count; i++) {
        bool is_known = false;
        for (size_t k = 0; k < mail->recipient_count; k++)
            is_known = is_known || strcasecmp(mail->recipients[k], boxes[i].address) == 0;
        if (is_known)
            continue;
        if (mail->recipient_count == OL_MIME_RECIPIENTS)
            return refuse_address(err, "payload.cc", "more than 100 addresses with those of `to`");
        mail->recipients[mail->recipient_count++] = boxes[i].address;
    }
    return 0;
}

/* A key is unique only within its org and destination, so both are hashed too. */
static int name_mail(const struct outlog_delivery *message, const char *key,
                     const struct ol_mailbox *from, struct ol_mime_mail *mail, char boundary[40],
                     outlog_err *err)
{
    struct ol_buf text = {0};
    char hash[OL_SHA256_TEXT];

    ol_buf_print(&text, "%s\n%s\n%s", message->org_id ? message->org_id : "",
                 message->destination ? message->destination : "", key);
    if (text.failed) {
        ol_buf_clear(&text);
        return ol_no_memory(err);
    }
    ol_sha256_hex(text.data, text.bytes, hash);
    ol_buf_clear(&text);
    const char *domain = strrchr(from->address, '@') + 1;
    snprintf(mail->message_id, sizeof mail->message_id, "<%.40s@%.255s>", hash, domain);
    snprintf(boundary, 40, "=_%.32s", hash + 32);
    return 0;
}

static void add_part(struct ol_buf *out, const char *type, const char *text, size_t bytes)
{
    ol_buf_print(out,
                 "Content-Type: %s; charset=UTF-8\r\nContent-Transfer-Encoding: base64\r\n\r\n",
                 type);
    ol_base64_encode(out, text, bytes, 76);
}

static void add_body(struct ol_buf *out, const struct mail_draft *d, const char *boundary)
{
    if (!d->body_html || !d->body_text) {
        bool is_html = d->body_html != NULL;
        add_part(out, is_html ? "text/html" : "text/plain", is_html ? d->body_html : d->body_text,
                 is_html ? d->html_bytes : d->text_bytes);
        return;
    }
    ol_buf_print(out, "Content-Type: multipart/alternative; boundary=\"%s\"\r\n\r\n--%s\r\n",
                 boundary, boundary);
    add_part(out, "text/plain", d->body_text, d->text_bytes); // the best alternative comes last
    ol_buf_print(out, "\r\n--%s\r\n", boundary);
    add_part(out, "text/html", d->body_html, d->html_bytes);
    ol_buf_print(out, "\r\n--%s--\r\n", boundary);
}

/* Headers that outlog sets itself, or that would change how the mail is routed or read. */
static bool is_mail_name(const char *name)
{
    static const char *const names[] = {"from",
                                        "sender",
                                        "to",
                                        "cc",
                                        "bcc",
                                        "reply-to",
                                        "subject",
                                        "date",
                                        "message-id",
                                        "return-path",
                                        "received",
                                        "mime-version",
                                        "dkim-signature",
                                        "auto-submitted",
                                        "traceparent",
                                        "x-outlog-event-id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return strncasecmp(name, "content-", 8) == 0 || strncasecmp(name, "resent-", 7) == 0 ||
           strncasecmp(name, "arc-", 4) == 0 || strncasecmp(name, "outlog-", 7) == 0;
}

static int add_extra_headers(struct ol_buf *out, const struct outlog_header *list, size_t count,
                             outlog_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!ol_headers_name_is_valid(list[i].name) || strlen(list[i].name) > 70)
            return ol_fail(err, OUTLOG_INVALID_FIELD,
                           "headers: a name cannot be a header of a mail");
        if (!ol_headers_value_is_valid(list[i].value))
            return ol_fail(err, OUTLOG_INVALID_FIELD, "header %s: its value has a control byte",
                           list[i].name);
        if (!is_mail_name(list[i].name))
            add_unstructured(out, list[i].name, list[i].value);
    }
    return 0;
}

/* T1: the execution that the message belongs to, what caused it, and its trace. */
static void add_origin(struct ol_buf *out, const struct outlog_delivery *message)
{
    char escaped[OL_HEADER_ESCAPED], trace[OL_TRACEPARENT_TEXT];
    add_unstructured(out, "X-Outlog-Event-Id", message->event_id);
    if (message->correlation_id)
        add_unstructured(out, "Outlog-Correlation-Id",
                         ol_headers_escape(message->correlation_id, escaped));
    if (message->causation_id)
        add_unstructured(out, "Outlog-Causation-Id", message->causation_id);
    if (ol_traceparent_next(message->traceparent, message->event_id, message->attempt, trace))
        add_unstructured(out, "Traceparent", trace);
}

int ol_mime_build(const struct ol_mime_input *input, struct ol_arena *arena,
                  struct ol_mime_mail *mail, struct ol_buf *out, outlog_err *err)
{
    const struct outlog_delivery *message = input->message;
    struct mail_draft *d = ol_arena_alloc(arena, sizeof *d);
    char boundary[40];

    *mail = (struct ol_mime_mail){0};
    if (!d)
        return ol_no_memory(err);
    if (read_draft(message, arena, d, err) < 0 ||
        add_recipients(mail, d->to, d->to_count, err) < 0 ||
        add_recipients(mail, d->cc, d->cc_count, err) < 0 ||
        name_mail(message, d->key, input->from, mail, boundary, err) < 0)
        return -1;
    add_mailboxes(out, "From", input->from, 1);
    add_mailboxes(out, "To", d->to, d->to_count);
    add_mailboxes(out, "Cc", d->cc, d->cc_count);
    add_mailboxes(out, "Reply-To", &d->reply_to, d->reply_to.address ? 1 : 0);
    add_unstructured(out, "Subject", d->subject);
    add_date(out, input->now_us);
    ol_buf_print(out, "Message-ID: %s\r\n", mail->message_id);
    add_origin(out, message);
    ol_buf_text(out, "Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n");
    if (add_extra_headers(out, input->headers, input->header_count, err) < 0 ||
        add_extra_headers(out, message->headers, message->header_count, err) < 0)
        return -1;
    add_body(out, d, boundary);
    return out->failed ? ol_no_memory(err) : 0;
}
