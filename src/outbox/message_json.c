/* message_json.c: reads messages and effects from JSON: the argument of the SQLite functions, an
 * HTTP body. */
#include "base/duration.h"
#include "base/timestamp.h"
#include "outbox/enqueue.h"
#include "store/message_fields.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define EFFECT(member, what)                                \
    {                                                       \
        .name = #member, .kind = OL_FIELD_##what,           \
        .given = offsetof(struct outlog_new_effect, member) \
    }

static const struct ol_field effect_fields[] = {
    EFFECT(org_id, TEXT),       EFFECT(effect_type, TEXT),    EFFECT(destination, TEXT),
    EFFECT(effect_spec, JSON),  EFFECT(run_id, TEXT),         EFFECT(step_id, TEXT),
    EFFECT(session_key, TEXT),  EFFECT(checkpoint_id, TEXT),  EFFECT(idempotency_key, TEXT),
    EFFECT(ordering_key, TEXT), EFFECT(correlation_id, TEXT), EFFECT(causation_id, UUID),
    EFFECT(actor_type, TEXT),   EFFECT(actor_id, TEXT),       EFFECT(max_attempts, COUNT),
};
enum { EFFECT_FIELD_COUNT = sizeof effect_fields / sizeof *effect_fields };

static int refuse_base64(const char *wanted, outlog_err *err)
{
    return ol_field_refuse(&ol_message_fields[OL_MESSAGE_PAYLOAD_BASE64], wanted, err);
}

static int read_base64(const struct ol_json *value, struct ol_arena *arena,
                       struct outlog_new_message *out, outlog_err *err)
{
    size_t bytes;
    const char *text = ol_json_string(value, arena, &bytes);
    unsigned char *data = text ? ol_arena_alloc(arena, bytes + 4) : NULL;
    int got = data && bytes % 4 == 0
                  ? EVP_DecodeBlock(data, (const unsigned char *)text, (int)bytes)
                  : -1;
    if (got < 0)
        return refuse_base64("base64", err);
    while (bytes && text[bytes - 1] == '=') { // the decoder counts padding as zero bytes
        got--;
        bytes--;
    }
    out->payload = data;
    out->payload_bytes = (size_t)got;
    return 0;
}

/* A document, as it is written. */
static int read_document(const struct ol_field *field, const struct ol_json *value,
                         struct ol_arena *arena, void *out, outlog_err *err)
{
    const char *text;
    if (field->kind == OL_FIELD_JSON && value->type != OL_JSON_OBJECT)
        return ol_field_refuse(field, "a JSON object", err);
    if (!(text = ol_arena_copy(arena, value->text, value->bytes)))
        return ol_no_memory(err);
    ol_field_set_text(out, field->given, text);
    if (field->kind == OL_FIELD_BYTES)
        ((struct outlog_new_message *)out)->payload_bytes = value->bytes;
    return 0;
}

static int read_text(const struct ol_field *field, const struct ol_json *value,
                     struct ol_arena *arena, void *out, outlog_err *err)
{
    void *into = (char *)out + field->given;
    bool is_event_id = value->type == OL_JSON_NUMBER && strcmp(field->name, "causation_id") == 0;
    const char *text = is_event_id ? ol_arena_copy(arena, value->text, value->bytes)
                                   : ol_json_string(value, arena, NULL);
    if (!text)
        return ol_field_refuse(field, "a string", err);
    if (field->kind == OL_FIELD_TIME)
        return ol_timestamp_parse(text, strlen(text), into) < 0
                   ? ol_field_refuse(field, "a time like 2026-01-31T12:00:00Z", err)
                   : 0;
    if (field->kind == OL_FIELD_SPAN)
        return ol_duration_parse(text, into) < 0 ? ol_field_refuse(field, "a span like 5s", err)
                                                 : 0;
    ol_field_set_text(out, field->given, text);
    return 0;
}

static int read_member(const struct ol_field *field, const struct ol_json *value,
                       struct ol_arena *arena, void *out, outlog_err *err)
{
    int64_t number;
    int count;
    switch (field->kind) {
    case OL_FIELD_JSON:
    case OL_FIELD_BYTES:
        return read_document(field, value, arena, out, err);
    case OL_FIELD_BASE64:
        return read_base64(value, arena, out, err);
    case OL_FIELD_COUNT:
        if (!ol_json_int(value, &number) || number < 1 || number > INT32_MAX)
            return ol_field_refuse(field, "a whole number from 1", err);
        count = (int)number;
        memcpy((char *)out + field->given, &count, sizeof count);
        return 0;
    default:
        return read_text(field, value, arena, out, err);
    }
}

/* What is read: its fields, and what an error calls it. */
struct json_form {
    const struct ol_field *fields;
    int count;
    const char *what;
};

static const struct ol_field *find_member(const struct json_form *form, const struct ol_json *key)
{
    for (int i = 0; i < form->count; i++) {
        const struct ol_field *field = &form->fields[i];
        bool is_given = field->given != OL_FIELD_NONE || field->kind == OL_FIELD_BASE64;
        if (is_given && ol_json_equals(key, field->name))
            return field;
    }
    return NULL;
}

static int read_members(const struct json_form *form, const struct ol_json *object,
                        struct ol_arena *arena, void *out, outlog_err *err)
{
    struct ol_json_iter it = {0};
    if (object->type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_JSON, "%s is a JSON object", form->what);
    while (ol_json_next(object, &it)) {
        const struct ol_field *field = find_member(form, &it.key);
        if (!field)
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "%s has no field %.*s", form->what,
                           (int)(it.key.bytes < 60 ? it.key.bytes : 60), it.key.text);
        bool is_payload = field->kind == OL_FIELD_BYTES; // null is a payload like any other JSON
        if ((it.value.type != OL_JSON_NULL || is_payload) &&
            read_member(field, &it.value, arena, out, err) < 0)
            return -1;
    }
    return 0;
}

int ol_message_json_read(const char *text, size_t bytes, struct ol_arena *arena,
                         struct outlog_new_message *out, outlog_err *err)
{
    static const struct json_form form = {ol_message_fields, OL_MESSAGE_FIELD_ALL, "a message"};
    struct ol_json whole;

    *out = (struct outlog_new_message){0};
    if (ol_json_parse(text, bytes, &whole, err) < 0 ||
        read_members(&form, &whole, arena, out, err) < 0)
        return -1;
    if (ol_json_get(&whole, "payload").type != OL_JSON_NONE &&
        ol_json_get(&whole, "payload_base64").type > OL_JSON_NULL)
        return refuse_base64("absent where payload is given", err);
    return 0;
}

int ol_message_json_read_effect(const char *text, size_t bytes, struct ol_arena *arena,
                                struct outlog_new_effect *out, outlog_err *err)
{
    static const struct json_form form = {effect_fields, EFFECT_FIELD_COUNT, "an effect"};
    struct ol_json whole;
    *out = (struct outlog_new_effect){0};
    return ol_json_parse(text, bytes, &whole, err) < 0
               ? -1
               : read_members(&form, &whole, arena, out, err);
}
