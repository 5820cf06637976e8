/* settings.c: one table says which keys there are, for which types, and how each is read. */
#include "publish/settings.h"

#include "base/clock.h"
#include "publish/expand.h"
#include "publish/guard.h"
#include "publish/headers.h"
#include "publish/parcel.h"
#include "publish/sign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECOND INT64_C(1000000)

/* --- types ------------------------------------------------------------------------------------ */

enum {
    WEBHOOK = 1 << 0,
    SMTP = 1 << 1,
    SOR = 1 << 2,
    EXEC = 1 << 3,
    STDOUT = 1 << 4,
    NOWHERE = 1 << 5,
    PLUGIN = 1 << 6,
    NATS = 1 << 7,
    KAFKA = 1 << 8,
    RABBITMQ = 1 << 9,
    REDIS = 1 << 10,
    MQTT = 1 << 11,
    WEBSOCKET = 1 << 12,
    IN_APP = 1 << 13,
    BROKERS = NATS | KAFKA | RABBITMQ | REDIS | MQTT,
    ANY = (1 << 14) - 1,
};

static const struct {
    const char *name;
    unsigned bit;
    int64_t timeout_us;
    int concurrency;
} types[] = {
    {"webhook", WEBHOOK, 10 * SECOND, 64},
    {"smtp", SMTP, 20 * SECOND, 8},
    {"sor", SOR, 10 * SECOND, 64},
    {"exec", EXEC, 20 * SECOND, 8},
    {"stdout", STDOUT, 10 * SECOND, 1024},
    {"null", NOWHERE, 10 * SECOND, 0},
    {"plugin", PLUGIN, 10 * SECOND, 64},
    {"nats", NATS, 10 * SECOND, 1024},
    {"kafka", KAFKA, 10 * SECOND, 1024},
    {"rabbitmq", RABBITMQ, 10 * SECOND, 1024},
    {"redis", REDIS, 10 * SECOND, 1024},
    {"mqtt", MQTT, 10 * SECOND, 200},
    {"websocket", WEBSOCKET, 10 * SECOND, 64},
    {"in_app", IN_APP, 10 * SECOND, 0},
};

/* --- reading one value ------------------------------------------------------------------------ */

struct reader {
    struct ol_settings *settings;
    enum ol_settings_mode mode;
    unsigned type;
    bool has_guarantee, is_url_pending;
    const char *secret, *secret_previous; /* until all keys are read */
    const char *const *secret_list;
    size_t secret_list_count;
    outlog_err *err;
};

struct key {
    const char *name;
    unsigned types, needed; /* which types have it, which cannot do without */
    int (*read)(struct reader *r, const struct key *key, const struct ol_json *value);
    size_t offset; /* of the field, for the plain kinds */
    int64_t min, max;
    const char *const *choices; /* in the order of their enum */
};

static int wrong(struct reader *r, const char *key, const char *wanted)
{
    char pointer[80];
    snprintf(pointer, sizeof pointer, "/%s", key);
    return ol_fail_at(r->err, OUTLOG_INVALID_FIELD, pointer, "%s: %s", key, wanted);
}

static int out_of_memory(struct reader *r)
{
    return ol_fail(r->err, OUTLOG_NO_MEMORY, "out of memory");
}

/* A value that waits for the environment of the relay: nothing can be said about it yet. */
static bool is_pending(const struct reader *r, const struct ol_json *value)
{
    return r->mode == OL_SETTINGS_CHECK && memmem(value->text, value->bytes, "${", 2);
}

/* Strings as they mean, numbers and booleans as written: after ${NAME} all of them are text. */
static char *scalar(struct reader *r, const struct ol_json *value)
{
    switch (value->type) {
    case OL_JSON_STRING:
        return ol_json_string(value, r->settings->arena, NULL);
    case OL_JSON_NUMBER:
    case OL_JSON_TRUE:
    case OL_JSON_FALSE:
        return ol_arena_copy(r->settings->arena, value->text, value->bytes);
    default:
        return NULL;
    }
}

static void *field(struct reader *r, const struct key *key)
{
    return (char *)r->settings + key->offset;
}

