/* setting_types.c: see setting_types.h. */
#include "destinations/setting_types.h"

#include "base/duration.h"
#include "destinations/name_template.h"
#include "net/headers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECOND INT64_C(1000000)

int ol_setting_types_wrong(struct ol_setting_types_reader *r, const char *key, const char *wanted)
{
    char pointer[80];
    snprintf(pointer, sizeof pointer, "/%s", key);
    return ol_fail_at(r->err, OUTLOG_INVALID_FIELD, pointer, "%s: %s", key, wanted);
}

int ol_setting_types_no_memory(struct ol_setting_types_reader *r)
{
    return ol_fail(r->err, OUTLOG_NO_MEMORY, "out of memory");
}

/* A value that waits for the environment of the relay: nothing can be said about it yet. */
static bool is_pending(const struct ol_setting_types_reader *r, const struct ol_json *value)
{
    return r->mode == OL_SETTINGS_CHECK && memmem(value->text, value->bytes, "${", 2);
}

/* Strings as they mean, numbers and booleans as written: after ${NAME} all of them are text. */
static char *scalar(struct ol_setting_types_reader *r, const struct ol_json *value)
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

static void *field(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key)
{
    return (char *)r->settings + key->offset;
}

int ol_setting_types_text(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value)
{
    const char *text = value->type == OL_JSON_STRING ? scalar(r, value) : NULL;
    if (!text || !*text)
        return ol_setting_types_wrong(r, key->name, "a text is wanted");
    *(const char **)field(r, key) = text;
    return 0;
}

int ol_setting_types_bool(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value)
{
    const char *text = scalar(r, value);
    if (is_pending(r, value))
        return 0;
    if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
        return ol_setting_types_wrong(r, key->name, "true or false is wanted");
    *(bool *)field(r, key) = text[0] == 't';
    return 0;
}

static int read_whole(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                      const struct ol_json *value, int64_t *out)
{
    char wanted[80], *end = NULL;
    const char *text = scalar(r, value);
    if (text && strspn(text, "0123456789") == strlen(text) && *text && strlen(text) < 18)
        *out = strtoll(text, &end, 10);
    if (end && *out >= key->min && *out <= key->max)
        return 0;
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld is wanted",
             (long long)key->min, (long long)key->max);
    return ol_setting_types_wrong(r, key->name, wanted);
}

int ol_setting_types_int(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                         const struct ol_json *value)
{
    int64_t number;
    if (is_pending(r, value))
        return 0;
    if (read_whole(r, key, value, &number) < 0)
        return -1;
    *(int *)field(r, key) = (int)number;
    return 0;
}

int ol_setting_types_bytes(struct ol_setting_types_reader *r,
                           const struct ol_setting_types_key *key, const struct ol_json *value)
{
    if (is_pending(r, value))
        return 0;
    return read_whole(r, key, value, field(r, key));
}

int ol_setting_types_span(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value)
{
    int64_t span;
    const char *text = scalar(r, value);
    if (is_pending(r, value))
        return 0;
    if (!text || ol_duration_parse(text, &span) < 0 || span < key->min || span > key->max)
        return ol_setting_types_wrong(r, key->name, "a time like 250ms, 10s or 1m is wanted");
    *(int64_t *)field(r, key) = span;
    return 0;
}

static int read_texts(struct ol_setting_types_reader *r, const char *name,
                      const struct ol_json *value, const char *const **list, size_t *count)
{
    struct ol_json_iter it = {0};
    size_t room = 0;

    if (value->type != OL_JSON_ARRAY)
        return ol_setting_types_wrong(r, name, "a list of texts is wanted");
    while (ol_json_next(value, &it))
        room++;
    const char **texts = ol_arena_array(r->settings->arena, room + 1, sizeof *texts);
    if (!texts)
        return ol_setting_types_no_memory(r);
    it = (struct ol_json_iter){0};
    for (*count = 0; ol_json_next(value, &it); (*count)++)
        if (!(texts[*count] = scalar(r, &it.value)))
            return ol_setting_types_wrong(r, name, "a list of texts is wanted");
    if (*count == 0)
        return ol_setting_types_wrong(r, name, "the list is empty");
    *list = texts;
    return 0;
}

/* --- values with a meaning of their own ---------------------------------------------------------
 */

/* One of key->choices into an enum; the message lists them. */
int ol_setting_types_choice(struct ol_setting_types_reader *r,
                            const struct ol_setting_types_key *key, const struct ol_json *value)
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
    return ol_setting_types_wrong(r, key->name,
                                  wanted); // one from the environment would hide what `apply` shows
}

