/* system_of_record.c: a change for the system of record (D3, S0 9.3), posted as JSON.
 *
 * Success is a 2xx response, as for webhooks. The body is the same on every attempt, byte for byte:
 * `timestamp` is the time the message was created, so a receiver that compares a repeat under the
 * same key finds no difference. source_hash is the hash of `change` in canonical form (keys sorted,
 * no white space), which the receiver can compute from what it read. */
#include "base/sha256.h"
#include "publish/http/http_settings.h"
#include "publish/http/signed_request.h"

#include <stdlib.h>

struct sor {
    struct ol_signed_request sender; /* first */
    struct ol_buf body, change;
    struct ol_arena arena;
};

static int sor_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    struct sor *s = calloc(1, sizeof *s);
    if (!s)
        return ol_no_memory(err);
    if (ol_signed_request_open(&s->sender, host, err) < 0) {
        free(s);
        return -1;
    }
    *instance = s;
    return 0;
}

static void sor_close(void *instance)
{
    struct sor *s = instance;
    ol_signed_request_close(&s->sender);
    ol_buf_clear(&s->body);
    ol_buf_clear(&s->change);
    ol_arena_clear(&s->arena);
    free(s);
}

/* The payload's parts. */
struct sor_update {
    struct ol_json entity_type, entity_id, change, evidence_pack, key;
};

static int read_update(const struct outlog_delivery *message, struct sor_update *out,
                       outlog_err *err)
{
    struct ol_json payload;
    struct ol_json_iter it = {0};

    *out = (struct sor_update){0};
    if (ol_json_parse(message->payload, message->payload_bytes, &payload, err) < 0)
        return -1;
    while (ol_json_next(&payload, &it)) {
        if (ol_json_equals(&it.key, "entity_type"))
            out->entity_type = it.value;
        else if (ol_json_equals(&it.key, "entity_id"))
            out->entity_id = it.value;
        else if (ol_json_equals(&it.key, "change"))
            out->change = it.value;
        else if (ol_json_equals(&it.key, "evidence_pack"))
            out->evidence_pack = it.value;
        else if (ol_json_equals(&it.key, "idempotency_key"))
            out->key = it.value;
        else if (!ol_json_equals(&it.key, "tenant_id")) // S0 sends it; the message has its org_id
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD,
                           "payload: unknown key; entity_type, entity_id, change, evidence_pack and"
                           " idempotency_key are known");
    }
    if (out->entity_type.type != OL_JSON_STRING || out->entity_id.type != OL_JSON_STRING)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "payload: entity_type and entity_id are wanted, both texts");
    if (out->change.type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "payload.change: an object is wanted");
    return 0;
}

static void add_raw(struct ol_buf *out, const char *name, const struct ol_json *value)
{
    ol_buf_print(out, ",\"%s\":", name);
    if (value->type == OL_JSON_NONE)
        ol_buf_text(out, "null");
    else
        ol_buf_add(out, value->text, value->bytes);
}

static int make_body(struct sor *s, const struct outlog_delivery *message,
                     const struct sor_update *update, const char *key, outlog_err *err)
{
    char hash[OL_SHA256_TEXT];
    struct ol_buf *b = &s->body;
    const struct ol_http_settings *own = s->sender.settings->own;
    const char *source = own->source ? own->source : "orchestrator";

    ol_buf_reset(&s->change);
    if (ol_json_canonical(&update->change, &s->change) < 0)
        return ol_no_memory(err);
    ol_sha256_hex(s->change.data, s->change.bytes, hash);
    char *source_id = ol_arena_print(&s->arena, "%s:%s", source, key);
    if (!source_id)
        return ol_no_memory(err);

    ol_buf_reset(b);
    ol_buf_text(b, "{\"org_id\":");
    ol_buf_json_text(b, message->org_id);
    add_raw(b, "entity_type", &update->entity_type);
    add_raw(b, "entity_id", &update->entity_id);
    add_raw(b, "change", &update->change);
    ol_buf_text(b, ",\"source_id\":");
    ol_buf_json_text(b, source_id);
    ol_buf_print(b, ",\"source_hash\":\"%s\",\"timestamp\":", hash);
    ol_buf_json_time(b, message->created_at);
    ol_buf_text(b, ",\"inference\":false");
    add_raw(b, "evidence_pack", &update->evidence_pack);
    ol_buf_char(b, '}');
    return b->failed ? ol_no_memory(err) : 0;
}

static void sor_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                       void *tag)
{
    struct sor *s = instance;
    const struct ol_http_settings *own = s->sender.settings->own;
    struct sor_update update;
    const char *key = ol_publisher_message_key(message);
    outlog_err err;

    ol_arena_reset(&s->arena);
    if (read_update(message, &update, &err) < 0)
        goto refuse;
    if (update.key.type == OL_JSON_STRING &&
        !(key = ol_json_string(&update.key, &s->arena, NULL))) {
        ol_no_memory(&err);
        goto refuse;
    }
    if (make_body(s, message, &update, key, &err) < 0)
        goto refuse;
    struct ol_signed_request_input request = {
        .url = own->url,
        .method = own->method,
        .content_type = "application/json",
        .body = s->body.data,
        .body_bytes = s->body.bytes,
        .key = key,
    };
    ol_signed_request_send(&s->sender, message, &request, deadline_us, tag);
    return;
refuse:
    ol_signed_request_refuse(&s->sender, tag, &err);
}

static void sor_abandon(void *instance, void *tag)
{
    struct sor *s = instance;
    ol_signed_request_abandon(&s->sender, tag);
}

static const struct outlog_publisher publisher = {
    .name = "sor",
    .batch_max = 256,
    .keeps_attempts = true,
    .open = sor_open,
    .submit = sor_submit, // the thread's HTTP client drives it
    .abandon = sor_abandon,
    .close = sor_close,
};

/* --- settings --------------------------------------------------------------------------------- */

static int check_sor(struct ol_setting_reader *r)
{
    return ol_http_settings_check_secrets(r) < 0 ? -1 : ol_http_settings_check_url(r);
}

static void write_sample(const struct ol_settings *settings, struct ol_buf *out)
{
    (void)settings;
    ol_buf_text(out, "{\"entity_type\":\"outlog.test\",\"entity_id\":\"test\","
                     "\"change\":{\"test\":true},\"evidence_pack\":{}}");
}

static const struct ol_setting_key sor_keys[] = {
    {.name = "url",
     .read = ol_setting_types_url,
     .offset = offsetof(struct ol_http_settings, url),
     .is_needed = true},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_sor = {
    .name = "sor",
    .publisher = &publisher,
    .has_own_form = true,
    .timeout_s = 10,
    .concurrency = 64,
    .own_bytes = sizeof(struct ol_http_settings),
    .own_defaults = &(const struct ol_http_settings){.method = "POST"},
    .keys = {sor_keys, ol_http_settings_keys},
    .check = check_sor,
    .write_sample = write_sample,
};
