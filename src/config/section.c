/* section.c: the table of all settings and their checks; sinks, agents and types have readers of
 * their own. */
#include "config/section.h"

#include "base/duration.h"
#include "log/match.h"
#include "log/secrets.h"
#include "net/headers.h"
#include "outbox/retry.h"
#include "sessions/agent.h"
#include "telemetry/span_exporter.h"

#include <string.h>

int ol_config_section_put(struct ol_config_reader *r, const char *section, const char *key,
                          const struct ol_json *value, const char *pointer)
{
    return ol_config_entry_add(r->entries, OL_CONFIG_SETTING,
                               ol_arena_print(r->arena, "%s.%s", section, key), value, pointer,
                               r->err);
}

int ol_config_section_read_type(struct ol_config_reader *r, const char *name,
                                const struct ol_json *value, const char *pointer)
{
    static const char *const known[] = {"retry", NULL};
    struct ol_json retry = ol_json_get(value, "retry");
    struct ol_retry policy;
    if (!*name || strlen(name) > 100)
        return ol_config_entry_refuse(r->err, pointer, "types", "a type has 1 to 100 bytes");
    if (ol_config_document_check_keys(r, value, pointer, name, known) < 0)
        return -1;
    if (retry.type == OL_JSON_NONE)
        return ol_config_entry_refuse(r->err, pointer, name, "retry is missing");
    if (ol_retry_parse(&retry, &policy, r->err) < 0)
        return ol_config_entry_deepen(r->err, pointer, name);
    return ol_config_section_put(r, "types", name, value, pointer);
}

int ol_config_section_read_agent(struct ol_config_reader *r, const char *name,
                                 const struct ol_json *value, const char *pointer)
{
    struct ol_agent agent;
    if (!*name || strlen(name) > 128)
        return ol_config_entry_refuse(r->err, pointer, "agents",
                                      "an agent's id has 1 to 128 bytes");
    if (ol_agent_parse(value, r->arena, &agent, r->err) < 0)
        return ol_config_entry_deepen(r->err, pointer, name);
    return ol_config_section_put(r, "agents", name, value, pointer);
}

int ol_config_section_read_secret(struct ol_config_reader *r, const char *name,
                                  const struct ol_json *value, const char *pointer)
{
    if (ol_secret_rule_by_name(name) < 0)
        return ol_config_entry_refuse(r->err, pointer, name,
                                      "there is no such rule; docs/concepts.md lists them");
    if (!ol_json_equals(value, "reject") && !ol_json_equals(value, "warn") &&
        !ol_json_equals(value, "off"))
        return ol_config_entry_refuse(r->err, pointer, name, "reject, warn or off is wanted");
    return ol_config_section_put(r, "secrets", name, value, pointer);
}

int ol_config_section_read_sink(struct ol_config_reader *r, const char *name,
                                const struct ol_json *value, const char *pointer)
{
    static const char *const known[] = {"to",   "event_type",     "org_id",
                                        "from", "infrastructure", NULL};
    static const char *const texts[] = {"to", "event_type", "org_id", NULL};
    struct ol_json from = ol_json_get(value, "from"), all = ol_json_get(value, "infrastructure");
    if (!*name || strlen(name) > 94)
        return ol_config_entry_refuse(r->err, pointer, "sinks", "a name has 1 to 94 bytes");
    if (ol_config_document_check_keys(r, value, pointer, name, known) < 0)
        return -1;
    for (int i = 0; texts[i]; i++) {
        struct ol_json text = ol_json_get(value, texts[i]);
        if (text.type != OL_JSON_NONE && (text.type != OL_JSON_STRING || text.bytes < 3))
            return ol_config_entry_refuse(r->err, ol_match_below(r->arena, pointer, texts[i]),
                                          texts[i], "a text is wanted");
        if (i == 0 && text.type == OL_JSON_NONE)
            return ol_config_entry_refuse(r->err, pointer, name, "to is missing");
    }
    if (from.type != OL_JSON_NONE && !ol_json_equals(&from, "beginning") &&
        !ol_json_equals(&from, "end"))
        return ol_config_entry_refuse(r->err, ol_match_below(r->arena, pointer, "from"), "from",
                                      "beginning or end");
    if (all.type != OL_JSON_NONE && all.type != OL_JSON_TRUE && all.type != OL_JSON_FALSE)
        return ol_config_entry_refuse(r->err, ol_match_below(r->arena, pointer, "infrastructure"),
                                      "infrastructure", "true or false is wanted");
    return ol_config_section_put(r, "sinks", name, value, pointer);
}

enum section_value_kind {
    VALUE_DURATION,
    VALUE_DURATION_OR_FOREVER,
    VALUE_COUNT,
    VALUE_TEXT,
    VALUE_WAKEUP,
    VALUE_TAKEOVER,
    VALUE_ORIGINS,
    VALUE_URL,
    VALUE_HEADERS
};