static int read_text(struct reader *r, const struct key *key, const struct ol_json *value)
{
    const char *text = value->type == OL_JSON_STRING ? scalar(r, value) : NULL;
    if (!text || !*text)
        return wrong(r, key->name, "a text is wanted");
    *(const char **)field(r, key) = text;
    return 0;
}

static int read_bool(struct reader *r, const struct key *key, const struct ol_json *value)
{
    const char *text = scalar(r, value);
    if (is_pending(r, value))
        return 0;
    if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
        return wrong(r, key->name, "true or false is wanted");
    *(bool *)field(r, key) = text[0] == 't';
    return 0;
}

static int read_whole(struct reader *r, const struct key *key, const struct ol_json *value,
                      int64_t *out)
{
    char wanted[80], *end = NULL;
    const char *text = scalar(r, value);
    if (text && strspn(text, "0123456789") == strlen(text) && *text && strlen(text) < 18)
        *out = strtoll(text, &end, 10);
    if (end && *out >= key->min && *out <= key->max)
        return 0;
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld is wanted",
             (long long)key->min, (long long)key->max);
    return wrong(r, key->name, wanted);
}

static int read_int(struct reader *r, const struct key *key, const struct ol_json *value)
{
    int64_t number;
    if (is_pending(r, value))
        return 0;
    if (read_whole(r, key, value, &number) < 0)
        return -1;
    *(int *)field(r, key) = (int)number;
    return 0;
}

static int read_bytes(struct reader *r, const struct key *key, const struct ol_json *value)
{
    if (is_pending(r, value))
        return 0;
    return read_whole(r, key, value, field(r, key));
}

static int read_span(struct reader *r, const struct key *key, const struct ol_json *value)
{
    int64_t span;
    const char *text = scalar(r, value);
    if (is_pending(r, value))
        return 0;
    if (!text || ol_span_parse(text, &span) < 0 || span < key->min || span > key->max)
        return wrong(r, key->name, "a time like 250ms, 10s or 1m is wanted");
    *(int64_t *)field(r, key) = span;
    return 0;
}

static int read_texts(struct reader *r, const char *name, const struct ol_json *value,
                      const char *const **list, size_t *count)
{
    struct ol_json_iter it = {0};
    size_t room = 0;

    if (value->type != OL_JSON_ARRAY)
        return wrong(r, name, "a list of texts is wanted");
    while (ol_json_next(value, &it))
        room++;
    const char **texts = ol_arena_array(r->settings->arena, room + 1, sizeof *texts);
    if (!texts)
        return out_of_memory(r);
    it = (struct ol_json_iter){0};
    for (*count = 0; ol_json_next(value, &it); (*count)++)
        if (!(texts[*count] = scalar(r, &it.value)))
            return wrong(r, name, "a list of texts is wanted");
    if (*count == 0)
        return wrong(r, name, "the list is empty");
    *list = texts;
    return 0;
}

/* --- values with a meaning of their own --------------------------------------------------------- */

static int read_type(struct reader *r, const struct key *key, const struct ol_json *value)
{
    (void)r, (void)key, (void)value; // read first of all, by ol_settings_open
    return 0;
}

/* One of key->choices into an enum; the message lists them. */
static int read_choice(struct reader *r, const struct key *key, const struct ol_json *value)
{
    char wanted[120] = "";
    for (int i = 0; key->choices[i]; i++) {
        if (ol_json_equals(value, key->choices[i])) {
            *(int *)field(r, key) = i;
            return 0;
        }
        size_t bytes = strlen(wanted);
        snprintf(wanted + bytes, sizeof wanted - bytes, "%s%s", i ? " or " : "", key->choices[i]);
    }
    return wrong(r, key->name, wanted); // one from the environment would hide what `apply` shows
}

static int read_method(struct reader *r, const struct key *key, const struct ol_json *value)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE", "GET"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (ol_json_equals(value, methods[i])) {
            r->settings->method = methods[i];
            return 0;
        }
    return wrong(r, key->name, "POST, PUT, PATCH, DELETE or GET");
}

