/* span.c: ExportTraceServiceRequest as JSON: ids in hex, 64-bit numbers as text. */
#include "telemetry/span.h"

#include "outlog.h"

#include <string.h>

void ol_span_text(char *field, size_t room, const char *text)
{
    if (!text)
        text = "";
    size_t bytes = strnlen(text, room - 1);
    while (bytes && text[bytes] && ((unsigned char)text[bytes] & 0xc0) == 0x80)
        bytes--; // not in the middle of a character
    memcpy(field, text, bytes);
    field[bytes] = '\0';
}

static void put_text(struct ol_buf *out, const char *key, const char *value, bool *is_first)
{
    if (!*value)
        return;
    ol_buf_print(out, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":", *is_first ? "" : ",", key);
    ol_buf_json_text(out, value);
    ol_buf_text(out, "}}");
    *is_first = false;
}

static void put_number(struct ol_buf *out, const char *key, int value, bool *is_first)
{
    if (!value)
        return;
    ol_buf_print(out, "%s{\"key\":\"%s\",\"value\":{\"intValue\":\"%d\"}}", *is_first ? "" : ",",
                 key, value);
    *is_first = false;
}

static void put_span(const struct ol_span *span, struct ol_buf *out)
{
    bool is_first = true;
    ol_buf_print(out, "{\"traceId\":\"%s\",\"spanId\":\"%s\"", span->trace_id, span->span_id);
    if (*span->parent_id)
        ol_buf_print(out, ",\"parentSpanId\":\"%s\"", span->parent_id);
    ol_buf_print(out,
                 ",\"name\":\"%s\",\"kind\":%d,\"startTimeUnixNano\":\"%lld000\","
                 "\"endTimeUnixNano\":\"%lld000\",\"attributes\":[",
                 span->name, (int)span->kind, (long long)span->start_us, (long long)span->end_us);
    put_text(out, "outlog.operation", span->operation, &is_first);
    put_text(out, "outlog.org_id", span->org_id, &is_first);
    put_text(out, "outlog.request_id", span->request_id, &is_first);
    put_text(out, "outlog.correlation_id", span->correlation_id, &is_first);
    put_text(out, "outlog.message_id", span->message_id, &is_first);
    put_text(out, "outlog.event_type", span->event_type, &is_first);
    put_text(out, "outlog.destination", span->destination, &is_first);
    put_number(out, "outlog.attempt", span->attempt, &is_first);
    put_number(out, "outlog.status", span->status, &is_first);
    ol_buf_text(out, "],\"status\":{");
    if (span->is_error) {
        ol_buf_text(out, "\"code\":2,\"message\":");
        ol_buf_json_text(out, span->error);
    }
    ol_buf_text(out, "}}");
}

void ol_span_json(const struct ol_span *spans, size_t count, struct ol_buf *out)
{
    ol_buf_text(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
                     "{\"key\":\"service.name\",\"value\":{\"stringValue\":\"outlog\"}},"
                     "{\"key\":\"service.version\",\"value\":{\"stringValue\":\"" OUTLOG_VERSION
                     "\"}}]},\"scopeSpans\":[{\"scope\":{\"name\":\"outlog\"},\"spans\":[");
    for (size_t i = 0; i < count; i++) {
        ol_buf_text(out, i ? "," : "");
        put_span(&spans[i], out);
    }
    ol_buf_text(out, "]}]}]}");
}
