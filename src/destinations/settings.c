/* settings.c: the keys that every destination has; those of its type come from its publisher. */
#include "destinations/settings.h"

#include "base/env.h"
#include "destinations/publisher_type.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000)

enum { KEYS_MAX = 64 }; // one bit per key in a mask

static int read_settings(struct ol_setting_reader *r, const struct ol_json *object);

/* Parse the object, replace its variables, and keep the text in settings->json. */
static int expand_json(struct ol_settings *settings, const char *json, size_t bytes,
                       enum ol_settings_mode mode, struct ol_json *object, outlog_err *err)
{
    struct ol_buf expanded = {0};
    int result = -1;

    if (ol_json_parse(json, bytes, object, err) < 0)
        goto out;
    if (object->type != OL_JSON_OBJECT) {
        ol_fail(err, OUTLOG_INVALID_FIELD, "an object is wanted");
        goto out;
    }
    if (mode == OL_SETTINGS_USE && ol_env_expand(object, settings->arena, &expanded, err) < 0)
        goto out;
    if (mode == OL_SETTINGS_CHECK)
        ol_buf_add(&expanded, object->text, object->bytes);
    settings->json =
        expanded.failed ? NULL : ol_arena_copy(settings->arena, expanded.data, expanded.bytes);
    result = settings->json ? ol_json_parse(settings->json, expanded.bytes, object, err)
                            : ol_no_memory(err); // a variable may hold bad UTF-8
out:
    ol_buf_clear(&expanded);
    return result;
}

int ol_settings_open(const char *name, const char *json, size_t bytes, enum ol_settings_mode mode,
                     struct ol_settings **out, outlog_err *err)
{
    struct ol_arena *arena = calloc(1, sizeof *arena);
    struct ol_settings *settings = arena ? ol_arena_alloc(arena, sizeof *settings) : NULL;
    struct ol_json object;
    struct ol_setting_reader r = {.settings = settings, .mode = mode, .err = err};
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
    };
    if (!settings->name) {
        ol_no_memory(err);
        goto out;
    }
    if (expand_json(settings, json, bytes, mode, &object, err) < 0 ||
        read_settings(&r, &object) < 0)
        goto out;
    *out = settings;
    arena = NULL;
    result = 0;
out:
    if (result < 0)
        ol_err_prefix(err, "destination %s", name);
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

/* --- the common keys -------------------------------------------------------------------------- */

static int skip_type(struct ol_setting_reader *r, const struct ol_setting_key *key,
                     const struct ol_json *value)
{
    (void)r, (void)key, (void)value; // find_type read it before all others
    return 0;
}

static const char *const guarantee_names[] = {"at_least_once", "at_most_once", NULL};
static const char *const on_dead_names[] = {"skip", "hold", NULL};
static const char *const keep_names[] = {"all", "failures", NULL};

#define AT(member) offsetof(struct ol_settings, member)

static const struct ol_setting_key common_keys[] = {
    {.name = "type", .read = skip_type},
    {.name = "guarantee",
     .read = ol_setting_types_choice,
     .offset = AT(guarantee),
     .choices = guarantee_names},
    {.name = "on_dead",
     .read = ol_setting_types_choice,
     .offset = AT(on_dead),
     .choices = on_dead_names},
    {.name = "keep", .read = ol_setting_types_choice, .offset = AT(keep), .choices = keep_names},
    {.name = "timeout",
     .read = ol_setting_types_duration,
     .offset = AT(timeout_us),
     .min = 1000,
     .max = 3600 * SECOND},
    {.name = "concurrency",
     .read = ol_setting_types_int,
     .offset = AT(concurrency),
     .min = 1,
     .max = 100000},
    {.name = "rate", .read = ol_setting_types_rate},
    {.name = "budget_bytes",
     .read = ol_setting_types_bytes,
     .offset = AT(budget_bytes),
     .min = 1,
     .max = INT64_C(1) << 40},
    {.name = "retry", .read = ol_setting_types_retry},
    {.name = "breaker", .read = ol_setting_types_breaker},
    {.name = "preset", .read = ol_setting_types_text, .offset = AT(preset)},
    {.name = NULL},
};

/* --- the type --------------------------------------------------------------------------------- */

static int refuse_type(struct ol_setting_reader *r)
{
    char wanted[300] = "one of ";
    for (size_t i = 0; ol_publisher_types[i]; i++) {
        size_t bytes = strlen(wanted);
        snprintf(wanted + bytes, sizeof wanted - bytes, "%s%s", i ? ", " : "",
                 ol_publisher_types[i]->name);
    }
    size_t bytes = strlen(wanted);
    snprintf(wanted + bytes, sizeof wanted - bytes, " is wanted");
    return ol_setting_types_wrong(r, "type", wanted);
}

