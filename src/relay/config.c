/* config.c: see config.h.
 *
 * Whatever the text names becomes an `item`: a noun, a name and a value in normal form. The store's
 * own rows become items too, and the difference of the two lists is what has to be done. */
#include "relay/config.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/uuid.h"
#include "log/log.h"
#include "log/projection.h"
#include "log/shape.h"
#include "log/upcast.h"
#include "outbox/retry.h"
#include "publish/settings.h"
#include "relay/pattern.h"
#include "relay/rule.h"
#include "sessions/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum noun {
    DESTINATION,
    ROUTE,
    EVENT_TYPE,
    STRICT_ORG,
    SETTING,
    PROJECTION,
    TEMPLATE,
    RULE,
    NOUN_COUNT
};

static const char *const nouns[NOUN_COUNT] = {"destination", "route",   "event_type",
                                              "strict_org",  "setting", "projection",
                                              "template",    "rule"};

struct item {
    struct item *next;
    enum noun noun;
    const char *name;
    const char *text;    /* normal form: equal texts are the same thing */
    const char *source;  /* as written */
    const char *pointer; /* where it stands, for errors */
    bool is_fixed;       /* ships with outlog: never pruned */
    bool is_implied;     /* only where nothing else is said of it */
};

struct items {
    struct item *first, **end;
    struct ol_arena *arena;
    bool wants_feed; /* a rule writes to the app's own feed */
};

/* --- errors --- */

static int no_memory(outlog_err *err)
{
    return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
}

/* An error inside a value, seen from outside: its pointer grows at the front. */
static int deepen(outlog_err *err, const char *pointer, const char *what)
{
    char inner[sizeof err->pointer];
    if (!err)
        return -1;
    memcpy(inner, err->pointer, sizeof inner);
    snprintf(err->pointer, sizeof err->pointer, "%.*s%.*s", (int)sizeof inner / 2, pointer,
             (int)sizeof inner / 2 - 1, inner);
    if (what)
        ol_err_prefix(err, "%s", what);
    return -1;
}

static int wrong(outlog_err *err, const char *pointer, const char *key, const char *wanted)
{
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s: %s", key, wanted);
}

/* --- items --- */

static const char *normal(struct ol_arena *arena, const struct ol_json *value)
{
    struct ol_buf out = {0};
    const char *copy = NULL;
    if (ol_json_normalize(value, &out) == 0 && !out.failed)
        copy = ol_arena_copy(arena, out.data ? out.data : "", out.bytes);
    ol_buf_clear(&out);
    return copy;
}

static int add_item(struct items *items, enum noun noun, const char *name,
                    const struct ol_json *value, const char *pointer, outlog_err *err)
{
    struct item *item = ol_arena_alloc(items->arena, sizeof *item);
    if (!item || !name)
        return no_memory(err);
    item->noun = noun;
    item->name = name;
    item->pointer = pointer;
    item->text = normal(items->arena, value);
    item->source = ol_arena_copy(items->arena, value->text, value->bytes);
    if (!item->text || !item->source)
        return no_memory(err);
    *items->end = item;
    items->end = &item->next;
    return 0;
}

static struct item *find_item(const struct items *items, enum noun noun, const char *name)
{
    for (struct item *i = items->first; i; i = i->next)
        if (i->noun == noun && strcmp(i->name, name) == 0)
            return i;
    return NULL;
}

/* --- reading the text --- */

struct reader {
    struct items *items;
    struct ol_arena *arena;
    outlog_err *err;
};

static bool is_known(const char *key, const char *const *known)
{
    for (; *known; known++)
        if (strcmp(key, *known) == 0)
            return true;
    return false;
}

