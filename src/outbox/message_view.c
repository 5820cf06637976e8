/* message_view.c: the values of headers and metadata that look like secrets are masked. */
#include "outbox/message_view.h"

#include "base/base64.h"
#include "base/json/json.h"
#include "log/secrets.h"
#include "store/message_fields.h"

#include <string.h>

/* --- secrets (E13, X5) --- */

static void put_masked(struct ol_buf *out, const char *text)
{
    struct ol_json value;
    if (text && ol_json_parse(text, strlen(text), &value, NULL) == 0)
        ol_secrets_mask(&value, out);
    else
        ol_buf_text(out, "null");
}

/* --- members --- */

static void put_text(struct ol_buf *out, const char *name, const char *text)
{
    ol_buf_print(out, ",\"%s\":", name);
    ol_buf_json_text(out, text);
}

static void put_time(struct ol_buf *out, const char *name, int64_t time)
{
    ol_buf_print(out, ",\"%s\":", name);
    ol_buf_json_time(out, time);
}

static void put_number_or_null(struct ol_buf *out, const char *name, int64_t number)
{
    ol_buf_print(out, ",\"%s\":", name);
    if (number)
        ol_buf_int(out, number);
    else
        ol_buf_text(out, "null");
}

void ol_message_view_attempt_json(const struct outlog_attempt *attempt, struct ol_buf *out)
{
    ol_buf_print(out, "{\"attempt\":%d", attempt->attempt);
    put_time(out, "started_at", attempt->started_at);
    ol_buf_print(out, ",\"duration_ms\":%lld,\"outcome\":\"%s\"", (long long)attempt->duration_ms,
                 attempt->outcome);
    put_number_or_null(out, "status", attempt->status);
    put_text(out, "response", attempt->response);
    put_text(out, "error", attempt->error);
    ol_buf_print(out, ",\"permanent\":%s", attempt->permanent ? "true" : "false");
    put_text(out, "claimed_by", attempt->claimed_by);
    ol_buf_char(out, '}');
}

/* JSON unchanged, anything else as base64. */
static void put_payload(const struct outlog_message *m, struct ol_buf *out)
{
    struct ol_json value;
    if (m->payload && ol_json_parse(m->payload, m->payload_bytes, &value, NULL) == 0) {
        ol_buf_text(out, ",\"payload\":");
        ol_buf_add(out, value.text, value.bytes);
        return;
    }
    ol_buf_text(out, ",\"payload_base64\":\"");
    if (m->payload)
        ol_base64_encode(out, m->payload, m->payload_bytes, 0);
    ol_buf_char(out, '"');
}

static void put_field(struct ol_buf *out, const struct ol_field *field,
                      const struct outlog_message *m)
{
    const char *at = (const char *)m + field->stored, *text;
    int64_t time;
    int number;
    switch (field->kind) {
    case OL_FIELD_UUID:
        ol_buf_json_text(out, *at ? at : NULL);
        break;
    case OL_FIELD_COUNT:
        memcpy(&number, at, sizeof number);
        ol_buf_int(out, number);
        break;
    case OL_FIELD_TIME:
        memcpy(&time, at, sizeof time);
        ol_buf_json_time(out, time);
        break;
    case OL_FIELD_JSON:
        put_masked(out, ol_field_text(m, field->stored));
        break;
    default:
        text = ol_field_text(m, field->stored);
        ol_buf_json_text(out, text);
    }
}

void ol_message_view_json(const struct outlog_message *m, bool alone, struct ol_buf *out)
{
    static const int shown[] = {OL_MESSAGE_SHOWN_IDS};
    ol_buf_char(out, '{');
    for (int i = 0; i < OL_MESSAGE_SHOWN_COUNT; i++) {
        const struct ol_field *field = &ol_message_fields[shown[i]];
        size_t comma = i ? 0 : 1; // none before the first
        ol_buf_add(out, field->member + comma, field->member_bytes - comma);
        put_field(out, field, m);
    }
    if (alone) {
        put_payload(m, out);
        ol_buf_print(out, ",\"is_replay\":%s,\"held\":%s,\"attempts_log\":[",
                     m->is_replay ? "true" : "false", m->is_held ? "true" : "false");
        for (size_t i = 0; i < m->attempt_count; i++) {
            if (i)
                ol_buf_char(out, ',');
            ol_message_view_attempt_json(&m->attempts_log[i], out);
        }
        ol_buf_char(out, ']');
    }
    ol_buf_char(out, '}');
}

void ol_message_view_list_json(const struct outlog_message_page *page, struct ol_buf *out)
{
    ol_buf_text(out, "\"messages\":[");
    for (size_t i = 0; i < page->count; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_message_view_json(&page->messages[i], false, out);
    }
    ol_buf_char(out, ']');
}
