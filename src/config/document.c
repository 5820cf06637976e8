/* document.c: reads outlog.yaml, one function per section. section.c reads what becomes a row of
 * `settings`. */
#include "config/document.h"

#include "base/sha256.h"
#include "config/section.h"
#include "destinations/settings.h"
#include "log/match.h"
#include "log/payload_shape.h"
#include "log/upcast.h"
#include "notify/rule.h"
#include "projections/definition.h"

#include <stdio.h>
#include <string.h>

static bool is_known(const char *key, const char *const *known)
{
    for (; *known; known++)
        if (strcmp(key, *known) == 0)
            return true;
    return false;
}

int ol_config_document_check_keys(struct ol_config_reader *r, const struct ol_json *object,
                                  const char *pointer, const char *what, const char *const *known)
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
            return ol_no_memory(r->err);
        if (!is_known(key, known))
            return ol_fail_at(r->err, OUTLOG_UNKNOWN_FIELD, ol_match_below(r->arena, pointer, key),
                              "%s: unknown key %.60s; %s are known", what, key, list);
    }
    return 0;
}

/* A text of 1 to `bytes_max` bytes; *out stays NULL when the key is absent. */
static int read_text(struct ol_config_reader *r, const struct ol_json *object, const char *pointer,
                     const char *key, size_t bytes_max, bool is_needed, const char **out)
{
    struct ol_json value = ol_json_get(object, key);
    size_t bytes = 0;
    *out = NULL;
    if (value.type == OL_JSON_NONE || value.type == OL_JSON_NULL)
        return is_needed ? ol_config_entry_refuse(r->err, pointer, key, "it is missing") : 0;
    if (value.type == OL_JSON_STRING)
        *out = ol_json_string(&value, r->arena, &bytes);
    if (!*out || bytes < 1 || bytes > bytes_max) {
        char wanted[60];
        snprintf(wanted, sizeof wanted, "a text of 1 to %zu bytes is wanted", bytes_max);
        return ol_config_entry_refuse(r->err, ol_match_below(r->arena, pointer, key), key, wanted);
    }
    return 0;
}

/* Read each member of a map by name. */
static int read_members(struct ol_config_reader *r, const struct ol_json *object,
                        const char *pointer,
                        int (*read)(struct ol_config_reader *, const char *, const struct ol_json *,
                                    const char *))
{
    struct ol_json_iter it = {0};
    if (object->type != OL_JSON_OBJECT)
        return ol_config_entry_refuse(r->err, pointer, pointer + 1, "a map by name is wanted");
    while (ol_json_next(object, &it)) {
        const char *name = ol_json_string(&it.key, r->arena, NULL);
        if (!name)
            return ol_no_memory(r->err);
        const char *at = ol_match_below(r->arena, pointer, name);
        if (it.value.type != OL_JSON_OBJECT && read != ol_config_section_read_secret)
            return ol_config_entry_refuse(r->err, at, name, "a map is wanted");
        if (read(r, name, &it.value, at) < 0)
            return -1;
    }
    return 0;
}

/* --- destinations, routes, event types, projections --- */

static int read_destination(struct ol_config_reader *r, const char *name,
                            const struct ol_json *value, const char *pointer)
{
    struct ol_settings *settings;
    if (!*name || strlen(name) > 100)
        return ol_config_entry_refuse(r->err, pointer, "destinations", "a name has 1 to 100 bytes");
    if (ol_settings_open(name, value->text, value->bytes, OL_SETTINGS_CHECK, &settings, r->err) < 0)
        return ol_config_entry_deepen(r->err, pointer, NULL);
    ol_settings_close(settings);
    return ol_config_entry_add(r->entries, OL_CONFIG_DESTINATION, name, value, pointer, r->err);
}

/* Equal routes have equal names: a name is derived from the route's content. */
static const char *make_route_name(struct ol_arena *arena, const char *on, const char *to,
                                   const struct ol_json *route)
{
    struct ol_json_iter it = {0};
    size_t members = 0;
    char hash[OL_SHA256_TEXT];
    while (ol_json_next(route, &it))
        members += it.value.type != OL_JSON_NULL;
    if (members == 2)
        return ol_arena_print(arena, "%s -> %s", on, to);
    const char *text = ol_config_entry_canonical(arena, route);
    if (!text)
        return NULL;
    ol_sha256_hex(text, strlen(text), hash);
    return ol_arena_print(arena, "%s -> %s #%.8s", on, to, hash);
}