/* Only these keys, NULL-terminated. */
static int check_keys(struct reader *r, const struct ol_json *object, const char *pointer,
                      const char *what, const char *const *known)
{
    struct ol_json_iter it = {0};
    char list[300] = "";
    if (object->type != OL_JSON_OBJECT)
        return ol_fail_at(r->err, OUTLOG_INVALID_FIELD, pointer, "%s: a map is wanted", what);
    for (size_t i = 0, at = 0; known[i] && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", known[i]);
    while (ol_json_next(object, &it)) {
        const char *key = ol_json_string(&it.key, r->arena, NULL);
        if (!key)
            return no_memory(r->err);
        if (!is_known(key, known))
            return ol_fail_at(r->err, OUTLOG_UNKNOWN_FIELD,
                              ol_pattern_below(r->arena, pointer, key),
                              "%s: unknown key %.60s; %s are known", what, key, list);
    }
    return 0;
}

/* A text of 1 to `most` bytes; *out stays NULL when the key is absent. */
static int read_text(struct reader *r, const struct ol_json *object, const char *pointer,
                     const char *key, size_t most, bool is_needed, const char **out)
{
    struct ol_json value = ol_json_get(object, key);
    size_t bytes = 0;
    *out = NULL;
    if (value.type == OL_JSON_NONE || value.type == OL_JSON_NULL)
        return is_needed ? wrong(r->err, pointer, key, "it is missing") : 0;
    if (value.type == OL_JSON_STRING)
        *out = ol_json_string(&value, r->arena, &bytes);
    if (!*out || bytes < 1 || bytes > most) {
        char wanted[60];
        snprintf(wanted, sizeof wanted, "a text of 1 to %zu bytes is wanted", most);
        return wrong(r->err, ol_pattern_below(r->arena, pointer, key), key, wanted);
    }
    return 0;
}

static int read_destination(struct reader *r, const char *name, const struct ol_json *value,
                            const char *pointer)
{
    struct ol_settings *settings;
    if (!*name || strlen(name) > 100)
        return wrong(r->err, pointer, "destinations", "a name has 1 to 100 bytes");
    if (ol_settings_open(name, value->text, value->bytes, OL_SETTINGS_CHECK, &settings, r->err) < 0)
        return deepen(r->err, pointer, NULL);
    ol_settings_close(settings);
    return add_item(r->items, DESTINATION, name, value, pointer, r->err);
}

/* The same route is the same row: its name is made of what it says. */
static const char *route_name(struct ol_arena *arena, const char *on, const char *to,
                              const struct ol_json *route)
{
    struct ol_json_iter it = {0};
    size_t members = 0;
    char hash[OL_SHA256_TEXT];
    while (ol_json_next(route, &it))
        members += it.value.type != OL_JSON_NULL;
    if (members == 2)
        return ol_arena_print(arena, "%s -> %s", on, to);
    const char *text = normal(arena, route);
    if (!text)
        return NULL;
    ol_sha256_hex(text, strlen(text), hash);
    return ol_arena_print(arena, "%s -> %s #%.8s", on, to, hash);
}

static int read_route(struct reader *r, const struct ol_json *value, const char *pointer)
{
    static const char *const known[] = {"on",   "to",           "org_id", "aggregate_type",
                                        "when", "ordering_key", NULL};
    const char *on, *to, *text;
    if (check_keys(r, value, pointer, "route", known) < 0 ||
        read_text(r, value, pointer, "on", 100, true, &on) < 0 ||
        read_text(r, value, pointer, "to", 100, true, &to) < 0 ||
        read_text(r, value, pointer, "org_id", 100, false, &text) < 0 ||
        read_text(r, value, pointer, "aggregate_type", 50, false, &text) < 0 ||
        read_text(r, value, pointer, "ordering_key", 512, false, &text) < 0)
        return -1;
    struct ol_json when = ol_json_get(value, "when");
    if (when.type != OL_JSON_NONE && when.type != OL_JSON_NULL &&
        ol_pattern_check_when(&when, ol_pattern_below(r->arena, pointer, "when"), r->arena,
                              r->err) < 0)
        return -1;
    const char *name = route_name(r->arena, on, to, value);
    if (name && find_item(r->items, ROUTE, name))
        return wrong(r->err, pointer, "routes", "this route stands here twice");
    return add_item(r->items, ROUTE, name, value, pointer, r->err);
}

static int read_routes(struct reader *r, const struct ol_json *list)
{
    struct ol_json_iter it = {0};
    char pointer[40];
    if (list->type != OL_JSON_ARRAY)
        return wrong(r->err, "/routes", "routes", "a list is wanted");
    for (int i = 0; ol_json_next(list, &it); i++) {
        snprintf(pointer, sizeof pointer, "/routes/%d", i);
        const char *at = ol_arena_copy(r->arena, pointer, strlen(pointer));
        if (read_route(r, &it.value, at ? at : "/routes") < 0)
            return -1;
    }
    return 0;
}

static int read_strict(struct reader *r, const struct ol_json *list)
{
    struct ol_json_iter it = {0};
    struct ol_json yes = {OL_JSON_TRUE, "true", 4};
    if (list->type != OL_JSON_ARRAY)
        return wrong(r->err, "/event_types/strict", "strict", "a list of orgs is wanted");
    while (ol_json_next(list, &it)) {
        size_t bytes = 0;
        const char *org = ol_json_string(&it.value, r->arena, &bytes);
        if (!org || bytes < 1 || bytes > 100)
            return wrong(r->err, "/event_types/strict", "strict",
                         "an org is a text of 1 to 100 bytes");
        if (!find_item(r->items, STRICT_ORG, org) &&
            add_item(r->items, STRICT_ORG, org, &yes, "/event_types/strict", r->err) < 0)
            return -1;
    }
    return 0;
}

static int read_event_type(struct reader *r, const char *name, const struct ol_json *value,
                           const char *pointer)
{
    static const char *const known[] = {"version", "upcast", "aggregate_type",
                                        "shape",   "about",  NULL};
    struct ol_json version = ol_json_get(value, "version"), upcast = ol_json_get(value, "upcast"),
                   shape = ol_json_get(value, "shape");
    const char *text;
    int64_t number = 1;
    if (!*name || strlen(name) > 100)
        return wrong(r->err, pointer, "event_types", "a type has 1 to 100 bytes");
    if (check_keys(r, value, pointer, name, known) < 0 ||
        read_text(r, value, pointer, "aggregate_type", 50, false, &text) < 0 ||
        read_text(r, value, pointer, "about", 1000, false, &text) < 0)
        return -1;
    if (version.type != OL_JSON_NONE &&
        (!ol_json_int(&version, &number) || number < 1 || number > 1000000))
        return wrong(r->err, ol_pattern_below(r->arena, pointer, "version"), "version",
                     "a whole number from 1 is wanted");
    if (upcast.type > OL_JSON_NULL && ol_upcast_check(&upcast, (int)number, r->err) < 0)
        return deepen(r->err, ol_pattern_below(r->arena, pointer, "upcast"), name);
    if (shape.type > OL_JSON_NULL && ol_shape_valid(&shape, r->err) < 0)
        return deepen(r->err, ol_pattern_below(r->arena, pointer, "shape"), name);
    return add_item(r->items, EVENT_TYPE, name, value, pointer, r->err);
}

static int read_projection(struct reader *r, const char *name, const struct ol_json *value,
                           const char *pointer)
{
    struct ol_projection projection;
    if (ol_projection_read(name, value, r->arena, &projection, r->err) < 0)
        return deepen(r->err, pointer, name);
    return add_item(r->items, PROJECTION, name, value, pointer, r->err);
}

/* --- notifications --- */

static int put_setting(struct reader *r, const char *section, const char *key,
                       const struct ol_json *value, const char *pointer);

static int read_template(struct reader *r, const char *name, const struct ol_json *value,
                         const char *pointer)
{
    if (!*name || strlen(name) > 100)
        return wrong(r->err, pointer, "templates", "a name has 1 to 100 bytes");
    if (ol_rule_check_template(value, r->arena, r->err) < 0)
        return deepen(r->err, pointer, name);
    return add_item(r->items, TEMPLATE, name, value, pointer, r->err);
}

static int read_rule(struct reader *r, const struct ol_json *value, const char *pointer)
{
    struct ol_rule rule;
    if (ol_rule_read(value, r->arena, &rule, r->err) < 0)
        return deepen(r->err, pointer, NULL);
    const char *name = route_name(r->arena, rule.on, rule.template, value);
    if (name && find_item(r->items, RULE, name))
        return wrong(r->err, pointer, "rules", "this rule stands here twice");
    if (add_item(r->items, RULE, name, value, pointer, r->err) < 0)
        return -1;
    r->items->wants_feed |= rule.in_app_to && strcmp(rule.in_app_to, "in_app") == 0;
    return 0;
}

/* The app's own feed needs no word of configuration. */
static int imply_feed(struct reader *r)
{
    static const char in_app[] = "{\"type\":\"in_app\"}";
    struct ol_json own;
    if (!r->items->wants_feed || find_item(r->items, DESTINATION, "in_app"))
        return 0;
    if (ol_json_parse(in_app, strlen(in_app), &own, r->err) < 0 ||
        add_item(r->items, DESTINATION, "in_app", &own, "/notifications", r->err) < 0)
        return -1;
    find_item(r->items, DESTINATION, "in_app")->is_implied = true;
    return 0;
}

/* {acme: [u-1, u-2], "*": [u-3]}: who has this role, by org. */
static int read_role(struct reader *r, const char *name, const struct ol_json *value,
                     const char *pointer)
{
    struct ol_json_iter org = {0};
    if (!*name || strlen(name) > 80)
        return wrong(r->err, pointer, "roles", "a name has 1 to 80 bytes");
    while (ol_json_next(value, &org)) {
        struct ol_json_iter user = {0};
        bool is_list = org.value.type == OL_JSON_ARRAY;
        while (is_list && ol_json_next(&org.value, &user))
            is_list = user.value.type == OL_JSON_STRING && user.value.bytes > 2;
        if (!is_list)
            return wrong(r->err, pointer, name, "{org: [user, user]} is wanted");
    }
    return put_setting(r, "roles", name, value, pointer);
}

static int read_rules(struct reader *r, const struct ol_json *list)
{
    struct ol_json_iter it = {0};
    if (list->type != OL_JSON_ARRAY)
        return wrong(r->err, "/notifications/rules", "rules", "a list is wanted");
    for (int i = 0; ol_json_next(list, &it); i++) {
        const char *at = ol_arena_print(r->arena, "/notifications/rules/%d", i);
        if (read_rule(r, &it.value, at ? at : "/notifications/rules") < 0)
            return -1;
    }
    return 0;
}

static int each(struct reader *r, const struct ol_json *object, const char *pointer,
                int (*read)(struct reader *, const char *, const struct ol_json *, const char *));

static int read_notifications(struct reader *r, const struct ol_json *section)
{
    static const char *const known[] = {"rules", "templates", "roles", NULL};
    struct ol_json rules = ol_json_get(section, "rules"),
                   templates = ol_json_get(section, "templates"),
                   roles = ol_json_get(section, "roles");
    if (check_keys(r, section, "/notifications", "notifications", known) < 0)
        return -1;
    if (templates.type > OL_JSON_NULL &&
        each(r, &templates, "/notifications/templates", read_template) < 0)
        return -1;
    if (roles.type > OL_JSON_NULL && each(r, &roles, "/notifications/roles", read_role) < 0)
        return -1;
    return rules.type > OL_JSON_NULL ? read_rules(r, &rules) : 0;
}

/* --- settings, one row a value --- */

static int put_setting(struct reader *r, const char *section, const char *key,
                       const struct ol_json *value, const char *pointer)
{
    return add_item(r->items, SETTING, ol_arena_print(r->arena, "%s.%s", section, key), value,
                    pointer, r->err);
}

static int read_type(struct reader *r, const char *name, const struct ol_json *value,
                     const char *pointer)
{
    static const char *const known[] = {"retry", NULL};
    struct ol_json retry = ol_json_get(value, "retry");
    struct ol_retry policy;
    if (!*name || strlen(name) > 100)
        return wrong(r->err, pointer, "types", "a type has 1 to 100 bytes");
    if (check_keys(r, value, pointer, name, known) < 0)
        return -1;
    if (retry.type == OL_JSON_NONE)
        return wrong(r->err, pointer, name, "retry is missing");
    if (ol_retry_parse(&retry, &policy, r->err) < 0)
        return deepen(r->err, pointer, name);
    return put_setting(r, "types", name, value, pointer);
}

/* agents.<agentId>: who answers the sessions with this agent in their key. */
static int read_agent(struct reader *r, const char *name, const struct ol_json *value,
                      const char *pointer)
{
    struct ol_agent agent;
    if (!*name || strlen(name) > 128)
        return wrong(r->err, pointer, "agents", "an agent's id has 1 to 128 bytes");
    if (ol_agent_parse(value, r->arena, &agent, r->err) < 0)
        return deepen(r->err, pointer, name);
    return put_setting(r, "agents", name, value, pointer);
}

/* `sinks.archive` is {"to": …, "event_type": …}; relay/sink.h says what it does. */
static int read_sink(struct reader *r, const char *name, const struct ol_json *value,
                     const char *pointer)
{
    static const char *const known[] = {"to",   "event_type",     "org_id",
                                        "from", "infrastructure", NULL};
    static const char *const texts[] = {"to", "event_type", "org_id", NULL};
    struct ol_json from = ol_json_get(value, "from"), all = ol_json_get(value, "infrastructure");
    if (!*name || strlen(name) > 94)
        return wrong(r->err, pointer, "sinks", "a name has 1 to 94 bytes");
    if (check_keys(r, value, pointer, name, known) < 0)
        return -1;
    for (int i = 0; texts[i]; i++) {
        struct ol_json text = ol_json_get(value, texts[i]);
        if (text.type != OL_JSON_NONE && (text.type != OL_JSON_STRING || text.bytes < 3))
            return wrong(r->err, ol_pattern_below(r->arena, pointer, texts[i]), texts[i],
                         "a text is wanted");
        if (i == 0 && text.type == OL_JSON_NONE)
            return wrong(r->err, pointer, name, "to is missing");
    }
    if (from.type != OL_JSON_NONE && !ol_json_equals(&from, "beginning") &&
        !ol_json_equals(&from, "end"))
        return wrong(r->err, ol_pattern_below(r->arena, pointer, "from"), "from",
                     "beginning or end");
    if (all.type != OL_JSON_NONE && all.type != OL_JSON_TRUE && all.type != OL_JSON_FALSE)
        return wrong(r->err, ol_pattern_below(r->arena, pointer, "infrastructure"),
                     "infrastructure", "true or false is wanted");
    return put_setting(r, "sinks", name, value, pointer);
}

enum value_kind { SPAN, SPAN_OR_FOREVER, COUNT, TEXT, WAKEUP };

static const struct setting {
    const char *section, *key;
    enum value_kind kind;
    int64_t min, max; /* microseconds of a span, or the number */
    const char *wanted;
} known_settings[] = {
    {"alerts", "to", TEXT, 1, 100, "the name of a destination is wanted"},
    {"retention", "messages", SPAN_OR_FOREVER, 1000000, INT64_MAX,
     "a span like 30d, or forever, is wanted"},
    {"retention", "idempotency", SPAN, INT64_C(86400000000), INT64_MAX,
     "a span of 24h or more is wanted"},
    {"relay", "lease", SPAN, 1000000, INT64_C(3600000000), "a span from 1s to 1h is wanted"},
    {"relay", "poll", SPAN, 1000, INT64_C(60000000), "a span from 1ms to 60s is wanted"},
    {"relay", "patience", SPAN, 1000, INT64_C(60000000), "a span from 1ms to 60s is wanted"},
    {"relay", "lanes", COUNT, 1, 256, "a whole number from 1 to 256 is wanted"},
    {"relay", "batch", COUNT, 1, 1000, "a whole number from 1 to 1000 is wanted"},
    {"relay", "threads", COUNT, 1, 32, "a whole number from 1 to 32 is wanted"},
    {"relay", "parked", COUNT, 1, 10000000, "a whole number from 1 to 10000000 is wanted"},
    {"relay", "wakeup", WAKEUP, 0, 0, "poll or notify is wanted"},
};
enum { SETTING_COUNT = sizeof known_settings / sizeof *known_settings };

static bool is_right(struct reader *r, const struct setting *setting, const struct ol_json *value)
{
    int64_t number;
    if (setting->kind == COUNT)
        return ol_json_int(value, &number) && number >= setting->min && number <= setting->max;
    const char *text = ol_json_string(value, r->arena, NULL);
    if (!text)
        return false;
    if (setting->kind == TEXT)
        return (int64_t)strlen(text) >= setting->min && (int64_t)strlen(text) <= setting->max;
    if (setting->kind == WAKEUP)
        return strcmp(text, "poll") == 0 || strcmp(text, "notify") == 0;
    if (setting->kind == SPAN_OR_FOREVER && strcmp(text, "forever") == 0)
        return true;
    return ol_span_parse(text, &number) == 0 && number >= setting->min && number <= setting->max;
}

static int read_section(struct reader *r, const char *section, const struct ol_json *object,
                        const char *pointer)
{
    const char *known[SETTING_COUNT + 1];
    size_t count = 0;
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (strcmp(known_settings[i].section, section) == 0)
            known[count++] = known_settings[i].key;
    known[count] = NULL;
    if (check_keys(r, object, pointer, section, known) < 0)
        return -1;
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *setting = &known_settings[i];
        struct ol_json value = ol_json_get(object, setting->key);
        if (strcmp(setting->section, section) != 0 || value.type <= OL_JSON_NULL)
            continue;
        const char *at = ol_pattern_below(r->arena, pointer, setting->key);
        if (!is_right(r, setting, &value))
            return ol_fail_at(r->err, OUTLOG_INVALID_FIELD, at, "%s.%s: %s", section, setting->key,
                              setting->wanted);
        if (put_setting(r, section, setting->key, &value, at) < 0)
            return -1;
    }
    return 0;
}