static int find_type(struct ol_setting_reader *r, const struct ol_json *object)
{
    struct ol_settings *s = r->settings;
    struct ol_json name = ol_json_get(object, "type");
    const struct ol_publisher_type *const *type = ol_publisher_types;

    while (*type && !ol_json_equals(&name, (*type)->name))
        type++;
    if (!*type)
        return refuse_type(r);
    s->publisher_type = *type;
    s->type = (*type)->name;
    s->timeout_us = (*type)->timeout_s * SECOND;
    s->concurrency = (*type)->concurrency;
    if ((*type)->own_bytes == 0)
        return 0;
    if (!(s->own = ol_arena_alloc(s->arena, (*type)->own_bytes)))
        return ol_setting_types_no_memory(r);
    if ((*type)->own_defaults)
        memcpy(s->own, (*type)->own_defaults, (*type)->own_bytes);
    else
        memset(s->own, 0, (*type)->own_bytes);
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

enum { TABLES = 3 };

/* The tables of a type's keys: the common ones first. */
static void list_tables(const struct ol_publisher_type *type,
                        const struct ol_setting_key *tables[TABLES])
{
    tables[0] = common_keys;
    tables[1] = type->keys[0];
    tables[2] = type->keys[1];
}

/* The key of this name, or NULL. *at: its number among all keys of the type. */
static const struct ol_setting_key *find_key(const struct ol_publisher_type *type,
                                             const struct ol_json *name, bool *is_common,
                                             size_t *at)
{
    const struct ol_setting_key *tables[TABLES];
    list_tables(type, tables);
    *at = 0;
    for (int t = 0; t < TABLES; t++)
        for (const struct ol_setting_key *key = tables[t]; key && key->name; key++, (*at)++)
            if (ol_json_equals(name, key->name)) {
                *is_common = t == 0;
                return key;
            }
    return NULL;
}

static int refuse_key(struct ol_setting_reader *r, const struct ol_json *name)
{
    char pointer[80];
    bool is_common;
    size_t at;

    snprintf(pointer, sizeof pointer, "/%.*s", (int)(name->bytes < 70 ? name->bytes - 2 : 68),
             name->text + 1);
    for (size_t i = 0; ol_publisher_types[i]; i++) {
        const struct ol_setting_key *key = find_key(ol_publisher_types[i], name, &is_common, &at);
        if (key)
            return ol_fail_at(r->err, OUTLOG_UNKNOWN_FIELD, pointer,
                              "%s: a destination of type %s has no such key", key->name,
                              r->settings->type);
    }
    return ol_fail_at(r->err, OUTLOG_UNKNOWN_FIELD, pointer, "unknown key %.*s",
                      (int)(name->bytes < 60 ? name->bytes : 60), name->text);
}

static int read_member(struct ol_setting_reader *r, const struct ol_json_iter *it, uint64_t *seen)
{
    bool is_common;
    size_t at;
    const struct ol_setting_key *key =
        find_key(r->settings->publisher_type, &it->key, &is_common, &at);

    if (!key)
        return refuse_key(r, &it->key);
    if (it->value.type == OL_JSON_NULL)
        return 0;
    *seen |= UINT64_C(1) << at;
    r->target = is_common ? (void *)r->settings : r->settings->own;
    return key->read(r, key, &it->value);
}

static int check_needed(struct ol_setting_reader *r, uint64_t seen)
{
    const struct ol_setting_key *tables[TABLES];
    size_t at = 0;
    list_tables(r->settings->publisher_type, tables);
    for (int t = 0; t < TABLES; t++)
        for (const struct ol_setting_key *key = tables[t]; key && key->name; key++, at++) {
            assert(at < KEYS_MAX);
            if (key->is_needed && !(seen >> at & 1))
                return ol_setting_types_wrong(r, key->name, "it is missing");
        }
    return 0;
}

static int apply_preset(struct ol_setting_reader *r)
{
    struct ol_settings *s = r->settings;
    struct ol_retry preset;

    if (!s->preset)
        return 0;
    if (!ol_retry_preset(s->preset, &preset))
        return ol_setting_types_wrong(r, "preset", "only `notification` is known");
    if (!r->has_guarantee)
        s->guarantee = OL_AT_MOST_ONCE;
    if (s->retry.kind == OL_RETRY_UNSET) {
        preset.max_attempts = s->retry.max_attempts ? s->retry.max_attempts : 5;
        preset.jitter = s->retry.jitter;
        preset.has_jitter = s->retry.has_jitter;
        s->retry = preset;
    }
    return 0;
}

static int check_all(struct ol_setting_reader *r)
{
    struct ol_settings *s = r->settings;
    const struct ol_publisher_type *type = s->publisher_type;

    if (apply_preset(r) < 0)
        return -1;
    if (s->breaker_open_max_us < s->breaker_open_us)
        s->breaker_open_max_us = s->breaker_open_us;
    if (type->check && type->check(r) < 0)
        return -1;
    return ol_setting_types_mask_pairs(r, s->headers, s->header_count);
}

static int read_settings(struct ol_setting_reader *r, const struct ol_json *object)
{
    struct ol_json_iter it = {0};
    uint64_t seen = 0;

    if (find_type(r, object) < 0)
        return -1;
    r->has_guarantee = ol_json_get(object, "guarantee").type == OL_JSON_STRING;
    while (ol_json_next(object, &it))
        if (read_member(r, &it, &seen) < 0)
            return -1;
    return check_needed(r, seen) < 0 ? -1 : check_all(r);
}
