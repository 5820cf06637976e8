/* event.c: checks, and the JSON forms of an event. Pure: no store, no clock. */
#include "log/event.h"

#include "base/timestamp.h"
#include "base/utf8.h"
#include "base/uuid.h"

#include <stdio.h>
#include <string.h>

/* --- checks --- */

struct limit {
    const char *field;
    size_t offset; /* of the const char * in struct outlog_new_event */
    size_t most;   /* bytes */
    bool is_required;
};

#define FIELD(name) #name, offsetof(struct outlog_new_event, name)

static const struct limit limits[] = {
    {FIELD(org_id), 100, false},          {FIELD(aggregate_type), 50, true},
    {FIELD(aggregate_id), 255, true},     {FIELD(event_type), 100, true},
    {FIELD(actor_id), 100, false},        {FIELD(request_id), 255, false},
    {FIELD(correlation_id), 255, false},  {FIELD(causation_id), 64, false},
    {FIELD(idempotency_key), 512, false}, {FIELD(app_id), 100, false},
    {FIELD(env_id), 100, false},          {FIELD(visibility), 100, false},
};

/* Which of the limits a text breaks is found out here, once it is known that it breaks one. */
static int refuse_text(const struct limit *limit, const char *text, outlog_err *err)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s", limit->field);
    if (!text)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is required", limit->field);
    size_t bytes = strlen(text);
    if (bytes < 1 || bytes > limit->most)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer,
                          "%s must have 1 to %zu bytes, it has %zu", limit->field, limit->most,
                          bytes);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is not UTF-8", limit->field);
}

static bool is_within(const struct limit *limit, const char *text)
{
    if (!text)
        return !limit->is_required;
    size_t bytes = strlen(text);
    return bytes >= 1 && bytes <= limit->most && ol_utf8_is_valid(text, bytes);
}

/* `pointer` is the field's name after a slash. */
static int check_object(const char *pointer, const char *text, struct ol_json *out, outlog_err *err)
{
    const char *field = pointer + 1;
    size_t bytes = strlen(text);
    outlog_err why;
    if (bytes > OL_PAYLOAD_BYTES)
        return ol_fail_at(err, OUTLOG_TOO_LARGE, pointer, "%s has %zu bytes, the limit is %d",
                          field, bytes, OL_PAYLOAD_BYTES);
    if (ol_json_parse(text, bytes, out, &why) < 0) {
        char within[sizeof err->pointer];
        snprintf(within, sizeof within, "%s%.*s", pointer, 120, why.pointer);
        return ol_fail_at(err, OUTLOG_INVALID_JSON, within, "%s: %s", field, why.message);
    }
    if (out->type != OL_JSON_OBJECT)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s must be a JSON object", field);
    return 0;
}

static bool is_actor_type(const char *text)
{
    return !text || strcmp(text, "user") == 0 || strcmp(text, "service_principal") == 0 ||
           strcmp(text, "system") == 0;
}

int ol_event_check(const struct outlog_new_event *event, struct ol_json *payload,
                   struct ol_json *metadata, outlog_err *err)
{
    char uuid[OL_UUID_TEXT];

    bool has_org = event->org_id && *event->org_id; // SQL cannot tell an empty one from none
    if (!has_org && !event->is_infrastructure)
        return ol_fail_at(err, OUTLOG_ORG_REQUIRED, "/org_id",
                          "org_id is missing; give one, or say that it is an infrastructure event");
    if (event->org_id && event->is_infrastructure)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/org_id",
                          "an infrastructure event has no org_id");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const char *text;
        memcpy(&text, (const char *)event + limits[i].offset, sizeof text);
        if (!is_within(&limits[i], text))
            return refuse_text(&limits[i], text, err);
    }
    if (event->event_version < 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/event_version",
                          "event_version must be 1 or more");
    if (event->expected_seq && *event->expected_seq < 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/expected_seq",
                          "expected_seq must be 0 or more");
    if (!is_actor_type(event->actor_type))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/actor_type",
                          "actor_type must be user, service_principal or system");
    if (event->id && !ol_uuid_parse(event->id, uuid))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/id", "id must be a UUID");
    if (!event->payload)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/payload", "payload is required");
    if (check_object("/payload", event->payload, payload, err) < 0)
        return -1;
    *metadata = (struct ol_json){0};
    return event->metadata ? check_object("/metadata", event->metadata, metadata, err) : 0;
}

