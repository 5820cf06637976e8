/* fuzz_texts.c: the small parsers of texts that people and peers write. The first byte selects one.
 *
 * What is accepted is within its range, and what can be written again is read as the same. */
#include "fuzz.h"

#include "base/base64.h"
#include "base/duration.h"
#include "base/env.h"
#include "base/timestamp.h"
#include "base/traceparent.h"
#include "base/url.h"
#include "base/uuid.h"
#include "log/payload_shape.h"
#include "net/address.h"
#include "outbox/retry.h"
#include "publish/outcome.h"
#include "sessions/agent.h"
#include "sessions/session.h"

static void try_duration(char *text, size_t bytes, struct ol_arena *arena)
{
    int64_t span;
    (void)bytes, (void)arena;
    if (ol_duration_parse(text, &span) == 0)
        check(span >= 0);
}

static void try_timestamp(char *text, size_t bytes, struct ol_arena *arena)
{
    char written[OL_TIMESTAMP_TEXT];
    int64_t first, second;
    (void)arena;
    if (ol_timestamp_parse(text, bytes, &first) < 0)
        return;
    ol_timestamp_format(first, written);
    check(ol_timestamp_parse(written, strlen(written), &second) == 0 && first == second);
}

static void try_traceparent(char *text, size_t bytes, struct ol_arena *arena)
{
    char next[OL_TRACEPARENT_TEXT];
    (void)bytes;
    if (ol_traceparent_next(text, "m", 1, next))
        check(ol_traceparent_is_valid(text) && ol_traceparent_is_valid(next) &&
              ol_traceparent_is_sampled(next) == ol_traceparent_is_sampled(text));
    if (ol_utf8_is_valid(text, strlen(text)))
        ol_traceparent_store("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", text,
                             arena);
}

static void try_url(char *text, size_t bytes, struct ol_arena *arena)
{
    (void)arena;
    if (ol_url_decode(text, bytes % 2))
        check(ol_utf8_is_valid(text, strlen(text)));
}

static void try_uuid(char *text, size_t bytes, struct ol_arena *arena)
{
    char uuid[OL_UUID_TEXT], again[OL_UUID_TEXT];
    uint8_t raw[16];
    (void)bytes, (void)arena;
    if (!ol_uuid_parse(text, uuid))
        return;
    ol_uuid_to_bytes(uuid, raw);
    ol_uuid_from_bytes(raw, again);
    check(strcmp(uuid, again) == 0);
}

static void try_base64(char *text, size_t bytes, struct ol_arena *arena)
{
    unsigned char *raw = ol_arena_alloc(arena, bytes / 4 * 3 + 3);
    unsigned char *again = ol_arena_alloc(arena, bytes + 3);
    struct ol_buf out = {0};
    long length = ol_base64_decode(text, bytes, raw);
    if (length > 0) {
        ol_base64_encode(&out, raw, (size_t)length, 0);
        check(ol_base64_decode(out.data, out.bytes, again) == length);
        check(memcmp(raw, again, (size_t)length) == 0);
    }
    ol_buf_clear(&out);
}

static void try_address(char *text, size_t bytes, struct ol_arena *arena)
{
    static const struct ol_address_scheme schemes[] = {{"nats", 4222, false},
                                                       {"tls", 4222, true},
                                                       {0}};
    struct ol_address *list;
    size_t count;
    outlog_err err;
    (void)bytes;
    if (ol_address_parse(text, schemes, arena, &list, &count, &err) < 0) {
        check_err(&err);
        return;
    }
    check(count > 0);
    for (size_t i = 0; i < count; i++)
        check(*list[i].host && list[i].port > 0 && list[i].port < 65536);
}

static void try_retry_after(char *text, size_t bytes, struct ol_arena *arena)
{
    (void)bytes, (void)arena;
    check(ol_outcome_retry_after_us(text, 1700000000000000) >= 0);
}

static void try_session_key(char *text, size_t bytes, struct ol_arena *arena)
{
    struct outlog_new_event event;
    outlog_err err;
    (void)bytes;
    if (!ol_session_key_is_valid(text))
        return;
    check(*ol_session_agent(text, arena));
    check(ol_session_message("acme", text, "r", "hello", arena, &event, &err) == 0);
    check(strlen(event.actor_id) <= 100);
}

static void try_settings(char *text, size_t bytes, struct ol_arena *arena)
{
    struct ol_json value, payload;
    struct ol_agent agent;
    struct ol_retry policy;
    struct ol_buf out = {0};
    outlog_err err;
    if (ol_json_parse(text, bytes, &value, NULL) < 0)
        return;
    if (ol_agent_parse(&value, arena, &agent, &err) < 0)
        check_err(&err);
    if (ol_retry_parse(&value, &policy, &err) < 0)
        check_err(&err);
    else
        for (int attempt = 1; attempt < 40; attempt++)
            check(ol_retry_wait_us(&policy, attempt, 0.99, 0) >= 0);
    ol_json_parse("{\"a\":{\"b\":1}}", 13, &payload, NULL);
    if (ol_payload_shape_valid(&value, &err) < 0 ||
        ol_payload_shape_check(&value, &payload, &err) < 0)
        check_err(&err);
    if (ol_env_expand(&value, arena, &out, &err) < 0)
        check_err(&err);
    else
        check(ol_json_parse(out.data, out.bytes, &value, NULL) == 0);
    ol_buf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const parsers[])(char *, size_t,
                                   struct ol_arena *) = {try_duration,    try_timestamp,
                                                         try_traceparent, try_url,
                                                         try_uuid,        try_base64,
                                                         try_address,     try_retry_after,
                                                         try_session_key, try_settings};
    struct ol_arena arena = {0};
    if (bytes < 1)
        return 0;
    char *text = copy_text(data + 1, bytes - 1);
    parsers[data[0] % (sizeof parsers / sizeof *parsers)](text, bytes - 1, &arena);
    ol_arena_clear(&arena);
    free(text);
    return 0;
}