static int read_route(struct ol_config_reader *r, const struct ol_json *value, const char *pointer)
{
    static const char *const known[] = {"on",   "to",           "org_id", "aggregate_type",
                                        "when", "ordering_key", NULL};
    const char *on, *to, *text;
    if (ol_config_document_check_keys(r, value, pointer, "route", known) < 0 ||
        read_text(r, value, pointer, "on", 100, true, &on) < 0 ||
        read_text(r, value, pointer, "to", 100, true, &to) < 0 ||
        read_text(r, value, pointer, "org_id", 100, false, &text) < 0 ||
        read_text(r, value, pointer, "aggregate_type", 50, false, &text) < 0 ||
        read_text(r, value, pointer, "ordering_key", 512, false, &text) < 0)
        return -1;
    struct ol_json when = ol_json_get(value, "when");
    if (when.type != OL_JSON_NONE && when.type != OL_JSON_NULL &&
        ol_match_check_when(&when, ol_match_below(r->arena, pointer, "when"), r->arena, r->err) < 0)
        return -1;
    const char *name = make_route_name(r->arena, on, to, value);
    if (name && ol_config_entry_find(r->entries, OL_CONFIG_ROUTE, name))
        return ol_config_entry_refuse(r->err, pointer, "routes", "this route is here twice");
    return ol_config_entry_add(r->entries, OL_CONFIG_ROUTE, name, value, pointer, r->err);
}

static int read_routes(struct ol_config_reader *r, const struct ol_json *list)
{
    struct ol_json_iter it = {0};
    char pointer[40];
    if (list->type != OL_JSON_ARRAY)
        return ol_config_entry_refuse(r->err, "/routes", "routes", "a list is wanted");
    for (int i = 0; ol_json_next(list, &it); i++) {
        snprintf(pointer, sizeof pointer, "/routes/%d", i);
        const char *at = ol_arena_copy(r->arena, pointer, strlen(pointer));
        if (read_route(r, &it.value, at ? at : "/routes") < 0)
            return -1;
    }
    return 0;
}

static int read_strict(struct ol_config_reader *r, const struct ol_json *list)
{
    struct ol_json_iter it = {0};
    struct ol_json yes = {OL_JSON_TRUE, "true", 4};
    if (list->type != OL_JSON_ARRAY)
        return ol_config_entry_refuse(r->err, "/event_types/strict", "strict",
                                      "a list of orgs is wanted");
    while (ol_json_next(list, &it)) {
        size_t bytes = 0;
        const char *org = ol_json_string(&it.value, r->arena, &bytes);
        if (!org || bytes < 1 || bytes > 100)
            return ol_config_entry_refuse(r->err, "/event_types/strict", "strict",
                                          "an org is a text of 1 to 100 bytes");
        if (!ol_config_entry_find(r->entries, OL_CONFIG_STRICT_ORG, org) &&
            ol_config_entry_add(r->entries, OL_CONFIG_STRICT_ORG, org, &yes, "/event_types/strict",
                                r->err) < 0)
            return -1;
    }
    return 0;
}

static int read_event_type(struct ol_config_reader *r, const char *name,
                           const struct ol_json *value, const char *pointer)
{
    static const char *const known[] = {"version", "upcast", "aggregate_type",
                                        "shape",   "about",  NULL};
    struct ol_json version = ol_json_get(value, "version"), upcast = ol_json_get(value, "upcast"),
                   shape = ol_json_get(value, "shape");
    const char *text;
    int64_t number = 1;
    if (!*name || strlen(name) > 100)
        return ol_config_entry_refuse(r->err, pointer, "event_types", "a type has 1 to 100 bytes");
    if (ol_config_document_check_keys(r, value, pointer, name, known) < 0 ||
        read_text(r, value, pointer, "aggregate_type", 50, false, &text) < 0 ||
        read_text(r, value, pointer, "about", 1000, false, &text) < 0)
        return -1;
    if (version.type != OL_JSON_NONE &&
        (!ol_json_int(&version, &number) || number < 1 || number > 1000000))
        return ol_config_entry_refuse(r->err, ol_match_below(r->arena, pointer, "version"),
                                      "version", "a whole number from 1 is wanted");
    if (upcast.type > OL_JSON_NULL && ol_upcast_check(&upcast, (int)number, r->err) < 0)
        return ol_config_entry_deepen(r->err, ol_match_below(r->arena, pointer, "upcast"), name);
    if (shape.type > OL_JSON_NULL && ol_payload_shape_valid(&shape, r->err) < 0)
        return ol_config_entry_deepen(r->err, ol_match_below(r->arena, pointer, "shape"), name);
    return ol_config_entry_add(r->entries, OL_CONFIG_EVENT_TYPE, name, value, pointer, r->err);
}

