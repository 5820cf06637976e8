/* settings.c: one table says which keys there are, for which types, and how each is read. */
#include "destinations/settings.h"

#include "base/env.h"
#include "destinations/setting_checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000)

/* --- types ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    unsigned bit;
    int64_t timeout_us;
    int concurrency;
} types[] = {
    {"webhook", OL_TO_WEBHOOK, 10 * SECOND, 64},
    {"smtp", OL_TO_SMTP, 20 * SECOND, 8},
    {"sor", OL_TO_SOR, 10 * SECOND, 64},
    {"exec", OL_TO_EXEC, 20 * SECOND, 8},
    {"stdout", OL_TO_STDOUT, 10 * SECOND, 1024},
    {"null", OL_TO_NOWHERE, 10 * SECOND, 0},
    {"plugin", OL_TO_PLUGIN, 10 * SECOND, 64},
    {"nats", OL_TO_NATS, 10 * SECOND, 1024},
    {"kafka", OL_TO_KAFKA, 10 * SECOND, 1024},
    {"rabbitmq", OL_TO_RABBITMQ, 10 * SECOND, 1024},
    {"redis", OL_TO_REDIS, 10 * SECOND, 1024},
    {"mqtt", OL_TO_MQTT, 10 * SECOND, 200},
    {"websocket", OL_TO_WEBSOCKET, 10 * SECOND, 64},
    {"in_app", OL_TO_IN_APP, 10 * SECOND, 0},
};

/* --- keys ------------------------------------------------------------------------------------- */

static int read_type(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                     const struct ol_json *value)
{
    (void)r, (void)key, (void)value; // read first of all, by ol_settings_open
    return 0;
}

static const char *const guarantees[] = {"at_least_once", "at_most_once", NULL};
static const char *const on_deads[] = {"skip", "hold", NULL};
static const char *const keeps[] = {"all", "failures", NULL};
static const char *const requests[] = {"destination", "payload", NULL};
static const char *const protocols[] = {"5", "3.1.1", NULL};
static const char *const tlses[] = {"starttls", "implicit", "none", NULL};
static const char *const envelopes[] = {"none", "cloudevents-binary", "cloudevents-structured",
                                        NULL};

#define AT(member) offsetof(struct ol_settings, member)
#define ONE_OF(member, names) ol_setting_types_choice, AT(member), 0, 0, names
#define OWN(read) read, 0, 0, 0, NULL
#define OWN_AT(read, member) read, AT(member), 0, 0, NULL
#define TEXT(member) ol_setting_types_text, AT(member), 0, 0, NULL