/* --- the sections --- */

static int each(struct reader *r, const struct ol_json *object, const char *pointer,
                int (*read)(struct reader *, const char *, const struct ol_json *, const char *))
{
    struct ol_json_iter it = {0};
    if (object->type != OL_JSON_OBJECT)
        return wrong(r->err, pointer, pointer + 1, "a map by name is wanted");
    while (ol_json_next(object, &it)) {
        const char *name = ol_json_string(&it.key, r->arena, NULL);
        if (!name)
            return no_memory(r->err);
        const char *at = ol_pattern_below(r->arena, pointer, name);
        if (it.value.type != OL_JSON_OBJECT)
            return wrong(r->err, at, name, "a map is wanted");
        if (read(r, name, &it.value, at) < 0)
            return -1;
    }
    return 0;
}

static int read_event_type_or_strict(struct reader *r, const struct ol_json *object)
{
    struct ol_json_iter it = {0};
    if (object->type != OL_JSON_OBJECT)
        return wrong(r->err, "/event_types", "event_types", "a map is wanted");
    while (ol_json_next(object, &it)) {
        const char *name = ol_json_string(&it.key, r->arena, NULL);
        if (!name)
            return no_memory(r->err);
        const char *at = ol_pattern_below(r->arena, "/event_types", name);
        int result = strcmp(name, "strict") == 0       ? read_strict(r, &it.value)
                     : it.value.type != OL_JSON_OBJECT ? wrong(r->err, at, name, "a map is wanted")
                                                       : read_event_type(r, name, &it.value, at);
        if (result < 0)
            return -1;
    }
    return 0;
}

