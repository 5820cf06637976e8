/* outbox_push.c: reads the payload and stores the effect. */
#include "sessions/outbox_push.h"

#include "base/err.h"
#include "base/json/json.h"
#include "sessions/session.h"

static int fail_field(outlog_err *err, const char *why)
{
    return ol_fail(err, OUTLOG_INVALID_FIELD, "%s", why);
}

static int read_payload(const struct outlog_delivery *message, struct ol_arena *arena,
                        struct ol_json *out, const char **key, outlog_err *err)
{
    if (ol_json_parse(message->payload, message->payload_bytes, out, err) < 0)
        return -1;
    if (out->type != OL_JSON_OBJECT)
        return fail_field(err, "a message to a session is a JSON object");
    struct ol_json name = ol_json_get(out, "session_key");
    *key = ol_json_string(&name, arena, NULL);
    if (!*key || !ol_session_key_is_valid(*key))
        return fail_field(err, "session_key: userId:agentId:threadId is wanted");
    return 0;
}

int ol_outbox_push_check(const struct outlog_delivery *message, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_json object;
    const char *key;
    int result = read_payload(message, &arena, &object, &key, err);
    if (result == 0) {
        struct ol_json type = ol_json_get(&object, "type"), id = ol_json_get(&object, "effect_id");
        if (type.type != OL_JSON_NONE || id.type != OL_JSON_NONE)
            result = fail_field(err, "type and effect_id are the frame's own; leave them out");
    }
    ol_arena_clear(&arena);
    return result;
}

int ol_outbox_push_write(outlog_tx *tx, const struct outlog_delivery *message, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_json object;
    const char *key;
    int result = read_payload(message, &arena, &object, &key, err);
    if (result == 0)
        result = ol_session_effect_add(
            tx,
            &(struct ol_session_effect){.org_id = message->org_id ? message->org_id : "default",
                                        .session_key = key,
                                        .effect_type = message->event_type,
                                        .spec = object.text,
                                        .spec_bytes = object.bytes,
                                        .idempotency_key = message->event_id,
                                        .correlation_id = message->correlation_id},
            err);
    ol_arena_clear(&arena);
    return result;
}