static int read_projection(struct ol_config_reader *r, const char *name,
                           const struct ol_json *value, const char *pointer)
{
    struct ol_projection projection;
    if (ol_projection_read(name, value, r->arena, &projection, r->err) < 0)
        return ol_config_entry_deepen(r->err, pointer, name);
    return ol_config_entry_add(r->entries, OL_CONFIG_PROJECTION, name, value, pointer, r->err);
}

/* --- notifications --- */

static int read_template(struct ol_config_reader *r, const char *name, const struct ol_json *value,
                         const char *pointer)
{
    if (!*name || strlen(name) > 100)
        return ol_config_entry_refuse(r->err, pointer, "templates", "a name has 1 to 100 bytes");
    if (ol_rule_check_template(value, r->arena, r->err) < 0)
        return ol_config_entry_deepen(r->err, pointer, name);
    return ol_config_entry_add(r->entries, OL_CONFIG_TEMPLATE, name, value, pointer, r->err);
}

static int read_rule(struct ol_config_reader *r, const struct ol_json *value, const char *pointer)
{
    struct ol_rule rule;
    if (ol_rule_read(value, r->arena, &rule, r->err) < 0)
        return ol_config_entry_deepen(r->err, pointer, NULL);
    const char *name = make_route_name(r->arena, rule.on, rule.template, value);
    if (name && ol_config_entry_find(r->entries, OL_CONFIG_RULE, name))
        return ol_config_entry_refuse(r->err, pointer, "rules", "this rule is here twice");
    if (ol_config_entry_add(r->entries, OL_CONFIG_RULE, name, value, pointer, r->err) < 0)
        return -1;
    r->entries->wants_feed |= rule.in_app_to && strcmp(rule.in_app_to, "in_app") == 0;
    return 0;
}

/* The app's own feed needs no configuration. */
static int imply_feed(struct ol_config_reader *r)
{
    static const char in_app[] = "{\"type\":\"in_app\"}";
    struct ol_json own;
    if (!r->entries->wants_feed ||
        ol_config_entry_find(r->entries, OL_CONFIG_DESTINATION, "in_app"))
        return 0;
    if (ol_json_parse(in_app, strlen(in_app), &own, r->err) < 0 ||
        ol_config_entry_add(r->entries, OL_CONFIG_DESTINATION, "in_app", &own, "/notifications",
                            r->err) < 0)
        return -1;
    ol_config_entry_find(r->entries, OL_CONFIG_DESTINATION, "in_app")->is_implied = true;
    return 0;
}

/* {acme: [u-1, u-2], "*": [u-3]}: the users that have this role, by org. */
static int read_role(struct ol_config_reader *r, const char *name, const struct ol_json *value,
                     const char *pointer)
{
    struct ol_json_iter org = {0};
    if (!*name || strlen(name) > 80)
        return ol_config_entry_refuse(r->err, pointer, "roles", "a name has 1 to 80 bytes");
    while (ol_json_next(value, &org)) {
        struct ol_json_iter user = {0};
        bool is_list = org.value.type == OL_JSON_ARRAY;
        while (is_list && ol_json_next(&org.value, &user))
            is_list = user.value.type == OL_JSON_STRING && user.value.bytes > 2;
        if (!is_list)
            return ol_config_entry_refuse(r->err, pointer, name, "{org: [user, user]} is wanted");
    }
    return ol_config_section_put(r, "roles", name, value, pointer);
}

static int read_rules(struct ol_config_reader *r, const struct ol_json *list)
{
    struct ol_json_iter it = {0};
    if (list->type != OL_JSON_ARRAY)
        return ol_config_entry_refuse(r->err, "/notifications/rules", "rules", "a list is wanted");
    for (int i = 0; ol_json_next(list, &it); i++) {
        const char *at = ol_arena_print(r->arena, "/notifications/rules/%d", i);
        if (read_rule(r, &it.value, at ? at : "/notifications/rules") < 0)
            return -1;
    }
    return 0;
}