static int read_one(struct reader *r, const char *section, const struct ol_json *value)
{
    const char *pointer = ol_pattern_below(r->arena, "", section);
    if (strcmp(section, "store") == 0 || strcmp(section, "listen") == 0)
        return value->type == OL_JSON_STRING ? 0
                                             : wrong(r->err, pointer, section, "a text is wanted");
    bool is_section =
        is_known(section, (const char *const[]){"alerts", "retention", "relay", NULL});
    if (!is_section &&
        !is_known(section,
                  (const char *const[]){"destinations", "routes", "event_types", "types",
                                        "projections", "agents", "sinks", "notifications", NULL}))
        return ol_fail_at(
            r->err, OUTLOG_UNKNOWN_FIELD, pointer,
            "unknown key %.60s; store, listen, destinations, routes, event_types, "
            "types, projections, agents, sinks, notifications, alerts, retention and relay are known",
            section);
    if (value->type == OL_JSON_NULL) // `routes:` with nothing below
        return 0;
    if (is_section)
        return read_section(r, section, value, pointer);
    if (strcmp(section, "destinations") == 0)
        return each(r, value, pointer, read_destination);
    if (strcmp(section, "types") == 0)
        return each(r, value, pointer, read_type);
    if (strcmp(section, "projections") == 0)
        return each(r, value, pointer, read_projection);
    if (strcmp(section, "agents") == 0)
        return each(r, value, pointer, read_agent);
    if (strcmp(section, "sinks") == 0)
        return each(r, value, pointer, read_sink);
    if (strcmp(section, "notifications") == 0)
        return read_notifications(r, value);
    return strcmp(section, "routes") == 0 ? read_routes(r, value)
                                          : read_event_type_or_strict(r, value);
}

