/* setting_types.c: readers of single values, and the list of values to mask. */
#include "destinations/setting_types.h"

#include "base/duration.h"
#include "destinations/name_template.h"
#include "net/headers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECOND INT64_C(1000000)

const char *const ol_tls_mode_names[] = {"starttls", "implicit", "none", NULL};

int ol_setting_types_wrong(struct ol_setting_reader *r, const char *key, const char *wanted)
{
    char pointer[80];
    snprintf(pointer, sizeof pointer, "/%s", key);
    return ol_fail_at(r->err, OUTLOG_INVALID_FIELD, pointer, "%s: %s", key, wanted);
}

int ol_setting_types_no_memory(struct ol_setting_reader *r)
{
    return ol_fail(r->err, OUTLOG_NO_MEMORY, "out of memory");
}

int ol_setting_types_mask(struct ol_setting_reader *r, const char *value)
{
    struct ol_settings *s = r->settings;
    if (!value)
        return 0;
    if (r->masked_count + 1 >= r->masked_room) { // one is left for the NULL at the end
        size_t room = r->masked_room ? 2 * r->masked_room : 8;
        const char **list = ol_arena_array(s->arena, room, sizeof *list);
        if (!list)
            return ol_setting_types_no_memory(r);
        for (size_t i = 0; i < r->masked_count; i++)
            list[i] = s->masked[i];
        s->masked = r->masked = list;
        r->masked_room = room;
    }
    r->masked[r->masked_count++] = value;
    r->masked[r->masked_count] = NULL;
    return 0;
}

int ol_setting_types_mask_pairs(struct ol_setting_reader *r, const struct outlog_header *pairs,
                                size_t count)
{
    static const char *const words[] = {"auth",   "key",       "token",   "secret",
                                        "cookie", "signature", "password"};
    for (size_t i = 0; i < count; i++)
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (strcasestr(pairs[i].name, words[w])) {
                if (ol_setting_types_mask(r, pairs[i].value) < 0)
                    return -1;
                break;
            }
    return 0;
}

/* The value holds a ${NAME} that only the relay's environment can replace: it cannot be checked. */
static bool is_pending(const struct ol_setting_reader *r, const struct ol_json *value)
{
    return r->mode == OL_SETTINGS_CHECK && memmem(value->text, value->bytes, "${", 2);
}

char *ol_setting_types_scalar(struct ol_setting_reader *r, const struct ol_json *value)
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

static void *field_of(struct ol_setting_reader *r, const struct ol_setting_key *key)
{
    return (char *)r->target + key->offset;
}

int ol_setting_types_text(struct ol_setting_reader *r, const struct ol_setting_key *key,
                          const struct ol_json *value)
{
    const char *text = value->type == OL_JSON_STRING ? ol_setting_types_scalar(r, value) : NULL;
    if (!text || !*text)
        return ol_setting_types_wrong(r, key->name, "a text is wanted");
    *(const char **)field_of(r, key) = text;
    return 0;
}

int ol_setting_types_texts(struct ol_setting_reader *r, const struct ol_setting_key *key,
                           const struct ol_json *value)
{
    struct ol_text_list *list = field_of(r, key);
    struct ol_json_iter it = {0};
    size_t room = 0;

    if (value->type != OL_JSON_ARRAY)
        return ol_setting_types_wrong(r, key->name, "a list of texts is wanted");
    while (ol_json_next(value, &it))
        room++;
    const char **texts = ol_arena_array(r->settings->arena, room + 1, sizeof *texts);
    if (!texts)
        return ol_setting_types_no_memory(r);
    it = (struct ol_json_iter){0};
    for (list->count = 0; ol_json_next(value, &it); list->count++)
        if (!(texts[list->count] = ol_setting_types_scalar(r, &it.value)))
            return ol_setting_types_wrong(r, key->name, "a list of texts is wanted");
    if (list->count == 0)
        return ol_setting_types_wrong(r, key->name, "the list is empty");
    list->items = texts;
    return 0;
}

int ol_setting_types_object(struct ol_setting_reader *r, const struct ol_setting_key *key,
                            const struct ol_json *value)
{
    if (value->type != OL_JSON_OBJECT)
        return ol_setting_types_wrong(r, key->name, "an object is wanted");
    const char *text = ol_arena_copy(r->settings->arena, value->text, value->bytes);
    *(const char **)field_of(r, key) = text;
    return text ? 0 : ol_setting_types_no_memory(r);
}

int ol_setting_types_bool(struct ol_setting_reader *r, const struct ol_setting_key *key,
                          const struct ol_json *value)
{
    const char *text = ol_setting_types_scalar(r, value);
    if (is_pending(r, value))
        return 0;
    if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
        return ol_setting_types_wrong(r, key->name, "true or false is wanted");
    *(bool *)field_of(r, key) = text[0] == 't';
    return 0;
}