/* --- idempotency --- */

static void member(struct ol_buf *out, const char *name, const char *text)
{
    if (!text)
        return;
    ol_buf_print(out, "\"%s\":", name);
    ol_buf_json_text(out, text);
    ol_buf_char(out, ',');
}

void ol_event_request(const struct outlog_new_event *events, size_t count, struct ol_buf *out)
{
    ol_buf_text(out, "{\"events\":[");
    for (size_t i = 0; i < count; i++) {
        const struct outlog_new_event *event = &events[i];
        char uuid[OL_UUID_TEXT];
        ol_buf_text(out, i ? ",{" : "{");
        member(out, "aggregate_id", event->aggregate_id);
        member(out, "aggregate_type", event->aggregate_type);
        member(out, "app_id", event->app_id);
        member(out, "causation_id", event->causation_id);
        member(out, "correlation_id", event->correlation_id);
        member(out, "env_id", event->env_id);
        member(out, "event_type", event->event_type);
        ol_buf_print(out, "\"event_version\":%d,", event->event_version ? event->event_version : 1);
        if (event->expected_seq)
            ol_buf_print(out, "\"expected_seq\":%lld,", (long long)*event->expected_seq);
        member(out, "id", event->id && ol_uuid_parse(event->id, uuid) ? uuid : NULL);
        member(out, "visibility", event->visibility);
        ol_buf_print(out,
                     "\"metadata\":%s,\"payload\":", event->metadata ? event->metadata : "null");
        ol_buf_text(out, event->payload ? event->payload : "null"); // refused later
        ol_buf_char(out, '}');
    }
    ol_buf_text(out, "]}");
}

void ol_event_write_appended(const struct outlog_appended *appended, struct ol_buf *out)
{
    ol_buf_text(out, "{\"event_id\":");
    ol_buf_int(out, appended->event_id);
    ol_buf_text(out, ",\"id\":\"");
    ol_buf_add(out, appended->id, OL_UUID_TEXT - 1);
    ol_buf_text(out, "\",\"aggregate_seq\":");
    ol_buf_int(out, appended->aggregate_seq);
    ol_buf_text(out, ",\"occurred_at\":");
    ol_buf_json_time(out, appended->occurred_at);
    ol_buf_text(out, ",\"correlation_id\":");
    ol_buf_json_text(out, appended->correlation_id);
    ol_buf_text(out, appended->duplicate ? ",\"duplicate\":true}" : ",\"duplicate\":false}");
}

void ol_event_response(const struct outlog_appended *appended, size_t count, struct ol_buf *out)
{
    ol_buf_text(out, "{\"events\":[");
    for (size_t i = 0; i < count; i++) {
        if (i)
            ol_buf_char(out, ',');
        ol_event_write_appended(&appended[i], out);
    }
    ol_buf_text(out, "],\"messages\":[]}");
}

static bool read_appended(const struct ol_json *object, struct ol_arena *arena,
                          struct outlog_appended *out)
{
    struct ol_json event_id = ol_json_get(object, "event_id"), id = ol_json_get(object, "id"),
                   seq = ol_json_get(object, "aggregate_seq"),
                   at = ol_json_get(object, "occurred_at"),
                   correlation = ol_json_get(object, "correlation_id");
    const char *id_text = ol_json_string(&id, arena, NULL);
    const char *at_text = ol_json_string(&at, arena, NULL);
    const char *correlation_text = ol_json_string(&correlation, arena, NULL);