static int read_all(struct items *items, const char *json, size_t bytes, outlog_err *err)
{
    struct reader r = {items, items->arena, err};
    struct ol_json object;
    struct ol_json_iter it = {0};
    if (ol_json_parse(json, bytes, &object, err) < 0)
        return -1;
    if (object.type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "the file must be a map of sections");
    while (ol_json_next(&object, &it)) {
        const char *section = ol_json_string(&it.key, items->arena, NULL);
        if (!section)
            return no_memory(err);
        if (read_one(&r, section, &it.value) < 0)
            return -1;
    }
    return imply_feed(&r);
}

int ol_config_check(const char *json, size_t bytes, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct items items = {.end = &items.first, .arena = &arena};
    int result = read_all(&items, json, bytes, err);
    ol_arena_clear(&arena);
    return result;
}

/* --- reading the store --- */

static int add_stored(struct items *items, enum noun noun, const char *name, const char *text,
                      bool is_fixed, outlog_err *err)
{
    struct ol_json value;
    if (!name || !text)
        return no_memory(err);
    if (ol_json_parse(text, strlen(text), &value, err) < 0 ||
        add_item(items, noun, name, &value, "", err) < 0)
        return -1;
    find_item(items, noun, name)->is_fixed = is_fixed;
    return 0;
}

/* A stored event type as the file would say it. */
static const char *type_json(const struct ol_rows *rows, struct ol_arena *arena)
{
    static const char *const keys[] = {"aggregate_type", "shape", "upcast", "about"};
    struct ol_buf out = {0};
    ol_buf_print(&out, "{\"version\":%lld", (long long)ol_column_int(rows, 1));
    for (int i = 0; i < 4; i++) {
        const char *text = ol_column_text(rows, 2 + i, NULL);
        if (!text)
            continue;
        ol_buf_print(&out, ",\"%s\":", keys[i]);
        bool is_json = i == 1 || i == 2;
        size_t bytes;
        text = ol_column_text(rows, 2 + i, &bytes);
        if (is_json)
            ol_buf_add(&out, text, bytes);
        else
            ol_buf_json(&out, text, bytes);
    }
    ol_buf_char(&out, '}');
    const char *copy = out.failed ? NULL : ol_arena_copy(arena, out.data, out.bytes);
    ol_buf_clear(&out);
    return copy;
}

static int load_row(struct items *items, enum noun noun, const struct ol_rows *rows,
                    outlog_err *err)
{
    static const int value_column[NOUN_COUNT] = {[DESTINATION] = 1, [ROUTE] = 8,    [SETTING] = 1,
                                                 [PROJECTION] = 1,  [TEMPLATE] = 1, [RULE] = 1};
    bool failed = false;
    const char *name = ol_column_copy(rows, 0, items->arena, &failed);
    const char *text = noun == STRICT_ORG ? "true"
                       : noun == EVENT_TYPE
                           ? type_json(rows, items->arena)
                           : ol_column_copy(rows, value_column[noun], items->arena, &failed);
    return add_stored(items, noun, name, text, noun == EVENT_TYPE && ol_column_int(rows, 6), err);
}

static int load(struct ol_conn *conn, struct items *items, outlog_err *err)
{
    static const enum ol_query_id queries[NOUN_COUNT] =
        {OL_Q_DESTINATION_LIST, OL_Q_ROUTE_LIST,   OL_Q_EVENT_TYPE_LIST,
         OL_Q_STRICT_ORG_LIST,  OL_Q_SETTING_LIST, OL_Q_PROJECTION_DECLARED,
         OL_Q_TEMPLATE_LIST,    OL_Q_RULE_LIST};
    for (int noun = 0; noun < NOUN_COUNT; noun++) {
        struct ol_rows rows;
        int more;
        if (ol_query(conn, queries[noun], OL_NO_PARAMS, &rows, err) < 0)
            return -1;
        while ((more = ol_next(&rows, err)) > 0)
            if (load_row(items, (enum noun)noun, &rows, err) < 0) {
                more = -1;
                break;
            }
        ol_end(&rows);
        if (more < 0)
            return -1;
    }
    return 0;
}

/* --- comparing --- */

struct apply {
    outlog_tx *tx;
    struct ol_conn *conn;
    const struct ol_config_options *options;
    struct items wanted, stored;
    struct ol_arena *arena;
    struct ol_changes *out;
    size_t room;
    const char *alert; /* the destination that hears of dead letters, or NULL */
    char correlation_id[OL_UUID_TEXT];
    outlog_err *err;
};

/* The top-level keys in which two objects differ; NULL when one is no object. */
static const char *changed_keys(struct ol_arena *arena, const char *before, const char *after)
{
    struct ol_json one, two;
    struct ol_buf out = {0};
    if (ol_json_parse(before, strlen(before), &one, NULL) < 0 ||
        ol_json_parse(after, strlen(after), &two, NULL) < 0)
        return NULL;
    if (one.type != OL_JSON_OBJECT || two.type != OL_JSON_OBJECT)
        return ol_arena_print(arena, "%s -> %s", before, after);
    for (int side = 0; side < 2; side++) {
        const struct ol_json *mine = side ? &two : &one, *other = side ? &one : &two;
        struct ol_json_iter it = {0};
        while (ol_json_next(mine, &it)) {
            const char *key = ol_json_string(&it.key, arena, NULL);
            if (!key)
                continue;
            struct ol_json twin = ol_json_get(other, key);
            bool is_same = twin.bytes == it.value.bytes && twin.type == it.value.type &&
                           (twin.bytes == 0 || memcmp(twin.text, it.value.text, twin.bytes) == 0);
            if (is_same || (side && twin.type != OL_JSON_NONE))
                continue;
            ol_buf_print(&out, "%s%s", out.bytes ? ", " : "", key);
        }
    }
    const char *copy = out.bytes ? ol_arena_copy(arena, out.data, out.bytes) : NULL;
    ol_buf_clear(&out);
    return copy;
}