static const struct ol_setting_types_key keys[] = {
    {"type", OL_TO_ANY, 0, OWN(read_type)},
    {"guarantee", OL_TO_ANY, 0, ONE_OF(guarantee, guarantees)},
    {"on_dead", OL_TO_ANY, 0, ONE_OF(on_dead, on_deads)},
    {"keep", OL_TO_ANY, 0, ONE_OF(keep, keeps)},
    {"timeout", OL_TO_ANY, 0, ol_setting_types_span, AT(timeout_us), 1000, 3600 * SECOND, NULL},
    {"concurrency", OL_TO_ANY, 0, ol_setting_types_int, AT(concurrency), 1, 100000, NULL},
    {"rate", OL_TO_ANY, 0, OWN(ol_setting_types_rate)},
    {"budget_bytes", OL_TO_ANY, 0, ol_setting_types_bytes, AT(budget_bytes), 1, INT64_C(1) << 40,
     NULL},
    {"retry", OL_TO_ANY, 0, OWN(ol_setting_types_retry)},
    {"breaker", OL_TO_ANY, 0, OWN(ol_setting_types_breaker)},
    {"preset", OL_TO_ANY, 0, TEXT(preset)},
    {"url",
     OL_TO_WEBHOOK | OL_TO_SMTP | OL_TO_SOR | OL_TO_NATS | OL_TO_RABBITMQ | OL_TO_REDIS |
         OL_TO_MQTT,
     OL_TO_SMTP | OL_TO_SOR | OL_TO_NATS | OL_TO_RABBITMQ | OL_TO_REDIS | OL_TO_MQTT,
     ol_setting_types_url, AT(url), 0, 0, NULL},
    {"secret", OL_TO_WEBHOOK | OL_TO_SOR, 0, OWN(ol_setting_types_secret)},
    {"secret_previous", OL_TO_WEBHOOK | OL_TO_SOR, 0, OWN(ol_setting_types_secret)},
    {"secrets", OL_TO_WEBHOOK | OL_TO_SOR, 0, OWN(ol_setting_types_secrets)},
    {"method", OL_TO_WEBHOOK | OL_TO_SOR, 0, OWN(ol_setting_types_method)},
    {"headers", OL_TO_WEBHOOK | OL_TO_SOR | OL_TO_SMTP | OL_TO_BROKERS, 0,
     OWN(ol_setting_types_headers)},
    {"allow_private", OL_TO_WEBHOOK | OL_TO_SOR, 0, ol_setting_types_bool, AT(allow_private), 0, 0,
     NULL},
    {"allow_hosts", OL_TO_WEBHOOK, 0, OWN(ol_setting_types_allow_hosts)},
    {"envelope", OL_TO_WEBHOOK | OL_TO_BROKERS, 0, ONE_OF(envelope, envelopes)},
    {"request", OL_TO_WEBHOOK, 0, ONE_OF(request, requests)},
    {"retry_on", OL_TO_WEBHOOK | OL_TO_SOR, 0, OWN(ol_setting_types_retry_on)},
    {"ca_file", OL_TO_WEBHOOK | OL_TO_SOR | OL_TO_SMTP | OL_TO_BROKERS, 0, TEXT(ca_file)},
    {"source", OL_TO_WEBHOOK | OL_TO_SOR | OL_TO_BROKERS, 0, TEXT(source)},
    {"from", OL_TO_SMTP, OL_TO_SMTP, TEXT(from)},
    {"user", OL_TO_SMTP | OL_TO_BROKERS, 0, TEXT(user)},
    {"password", OL_TO_SMTP | OL_TO_BROKERS, 0, TEXT(password)},
    {"hello", OL_TO_SMTP, 0, TEXT(hello)},
    {"tls", OL_TO_SMTP | OL_TO_KAFKA, 0, ONE_OF(tls, tlses)},
    {"command", OL_TO_EXEC, OL_TO_EXEC, OWN(ol_setting_types_command)},
    {"env", OL_TO_EXEC, 0, OWN(ol_setting_types_env)},
    {"path", OL_TO_PLUGIN, OL_TO_PLUGIN, TEXT(path)},
    {"options", OL_TO_PLUGIN | OL_TO_KAFKA, 0, OWN(ol_setting_types_options)},
    {"subject", OL_TO_NATS, OL_TO_NATS, OWN_AT(ol_setting_types_name, subject)},
    {"brokers", OL_TO_KAFKA, OL_TO_KAFKA, TEXT(brokers)},
    {"topic", OL_TO_KAFKA | OL_TO_MQTT, OL_TO_KAFKA | OL_TO_MQTT,
     OWN_AT(ol_setting_types_name, topic)},
    {"exchange", OL_TO_RABBITMQ, 0, TEXT(exchange)},
    {"routing_key", OL_TO_RABBITMQ, OL_TO_RABBITMQ, OWN_AT(ol_setting_types_name, routing_key)},
    {"stream", OL_TO_REDIS | OL_TO_NATS, OL_TO_REDIS, OWN_AT(ol_setting_types_name, stream)},
    {"qos", OL_TO_MQTT, 0, ol_setting_types_int, AT(qos), 0, 2, NULL},
    {"protocol", OL_TO_MQTT, 0, ONE_OF(protocol, protocols)},
    {"client_id", OL_TO_MQTT, 0, TEXT(client_id)},
    {"cert_file", OL_TO_BROKERS, 0, TEXT(cert_file)},
    {"key_file", OL_TO_BROKERS, 0, TEXT(key_file)},
    {"credentials", OL_TO_NATS, 0, TEXT(credentials)},
    {"max_len", OL_TO_REDIS, 0, ol_setting_types_bytes, AT(max_len), 1, INT64_C(1) << 40, NULL},
    {"dedupe", OL_TO_REDIS, 0, ol_setting_types_span, AT(dedupe_us), 1000, 366 * 86400 * SECOND,
     NULL},
};

/* --- the whole -----------------------------------------------------------------------------------
 */

static int finish(struct ol_setting_types_reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_retry preset;

    if (s->preset && !ol_retry_preset(s->preset, &preset))
        return ol_setting_types_wrong(r, "preset", "only `notification` is known");
    if (s->preset) {
        if (!r->has_guarantee)
            s->guarantee = OL_AT_MOST_ONCE;
        if (s->retry.kind == OL_RETRY_UNSET) {
            preset.max_attempts = s->retry.max_attempts ? s->retry.max_attempts : 5;
            preset.jitter = s->retry.jitter;
            preset.has_jitter = s->retry.has_jitter;
            s->retry = preset;
        }
    }
    if (s->breaker_open_max_us < s->breaker_open_us)
        s->breaker_open_max_us = s->breaker_open_us;
    if (!s->method)
        s->method = "POST";
    if (ol_setting_checks_secrets(r) < 0)
        return -1;
    if (r->type == OL_TO_SMTP && !r->is_url_pending && ol_setting_checks_smtp(r) < 0)
        return -1;
    if ((r->type == OL_TO_WEBHOOK || r->type == OL_TO_SOR) && ol_setting_checks_webhook(r) < 0)
        return -1;
    if ((r->type & OL_TO_BROKERS) && !r->is_url_pending && ol_setting_checks_broker(r) < 0)
        return -1;
    return ol_setting_checks_masked(r);
}