    *out = (struct outlog_appended){.duplicate = true};
    if (!ol_json_int(&event_id, &out->event_id) || !ol_json_int(&seq, &out->aggregate_seq) ||
        !id_text || !ol_uuid_parse(id_text, out->id) || !at_text || !correlation_text ||
        ol_timestamp_parse(at_text, strlen(at_text), &out->occurred_at) < 0)
        return false;
    snprintf(out->correlation_id, sizeof out->correlation_id, "%s", correlation_text);
    return true;
}

int ol_event_replay(const char *response, struct outlog_appended *appended, size_t count,
                    outlog_err *err)
{
    struct ol_json whole, events;
    struct ol_json_iter it = {0};
    struct ol_arena arena = {0};
    size_t found = 0;

    if (ol_json_parse(response, strlen(response), &whole, err) < 0)
        return -1;
    events = ol_json_get(&whole, "events");
    while (found < count && ol_json_next(&events, &it) &&
           read_appended(&it.value, &arena, &appended[found]))
        found++;
    ol_arena_clear(&arena);
    return found == count ? 0
                          : ol_fail(err, OUTLOG_STORE_ERROR,
                                    "the stored answer of this idempotency key is damaged");
}

/* --- a record as JSON --- */

/* `name` is `,"name":` whole: a page has a dozen of them an event. */
#define TEXT_MEMBER(out, name, text)                         \
    do {                                                     \
        ol_buf_add(out, ",\"" name "\":", sizeof(name) + 3); \
        ol_buf_json_text(out, text);                         \
    } while (0)

/* Is there a byte below 0x20? Eight at a time. */
static bool has_control(const char *text, size_t bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t found = 0;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, text, sizeof word);
        found |= (word - ones * 0x20) & ~word;
    }
    for (; bytes; text++, bytes--)
        if ((unsigned char)*text < ' ')
            return true;
    return (found & tops) != 0;
}

/* A document as it is stored, on one line: an end of line in valid JSON stands between tokens. */
static void add_document(struct ol_buf *out, const char *text, size_t bytes)
{
    size_t from = out->bytes;
    ol_buf_add(out, text, bytes);
    if (out->failed || !has_control(text, bytes))
        return;
    for (size_t i = from; i < out->bytes; i++)
        if ((unsigned char)out->data[i] < ' ')
            out->data[i] = ' ';
}

void ol_event_write_json(const struct outlog_event *record, struct ol_buf *out)
{
    ol_buf_text(out, "{\"event_id\":");
    ol_buf_int(out, record->event_id);
    TEXT_MEMBER(out, "id", record->id);
    ol_buf_text(out, ",\"occurred_at\":");
    ol_buf_json_time(out, record->occurred_at);
    TEXT_MEMBER(out, "org_id", record->org_id);
    TEXT_MEMBER(out, "aggregate_type", record->aggregate_type);
    TEXT_MEMBER(out, "aggregate_id", record->aggregate_id);
    ol_buf_text(out, ",\"aggregate_seq\":");
    ol_buf_int(out, record->aggregate_seq);
    TEXT_MEMBER(out, "event_type", record->event_type);
    ol_buf_text(out, ",\"event_version\":");
    ol_buf_int(out, record->event_version);
    TEXT_MEMBER(out, "actor_type", record->actor_type);
    TEXT_MEMBER(out, "actor_id", record->actor_id);
    TEXT_MEMBER(out, "request_id", record->request_id);
    TEXT_MEMBER(out, "idempotency_key", record->idempotency_key);
    TEXT_MEMBER(out, "correlation_id", record->correlation_id);
    TEXT_MEMBER(out, "causation_id", *record->causation_id ? record->causation_id : NULL);
    TEXT_MEMBER(out, "app_id", record->app_id);
    TEXT_MEMBER(out, "env_id", record->env_id);
    TEXT_MEMBER(out, "visibility", record->visibility);
    const char *metadata = record->metadata ? record->metadata : "null";
    ol_buf_text(out, ",\"metadata\":");
    add_document(out, metadata, strlen(metadata));
    ol_buf_text(out, ",\"payload\":");
    add_document(out, record->payload, record->payload_bytes);
    ol_buf_char(out, '}');
}