/* An event type in full: what the file leaves out is the default, or stays for a type that ships with
 * outlog. */
static const char *overlay(struct ol_arena *arena, const char *base, const char *over)
{
    struct ol_json under, above;
    struct ol_buf out = {0};
    struct ol_json_iter it = {0};
    const char *comma = "{", *copy = NULL;
    if (ol_json_parse(base, strlen(base), &under, NULL) < 0 ||
        ol_json_parse(over, strlen(over), &above, NULL) < 0)
        return NULL;
    while (ol_json_next(&under, &it)) {
        const char *key = ol_json_string(&it.key, arena, NULL);
        struct ol_json named = key ? ol_json_get(&above, key) : (struct ol_json){0};
        if (named.type != OL_JSON_NONE)
            continue;
        ol_buf_print(&out, "%s%.*s:%.*s", comma, (int)it.key.bytes, it.key.text,
                     (int)it.value.bytes, it.value.text);
        comma = ",";
    }
    it = (struct ol_json_iter){0};
    while (ol_json_next(&above, &it)) {
        if (it.value.type == OL_JSON_NULL)
            continue;
        ol_buf_print(&out, "%s%.*s:%.*s", comma, (int)it.key.bytes, it.key.text,
                     (int)it.value.bytes, it.value.text);
        comma = ",";
    }
    ol_buf_text(&out, *comma == '{' ? "{}" : "}");
    if (!out.failed && ol_json_parse(out.data, out.bytes, &under, NULL) == 0)
        copy = normal(arena, &under);
    ol_buf_clear(&out);
    return copy;
}

/* --- writing --- */

static const char *string_at(struct apply *a, const struct ol_json *object, const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    return ol_json_string(&value, a->arena, NULL);
}

static int put_destination(struct apply *a, const struct item *item)
{
    struct ol_settings *settings;
    if (ol_settings_open(item->name, item->source, strlen(item->source), OL_SETTINGS_CHECK,
                         &settings, a->err) < 0)
        return -1;
    int result =
        ol_exec(a->conn, OL_Q_DESTINATION_PUT,
                OL_PARAMS(ol_text(item->name), ol_text(item->source),
                          ol_text(settings->guarantee == OL_AT_MOST_ONCE ? "at_most_once"
                                                                         : "at_least_once"),
                          ol_text(settings->on_dead == OL_ON_DEAD_HOLD ? "hold" : "skip"),
                          ol_int(a->alert && strcmp(a->alert, item->name) == 0)),
                NULL, a->err);
    ol_settings_close(settings);
    return result;
}

int ol_config_put_route(struct ol_conn *conn, const char *name, const char *source,
                        struct ol_arena *arena, outlog_err *err)
{
    struct apply a = {.conn = conn, .arena = arena, .err = err}; // for string_at
    struct ol_json route;
    struct ol_buf pattern = {0}, condition = {0};
    bool is_glob = conn->store->has_globs;
    if (ol_json_parse(source, strlen(source), &route, err) < 0)
        return -1;
    struct ol_json when = ol_json_get(&route, "when");
    const char *on = string_at(&a, &route, "on");
    if (!on)
        return no_memory(err);
    ol_pattern_write(on, is_glob, &pattern);
    if (when.type == OL_JSON_OBJECT)
        ol_pattern_write_when(&when, is_glob, arena, &condition);
    int result =
        pattern.failed || condition.failed
            ? no_memory(err)
            : ol_exec(conn, OL_Q_ROUTE_PUT,
                      OL_PARAMS(ol_text(name), ol_text(pattern.data),
                                ol_int(strncmp(on, "outlog.", 7) == 0),
                                ol_text(string_at(&a, &route, "org_id")),
                                ol_text(string_at(&a, &route, "aggregate_type")),
                                ol_text(condition.data), ol_text(string_at(&a, &route, "to")),
                                ol_text(string_at(&a, &route, "ordering_key")), ol_text(source)),
                      NULL, err);
    ol_buf_clear(&pattern);
    ol_buf_clear(&condition);
    return result;
}

static const char *raw_at(struct apply *a, const struct ol_json *object, const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    return value.type <= OL_JSON_NULL ? NULL : ol_arena_copy(a->arena, value.text, value.bytes);
}

static int put_event_type(struct apply *a, const struct item *item)
{
    struct ol_json type;
    int64_t version = 1;
    if (ol_json_parse(item->text, strlen(item->text), &type, a->err) < 0)
        return -1;
    struct ol_json number = ol_json_get(&type, "version");
    ol_json_int(&number, &version);
    return ol_exec(a->conn, OL_Q_EVENT_TYPE_PUT,
                   OL_PARAMS(ol_text(item->name), ol_int(version),
                             ol_text(string_at(a, &type, "aggregate_type")),
                             ol_text(raw_at(a, &type, "shape")),
                             ol_text(raw_at(a, &type, "upcast")),
                             ol_text(string_at(a, &type, "about")), ol_int(item->is_fixed)),
                   NULL, a->err);
}

/* New messages go to so many lanes from now on. Waits for writers; does nothing when it is so already. */
static int resize(struct apply *a, int64_t lanes)
{
    return ol_exec(a->conn, OL_Q_LANES_RESIZE, OL_PARAMS(ol_int(lanes)), NULL, a->err);
}

static int put(struct apply *a, const struct item *item)
{
    switch (item->noun) {
    case DESTINATION:
        return put_destination(a, item);
    case ROUTE:
        return ol_config_put_route(a->conn, item->name, item->source, a->arena, a->err);
    case EVENT_TYPE:
        return put_event_type(a, item);
    case STRICT_ORG:
        return ol_exec(a->conn, OL_Q_STRICT_ORG_ADD, OL_PARAMS(ol_text(item->name)), NULL, a->err);
    case PROJECTION:
        if (ol_projection_put(a->conn, item->name, item->source, a->err) == 0)
            return 0;
        return deepen(a->err, item->pointer, item->name);
    case TEMPLATE:
        return ol_rule_put_template(a->conn, item->name, item->source, a->err);
    case RULE:
        if (ol_rule_put(a->conn, item->name, item->source, a->arena, a->err) == 0)
            return 0;
        return deepen(a->err, item->pointer, item->name);
    default:
        if (ol_exec(a->conn, OL_Q_SETTING_PUT,
                    OL_PARAMS(ol_text(item->name), ol_text(item->source)), NULL, a->err) < 0)
            return -1;
        return strcmp(item->name, "relay.lanes") == 0 ? resize(a, strtoll(item->source, NULL, 10))
                                                      : 0;
    }
}