static int read_notifications(struct ol_config_reader *r, const struct ol_json *section)
{
    static const char *const known[] = {"rules", "templates", "roles", NULL};
    struct ol_json rules = ol_json_get(section, "rules"),
                   templates = ol_json_get(section, "templates"),
                   roles = ol_json_get(section, "roles");
    if (ol_config_document_check_keys(r, section, "/notifications", "notifications", known) < 0)
        return -1;
    if (templates.type > OL_JSON_NULL &&
        read_members(r, &templates, "/notifications/templates", read_template) < 0)
        return -1;
    if (roles.type > OL_JSON_NULL && read_members(r, &roles, "/notifications/roles", read_role) < 0)
        return -1;
    return rules.type > OL_JSON_NULL ? read_rules(r, &rules) : 0;
}

/* --- the sections --- */

static int read_event_type_or_strict(struct ol_config_reader *r, const struct ol_json *object)
{
    struct ol_json_iter it = {0};
    if (object->type != OL_JSON_OBJECT)
        return ol_config_entry_refuse(r->err, "/event_types", "event_types", "a map is wanted");
    while (ol_json_next(object, &it)) {
        const char *name = ol_json_string(&it.key, r->arena, NULL);
        if (!name)
            return ol_no_memory(r->err);
        const char *at = ol_match_below(r->arena, "/event_types", name);
        int result = strcmp(name, "strict") == 0 ? read_strict(r, &it.value)
                     : it.value.type != OL_JSON_OBJECT
                         ? ol_config_entry_refuse(r->err, at, name, "a map is wanted")
                         : read_event_type(r, name, &it.value, at);
        if (result < 0)
            return -1;
    }
    return 0;
}

static int read_section(struct ol_config_reader *r, const char *section,
                        const struct ol_json *value)
{
    const char *pointer = ol_match_below(r->arena, "", section);
    if (strcmp(section, "store") == 0 || strcmp(section, "listen") == 0)
        return value->type == OL_JSON_STRING
                   ? 0
                   : ol_config_entry_refuse(r->err, pointer, section, "a text is wanted");
    bool is_section = is_known(section, (const char *const[]){"alerts", "retention", "relay",
                                                              "serve", "tracing", NULL});
    if (!is_section &&
        !is_known(section, (const char *const[]){"destinations", "routes", "event_types", "types",
                                                 "projections", "agents", "sinks", "notifications",
                                                 "secrets", NULL}))
        return ol_fail_at(
            r->err, OUTLOG_UNKNOWN_FIELD, pointer,
            "unknown key %.60s; store, listen, destinations, routes, event_types, "
            "types, projections, agents, sinks, notifications, secrets, alerts, retention, relay, "
            "serve and tracing are known",
            section);
    if (value->type == OL_JSON_NULL) // `routes:` with nothing below
        return 0;
    if (is_section)
        return ol_config_section_read(r, section, value, pointer);
    if (strcmp(section, "destinations") == 0)
        return read_members(r, value, pointer, read_destination);
    if (strcmp(section, "types") == 0)
        return read_members(r, value, pointer, ol_config_section_read_type);
    if (strcmp(section, "projections") == 0)
        return read_members(r, value, pointer, read_projection);
    if (strcmp(section, "agents") == 0)
        return read_members(r, value, pointer, ol_config_section_read_agent);
    if (strcmp(section, "secrets") == 0)
        return read_members(r, value, pointer, ol_config_section_read_secret);
    if (strcmp(section, "sinks") == 0)
        return read_members(r, value, pointer, ol_config_section_read_sink);
    if (strcmp(section, "notifications") == 0)
        return read_notifications(r, value);
    return strcmp(section, "routes") == 0 ? read_routes(r, value)
                                          : read_event_type_or_strict(r, value);
}

int ol_config_document_read(struct ol_config_entries *entries, const char *json, size_t bytes,
                            outlog_err *err)
{
    struct ol_config_reader r = {entries, entries->arena, err};
    struct ol_json object;
    struct ol_json_iter it = {0};
    if (ol_json_parse(json, bytes, &object, err) < 0)
        return -1;
    if (object.type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "the file must be a map of sections");
    while (ol_json_next(&object, &it)) {
        const char *section = ol_json_string(&it.key, entries->arena, NULL);
        if (!section)
            return ol_no_memory(err);
        if (read_section(&r, section, &it.value) < 0)
            return -1;
    }
    return imply_feed(&r);
}