/* "100/s", "30/m", or a number a second. */
static int read_rate(struct reader *r, const struct key *key, const struct ol_json *value)
{
    static const struct {
        const char *unit;
        int64_t us;
    } units[] = {{"", SECOND}, {"/s", SECOND}, {"/m", 60 * SECOND}, {"/h", 3600 * SECOND}};
    const char *text = scalar(r, value);

    if (is_pending(r, value))
        return 0;
    size_t digits = text ? strspn(text, "0123456789") : 0;
    for (size_t i = 0; digits > 0 && digits < 8 && i < sizeof units / sizeof *units; i++)
        if (strcmp(text + digits, units[i].unit) == 0 && atol(text) > 0) {
            r->settings->rate_count = atol(text);
            r->settings->rate_period_us = units[i].us;
            return 0;
        }
    return wrong(r, key->name, "something like 100/s, 30/m or 500/h is wanted");
}

static int read_retry(struct reader *r, const struct key *key, const struct ol_json *value)
{
    (void)key;
    return ol_retry_parse(value, &r->settings->retry, r->err);
}

static int read_breaker(struct reader *r, const struct key *key, const struct ol_json *value)
{
    static const struct key keys[] = {
        {"failures", ANY, 0, read_int, offsetof(struct ol_settings, breaker_failures), 0, 1000000,
         NULL},
        {"open", ANY, 0, read_span, offsetof(struct ol_settings, breaker_open_us), 1000,
         86400 * SECOND, NULL},
        {"open_max", ANY, 0, read_span, offsetof(struct ol_settings, breaker_open_max_us), 1000,
         86400 * SECOND, NULL},
    };
    struct ol_json_iter it = {0};
    if (value->type != OL_JSON_OBJECT)
        return wrong(r, key->name, "an object is wanted");
    while (ol_json_next(value, &it)) {
        size_t i = 0;
        while (i < 3 && !ol_json_equals(&it.key, keys[i].name))
            i++;
        if (i == 3)
            return ol_fail_at(r->err, OUTLOG_UNKNOWN_FIELD, "/breaker",
                              "breaker: unknown key; failures, open and open_max are known");
        if (keys[i].read(r, &keys[i], &it.value) < 0) {
            ol_err_prefix(r->err, "breaker");
            return -1;
        }
    }
    return 0;
}

static int read_secret(struct reader *r, const struct key *key, const struct ol_json *value)
{
    const char *text = value->type == OL_JSON_STRING ? scalar(r, value) : NULL;
    if (!text || !*text)
        return wrong(r, key->name, "a text is wanted");
    *(strcmp(key->name, "secret") == 0 ? &r->secret : &r->secret_previous) = text;
    return 0;
}

static int read_secrets(struct reader *r, const struct key *key, const struct ol_json *value)
{
    return read_texts(r, key->name, value, &r->secret_list, &r->secret_list_count);
}

static int read_allow_hosts(struct reader *r, const struct key *key, const struct ol_json *value)
{
    return read_texts(r, key->name, value, &r->settings->allow_hosts,
                      &r->settings->allow_host_count);
}

static int read_command(struct reader *r, const struct key *key, const struct ol_json *value)
{
    return read_texts(r, key->name, value, &r->settings->command, &r->settings->command_count);
}

static int read_headers(struct reader *r, const struct key *key, const struct ol_json *value)
{
    struct ol_headers probe = {0};
    struct outlog_header *list;
    (void)key;
    if (ol_headers_read(value, r->settings->arena, &list, &r->settings->header_count, r->err) < 0)
        return -1;
    r->settings->headers = list;
    int result = ol_headers_offer_all(&probe, list, r->settings->header_count, r->err);
    ol_headers_clear(&probe);
    return result;
}

static int read_env(struct reader *r, const struct key *key, const struct ol_json *value)
{
    struct outlog_header *list;
    if (ol_headers_read(value, r->settings->arena, &list, &r->settings->env_count, NULL) < 0)
        return wrong(r, key->name, "an object of texts is wanted");
    for (size_t i = 0; i < r->settings->env_count; i++)
        if (!*list[i].name || strchr(list[i].name, '='))
            return wrong(r, key->name, "a name is empty or has a =");
    r->settings->env = list;
    return 0;
}