static int read_integer(struct ol_setting_reader *r, const struct ol_setting_key *key,
                        const struct ol_json *value, int64_t *out)
{
    char wanted[80], *end = NULL;
    const char *text = ol_setting_types_scalar(r, value);
    if (text && strspn(text, "0123456789") == strlen(text) && *text && strlen(text) < 18)
        *out = strtoll(text, &end, 10);
    if (end && *out >= key->min && *out <= key->max)
        return 0;
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld is wanted",
             (long long)key->min, (long long)key->max);
    return ol_setting_types_wrong(r, key->name, wanted);
}

int ol_setting_types_int(struct ol_setting_reader *r, const struct ol_setting_key *key,
                         const struct ol_json *value)
{
    int64_t number;
    if (is_pending(r, value))
        return 0;
    if (read_integer(r, key, value, &number) < 0)
        return -1;
    *(int *)field_of(r, key) = (int)number;
    return 0;
}

int ol_setting_types_bytes(struct ol_setting_reader *r, const struct ol_setting_key *key,
                           const struct ol_json *value)
{
    if (is_pending(r, value))
        return 0;
    return read_integer(r, key, value, field_of(r, key));
}

int ol_setting_types_duration(struct ol_setting_reader *r, const struct ol_setting_key *key,
                              const struct ol_json *value)
{
    int64_t us;
    const char *text = ol_setting_types_scalar(r, value);
    if (is_pending(r, value))
        return 0;
    if (!text || ol_duration_parse(text, &us) < 0 || us < key->min || us > key->max)
        return ol_setting_types_wrong(r, key->name, "a time like 250ms, 10s or 1m is wanted");
    *(int64_t *)field_of(r, key) = us;
    return 0;
}

int ol_setting_types_choice(struct ol_setting_reader *r, const struct ol_setting_key *key,
                            const struct ol_json *value)
{
    char wanted[120] = "";
    for (int i = 0; key->choices[i]; i++) {
        if (ol_json_equals(value, key->choices[i])) {
            *(int *)field_of(r, key) = i;
            return 0;
        }
        size_t bytes = strlen(wanted);
        snprintf(wanted + bytes, sizeof wanted - bytes, "%s%s", i ? " or " : "", key->choices[i]);
    }
    // ${NAME} is refused too: `apply` shows what changes, and would not know the choice.
    return ol_setting_types_wrong(r, key->name, wanted);
}

/* "100/s", "30/m", or a number per second. */
int ol_setting_types_rate(struct ol_setting_reader *r, const struct ol_setting_key *key,
                          const struct ol_json *value)
{
    static const struct {
        const char *unit;
        int64_t us;
    } units[] = {{"", SECOND}, {"/s", SECOND}, {"/m", 60 * SECOND}, {"/h", 3600 * SECOND}};
    const char *text = ol_setting_types_scalar(r, value);

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

int ol_setting_types_retry(struct ol_setting_reader *r, const struct ol_setting_key *key,
                           const struct ol_json *value)
{
    (void)key;
    return ol_retry_parse(value, &r->settings->retry, r->err);
}

int ol_setting_types_breaker(struct ol_setting_reader *r, const struct ol_setting_key *key,
                             const struct ol_json *value)
{
    static const struct ol_setting_key keys[] = {
        {.name = "failures",
         .read = ol_setting_types_int,
         .offset = offsetof(struct ol_settings, breaker_failures),
         .max = 1000000},
        {.name = "open",
         .read = ol_setting_types_duration,
         .offset = offsetof(struct ol_settings, breaker_open_us),
         .min = 1000,
         .max = 86400 * SECOND},
        {.name = "open_max",
         .read = ol_setting_types_duration,
         .offset = offsetof(struct ol_settings, breaker_open_max_us),
         .min = 1000,
         .max = 86400 * SECOND},
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

int ol_setting_types_headers(struct ol_setting_reader *r, const struct ol_setting_key *key,
                             const struct ol_json *value)
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

int ol_setting_types_url(struct ol_setting_reader *r, const struct ol_setting_key *key,
                         const struct ol_json *value)
{
    r->is_url_pending = is_pending(r, value);
    return ol_setting_types_text(r, key, value);
}

int ol_setting_types_name(struct ol_setting_reader *r, const struct ol_setting_key *key,
                          const struct ol_json *value)
{
    if (ol_setting_types_text(r, key, value) < 0)
        return -1;
    const char *unknown = ol_name_template_unknown_field(*(const char **)field_of(r, key));
    if (unknown && !is_pending(r, value))
        return ol_setting_types_wrong(
            r, key->name,
            "of {…} only {event_type}, {org_id}, {ordering_key} and {partition_key}"
            " are known");
    return 0;
}
