/* event_json.c: reading an event from JSON. */
#include "log/event_json.h"

#include "base/sha256.h"
#include "base/uuid.h"
#include "log/event.h"
#include "store/event_fields.h"

#include <stdio.h>
#include <string.h>

static int refuse_unknown(const struct ol_json *key, const char *where, outlog_err *err)
{
    return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "%s has no field %.*s", where,
                   (int)(key->bytes < 60 ? key->bytes : 60), key->text);
}

/* {"type", "id"}: the two fields of the actor in one member. */
static int read_actor(const struct ol_json *value, struct ol_arena *arena,
                      struct outlog_new_event *out, outlog_err *err)
{
    struct ol_json type = ol_json_get(value, "type"), id = ol_json_get(value, "id");
    struct ol_json_iter it = {0};
    while (value->type == OL_JSON_OBJECT && ol_json_next(value, &it))
        if (!ol_json_equals(&it.key, "type") && !ol_json_equals(&it.key, "id"))
            return refuse_unknown(&it.key, "an actor", err);
    out->actor_type = ol_json_string(&type, arena, NULL);
    out->actor_id = ol_json_string(&id, arena, NULL);
    return out->actor_type && out->actor_id ? 0
                                            : ol_fail_at(err, OUTLOG_INVALID_FIELD, "/actor",
                                                         "actor must be {\"type\", \"id\"}");
}

static int read_sequence(const struct ol_field *field, const struct ol_json *value,
                         struct ol_arena *arena, struct outlog_new_event *out, outlog_err *err)
{
    int64_t number, *kept;
    if (!ol_json_int(value, &number) || number < 0)
        return ol_field_refuse(field, "a whole number from 0", err);
    if (!(kept = ol_arena_alloc(arena, sizeof *kept)))
        return ol_no_memory(err);
    *kept = number;
    out->expected_seq = kept;
    return 0;
}

static int read_member(const struct ol_field *field, const struct ol_json *value,
                       struct ol_arena *arena, struct outlog_new_event *out, outlog_err *err)
{
    bool is_number = value->type == OL_JSON_NUMBER;
    const char *text;
    int64_t number;

    switch (field->kind) {
    case OL_FIELD_JSON:
        if (!(text = ol_arena_copy(arena, value->text, value->bytes)))
            return ol_no_memory(err);
        break;
    case OL_FIELD_VERSION:
        if (!ol_json_int(value, &number) || number < 1 || number > INT32_MAX)
            return ol_field_refuse(field, "a whole number from 1", err);
        out->event_version = (int)number;
        return 0;
    case OL_FIELD_SEQUENCE:
        return read_sequence(field, value, arena, out, err);
    default:
        // A cause may be named by its event_id, which is a number in JSON.
        text = is_number && field == &ol_event_fields[OL_EVENT_CAUSATION_ID]
                   ? ol_arena_copy(arena, value->text, value->bytes)
                   : ol_json_string(value, arena, NULL);
        if (!text)
            return ol_field_refuse(field, "a string", err);
    }
    ol_field_set_text(out, field->given, text);
    return 0;
}

static const struct ol_field *find_member(const struct ol_json *key)
{
    for (int i = 0; i < OL_EVENT_FIELD_ALL; i++)
        if (ol_event_fields[i].given != OL_FIELD_NONE &&
            ol_json_equals(key, ol_event_fields[i].name))
            return &ol_event_fields[i];
    return NULL;
}

int ol_event_json_read(const char *text, size_t bytes, const struct outlog_new_event *defaults,
                       struct ol_arena *arena, struct outlog_new_event *out, outlog_err *err)
{
    struct ol_json whole;
    return ol_json_parse_wrapped(text, bytes, &whole, err) < 0
               ? -1
               : ol_event_json_take(&whole, defaults, arena, out, err);
}