static int read_member(struct ol_setting_types_reader *r, const struct ol_json_iter *it,
                       uint64_t *seen)
{
    char pointer[80];
    snprintf(pointer, sizeof pointer, "/%.*s", (int)(it->key.bytes < 70 ? it->key.bytes - 2 : 68),
             it->key.text + 1);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!ol_json_equals(&it->key, keys[i].name))
            continue;
        if (!(keys[i].types & r->type))
            return ol_fail_at(r->err, OUTLOG_UNKNOWN_FIELD, pointer,
                              "%s: a destination of type %s has no such key", keys[i].name,
                              r->settings->type);
        if (it->value.type == OL_JSON_NULL)
            return 0;
        *seen |= UINT64_C(1) << i;
        return keys[i].read(r, &keys[i], &it->value);
    }
    return ol_fail_at(r->err, OUTLOG_UNKNOWN_FIELD, pointer, "unknown key %.*s",
                      (int)(it->key.bytes < 60 ? it->key.bytes : 60), it->key.text);
}

static int read_all(struct ol_setting_types_reader *r, const struct ol_json *object)
{
    struct ol_json_iter it = {0};
    struct ol_settings *s = r->settings;
    uint64_t seen = 0;
    _Static_assert(sizeof keys / sizeof *keys <= 64, "one bit a key");

    struct ol_json type = ol_json_get(object, "type");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (ol_json_equals(&type, types[i].name)) {
            r->type = types[i].bit;
            s->type = types[i].name;
            s->timeout_us = types[i].timeout_us;
            s->concurrency = types[i].concurrency;
        }
    if (!r->type)
        return ol_setting_types_wrong(
            r, "type",
            "one of webhook, smtp, sor, exec, stdout, null, plugin, nats, kafka,"
            " rabbitmq, redis, mqtt, websocket, in_app is wanted");
    r->has_guarantee = ol_json_get(object, "guarantee").type == OL_JSON_STRING;
    while (ol_json_next(object, &it))
        if (read_member(r, &it, &seen) < 0)
            return -1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if ((keys[i].needed & r->type) && !(seen >> i & 1))
            return ol_setting_types_wrong(r, keys[i].name, "it is missing");
    return finish(r);
}

int ol_settings_open(const char *name, const char *json, size_t bytes, enum ol_settings_mode mode,
                     struct ol_settings **out, outlog_err *err)
{
    struct ol_arena *arena = calloc(1, sizeof *arena);
    struct ol_settings *settings = arena ? ol_arena_alloc(arena, sizeof *settings) : NULL;
    struct ol_buf expanded = {0};
    struct ol_json object;
    struct ol_setting_types_reader r = {.settings = settings, .mode = mode, .err = err};
    int result = -1;

    if (!settings) {
        ol_no_memory(err);
        goto out;
    }
    *settings = (struct ol_settings){
        .arena = arena,
        .name = ol_arena_copy(arena, name, strlen(name)),
        .budget_bytes = 16 << 20,
        .breaker_failures = 20,
        .breaker_open_us = 1 * SECOND,
        .breaker_open_max_us = 30 * SECOND,
        .qos = 1,
    };
    if (ol_json_parse(json, bytes, &object, err) < 0)
        goto out;
    if (object.type != OL_JSON_OBJECT) {
        ol_fail(err, OUTLOG_INVALID_FIELD, "an object is wanted");
        goto out;
    }
    if (mode == OL_SETTINGS_USE && ol_env_expand(&object, arena, &expanded, err) < 0)
        goto out;
    if (mode == OL_SETTINGS_CHECK)
        ol_buf_add(&expanded, object.text, object.bytes);
    settings->json = expanded.failed ? NULL : ol_arena_copy(arena, expanded.data, expanded.bytes);
    if (!settings->json || !settings->name) {
        ol_no_memory(err);
        goto out;
    }
    if (ol_json_parse(settings->json, expanded.bytes, &object, err) < 0 || // a variable's bad UTF-8
        read_all(&r, &object) < 0)
        goto out;
    *out = settings;
    arena = NULL;
    result = 0;
out:
    if (result < 0)
        ol_err_prefix(err, "destination %s", name);
    ol_buf_clear(&expanded);
    if (arena)
        ol_arena_clear(arena);
    free(arena);
    return result;
}

void ol_settings_close(struct ol_settings *settings)
{
    if (!settings)
        return;
    struct ol_arena *arena = settings->arena; // it holds the settings too
    ol_arena_clear(arena);
    free(arena);
}

bool ol_settings_retries_on(const struct ol_settings *settings, int status)
{
    return status >= 0 && status < 1000 && (settings->retry_on[status / 8] >> status % 8 & 1);
}
