/* key.c: session keys, and the event of a message. */
#include "base/err.h"
#include "base/sha256.h"
#include "sessions/session.h"

#include <stdio.h>
#include <string.h>

static size_t key_part_bytes(const char *text)
{
    return strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~@-");
}

bool ol_session_key_is_valid(const char *key)
{
    if (strlen(key) >= OL_SESSION_KEY_BYTES)
        return false;
    for (int i = 0; i < 3; i++) {
        size_t bytes = key_part_bytes(key);
        if (bytes < 1 || bytes > 128 || key[bytes] != (i < 2 ? ':' : '\0'))
            return false;
        key += bytes + 1;
    }
    return true;
}

const char *ol_session_agent(const char *key, struct ol_arena *arena)
{
    const char *agent = key + key_part_bytes(key) + 1;
    return ol_arena_copy(arena, agent, key_part_bytes(agent));
}

void ol_session_message_id(const char *org_id, const char *key, const char *request_id,
                           char out[37])
{
    char hash[OL_SHA256_TEXT];
    struct ol_buf text = {0};

    ol_buf_text(&text, "[\"session\",");
    ol_buf_json_text(&text, org_id);
    ol_buf_char(&text, ',');
    ol_buf_json_text(&text, key);
    ol_buf_char(&text, ',');
    ol_buf_json_text(&text, request_id);
    ol_buf_char(&text, ']');
    ol_sha256_hex(text.data ? text.data : "", text.bytes, hash);
    ol_buf_clear(&text);
    // UUIDv8: the version for custom rules
    snprintf(out, 37, "%.8s-%.4s-8%.3s-%c%.3s-%.12s", hash, hash + 8, hash + 13,
             "89ab"[hash[16] & 3], hash + 17, hash + 20);
}

/* The user's id, or its hash if it is longer than an actor_id may be. */
static const char *actor_id_of(const char *key, struct ol_arena *arena)
{
    enum { ACTOR_ID_MAX = 100 };
    char hash[OL_SHA256_TEXT];
    size_t bytes = key_part_bytes(key);
    if (bytes <= ACTOR_ID_MAX)
        return ol_arena_copy(arena, key, bytes);
    ol_sha256_hex(key, bytes, hash);
    return ol_arena_print(arena, "sha256:%s", hash);
}

int ol_session_message(const char *org_id, const char *key, const char *request_id,
                       const char *text, struct ol_arena *arena, struct outlog_new_event *out,
                       outlog_err *err)
{
    struct ol_buf payload = {0};

    if (!*request_id || strlen(request_id) > OL_SESSION_REQUEST_BYTES)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/requestId", "requestId has 1 to 255 bytes");
    ol_buf_text(&payload, "{\"text\":");
    ol_buf_json_text(&payload, text);
    ol_buf_text(&payload, ",\"requestId\":");
    ol_buf_json_text(&payload, request_id);
    ol_buf_char(&payload, '}');
    *out = (struct outlog_new_event){
        .org_id = org_id,
        .aggregate_type = "session",
        .aggregate_id = key,
        .event_type = "user_message",
        .payload = payload.failed ? NULL : ol_arena_copy(arena, payload.data, payload.bytes),
        .actor_type = "user",
        .actor_id = actor_id_of(key, arena),
        .request_id = request_id,
    };
    ol_buf_clear(&payload);
    return out->payload && out->actor_id ? 0 : ol_no_memory(err);
}