static int retry_on_one(struct reader *r, const char *text)
{
    int from, to;
    if (text && strlen(text) == 3 && text[0] >= '3' && text[0] <= '5' && !strcmp(text + 1, "xx")) {
        from = (text[0] - '0') * 100;
        to = from + 99;
    } else if (text && strlen(text) == 3 && strspn(text, "0123456789") == 3 && text[0] >= '3') {
        from = to = atoi(text);
    } else {
        return wrong(r, "retry_on", "a list of statuses like [404, 409, 5xx] is wanted");
    }
    for (int status = from; status <= to; status++)
        r->settings->retry_on[status / 8] |= (unsigned char)(1 << status % 8);
    return 0;
}

static int read_retry_on(struct reader *r, const struct key *key, const struct ol_json *value)
{
    struct ol_json_iter it = {0};
    if (value->type != OL_JSON_ARRAY)
        return wrong(r, key->name, "a list of statuses like [404, 409, 5xx] is wanted");
    while (ol_json_next(value, &it))
        if (retry_on_one(r, scalar(r, &it.value)) < 0)
            return -1;
    return 0;
}

static int read_url(struct reader *r, const struct key *key, const struct ol_json *value)
{
    r->is_url_pending = is_pending(r, value);
    return read_text(r, key, value);
}

/* A subject, topic, stream or routing key, perhaps with {event_type} and the like. */
static int read_name(struct reader *r, const struct key *key, const struct ol_json *value)
{
    if (read_text(r, key, value) < 0)
        return -1;
    const char *unknown = ol_parcel_unknown_field(*(const char **)field(r, key));
    if (unknown && !is_pending(r, value))
        return wrong(r, key->name,
                     "of {…} only {event_type}, {org_id}, {ordering_key} and {partition_key}"
                     " are known");
    return 0;
}

