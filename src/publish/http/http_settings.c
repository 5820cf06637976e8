/* http_settings.c: keys and checks that webhook and sor share. */
#include "publish/http/http_settings.h"

#include "net/ssrf_guard.h"
#include "net/webhook_signature.h"

#include <stdlib.h>
#include <string.h>

const char *ol_http_settings_method(const struct ol_json *name)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE", "GET"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (ol_json_equals(name, methods[i]))
            return methods[i];
    return NULL;
}

static int read_method(struct ol_setting_reader *r, const struct ol_setting_key *key,
                       const struct ol_json *value)
{
    struct ol_http_settings *http = r->settings->own;
    http->method = ol_http_settings_method(value);
    return http->method ? 0
                        : ol_setting_types_wrong(r, key->name, "POST, PUT, PATCH, DELETE or GET");
}

static int add_statuses(struct ol_setting_reader *r, const char *text)
{
    struct ol_http_settings *http = r->settings->own;
    int from, to;
    if (text && strlen(text) == 3 && text[0] >= '3' && text[0] <= '5' && !strcmp(text + 1, "xx")) {
        from = (text[0] - '0') * 100;
        to = from + 99;
    } else if (text && strlen(text) == 3 && strspn(text, "0123456789") == 3 && text[0] >= '3') {
        from = to = atoi(text);
    } else {
        return ol_setting_types_wrong(r, "retry_on",
                                      "a list of statuses like [404, 409, 5xx] is wanted");
    }
    for (int status = from; status <= to; status++)
        http->retry_on.bits[status / 8] |= (unsigned char)(1 << status % 8);
    return 0;
}

static int read_retry_on(struct ol_setting_reader *r, const struct ol_setting_key *key,
                         const struct ol_json *value)
{
    struct ol_json_iter it = {0};
    if (value->type != OL_JSON_ARRAY)
        return ol_setting_types_wrong(r, key->name,
                                      "a list of statuses like [404, 409, 5xx] is wanted");
    while (ol_json_next(value, &it))
        if (add_statuses(r, ol_setting_types_scalar(r, &it.value)) < 0)
            return -1;
    return 0;
}

#define AT(member) offsetof(struct ol_http_settings, member)

const struct ol_setting_key ol_http_settings_keys[] = {
    {.name = "secret", .read = ol_setting_types_text, .offset = AT(secret)},
    {.name = "secret_previous", .read = ol_setting_types_text, .offset = AT(secret_previous)},
    {.name = "secrets", .read = ol_setting_types_texts, .offset = AT(secret_list)},
    {.name = "method", .read = read_method},
    {.name = "headers", .read = ol_setting_types_headers},
    {.name = "allow_private", .read = ol_setting_types_bool, .offset = AT(allow_private)},
    {.name = "retry_on", .read = read_retry_on},
    {.name = "ca_file", .read = ol_setting_types_text, .offset = AT(ca_file)},
    {.name = "source", .read = ol_setting_types_text, .offset = AT(source)},
    {.name = NULL},
};

int ol_http_settings_check_secrets(struct ol_setting_reader *r)
{
    struct ol_http_settings *http = r->settings->own;
    struct ol_webhook_signature *sign;
    size_t count = 0;
    const char **list =
        ol_arena_array(r->settings->arena, http->secret_list.count + 3, sizeof *list);

    if (!list)
        return ol_setting_types_no_memory(r);
    if (http->secret)
        list[count++] = http->secret;
    for (size_t i = 0; i < http->secret_list.count; i++)
        list[count++] = http->secret_list.items[i];
    if (http->secret_previous)
        list[count++] = http->secret_previous;
    http->secrets = list;
    http->secret_count = count;
    for (size_t i = 0; i < count; i++)
        if (ol_setting_types_mask(r, list[i]) < 0)
            return -1;
    for (size_t i = 0; r->mode == OL_SETTINGS_CHECK && i < count; i++)
        if (strstr(list[i], "${"))
            return 0;
    if (ol_webhook_signature_open(list, count, &sign, r->err) < 0)
        return -1;
    ol_webhook_signature_close(sign);
    return 0;
}

int ol_http_settings_check_url(struct ol_setting_reader *r)
{
    struct ol_http_settings *http = r->settings->own;
    struct ol_parsed_url parts;
    return r->is_url_pending ? 0
                             : ol_ssrf_guard_url(http->url, http->allow_private, &parts, r->err);
}
