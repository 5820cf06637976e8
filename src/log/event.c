/* event.c: the checks of an event, and its JSON forms. Pure: no store, no clock. */
#include "log/event.h"

#include "base/timestamp.h"
#include "base/uuid.h"
#include "reserved_types.h"
#include "store/event_fields.h"

#include <stdio.h>
#include <string.h>

/* --- checks --- */

static int check_object(int number, const char *text, struct ol_json *out, outlog_err *err)
{
    const struct ol_field *field = &ol_event_fields[number];
    char pointer[sizeof err->pointer];
    size_t bytes = strlen(text);
    snprintf(pointer, sizeof pointer, "/%s", field->name);
    if (bytes > field->max_bytes)
        return ol_fail_at(err, OUTLOG_TOO_LARGE, pointer, "%s has %zu bytes, the limit is %zu",
                          field->name, bytes, field->max_bytes);
    if (ol_json_parse(text, bytes, out, err) < 0) {
        ol_err_point_below(err, pointer);
        ol_err_prefix(err, "%s", field->name);
        return -1;
    }
    return out->type == OL_JSON_OBJECT ? 0 : ol_field_refuse(field, "a JSON object", err);
}

static int check_uuid(const struct ol_field *field, const char *text, outlog_err *err)
{
    char uuid[OL_UUID_TEXT];
    if (field->max_bytes) // an id or an event_id: the store is asked for it
        return ol_field_check_text(field, text, err);
    return !text || ol_uuid_parse(text, uuid) ? 0 : ol_field_refuse(field, "a UUID", err);
}

static int check_field(const struct ol_field *field, const struct outlog_new_event *event,
                       outlog_err *err)
{
    switch (field->kind) {
    case OL_FIELD_TEXT:
        return ol_field_check_text(field, ol_field_text(event, field->given), err);
    case OL_FIELD_UUID:
        return check_uuid(field, ol_field_text(event, field->given), err);
    case OL_FIELD_VERSION:
        return event->event_version < 0 ? ol_field_refuse(field, "1 or more", err) : 0;
    case OL_FIELD_SEQUENCE:
        return event->expected_seq && *event->expected_seq < 0
                   ? ol_field_refuse(field, "0 or more", err)
                   : 0;
    default:
        return 0; // documents are parsed, which costs more: when the rest is right
    }
}

int ol_event_check(const struct outlog_new_event *event, struct ol_json *payload,
                   struct ol_json *metadata, outlog_err *err)
{
    bool has_org = event->org_id && *event->org_id; // SQL cannot tell an empty one from none
    if (!has_org && !event->is_infrastructure)
        return ol_fail_at(err, OUTLOG_ORG_REQUIRED, "/org_id",
                          "org_id is missing; give one, or say that it is an infrastructure event");
    if (event->org_id && event->is_infrastructure)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/org_id",
                          "an infrastructure event has no org_id");
    for (int i = 0; i < OL_EVENT_FIELD_ALL; i++)
        if (ol_event_fields[i].given != OL_FIELD_NONE &&
            check_field(&ol_event_fields[i], event, err) < 0)
            return -1;
    if (!event->payload)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/payload", "payload is required");
    if (check_object(OL_EVENT_PAYLOAD, event->payload, payload, err) < 0)
        return -1;
    *metadata = (struct ol_json){0};
    return event->metadata ? check_object(OL_EVENT_METADATA, event->metadata, metadata, err) : 0;
}

/* --- what only outlog writes (X1) --- */

int ol_event_refuse_reserved(const char *event_type, outlog_err *err)
{
    static const char *const reserved[] = {OL_RESERVED_TYPES};
    bool is_reserved = strncmp(event_type, "outlog.", 7) == 0;
    for (size_t i = 0; !is_reserved && i < sizeof reserved / sizeof *reserved; i++)
        is_reserved = strcmp(event_type, reserved[i]) == 0;
    return is_reserved ? ol_fail_at(err, OUTLOG_INVALID_FIELD, "/event_type",
                                    "event_type %.100s is written by outlog's own commands alone; "
                                    "call the command, or take another name",
                                    event_type)
                       : 0;
}

/* --- idempotency --- */

static void write_text(struct ol_buf *out, const struct ol_field *field, const char *text)
{
    if (!text)
        return;
    ol_buf_add(out, field->member, field->member_bytes);
    ol_buf_json_text(out, text);
}

/* One member of the request, a comma before it; absent values are left out. */
static void write_request_field(struct ol_buf *out, const struct ol_field *field,
                                const struct outlog_new_event *event)
{
    char uuid[OL_UUID_TEXT];
    const char *text;
    switch (field->kind) {
    case OL_FIELD_VERSION:
        ol_buf_add(out, field->member, field->member_bytes);
        ol_buf_int(out, event->event_version ? event->event_version : 1);
        break;
    case OL_FIELD_SEQUENCE:
        if (!event->expected_seq)
            break;
        ol_buf_add(out, field->member, field->member_bytes);
        ol_buf_int(out, *event->expected_seq);
        break;
    default:
        text = ol_field_text(event, field->given);
        if (field->kind == OL_FIELD_UUID && !field->max_bytes) // as it is stored
            text = text && ol_uuid_parse(text, uuid) ? uuid : NULL;
        write_text(out, field, text);
    }
}

void ol_event_request(const struct outlog_new_event *events, size_t count, struct ol_buf *out)
{
    ol_buf_text(out, "{\"events\":[");
    for (size_t i = 0; i < count; i++) {
        const struct outlog_new_event *event = &events[i];
        ol_buf_text(out, i ? "},{" : "{");
        ol_buf_print(out, "\"metadata\":%s", event->metadata ? event->metadata : "null");
        for (int f = 0; f < OL_EVENT_FIELD_ALL; f++)
            if (ol_event_fields[f].is_hashed)
                write_request_field(out, &ol_event_fields[f], event);
        ol_buf_text(out, ",\"payload\":");
        ol_buf_text(out, event->payload ? event->payload : "null"); // refused later
    }
    ol_buf_text(out, "}]}");
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

/* A document as it is stored, on one line: a line break in valid JSON is between tokens. */
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

static void write_value(struct ol_buf *out, const struct ol_field *field,
                        const struct outlog_event *record)
{
    const char *at = (const char *)record + field->stored, *text;
    int64_t number;
    switch (field->kind) {
    case OL_FIELD_NUMBER:
    case OL_FIELD_TIME:
        memcpy(&number, at, sizeof number);
        if (field->kind == OL_FIELD_TIME)
            ol_buf_json_time(out, number);
        else
            ol_buf_int(out, number);
        break;
    case OL_FIELD_VERSION:
        ol_buf_int(out, record->event_version);
        break;
    case OL_FIELD_UUID:
        ol_buf_json_text(out, *at ? at : NULL);
        break;
    case OL_FIELD_JSON:
        text = ol_field_text(record, field->stored);
        if (!text)
            text = "null";
        add_document(out, text, text == record->payload ? record->payload_bytes : strlen(text));
        break;
    default:
        ol_buf_json_text(out, ol_field_text(record, field->stored));
    }
}

void ol_event_write_json(const struct outlog_event *record, struct ol_buf *out)
{
    ol_buf_char(out, '{');
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const struct ol_field *field = &ol_event_fields[i];
        size_t comma = i ? 0 : 1; // none before the first
        ol_buf_add(out, field->member + comma, field->member_bytes - comma);
        write_value(out, field, record);
    }
    ol_buf_char(out, '}');
}
