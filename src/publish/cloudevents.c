/* cloudevents.c: collects the attributes of a message, then writes them as headers or JSON. */
#include "publish/cloudevents.h"

#include "base/base64.h"
#include "base/timestamp.h"

#include <string.h>
#include <strings.h>

const char *const ol_envelope_names[] = {"none", "cloudevents-binary", "cloudevents-structured",
                                         NULL};

enum { CE_ATTRIBUTES = 12 };

struct ce_attributes {
    struct ol_buf source, subject;
    char time[OL_TIMESTAMP_TEXT];
    size_t count;
    struct outlog_header list[CE_ATTRIBUTES];
};

static void add_attribute(struct ce_attributes *a, const char *name, const char *value)
{
    if (value && *value) // an attribute without value is absent, never empty
        a->list[a->count++] = (struct outlog_header){name, value};
}

/* Percent-encode what a path segment of a URI reference must not hold. */
static void add_segment(struct ol_buf *out, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    for (; *text; text++)
        if (strchr(plain, *text))
            ol_buf_char(out, *text);
        else
            ol_buf_print(out, "%%%02X", (unsigned char)*text);
}

static int collect_attributes(const struct outlog_delivery *message, const char *source,
                              struct ce_attributes *a)
{
    if (source) {
        ol_buf_text(&a->source, source);
    } else {
        ol_buf_text(&a->source, "/outlog");
        if (message->org_id) {
            ol_buf_char(&a->source, '/');
            add_segment(&a->source, message->org_id);
        }
    }
    if (message->aggregate_type && message->aggregate_id)
        ol_buf_print(&a->subject, "%s/%s", message->aggregate_type, message->aggregate_id);
    if (a->source.failed || a->subject.failed)
        return -1;
    add_attribute(a, "specversion", "1.0");
    add_attribute(a, "id", message->event_id);
    add_attribute(a, "source", a->source.data);
    add_attribute(a, "type", message->event_type);
    add_attribute(a, "time",
                  message->created_at ? ol_timestamp_format(message->created_at, a->time) : NULL);
    add_attribute(a, "subject", a->subject.data);
    add_attribute(a, "orgid", message->org_id);
    add_attribute(a, "correlationid", message->correlation_id);
    add_attribute(a, "causationid", message->causation_id);
    add_attribute(a, "partitionkey", message->partition_key);
    add_attribute(a, "idempotencykey", message->idempotency_key);
    add_attribute(a, "traceparent", message->traceparent);
    return 0;
}

static void clear_attributes(struct ce_attributes *a)
{
    ol_buf_clear(&a->source);
    ol_buf_clear(&a->subject);
}

/* HTTP binding 3.1.3.2: space, ", % and everything outside U+0021-007E as %XX of its UTF-8. */
static void add_encoded(struct ol_buf *out, const char *value)
{
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c > 0x20 && c < 0x7f && c != '"' && c != '%')
            ol_buf_char(out, (char)c);
        else
            ol_buf_print(out, "%%%02X", c);
    }
}

int ol_cloudevents_binary(const struct outlog_delivery *message, const char *source,
                          struct ol_headers *headers, outlog_err *err)
{
    struct ce_attributes a = {0};
    struct ol_buf name = {0}, value = {0};
    int result = -1;

    if (collect_attributes(message, source, &a) < 0) {
        ol_no_memory(err);
        goto out;
    }
    for (size_t i = 0; i < a.count; i++) {
        ol_buf_reset(&name);
        ol_buf_reset(&value);
        ol_buf_print(&name, "ce-%s", a.list[i].name);
        add_encoded(&value, a.list[i].value);
        if (name.failed || value.failed) {
            ol_no_memory(err);
            goto out;
        }
        if (ol_headers_set(headers, name.data, value.data, err) < 0)
            goto out;
    }
    result = 0;
out:
    ol_buf_clear(&value);
    ol_buf_clear(&name);
    clear_attributes(&a);
    return result;
}

int ol_cloudevents_list(const struct outlog_delivery *message, const char *source,
                        const char *prefix, struct ol_arena *arena, struct outlog_header **list,
                        size_t *count, outlog_err *err)
{
    struct ce_attributes a = {0};
    int result = 0;

    *list = ol_arena_array(arena, CE_ATTRIBUTES, sizeof **list);
    if (!*list || collect_attributes(message, source, &a) < 0)
        result = -1;
    for (*count = 0; result == 0 && *count < a.count; (*count)++) {
        struct outlog_header *to = &(*list)[*count], *from = &a.list[*count];
        to->name = ol_arena_print(arena, "%s%s", prefix, from->name);
        to->value = ol_arena_copy(arena, from->value, strlen(from->value));
        if (!to->name || !to->value)
            result = -1;
    }
    clear_attributes(&a);
    return result == 0 ? 0 : ol_no_memory(err);
}

bool ol_cloudevents_is_json(const char *content_type)
{
    if (!content_type)
        return true;
    size_t bytes = strcspn(content_type, "; \t");
    const char *slash = memchr(content_type, '/', bytes);
    if (!slash)
        return false;
    size_t subtype = bytes - (size_t)(slash + 1 - content_type);
    if (subtype == 4 && strncasecmp(slash + 1, "json", 4) == 0)
        return true;
    return subtype > 5 && strncasecmp(content_type + bytes - 5, "+json", 5) == 0;
}

int ol_cloudevents_structured(const struct outlog_delivery *message, const char *source,
                              struct ol_buf *out)
{
    struct ce_attributes a = {0};
    struct ol_json data;

    if (collect_attributes(message, source, &a) < 0) {
        clear_attributes(&a);
        return -1;
    }
    for (size_t i = 0; i < a.count; i++) {
        ol_buf_text(out, i ? ",\"" : "{\"");
        ol_buf_text(out, a.list[i].name);
        ol_buf_text(out, "\":");
        ol_buf_json_text(out, a.list[i].value);
    }
    clear_attributes(&a);
    ol_buf_text(out, ",\"datacontenttype\":");
    ol_buf_json_text(out, message->content_type ? message->content_type : "application/json");
    bool is_json = ol_cloudevents_is_json(message->content_type) &&
                   ol_json_parse(message->payload, message->payload_bytes, &data, NULL) == 0;
    if (is_json) {
        ol_buf_text(out, ",\"data\":");
        ol_buf_add(out, data.text, data.bytes);
    } else {
        ol_buf_text(out, ",\"data_base64\":\"");
        ol_base64_encode(out, message->payload, message->payload_bytes, 0);
        ol_buf_char(out, '"');
    }
    ol_buf_char(out, '}');
    return out->failed ? -1 : 0;
}