static int delete (struct apply *a, const struct item *item)
{
    static const enum ol_query_id queries[NOUN_COUNT] = {OL_Q_DESTINATION_DELETE, OL_Q_ROUTE_DELETE,
                                                         OL_Q_EVENT_TYPE_DELETE,
                                                         OL_Q_STRICT_ORG_DELETE,
                                                         OL_Q_SETTING_DELETE};
    if (item->noun == PROJECTION)
        return ol_projection_delete(a->conn, item->name, a->err);
    if (item->noun == RULE)
        return ol_rule_delete(a->conn, item->name, a->err);
    if (item->noun == TEMPLATE)
        return ol_exec(a->conn, OL_Q_TEMPLATE_RETIRE, OL_PARAMS(ol_text(item->name)), NULL, a->err);
    enum { LANES = 8 }; // where nothing is said
    if (ol_exec(a->conn, queries[item->noun], OL_PARAMS(ol_text(item->name)), NULL, a->err) < 0)
        return -1;
    return item->noun == SETTING && strcmp(item->name, "relay.lanes") == 0 ? resize(a, LANES) : 0;
}

/* --- telling --- */

static void write_keys(struct ol_buf *out, const char *keys)
{
    const char *comma = "[";
    for (const char *at = keys; at && *at; comma = ",") {
        size_t bytes = strcspn(at, ",");
        ol_buf_text(out, comma);
        ol_buf_json(out, at, bytes);
        at += bytes + strspn(at + bytes, ", ");
    }
    ol_buf_text(out, *comma == '[' ? "[]" : "]");
}

/* X4. Names and keys, never a destination's values: there may be secrets among them. */
static int tell(struct apply *a, const struct item *item, const struct ol_change *change)
{
    static const char *const words[] = {"added", "changed", "deleted"};
    struct ol_buf payload = {0};
    struct outlog_appended appended;
    char aggregate[64], type[100];
    const char *noun = nouns[item->noun];

    snprintf(aggregate, sizeof aggregate, "outlog.%s", noun);
    snprintf(type, sizeof type, "outlog.%s.%s", noun,
             change->kind == OL_CHANGE_REMOVE ? "deleted" : "applied");
    ol_buf_text(&payload, "{\"name\":");
    ol_buf_json_text(&payload, item->name);
    ol_buf_print(&payload, ",\"change\":\"%s\",\"keys\":", words[change->kind]);
    write_keys(&payload, item->noun == SETTING ? NULL : change->keys);
    if ((item->noun == ROUTE || item->noun == RULE || item->noun == SETTING) &&
        change->kind != OL_CHANGE_REMOVE)
        ol_buf_print(&payload, ",\"value\":%s", item->text);
    ol_buf_char(&payload, '}');
    struct outlog_event event = {.is_infrastructure = true,
                                 .aggregate_type = aggregate,
                                 .aggregate_id = item->name,
                                 .event_type = type,
                                 .payload = payload.data,
                                 .actor_type = a->options->actor_type,
                                 .actor_id = a->options->actor_id,
                                 .request_id = a->options->request_id,
                                 .correlation_id = a->correlation_id};
    int result = payload.failed ? no_memory(a->err)
                                : outlog_append(a->tx, &event, &appended, a->err);
    ol_buf_clear(&payload);
    return result;
}

static int change(struct apply *a, const struct item *item, enum ol_change_kind kind,
                  const char *keys)
{
    if (a->out->count == a->room) {
        size_t wider = a->room ? a->room * 2 : 16;
        struct ol_change *all = ol_arena_array(a->arena, wider, sizeof *all);
        if (!all)
            return no_memory(a->err);
        if (a->room)
            memcpy(all, a->out->all, a->room * sizeof *all);
        a->out->all = all;
        a->room = wider;
    }
    struct ol_change *made = &a->out->all[a->out->count++];
    *made = (struct ol_change){kind, nouns[item->noun], item->name, keys};
    if (a->options->dry_run)
        return 0;
    if ((kind == OL_CHANGE_REMOVE ? delete (a, item) : put(a, item)) < 0)
        return -1;
    return tell(a, item, made);
}

/* --- the whole --- */

/* Will there be a destination of this name afterwards? */
static bool will_exist(const struct apply *a, const char *name)
{
    return find_item(&a->wanted, DESTINATION, name) ||
           (!a->options->prune && find_item(&a->stored, DESTINATION, name));
}

static int check_target(struct apply *a, const struct item *item, const char *key, const char *name)
{
    if (!name || will_exist(a, name))
        return 0;
    const char *pointer = item->noun != SETTING ? ol_pattern_below(a->arena, item->pointer, key)
                                                : item->pointer;
    return ol_fail_at(a->err, OUTLOG_INVALID_FIELD, pointer,
                      "%s: there is no destination %.100s, neither in this file nor in the store%s",
                      key, name, a->options->prune ? " after --prune" : "");
}

static bool is_sink(const struct item *item)
{
    return item->noun == SETTING && strncmp(item->name, "sinks.", 6) == 0;
}

/* A rule needs its destinations and its words. */
static int check_rule(struct apply *a, const struct item *item)
{
    struct ol_json value;
    struct ol_rule rule;
    if (ol_json_parse(item->text, strlen(item->text), &value, a->err) < 0 ||
        ol_rule_read(&value, a->arena, &rule, a->err) < 0 ||
        check_target(a, item, "channels", rule.email_to) < 0 ||
        check_target(a, item, "channels", rule.in_app_to) < 0)
        return -1;
    if (find_item(&a->wanted, TEMPLATE, rule.template) ||
        (!a->options->prune && find_item(&a->stored, TEMPLATE, rule.template)))
        return 0;
    return ol_fail_at(a->err, OUTLOG_INVALID_FIELD,
                      ol_pattern_below(a->arena, item->pointer, "template"),
                      "template: there is no template %.100s, neither in this file nor in the "
                      "store%s",
                      rule.template, a->options->prune ? " after --prune" : "");
}