int ol_setting_types_method(struct ol_setting_types_reader *r,
                            const struct ol_setting_types_key *key, const struct ol_json *value)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE", "GET"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (ol_json_equals(value, methods[i])) {
            r->settings->method = methods[i];
            return 0;
        }
    return ol_setting_types_wrong(r, key->name, "POST, PUT, PATCH, DELETE or GET");
}

/* "100/s", "30/m", or a number a second. */
int ol_setting_types_rate(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value)
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
    return ol_setting_types_wrong(r, key->name, "something like 100/s, 30/m or 500/h is wanted");
}

int ol_setting_types_retry(struct ol_setting_types_reader *r,
                           const struct ol_setting_types_key *key, const struct ol_json *value)
{
    (void)key;
    return ol_retry_parse(value, &r->settings->retry, r->err);
}

int ol_setting_types_breaker(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value)
{
    static const struct ol_setting_types_key keys[] = {
        {"failures", OL_TO_ANY, 0, ol_setting_types_int,
         offsetof(struct ol_settings, breaker_failures), 0, 1000000, NULL},
        {"open", OL_TO_ANY, 0, ol_setting_types_span, offsetof(struct ol_settings, breaker_open_us),
         1000, 86400 * SECOND, NULL},
        {"open_max", OL_TO_ANY, 0, ol_setting_types_span,
         offsetof(struct ol_settings, breaker_open_max_us), 1000, 86400 * SECOND, NULL},
    };
    struct ol_json_iter it = {0};
    if (value->type != OL_JSON_OBJECT)
        return ol_setting_types_wrong(r, key->name, "an object is wanted");
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

int ol_setting_types_secret(struct ol_setting_types_reader *r,
                            const struct ol_setting_types_key *key, const struct ol_json *value)
{
    const char *text = value->type == OL_JSON_STRING ? scalar(r, value) : NULL;
    if (!text || !*text)
        return ol_setting_types_wrong(r, key->name, "a text is wanted");
    *(strcmp(key->name, "secret") == 0 ? &r->secret : &r->secret_previous) = text;
    return 0;
}

int ol_setting_types_secrets(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value)
{
    return read_texts(r, key->name, value, &r->secret_list, &r->secret_list_count);
}

int ol_setting_types_allow_hosts(struct ol_setting_types_reader *r,
                                 const struct ol_setting_types_key *key,
                                 const struct ol_json *value)
{
    return read_texts(r, key->name, value, &r->settings->allow_hosts,
                      &r->settings->allow_host_count);
}

int ol_setting_types_command(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value)
{
    return read_texts(r, key->name, value, &r->settings->command, &r->settings->command_count);
}

int ol_setting_types_headers(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value)
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

int ol_setting_types_env(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                         const struct ol_json *value)
{
    struct outlog_header *list;
    if (ol_headers_read(value, r->settings->arena, &list, &r->settings->env_count, NULL) < 0)
        return ol_setting_types_wrong(r, key->name, "an object of texts is wanted");
    for (size_t i = 0; i < r->settings->env_count; i++)
        if (!*list[i].name || strchr(list[i].name, '='))
            return ol_setting_types_wrong(r, key->name, "a name is empty or has a =");
    r->settings->env = list;
    return 0;
}

static int retry_on_one(struct ol_setting_types_reader *r, const char *text)
{
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
        r->settings->retry_on[status / 8] |= (unsigned char)(1 << status % 8);
    return 0;
}

int ol_setting_types_retry_on(struct ol_setting_types_reader *r,
                              const struct ol_setting_types_key *key, const struct ol_json *value)
{
    struct ol_json_iter it = {0};
    if (value->type != OL_JSON_ARRAY)
        return ol_setting_types_wrong(r, key->name,
                                      "a list of statuses like [404, 409, 5xx] is wanted");
    while (ol_json_next(value, &it))
        if (retry_on_one(r, scalar(r, &it.value)) < 0)
            return -1;
    return 0;
}

int ol_setting_types_url(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                         const struct ol_json *value)
{
    r->is_url_pending = is_pending(r, value);
    return ol_setting_types_text(r, key, value);
}

/* A subject, topic, stream or routing key, perhaps with {event_type} and the like. */
int ol_setting_types_name(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value)
{
    if (ol_setting_types_text(r, key, value) < 0)
        return -1;
    const char *unknown = ol_name_template_unknown_field(*(const char **)field(r, key));
    if (unknown && !is_pending(r, value))
        return ol_setting_types_wrong(
            r, key->name,
            "of {…} only {event_type}, {org_id}, {ordering_key} and {partition_key}"
            " are known");
    return 0;
}

int ol_setting_types_options(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value)
{
    if (value->type != OL_JSON_OBJECT)
        return ol_setting_types_wrong(r, key->name, "an object is wanted");
    r->settings->options = ol_arena_copy(r->settings->arena, value->text, value->bytes);
    return r->settings->options ? 0 : ol_setting_types_no_memory(r);
}
