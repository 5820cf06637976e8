/* change.c: see change.h. */
#include "config/change.h"

#include "destinations/settings.h"
#include "log/match.h"
#include "log/sink_cursor.h"
#include "notify/rule.h"
#include "projections/definition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- writing --- */

const char *ol_config_change_text(struct ol_config_change *a, const struct ol_json *object,
                                  const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    return ol_json_string(&value, a->arena, NULL);
}

static int put_destination(struct ol_config_change *a, const struct ol_config_entry *clause)
{
    struct ol_settings *settings;
    if (ol_settings_open(clause->name, clause->source, strlen(clause->source), OL_SETTINGS_CHECK,
                         &settings, a->err) < 0)
        return -1;
    int result =
        ol_store_exec(a->conn, OL_Q_DESTINATION_PUT,
                      OL_PARAMS(ol_value_text(clause->name), ol_value_text(clause->source),
                                ol_value_text(settings->guarantee == OL_AT_MOST_ONCE
                                                  ? "at_most_once"
                                                  : "at_least_once"),
                                ol_value_text(settings->on_dead == OL_ON_DEAD_HOLD ? "hold"
                                                                                   : "skip"),
                                ol_value_int(a->alert && strcmp(a->alert, clause->name) == 0)),
                      NULL, a->err);
    ol_settings_close(settings);
    return result;
}

int ol_config_change_put_route(struct ol_conn *conn, const char *name, const char *source,
                               struct ol_arena *arena, outlog_err *err)
{
    struct ol_config_change a = {.conn = conn, .arena = arena, .err = err}; // for its texts
    struct ol_json route;
    struct ol_buf pattern = {0}, condition = {0};
    bool is_glob = conn->store->has_globs;
    if (ol_json_parse(source, strlen(source), &route, err) < 0)
        return -1;
    struct ol_json when = ol_json_get(&route, "when");
    const char *on = ol_config_change_text(&a, &route, "on");
    if (!on)
        return ol_no_memory(err);
    ol_match_write(on, is_glob, &pattern);
    if (when.type == OL_JSON_OBJECT)
        ol_match_write_when(&when, is_glob, arena, &condition);
    int result =
        pattern.failed || condition.failed
            ? ol_no_memory(err)
            : ol_store_exec(conn, OL_Q_ROUTE_PUT,
                            OL_PARAMS(ol_value_text(name), ol_value_text(pattern.data),
                                      ol_value_int(strncmp(on, "outlog.", 7) == 0),
                                      ol_value_text(ol_config_change_text(&a, &route, "org_id")),
                                      ol_value_text(
                                          ol_config_change_text(&a, &route, "aggregate_type")),
                                      ol_value_text(condition.data),
                                      ol_value_text(ol_config_change_text(&a, &route, "to")),
                                      ol_value_text(
                                          ol_config_change_text(&a, &route, "ordering_key")),
                                      ol_value_text(source)),
                            NULL, err);
    ol_buf_clear(&pattern);
    ol_buf_clear(&condition);
    return result;
}

static const char *raw_at(struct ol_config_change *a, const struct ol_json *object, const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    return value.type <= OL_JSON_NULL ? NULL : ol_arena_copy(a->arena, value.text, value.bytes);
}

static int put_event_type(struct ol_config_change *a, const struct ol_config_entry *clause)
{
    struct ol_json type;
    int64_t version = 1;
    if (ol_json_parse(clause->text, strlen(clause->text), &type, a->err) < 0)
        return -1;
    struct ol_json number = ol_json_get(&type, "version");
    ol_json_int(&number, &version);
    return ol_store_exec(a->conn, OL_Q_EVENT_TYPE_PUT,
                         OL_PARAMS(ol_value_text(clause->name), ol_value_int(version),
                                   ol_value_text(ol_config_change_text(a, &type, "aggregate_type")),
                                   ol_value_text(raw_at(a, &type, "shape")),
                                   ol_value_text(raw_at(a, &type, "upcast")),
                                   ol_value_text(ol_config_change_text(a, &type, "about")),
                                   ol_value_int(clause->is_fixed)),
                         NULL, a->err);
}

/* New messages go to so many lanes from now on. Waits for writers; does nothing when it is so
 * already. */
static int resize(struct ol_config_change *a, int64_t lanes)
{
    return ol_store_exec(a->conn, OL_Q_LANES_RESIZE, OL_PARAMS(ol_value_int(lanes)), NULL, a->err);
}