static int check_targets(struct apply *a)
{
    struct ol_json value;
    for (const struct item *i = a->wanted.first; i; i = i->next) {
        if (i->noun == RULE && check_rule(a, i) < 0)
            return -1;
        bool is_alert = i->noun == SETTING && strcmp(i->name, "alerts.to") == 0;
        if (i->noun != ROUTE && !is_alert && !is_sink(i))
            continue;
        if (ol_json_parse(i->text, strlen(i->text), &value, a->err) < 0)
            return -1;
        const char *name = is_alert ? ol_json_string(&value, a->arena, NULL)
                                    : string_at(a, &value, "to");
        if (check_target(a, i, "to", name) < 0)
            return -1;
        if (is_alert)
            a->alert = name;
    }
    const struct item *kept = find_item(&a->stored, SETTING, "alerts.to");
    if (!a->alert && kept && !a->options->prune &&
        ol_json_parse(kept->text, strlen(kept->text), &value, a->err) == 0)
        a->alert = ol_json_string(&value, a->arena, NULL);
    return 0;
}

static int compare(struct apply *a)
{
    for (struct item *i = a->wanted.first; i; i = i->next) {
        const struct item *before = find_item(&a->stored, i->noun, i->name);
        if (i->is_implied && before)
            continue;
        i->is_fixed = before && before->is_fixed;
        if (i->noun == EVENT_TYPE &&
            !(i->text = overlay(a->arena, i->is_fixed ? before->text : "{\"version\":1}", i->text)))
            return no_memory(a->err);
        if (before && strcmp(before->text, i->text) == 0) {
            a->out->same_count++;
            continue;
        }
        if (change(a, i, before ? OL_CHANGE_EDIT : OL_CHANGE_ADD,
                   before ? changed_keys(a->arena, before->text, i->text) : NULL) < 0)
            return -1;
    }
    for (struct item *i = a->stored.first; i && a->options->prune; i = i->next)
        if (!i->is_fixed && !find_item(&a->wanted, i->noun, i->name) &&
            change(a, i, OL_CHANGE_REMOVE, NULL) < 0)
            return -1;
    return 0;
}

int ol_config_apply(outlog *log, const char *json, size_t bytes,
                    const struct ol_config_options *options, struct ol_arena *arena,
                    struct ol_changes *out, outlog_err *err)
{
    struct apply a = {.options = options, .arena = arena, .out = out, .err = err};
    int result = -1;

    *out = (struct ol_changes){0};
    a.wanted = (struct items){.end = &a.wanted.first, .arena = arena};
    a.stored = (struct items){.end = &a.stored.first, .arena = arena};
    ol_uuid_make(a.correlation_id);
    if (read_all(&a.wanted, json, bytes, err) < 0 || outlog_begin(log, &a.tx, err) < 0)
        return -1;
    a.conn = a.tx->conn;
    if (ol_exec(a.conn, OL_Q_CONFIG_LOCK, OL_NO_PARAMS, NULL, err) < 0 ||
        load(a.conn, &a.stored, err) < 0 || check_targets(&a) < 0 || compare(&a) < 0)
        goto out;
    if (!options->dry_run && out->count &&
        ol_exec(a.conn, OL_Q_DESTINATION_ALERT, OL_PARAMS(ol_text(a.alert ? a.alert : "")), NULL,
                err) < 0)
        goto out;
    if (options->dry_run || !out->count) { // nothing was written
        result = 0;
        goto out;
    }
    result = outlog_commit(a.tx, err);
    a.tx = NULL;
out:
    outlog_rollback(a.tx);
    return result;
}

/* --- one destination --- */

/* What still points at it; NULL: nothing. */
static bool rule_goes_to(struct apply *a, const struct item *item, const char *destination)
{
    struct ol_json value;
    struct ol_rule rule;
    if (ol_json_parse(item->text, strlen(item->text), &value, NULL) < 0 ||
        ol_rule_read(&value, a->arena, &rule, NULL) < 0)
        return false;
    return (rule.email_to && strcmp(rule.email_to, destination) == 0) ||
           (rule.in_app_to && strcmp(rule.in_app_to, destination) == 0);
}

static const struct item *user_of(struct apply *a, const char *destination)
{
    struct ol_json value;
    for (const struct item *i = a->stored.first; i; i = i->next) {
        if (i->noun == RULE && rule_goes_to(a, i, destination))
            return i;
        bool is_alert = i->noun == SETTING && strcmp(i->name, "alerts.to") == 0;
        if ((i->noun != ROUTE && !is_alert && !is_sink(i)) ||
            ol_json_parse(i->text, strlen(i->text), &value, NULL) < 0)
            continue;
        const char *name = is_alert ? ol_json_string(&value, a->arena, NULL)
                                    : string_at(a, &value, "to");
        if (name && strcmp(name, destination) == 0)
            return i;
    }
    return NULL;
}

static int remove_one(struct apply *a, const char *destination)
{
    const struct item *item = find_item(&a->stored, DESTINATION, destination);
    const struct item *user = user_of(a, destination);
    if (!item)
        return ol_fail(a->err, OUTLOG_NOT_FOUND, "there is no destination %.100s", destination);
    if (user)
        return ol_fail(a->err, OUTLOG_ILLEGAL_TRANSITION,
                       "destination %.100s is in use: %s %.100s goes there; change that first",
                       destination, nouns[user->noun], user->name);
    return change(a, item, OL_CHANGE_REMOVE, NULL);
}

int ol_config_remove(outlog *log, const char *destination, const struct ol_config_options *options,
                     outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_changes changes = {0};
    struct apply a = {.options = options, .arena = &arena, .out = &changes, .err = err};
    int result = -1;

    a.stored = (struct items){.end = &a.stored.first, .arena = &arena};
    ol_uuid_make(a.correlation_id);
    if (outlog_begin(log, &a.tx, err) < 0)
        return -1;
    a.conn = a.tx->conn;
    if (ol_exec(a.conn, OL_Q_CONFIG_LOCK, OL_NO_PARAMS, NULL, err) == 0 &&
        load(a.conn, &a.stored, err) == 0 && remove_one(&a, destination) == 0) {
        result = outlog_commit(a.tx, err);
        a.tx = NULL;
    }
    outlog_rollback(a.tx);
    ol_arena_clear(&arena);
    return result;
}
