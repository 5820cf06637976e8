/* message_view.c: the values of headers and metadata that look like secrets are masked. */
#include "outbox/message_view.h"

#include "base/base64.h"
#include "base/json/json.h"
#include "log/secrets.h"

#include <string.h>

/* --- secrets (E13, X5) --- */

static void put_object(struct ol_buf *out, const char *name, const char *text)
{
    struct ol_json value;
    ol_buf_print(out, ",\"%s\":", name);
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

void ol_message_view_json(const struct outlog_message *m, bool alone, struct ol_buf *out)
{
    ol_buf_print(out, "{\"event_id\":\"%s\"", m->event_id);
    put_text(out, "org_id", m->org_id);
    put_text(out, "destination", m->destination);
    put_text(out, "event_type", m->event_type);
    put_text(out, "state", m->state);
    ol_buf_print(out, ",\"attempts\":%d", m->attempts);
    put_number_or_null(out, "max_attempts", m->max_attempts);
    put_time(out, "available_at", m->available_at);
    put_time(out, "created_at", m->created_at);
    put_time(out, "updated_at", m->updated_at);
    put_time(out, "claimed_at", m->claimed_at);
    put_text(out, "claimed_by", m->claimed_by);
    put_time(out, "published_at", m->published_at);
    put_text(out, "last_error", m->last_error);
    put_object(out, "error_details", m->error_details);
    put_object(out, "result", m->result);
    put_text(out, "idempotency_key", m->idempotency_key);
    put_text(out, "ordering_key", m->ordering_key);
    put_text(out, "partition_key", m->partition_key);
    put_text(out, "content_type", m->content_type);
    put_object(out, "headers", m->headers);
    put_object(out, "metadata", m->metadata);
    put_text(out, "correlation_id", m->correlation_id);
    put_text(out, "causation_id", *m->causation_id ? m->causation_id : NULL);
    put_text(out, "aggregate_type", m->aggregate_type);
    put_text(out, "aggregate_id", m->aggregate_id);
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
