/* message_json.c: messages and effects from JSON: the SQLite functions' argument, an HTTP body. */
#include "base/duration.h"
#include "base/timestamp.h"
#include "outbox/enqueue.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum kind { TEXT, CAUSE, JSON, OBJECT, TIME, SPAN, COUNT, BASE64 };

struct member {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define MESSAGE(name, kind)                                    \
    {                                                          \
#name, kind, offsetof(struct outlog_new_message, name) \
    }
#define EFFECT(name, kind)                                    \
    {                                                         \
#name, kind, offsetof(struct outlog_new_effect, name) \
    }

static const struct member message_members[] = {
    MESSAGE(destination, TEXT),     MESSAGE(event_type, TEXT),
    MESSAGE(payload, JSON),         {"payload_base64", BASE64, 0},
    MESSAGE(content_type, TEXT),    MESSAGE(org_id, TEXT),
    MESSAGE(idempotency_key, TEXT), MESSAGE(ordering_key, TEXT),
    MESSAGE(partition_key, TEXT),   MESSAGE(headers, OBJECT),
    MESSAGE(metadata, OBJECT),      MESSAGE(correlation_id, TEXT),
    MESSAGE(causation_id, CAUSE),   MESSAGE(aggregate_type, TEXT),
    MESSAGE(aggregate_id, TEXT),    MESSAGE(event_id, TEXT),
    MESSAGE(available_at, TIME),    {"delay", SPAN, offsetof(struct outlog_new_message, delay_us)},
    MESSAGE(max_attempts, COUNT),   {0},
};

static const struct member effect_members[] = {
    EFFECT(org_id, TEXT),          EFFECT(effect_type, TEXT),
    EFFECT(destination, TEXT),     EFFECT(effect_spec, OBJECT),
    EFFECT(run_id, TEXT),          EFFECT(step_id, TEXT),
    EFFECT(session_key, TEXT),     EFFECT(checkpoint_id, TEXT),
    EFFECT(idempotency_key, TEXT), EFFECT(ordering_key, TEXT),
    EFFECT(correlation_id, TEXT),  EFFECT(causation_id, CAUSE),
    EFFECT(actor_type, TEXT),      EFFECT(actor_id, TEXT),
    EFFECT(max_attempts, COUNT),   {0},
};

static int wrong(const char *name, const char *wanted, outlog_err *err)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s", name);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s must be %s", name, wanted);
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
        return wrong("payload_base64", "base64", err);
    while (bytes && text[bytes - 1] == '=') { // the decoder counts padding as zero bytes
        got--;
        bytes--;
    }
    out->payload = data;
    out->payload_bytes = (size_t)got;
    return 0;
}

static int read_member(const struct member *member, const struct ol_json *value,
                       struct ol_arena *arena, void *out, outlog_err *err)
{
    void *into = (char *)out + member->offset;
    const char *text = NULL;
    int64_t number;

    switch (member->kind) {
    case OBJECT:
        if (value->type != OL_JSON_OBJECT)
            return wrong(member->name, "a JSON object", err);
        // fall through
    case JSON:
        if (!(text = ol_arena_copy(arena, value->text, value->bytes)))
            return ol_no_memory(err);
        memcpy(into, &text, sizeof text);
        if (member->kind == JSON)
            ((struct outlog_new_message *)out)->payload_bytes = value->bytes;
        return 0;
    case BASE64:
        return read_base64(value, arena, out, err);
    case COUNT:
        if (!ol_json_int(value, &number) || number < 1 || number > INT32_MAX)
            return wrong(member->name, "a whole number from 1", err);
        *(int *)into = (int)number;
        return 0;
    default:
        break;
    }
    text = member->kind == CAUSE && value->type == OL_JSON_NUMBER // its event_id
               ? ol_arena_copy(arena, value->text, value->bytes)
               : ol_json_string(value, arena, NULL);
    if (!text)
        return wrong(member->name, "a string", err);
    if (member->kind == TEXT || member->kind == CAUSE)
        memcpy(into, &text, sizeof text);
    else if (member->kind == TIME && ol_timestamp_parse(text, strlen(text), into) < 0)
        return wrong(member->name, "a time like 2026-01-31T12:00:00Z", err);
    else if (member->kind == SPAN && ol_duration_parse(text, into) < 0)
        return wrong(member->name, "a span like 5s", err);
    return 0;
}

static int read_members(const struct member *members, const char *what, const char *text,
                        size_t bytes, struct ol_arena *arena, void *out, outlog_err *err)
{
    struct ol_json whole;
    struct ol_json_iter it = {0};

    if (ol_json_parse(text, bytes, &whole, err) < 0)
        return -1;
    if (whole.type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_JSON, "%s is a JSON object", what);
    while (ol_json_next(&whole, &it)) {
        const struct member *member = members;
        while (member->name && !ol_json_equals(&it.key, member->name))
            member++;
        if (!member->name)
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "%s has no field %.*s", what,
                           (int)(it.key.bytes < 60 ? it.key.bytes : 60), it.key.text);
        bool is_payload = member->kind == JSON; // null is a payload like any other JSON
        if ((it.value.type != OL_JSON_NULL || is_payload) &&
            read_member(member, &it.value, arena, out, err) < 0)
            return -1;
    }
    return 0;
}

int ol_message_json_read(const char *text, size_t bytes, struct ol_arena *arena,
                         struct outlog_new_message *out, outlog_err *err)
{
    struct ol_json whole;

    *out = (struct outlog_new_message){0};
    if (read_members(message_members, "a message", text, bytes, arena, out, err) < 0 ||
        ol_json_parse(text, bytes, &whole, err) < 0)
        return -1;
    if (ol_json_get(&whole, "payload").type != OL_JSON_NONE &&
        ol_json_get(&whole, "payload_base64").type > OL_JSON_NULL)
        return wrong("payload_base64", "absent where payload is given", err);
    return 0;
}

int ol_message_json_read_effect(const char *text, size_t bytes, struct ol_arena *arena,
                                struct outlog_new_effect *out, outlog_err *err)
{
    *out = (struct outlog_new_effect){0};
    return read_members(effect_members, "an effect", text, bytes, arena, out, err);
}
