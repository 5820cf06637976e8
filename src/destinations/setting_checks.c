/* setting_checks.c: see setting_checks.h. */
#include "destinations/setting_checks.h"

#include "net/ssrf_guard.h"
#include "net/webhook_signature.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

int ol_setting_checks_secrets(struct ol_setting_types_reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_webhook_signature *sign;
    size_t count = r->secret_list_count + (r->secret != NULL) + (r->secret_previous != NULL);
    const char **list = ol_arena_array(s->arena, count + 1, sizeof *list);

    if (!list)
        return ol_setting_types_no_memory(r);
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
    if (ol_webhook_signature_open(list, count, &sign, r->err) < 0)
        return -1;
    ol_webhook_signature_close(sign);
    return 0;
}

int ol_setting_checks_masked(struct ol_setting_types_reader *r)
{
    static const char *const words[] = {"auth",   "key",       "token",   "secret",
                                        "cookie", "signature", "password"};
    struct ol_settings *s = r->settings;
    size_t count = 0;
    const char **list = ol_arena_array(s->arena,
                                       s->secret_count + s->header_count + s->env_count + 2,
                                       sizeof *list);

    if (!list)
        return ol_setting_types_no_memory(r);
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

static int unescape_user(struct ol_setting_types_reader *r, const char *text, size_t bytes,
                         const char **out)
{
    char *copy = ol_arena_copy(r->settings->arena, text, bytes), *to = copy;
    unsigned byte;
    if (!copy)
        return ol_setting_types_no_memory(r);
    for (const char *at = copy; *at; to++) {
        if (*at != '%') {
            *to = *at++;
        } else if (strspn(at + 1, "0123456789abcdefABCDEF") >= 2 &&
                   sscanf(at + 1, "%2x", &byte) == 1 && byte) {
            *to = (char)byte;
            at += 3;
        } else {
            return ol_setting_types_wrong(r, "url",
                                          "a % is not followed by two hexadecimal digits");
        }
    }
    *to = '\0';
    *out = copy;
    return 0;
}

int ol_setting_checks_smtp(struct ol_setting_types_reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_parsed_url parts;
    bool is_implicit = strncasecmp(s->url, "smtps://", 8) == 0;
    const char *at = s->url + (is_implicit ? 8 : 7), *login;

    if (!is_implicit && strncasecmp(s->url, "smtp://", 7) != 0)
        return ol_setting_types_wrong(r, "url", "it must begin with smtp:// or smtps://");
    if (is_implicit)
        s->tls = OL_TLS_IMPLICIT;
    else if (s->tls == OL_TLS_IMPLICIT)
        return ol_setting_types_wrong(r, "tls", "TLS from the start is written as smtps://");
    if ((login = strrchr(at, '@'))) {
        const char *colon = memchr(at, ':', (size_t)(login - at));
        if (!colon)
            return ol_setting_types_wrong(r, "url", "a user name without a password");
        if (unescape_user(r, at, (size_t)(colon - at), &s->user) < 0 ||
            unescape_user(r, colon + 1, (size_t)(login - colon - 1), &s->password) < 0)
            return -1;
        at = login + 1;
    }
    if (!s->user != !s->password)
        return ol_setting_types_wrong(r, s->user ? "password" : "user", "a login has both");
    if (s->user && s->tls == OL_TLS_NONE)
        return ol_setting_types_wrong(r, "tls", "a password is not sent without TLS");

    char *copy = ol_arena_print(s->arena, "http://%s", at); // the guard's parser knows hosts
    if (!copy)
        return ol_setting_types_no_memory(r);
    size_t bytes = strlen(copy);
    if (copy[bytes - 1] == '/')
        copy[--bytes] = '\0';
    if (strpbrk(copy + 7, "/?") || ol_ssrf_guard_url(copy, true, &parts, r->err) < 0)
        return ol_setting_types_wrong(r, "url", "smtp://host:port is wanted");
    const char *bracket = strchr(copy, ']');
    bool has_port = strchr(bracket ? bracket : copy + 7, ':') != NULL;
    int port = has_port ? parts.port : is_implicit ? 465 : s->tls == OL_TLS_NONE ? 25 : 587;
    const char *hello = s->hello ? s->hello : "outlog";
    if (strspn(hello, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") !=
        strlen(hello))
        return ol_setting_types_wrong(r, "hello", "a host name is wanted");
    bool is_six = strchr(parts.host, ':') != NULL;
    s->url = ol_arena_print(s->arena, "%s://%s%s%s:%d/%s", is_implicit ? "smtps" : "smtp",
                            is_six ? "[" : "", parts.host, is_six ? "]" : "", port, hello);
    return s->url ? 0 : ol_setting_types_no_memory(r);
}

int ol_setting_checks_webhook(struct ol_setting_types_reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_parsed_url parts;

    if (s->request == OL_URL_FROM_PAYLOAD && s->url)
        return ol_setting_types_wrong(r, "url",
                                      "with `request: payload` each message brings its own");
    if (s->request == OL_URL_FROM_PAYLOAD)
        return s->allow_host_count ? 0
                                   : ol_setting_types_wrong(r, "allow_hosts",
                                                            "`request: payload` needs the hosts"
                                                            " that a payload may name");
    if (s->allow_host_count)
        return ol_setting_types_wrong(r, "allow_hosts", "it belongs to `request: payload`");
    if (!s->url)
        return ol_setting_types_wrong(r, "url", "it is missing");
    return r->is_url_pending ? 0 : ol_ssrf_guard_url(s->url, s->allow_private, &parts, r->err);
}

int ol_setting_checks_broker(struct ol_setting_types_reader *r)
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
    const struct ol_address_scheme *schemes = r->type == OL_TO_NATS       ? nats
                                              : r->type == OL_TO_RABBITMQ ? amqp
                                              : r->type == OL_TO_REDIS    ? redis
                                                                          : mqtt;

    bool has_headers = r->type == OL_TO_KAFKA || r->type == OL_TO_NATS ||
                       (r->type == OL_TO_MQTT && s->protocol == OL_PROTOCOL_5);
    if (s->envelope == OL_ENVELOPE_CLOUDEVENTS_BINARY && !has_headers)
        return ol_setting_types_wrong(r, "envelope",
                                      "here CloudEvents are sent only as cloudevents-structured");
    if (!s->cert_file != !s->key_file)
        return ol_setting_types_wrong(r, s->cert_file ? "key_file" : "cert_file",
                                      "the two go together");
    if (r->type == OL_TO_KAFKA)
        return 0;
    if (ol_address_parse(s->url, schemes, s->arena, &list, &s->address_count, r->err) < 0)
        return -1;
    if (s->address_count > 1 && r->type != OL_TO_NATS)
        return ol_setting_types_wrong(r, "url", "one address is wanted");
    s->addresses = list;
    if (!s->user) {
        s->user = list[0].user;
        if (!s->password)
            s->password = list[0].password;
    }
    return 0;
}