static int put(struct ol_config_change *a, const struct ol_config_entry *clause)
{
    switch (clause->noun) {
    case OL_CONFIG_DESTINATION:
        return put_destination(a, clause);
    case OL_CONFIG_ROUTE:
        return ol_config_change_put_route(a->conn, clause->name, clause->source, a->arena, a->err);
    case OL_CONFIG_EVENT_TYPE:
        return put_event_type(a, clause);
    case OL_CONFIG_STRICT_ORG:
        return ol_store_exec(a->conn, OL_Q_STRICT_ORG_ADD, OL_PARAMS(ol_value_text(clause->name)),
                             NULL, a->err);
    case OL_CONFIG_PROJECTION:
        if (ol_projection_put(a->conn, clause->name, clause->source, a->err) == 0)
            return 0;
        return ol_config_entry_deepen(a->err, clause->pointer, clause->name);
    case OL_CONFIG_TEMPLATE:
        return ol_rule_put_template(a->conn, clause->name, clause->source, a->err);
    case OL_CONFIG_RULE:
        if (ol_rule_put(a->conn, clause->name, clause->source, a->arena, a->err) == 0)
            return 0;
        return ol_config_entry_deepen(a->err, clause->pointer, clause->name);
    default:
        if (ol_store_exec(a->conn, OL_Q_SETTING_PUT,
                          OL_PARAMS(ol_value_text(clause->name), ol_value_text(clause->source)),
                          NULL, a->err) < 0)
            return -1;
        if (strncmp(clause->name, "sinks.", 6) == 0)
            return ol_sink_cursor_declare(a->conn, clause->name + 6, clause->source, a->err);
        return strcmp(clause->name, "relay.lanes") == 0
                   ? resize(a, strtoll(clause->source, NULL, 10))
                   : 0;
    }
}

static int delete (struct ol_config_change *a, const struct ol_config_entry *clause)
{
    static const enum ol_query_id queries[OL_CONFIG_COUNT] = {OL_Q_DESTINATION_DELETE,
                                                              OL_Q_ROUTE_DELETE,
                                                              OL_Q_EVENT_TYPE_DELETE,
                                                              OL_Q_STRICT_ORG_DELETE,
                                                              OL_Q_SETTING_DELETE};
    if (clause->noun == OL_CONFIG_PROJECTION)
        return ol_projection_delete(a->conn, clause->name, a->err);
    if (clause->noun == OL_CONFIG_RULE)
        return ol_rule_delete(a->conn, clause->name, a->err);
    if (clause->noun == OL_CONFIG_TEMPLATE)
        return ol_store_exec(a->conn, OL_Q_TEMPLATE_RETIRE, OL_PARAMS(ol_value_text(clause->name)),
                             NULL, a->err);
    enum { LANES = 8 }; // where nothing is said
    if (ol_store_exec(a->conn, queries[clause->noun], OL_PARAMS(ol_value_text(clause->name)), NULL,
                      a->err) < 0)
        return -1;
    return clause->noun == OL_CONFIG_SETTING && strcmp(clause->name, "relay.lanes") == 0
               ? resize(a, LANES)
               : 0;
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
static int tell(struct ol_config_change *a, const struct ol_config_entry *clause,
                const struct ol_config_diff *change)
{
    static const char *const words[] = {"added", "changed", "deleted"};
    struct ol_buf payload = {0};
    struct outlog_appended appended;
    char aggregate[64], type[100];
    const char *noun = ol_nouns[clause->noun];

    snprintf(aggregate, sizeof aggregate, "outlog.%s", noun);
    snprintf(type, sizeof type, "outlog.%s.%s", noun,
             change->kind == OL_DIFF_REMOVE ? "deleted" : "applied");
    ol_buf_text(&payload, "{\"name\":");
    ol_buf_json_text(&payload, clause->name);
    ol_buf_print(&payload, ",\"change\":\"%s\",\"keys\":", words[change->kind]);
    write_keys(&payload, clause->noun == OL_CONFIG_SETTING ? NULL : change->keys);
    if ((clause->noun == OL_CONFIG_ROUTE || clause->noun == OL_CONFIG_RULE ||
         clause->noun == OL_CONFIG_SETTING) &&
        change->kind != OL_DIFF_REMOVE)
        ol_buf_print(&payload, ",\"value\":%s", clause->text);
    ol_buf_char(&payload, '}');
    struct outlog_new_event event = {.is_infrastructure = true,
                                     .aggregate_type = aggregate,
                                     .aggregate_id = clause->name,
                                     .event_type = type,
                                     .payload = payload.data,
                                     .actor_type = a->options->actor_type,
                                     .actor_id = a->options->actor_id,
                                     .request_id = a->options->request_id,
                                     .correlation_id = a->correlation_id};
    int result = payload.failed ? ol_no_memory(a->err)
                                : outlog_append(a->tx, &event, &appended, a->err);
    ol_buf_clear(&payload);
    return result;
}

int ol_config_change_make(struct ol_config_change *a, const struct ol_config_entry *clause,
                          enum ol_config_diff_kind kind, const char *keys)
{
    if (a->out->count == a->room) {
        size_t wider = a->room ? a->room * 2 : 16;
        struct ol_config_diff *all = ol_arena_array(a->arena, wider, sizeof *all);
        if (!all)
            return ol_no_memory(a->err);
        if (a->room)
            memcpy(all, a->out->all, a->room * sizeof *all);
        a->out->all = all;
        a->room = wider;
    }
    struct ol_config_diff *made = &a->out->all[a->out->count++];
    *made = (struct ol_config_diff){kind, ol_nouns[clause->noun], clause->name, keys};
    if (a->options->dry_run)
        return 0;
    if ((kind == OL_DIFF_REMOVE ? delete (a, clause) : put(a, clause)) < 0)
        return -1;
    return tell(a, clause, made);
}