static const struct section_setting {
    const char *section, *key;
    enum section_value_kind kind;
    int64_t min, max; /* microseconds of a duration, or the number */
    const char *wanted;
} known_settings[] = {
    {"alerts", "to", VALUE_TEXT, 1, 100, "the name of a destination is wanted"},
    {"retention", "messages", VALUE_DURATION_OR_FOREVER, 1000000, INT64_MAX,
     "a span like 30d, or forever, is wanted"},
    {"retention", "notices", VALUE_DURATION_OR_FOREVER, 1000000, INT64_MAX,
     "a span like 90d, or forever, is wanted"},
    {"retention", "idempotency", VALUE_DURATION, INT64_C(86400000000), INT64_MAX,
     "a span of 24h or more is wanted"},
    {"relay", "lease", VALUE_DURATION, 1000000, INT64_C(3600000000),
     "a span from 1s to 1h is wanted"},
    {"relay", "poll", VALUE_DURATION, 1000, INT64_C(60000000), "a span from 1ms to 60s is wanted"},
    {"relay", "patience", VALUE_DURATION, 1000, INT64_C(60000000),
     "a span from 1ms to 60s is wanted"},
    {"relay", "lanes", VALUE_COUNT, 1, 256, "a whole number from 1 to 256 is wanted"},
    {"relay", "batch", VALUE_COUNT, 1, 1000, "a whole number from 1 to 1000 is wanted"},
    {"relay", "threads", VALUE_COUNT, 1, 32, "a whole number from 1 to 32 is wanted"},
    {"relay", "parked", VALUE_COUNT, 1, 10000000, "a whole number from 1 to 10000000 is wanted"},
    {"relay", "wakeup", VALUE_WAKEUP, 0, 0, "poll or notify is wanted"},
    {"relay", "takeover", VALUE_TAKEOVER, 0, 0, "fast or lease is wanted"},
    {"serve", "answers", VALUE_COUNT, 1, 256, "a whole number from 1 to 256 is wanted"},
    {"serve", "strangers", VALUE_COUNT, 1, 1000000, "a whole number from 1 to 1000000 is wanted"},
    {"serve", "origins", VALUE_ORIGINS, 0, 0,
     "a list of origins like https://chat.example is wanted, without a path"},
    {"tracing", "endpoint", VALUE_URL, 0, 0, "a URL like http://127.0.0.1:4318 is wanted"},
    {"tracing", "headers", VALUE_HEADERS, 0, 0,
     "a map of texts is wanted, each value with a ${NAME} of the environment"},
};
enum { SETTING_COUNT = sizeof known_settings / sizeof *known_settings };

/* As browsers write it in the header Origin: scheme, host and, if it is not the scheme's default,
 * port. */
static bool is_origin(const char *text)
{
    const char *host = text && strncmp(text, "http://", 7) == 0    ? text + 7
                       : text && strncmp(text, "https://", 8) == 0 ? text + 8
                                                                   : "";
    return *host && strlen(text) <= 300 && !strpbrk(host, "/?#*@ \t");
}

static bool are_origins(struct ol_config_reader *r, const struct ol_json *list)
{
    struct ol_json_iter it = {0};
    if (list->type != OL_JSON_ARRAY)
        return false;
    while (ol_json_next(list, &it))
        if (!is_origin(ol_json_string(&it.value, r->arena, NULL)))
            return false;
    return true;
}

/* The headers of a collector contain its key, which belongs into the environment and not into the
 * store. */
static bool are_headers(struct ol_config_reader *r, const struct ol_json *value)
{
    struct ol_json_iter it = {0};
    struct outlog_header *list;
    size_t count;
    if (value->type != OL_JSON_OBJECT ||
        ol_headers_read(value, r->arena, &list, &count, r->err) < 0)
        return false;
    for (size_t i = 0; ol_json_next(value, &it); i++)
        if (it.value.type != OL_JSON_STRING || !memmem(it.value.text, it.value.bytes, "${", 2) ||
            !ol_headers_name_is_valid(list[i].name))
            return false;
    return true;
}

static bool is_valid(struct ol_config_reader *r, const struct section_setting *setting,
                     const struct ol_json *value)
{
    int64_t number;
    if (setting->kind == VALUE_ORIGINS)
        return are_origins(r, value);
    if (setting->kind == VALUE_COUNT)
        return ol_json_int(value, &number) && number >= setting->min && number <= setting->max;
    if (setting->kind == VALUE_HEADERS)
        return are_headers(r, value);
    const char *text = ol_json_string(value, r->arena, NULL);
    if (!text)
        return false;
    if (setting->kind == VALUE_URL)
        return ol_span_exporter_check(text) == NULL;
    if (setting->kind == VALUE_TEXT)
        return (int64_t)strlen(text) >= setting->min && (int64_t)strlen(text) <= setting->max;
    if (setting->kind == VALUE_WAKEUP)
        return strcmp(text, "poll") == 0 || strcmp(text, "notify") == 0;
    if (setting->kind == VALUE_TAKEOVER)
        return strcmp(text, "fast") == 0 || strcmp(text, "lease") == 0;
    if (setting->kind == VALUE_DURATION_OR_FOREVER && strcmp(text, "forever") == 0)
        return true;
    return ol_duration_parse(text, &number) == 0 && number >= setting->min &&
           number <= setting->max;
}

int ol_config_section_read(struct ol_config_reader *r, const char *section,
                           const struct ol_json *object, const char *pointer)
{
    const char *known[SETTING_COUNT + 1];
    size_t count = 0;
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (strcmp(known_settings[i].section, section) == 0)
            known[count++] = known_settings[i].key;
    known[count] = NULL;
    if (ol_config_document_check_keys(r, object, pointer, section, known) < 0)
        return -1;
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct section_setting *setting = &known_settings[i];
        struct ol_json value = ol_json_get(object, setting->key);
        if (strcmp(setting->section, section) != 0 || value.type <= OL_JSON_NULL)
            continue;
        const char *at = ol_match_below(r->arena, pointer, setting->key);
        if (!is_valid(r, setting, &value))
            return ol_fail_at(r->err, OUTLOG_INVALID_FIELD, at, "%s.%s: %s", section, setting->key,
                              setting->wanted);
        if (ol_config_section_put(r, section, setting->key, &value, at) < 0)
            return -1;
    }
    return 0;
}