int ol_event_json_take(const struct ol_json *object, const struct outlog_new_event *defaults,
                       struct ol_arena *arena, struct outlog_new_event *out, outlog_err *err)
{
    struct ol_json_iter it = {0};

    *out = defaults ? *defaults : (struct outlog_new_event){0};
    if (object->type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_JSON, "an event is a JSON object");
    while (ol_json_next(object, &it)) {
        const struct ol_field *field = find_member(&it.key);
        bool is_null = it.value.type == OL_JSON_NULL; // counts as absent
        bool is_actor = !field && ol_json_equals(&it.key, "actor");
        if (!field && !is_actor)
            return refuse_unknown(&it.key, "an event", err);
        if (field == &ol_event_fields[OL_EVENT_ORG_ID]) {
            out->is_infrastructure = is_null;
            if (is_null)
                out->org_id = NULL;
        }
        if (!is_null && (is_actor ? read_actor(&it.value, arena, out, err)
                                  : read_member(field, &it.value, arena, out, err)) < 0)
            return -1;
    }
    return 0;
}

/* A UUIDv8 (RFC 9562: made by a rule of one's own) from SHA-256 of the normal form. */
static const char *make_uuid(const struct ol_buf *content, struct ol_arena *arena)
{
    char hash[OL_SHA256_TEXT], id[OL_UUID_TEXT];
    if (outlog_request_hash(content->data, hash, NULL) < 0)
        return NULL;
    snprintf(id, sizeof id, "%.8s-%.4s-8%.3s-%c%.3s-%.12s", hash, hash + 8, hash + 13,
             "89ab"[hash[16] & 3], hash + 17, hash + 20);
    return ol_arena_copy(arena, id, OL_UUID_TEXT - 1);
}

/* The event's metadata with `backfill`. */
static const char *add_label(const struct outlog_new_event *event, const char *name,
                             struct ol_arena *arena, outlog_err *err)
{
    struct ol_json metadata;
    struct ol_buf out = {0};
    const char *copy = NULL, *given = event->metadata ? event->metadata : "{}";

    if (ol_json_parse(given, strlen(given), &metadata, err) < 0)
        return NULL;
    if (metadata.type != OL_JSON_OBJECT ||
        ol_json_get(&metadata, "backfill").type != OL_JSON_NONE) {
        ol_fail_at(err, OUTLOG_INVALID_FIELD, "/metadata",
                   "metadata must be an object without `backfill`: --backfill writes it");
        return NULL;
    }
    struct ol_json_iter it = {0};
    bool is_empty = !ol_json_next(&metadata, &it);
    ol_buf_text(&out, "{\"backfill\":");
    ol_buf_json_text(&out, name);
    ol_buf_text(&out, is_empty ? "" : ",");
    ol_buf_add(&out, metadata.text + 1, metadata.bytes - 1);
    if (!out.failed)
        copy = ol_arena_copy(arena, out.data, out.bytes);
    ol_buf_clear(&out);
    if (!copy)
        ol_no_memory(err);
    return copy;
}

int ol_event_json_backfill(struct outlog_new_event *event, const char *name, struct ol_arena *arena,
                           outlog_err *err)
{
    struct ol_json payload, metadata;
    struct ol_buf content = {0};
    int result = -1;

    if (ol_event_check(event, &payload, &metadata, err) < 0)
        return -1;
    if (!event->id) {
        ol_buf_char(&content, '[');
        ol_buf_json_text(&content, name);
        ol_buf_char(&content, ',');
        ol_buf_json_text(&content, event->org_id);
        ol_buf_char(&content, ',');
        ol_event_request(event, 1, &content);
        ol_buf_char(&content, ']');
        if (content.failed || !(event->id = make_uuid(&content, arena))) {
            ol_no_memory(err);
            goto out;
        }
    }
    event->metadata = add_label(event, name, arena, err);
    result = event->metadata ? 0 : -1;
out:
    ol_buf_clear(&content);
    return result;
}