static int read_options(struct reader *r, const struct key *key, const struct ol_json *value)
{
    if (value->type != OL_JSON_OBJECT)
        return wrong(r, key->name, "an object is wanted");
    r->settings->options = ol_arena_copy(r->settings->arena, value->text, value->bytes);
    return r->settings->options ? 0 : out_of_memory(r);
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
#define ONE_OF(member, names) read_choice, AT(member), 0, 0, names
#define OWN(read) read, 0, 0, 0, NULL
#define OWN_AT(read, member) read, AT(member), 0, 0, NULL
#define TEXT(member) read_text, AT(member), 0, 0, NULL

static const struct key keys[] = {
    {"type", ANY, 0, OWN(read_type)},
    {"guarantee", ANY, 0, ONE_OF(guarantee, guarantees)},
    {"on_dead", ANY, 0, ONE_OF(on_dead, on_deads)},
    {"keep", ANY, 0, ONE_OF(keep, keeps)},
    {"timeout", ANY, 0, read_span, AT(timeout_us), 1000, 3600 * SECOND, NULL},
    {"concurrency", ANY, 0, read_int, AT(concurrency), 1, 100000, NULL},
    {"rate", ANY, 0, OWN(read_rate)},
    {"budget_bytes", ANY, 0, read_bytes, AT(budget_bytes), 1, INT64_C(1) << 40, NULL},
    {"retry", ANY, 0, OWN(read_retry)},
    {"breaker", ANY, 0, OWN(read_breaker)},
    {"preset", ANY, 0, TEXT(preset)},
    {"url", WEBHOOK | SMTP | SOR | NATS | RABBITMQ | REDIS | MQTT,
     SMTP | SOR | NATS | RABBITMQ | REDIS | MQTT, read_url, AT(url), 0, 0, NULL},
    {"secret", WEBHOOK | SOR, 0, OWN(read_secret)},
    {"secret_previous", WEBHOOK | SOR, 0, OWN(read_secret)},
    {"secrets", WEBHOOK | SOR, 0, OWN(read_secrets)},
    {"method", WEBHOOK | SOR, 0, OWN(read_method)},
    {"headers", WEBHOOK | SOR | SMTP | BROKERS, 0, OWN(read_headers)},
    {"allow_private", WEBHOOK | SOR, 0, read_bool, AT(allow_private), 0, 0, NULL},
    {"allow_hosts", WEBHOOK, 0, OWN(read_allow_hosts)},
    {"envelope", WEBHOOK | BROKERS, 0, ONE_OF(envelope, envelopes)},
    {"request", WEBHOOK, 0, ONE_OF(request, requests)},
    {"retry_on", WEBHOOK | SOR, 0, OWN(read_retry_on)},
    {"ca_file", WEBHOOK | SOR | SMTP | BROKERS, 0, TEXT(ca_file)},
    {"source", WEBHOOK | SOR | BROKERS, 0, TEXT(source)},
    {"from", SMTP, SMTP, TEXT(from)},
    {"user", SMTP | BROKERS, 0, TEXT(user)},
    {"password", SMTP | BROKERS, 0, TEXT(password)},
    {"hello", SMTP, 0, TEXT(hello)},
    {"tls", SMTP | KAFKA, 0, ONE_OF(tls, tlses)},
    {"command", EXEC, EXEC, OWN(read_command)},
    {"env", EXEC, 0, OWN(read_env)},
    {"path", PLUGIN, PLUGIN, TEXT(path)},
    {"options", PLUGIN | KAFKA, 0, OWN(read_options)},
    {"subject", NATS, NATS, OWN_AT(read_name, subject)},
    {"brokers", KAFKA, KAFKA, TEXT(brokers)},
    {"topic", KAFKA | MQTT, KAFKA | MQTT, OWN_AT(read_name, topic)},
    {"exchange", RABBITMQ, 0, TEXT(exchange)},
    {"routing_key", RABBITMQ, RABBITMQ, OWN_AT(read_name, routing_key)},
    {"stream", REDIS | NATS, REDIS, OWN_AT(read_name, stream)},
    {"qos", MQTT, 0, read_int, AT(qos), 0, 2, NULL},
    {"protocol", MQTT, 0, ONE_OF(protocol, protocols)},
    {"client_id", MQTT, 0, TEXT(client_id)},
    {"cert_file", BROKERS, 0, TEXT(cert_file)},
    {"key_file", BROKERS, 0, TEXT(key_file)},
    {"credentials", NATS, 0, TEXT(credentials)},
    {"max_len", REDIS, 0, read_bytes, AT(max_len), 1, INT64_C(1) << 40, NULL},
    {"dedupe", REDIS, 0, read_span, AT(dedupe_us), 1000, 366 * 86400 * SECOND, NULL},
};

/* --- what only the whole can tell ---------------------------------------------------------------- */

static int finish_secrets(struct reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_sign *sign;
    size_t count = r->secret_list_count + (r->secret != NULL) + (r->secret_previous != NULL);
    const char **list = ol_arena_array(s->arena, count + 1, sizeof *list);

    if (!list)
        return out_of_memory(r);
    if (r->secret)
        list[s->secret_count++] = r->secret;
    for (size_t i = 0; i < r->secret_list_count; i++)
        list[s->secret_count++] = r->secret_list[i];
    if (r->secret_previous)
        list[s->secret_count++] = r->secret_previous;
    s->secrets = list;
    for (size_t i = 0; r->mode == OL_SETTINGS_CHECK && i < count; i++)
        if (strstr(list[i], "${"))
            return 0;
    if (ol_sign_open(list, count, &sign, r->err) < 0)
        return -1;
    ol_sign_close(sign);
    return 0;
}

/* Everything of this destination that must not turn up in a stored response or an error. */
static int finish_masked(struct reader *r)
{
    static const char *const words[] = {"auth",   "key",       "token",   "secret",
                                        "cookie", "signature", "password"};
    struct ol_settings *s = r->settings;
    size_t count = 0;
    const char **list = ol_arena_array(s->arena,
                                       s->secret_count + s->header_count + s->env_count + 2,
                                       sizeof *list);

    if (!list)
        return out_of_memory(r);
    for (size_t i = 0; i < s->secret_count; i++)
        list[count++] = s->secrets[i];
    if (s->password)
        list[count++] = s->password;
    for (size_t i = 0; i < s->header_count + s->env_count; i++) {
        const struct outlog_header *pair = i < s->header_count ? &s->headers[i]
                                                               : &s->env[i - s->header_count];
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (strcasestr(pair->name, words[w])) {
                list[count++] = pair->value;
                break;
            }
    }
    s->masked = list;
    return 0;
}

static int unescape_user(struct reader *r, const char *text, size_t bytes, const char **out)
{
    char *copy = ol_arena_copy(r->settings->arena, text, bytes), *to = copy;
    unsigned byte;
    if (!copy)
        return out_of_memory(r);
    for (const char *at = copy; *at; to++) {
        if (*at != '%') {
            *to = *at++;
        } else if (strspn(at + 1, "0123456789abcdefABCDEF") >= 2 &&
                   sscanf(at + 1, "%2x", &byte) == 1 && byte) {
            *to = (char)byte;
            at += 3;
        } else {
            return wrong(r, "url", "a % is not followed by two hexadecimal digits");
        }
    }
    *to = '\0';
    *out = copy;
    return 0;
}

/* smtp://user:password@host:port becomes smtp://host:port/hello, with the login apart. */
static int finish_smtp(struct reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_url parts;
    bool is_implicit = strncasecmp(s->url, "smtps://", 8) == 0;
    const char *at = s->url + (is_implicit ? 8 : 7), *login;

    if (!is_implicit && strncasecmp(s->url, "smtp://", 7) != 0)
        return wrong(r, "url", "it must begin with smtp:// or smtps://");
    if (is_implicit)
        s->tls = OL_TLS_IMPLICIT;
    else if (s->tls == OL_TLS_IMPLICIT)
        return wrong(r, "tls", "TLS from the start is written as smtps://");
    if ((login = strrchr(at, '@'))) {
        const char *colon = memchr(at, ':', (size_t)(login - at));
        if (!colon)
            return wrong(r, "url", "a user name without a password");
        if (unescape_user(r, at, (size_t)(colon - at), &s->user) < 0 ||
            unescape_user(r, colon + 1, (size_t)(login - colon - 1), &s->password) < 0)
            return -1;
        at = login + 1;
    }
    if (!s->user != !s->password)
        return wrong(r, s->user ? "password" : "user", "a login has both");
    if (s->user && s->tls == OL_TLS_NONE)
        return wrong(r, "tls", "a password is not sent without TLS");

    char *copy = ol_arena_print(s->arena, "http://%s", at); // the guard's parser knows hosts
    if (!copy)
        return out_of_memory(r);
    size_t bytes = strlen(copy);
    if (copy[bytes - 1] == '/')
        copy[--bytes] = '\0';
    if (strpbrk(copy + 7, "/?") || ol_guard_url(copy, true, &parts, r->err) < 0)
        return wrong(r, "url", "smtp://host:port is wanted");
    const char *bracket = strchr(copy, ']');
    bool has_port = strchr(bracket ? bracket : copy + 7, ':') != NULL;
    int port = has_port ? parts.port : is_implicit ? 465 : s->tls == OL_TLS_NONE ? 25 : 587;
    const char *hello = s->hello ? s->hello : "outlog";
    if (strspn(hello, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") !=
        strlen(hello))
        return wrong(r, "hello", "a host name is wanted");
    bool is_six = strchr(parts.host, ':') != NULL;
    s->url = ol_arena_print(s->arena, "%s://%s%s%s:%d/%s", is_implicit ? "smtps" : "smtp",
                            is_six ? "[" : "", parts.host, is_six ? "]" : "", port, hello);
    return s->url ? 0 : out_of_memory(r);
}

static int finish_webhook(struct reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_url parts;

    if (s->request == OL_REQUEST_PAYLOAD && s->url)
        return wrong(r, "url", "with `request: payload` each message brings its own");
    if (s->request == OL_REQUEST_PAYLOAD)
        return s->allow_host_count ? 0
                                   : wrong(r, "allow_hosts",
                                           "`request: payload` needs the hosts"
                                           " that a payload may name");
    if (s->allow_host_count)
        return wrong(r, "allow_hosts", "it belongs to `request: payload`");
    if (!s->url)
        return wrong(r, "url", "it is missing");
    return r->is_url_pending ? 0 : ol_guard_url(s->url, s->allow_private, &parts, r->err);
}

/* The address and the login of a broker. */
static int finish_broker(struct reader *r)
{
    static const struct ol_address_scheme nats[] = {{"nats", 4222, false},
                                                    {"tls", 4222, true},
                                                    {NULL, 0, false}};
    static const struct ol_address_scheme amqp[] = {{"amqp", 5672, false},
                                                    {"amqps", 5671, true},
                                                    {NULL, 0, false}};
    static const struct ol_address_scheme redis[] = {{"redis", 6379, false},
                                                     {"rediss", 6379, true},
                                                     {NULL, 0, false}};
    static const struct ol_address_scheme mqtt[] = {{"mqtt", 1883, false},
                                                    {"mqtts", 8883, true},
                                                    {NULL, 0, false}};
    struct ol_settings *s = r->settings;
    struct ol_address *list = NULL;
    const struct ol_address_scheme *schemes = r->type == NATS       ? nats
                                              : r->type == RABBITMQ ? amqp
                                              : r->type == REDIS    ? redis
                                                                    : mqtt;

    bool has_headers = r->type == KAFKA || r->type == NATS ||
                       (r->type == MQTT && s->protocol == OL_PROTOCOL_5);
    if (s->envelope == OL_ENVELOPE_CLOUDEVENTS_BINARY && !has_headers)
        return wrong(r, "envelope", "here CloudEvents are sent only as cloudevents-structured");
    if (!s->cert_file != !s->key_file)
        return wrong(r, s->cert_file ? "key_file" : "cert_file", "the two go together");
    if (r->type == KAFKA)
        return 0;
    if (ol_address_parse(s->url, schemes, s->arena, &list, &s->address_count, r->err) < 0)
        return -1;
    if (s->address_count > 1 && r->type != NATS)
        return wrong(r, "url", "one address is wanted");
    s->addresses = list;
    if (!s->user) {
        s->user = list[0].user;
        if (!s->password)
            s->password = list[0].password;
    }
    return 0;
}

static int finish(struct reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_retry preset;

    if (s->preset && !ol_retry_preset(s->preset, &preset))
        return wrong(r, "preset", "only `notification` is known");
    if (s->preset) {
        if (!r->has_guarantee)
            s->guarantee = OL_AT_MOST_ONCE;
        if (s->retry.kind == OL_RETRY_UNSAID) {
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
    if (finish_secrets(r) < 0)
        return -1;
    if (r->type == SMTP && !r->is_url_pending && finish_smtp(r) < 0)
        return -1;
    if ((r->type == WEBHOOK || r->type == SOR) && finish_webhook(r) < 0)
        return -1;
    if ((r->type & BROKERS) && !r->is_url_pending && finish_broker(r) < 0)
        return -1;
    return finish_masked(r);
}

/* --- the whole ----------------------------------------------------------------------------------- */

static int read_member(struct reader *r, const struct ol_json_iter *it, uint64_t *seen)
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

static int read_all(struct reader *r, const struct ol_json *object)
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
        return wrong(r, "type",
                     "one of webhook, smtp, sor, exec, stdout, null, plugin, nats, kafka,"
                     " rabbitmq, redis, mqtt, websocket, in_app is wanted");
    r->has_guarantee = ol_json_get(object, "guarantee").type == OL_JSON_STRING;
    while (ol_json_next(object, &it))
        if (read_member(r, &it, &seen) < 0)
            return -1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if ((keys[i].needed & r->type) && !(seen >> i & 1))
            return wrong(r, keys[i].name, "it is missing");
    return finish(r);
}

int ol_settings_open(const char *name, const char *json, size_t bytes, enum ol_settings_mode mode,
                     struct ol_settings **out, outlog_err *err)
{
    struct ol_arena *arena = calloc(1, sizeof *arena);
    struct ol_settings *settings = arena ? ol_arena_alloc(arena, sizeof *settings) : NULL;
    struct ol_buf expanded = {0};
    struct ol_json object;
    struct reader r = {.settings = settings, .mode = mode, .err = err};
    int result = -1;

    if (!settings) {
        ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
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
    if (mode == OL_SETTINGS_USE && ol_expand(&object, arena, &expanded, err) < 0)
        goto out;
    if (mode == OL_SETTINGS_CHECK)
        ol_buf_add(&expanded, object.text, object.bytes);
    settings->json = expanded.failed ? NULL : ol_arena_copy(arena, expanded.data, expanded.bytes);
    if (!settings->json || !settings->name) {
        ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
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
