/* change.c: writes and deletes entries, and appends the audit event of each change. */
#include "config/change.h"

#include "destinations/settings.h"
#include "log/log.h"
#include "log/match.h"
#include "log/sink_cursor.h"
#include "notify/rule.h"
#include "projections/definition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- writing --- */

const char *ol_config_change_text(struct ol_config_change *change, const struct ol_json *object,
                                  const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    return ol_json_string(&value, change->arena, NULL);
}

static int put_destination(struct ol_config_change *change, const struct ol_config_entry *entry)
{
    struct ol_settings *settings;
    if (ol_settings_open(entry->name, entry->source, strlen(entry->source), OL_SETTINGS_CHECK,
                         &settings, change->err) < 0)
        return -1;
    int result = ol_store_exec(
        change->conn, OL_Q_DESTINATION_PUT,
        OL_PARAMS(ol_value_text(entry->name), ol_value_text(entry->source),
                  ol_value_text(settings->guarantee == OL_AT_MOST_ONCE ? "at_most_once"
                                                                       : "at_least_once"),
                  ol_value_text(settings->on_dead == OL_ON_DEAD_HOLD ? "hold" : "skip"),
                  ol_value_int(change->alert && strcmp(change->alert, entry->name) == 0)),
        NULL, change->err);
    ol_settings_close(settings);
    return result;
}

int ol_config_change_put_route(struct ol_conn *conn, const char *name, const char *source,
                               struct ol_arena *arena, outlog_err *err)
{
    struct ol_config_change change = {.conn = conn,
                                      .arena = arena,
                                      .err = err}; // only its arena is used
    struct ol_json route;
    struct ol_buf pattern = {0}, condition = {0};
    bool is_glob = conn->store->has_globs;
    if (ol_json_parse(source, strlen(source), &route, err) < 0)
        return -1;
    struct ol_json when = ol_json_get(&route, "when");
    const char *on = ol_config_change_text(&change, &route, "on");
    if (!on)
        return ol_no_memory(err);
    ol_match_write(on, is_glob, &pattern);
    if (when.type == OL_JSON_OBJECT)
        ol_match_write_when(&when, is_glob, arena, &condition);
    int result =
        pattern.failed || condition.failed
            ? ol_no_memory(err)
            : ol_store_exec(
                  conn, OL_Q_ROUTE_PUT,
                  OL_PARAMS(ol_value_text(name), ol_value_text(pattern.data),
                            ol_value_int(strncmp(on, "outlog.", 7) == 0),
                            ol_value_text(ol_config_change_text(&change, &route, "org_id")),
                            ol_value_text(ol_config_change_text(&change, &route, "aggregate_type")),
                            ol_value_text(condition.data),
                            ol_value_text(ol_config_change_text(&change, &route, "to")),
                            ol_value_text(ol_config_change_text(&change, &route, "ordering_key")),
                            ol_value_text(source)),
                  NULL, err);
    ol_buf_clear(&pattern);
    ol_buf_clear(&condition);
    return result;
}

static const char *copy_json(struct ol_config_change *change, const struct ol_json *object,
                             const char *key)
{
    struct ol_json value = ol_json_get(object, key);
    return value.type <= OL_JSON_NULL ? NULL
                                      : ol_arena_copy(change->arena, value.text, value.bytes);
}

static int put_event_type(struct ol_config_change *change, const struct ol_config_entry *entry)
{
    struct ol_json type;
    int64_t version = 1;
    if (ol_json_parse(entry->text, strlen(entry->text), &type, change->err) < 0)
        return -1;
    struct ol_json number = ol_json_get(&type, "version");
    ol_json_int(&number, &version);
    return ol_store_exec(change->conn, OL_Q_EVENT_TYPE_PUT,
                         OL_PARAMS(ol_value_text(entry->name), ol_value_int(version),
                                   ol_value_text(
                                       ol_config_change_text(change, &type, "aggregate_type")),
                                   ol_value_text(copy_json(change, &type, "shape")),
                                   ol_value_text(copy_json(change, &type, "upcast")),
                                   ol_value_text(ol_config_change_text(change, &type, "about")),
                                   ol_value_int(entry->is_fixed)),
                         NULL, change->err);
}

/* From now on new messages are spread over this many lanes. Waits for writers; does nothing when
 * the number is the same. */
static int resize_lanes(struct ol_config_change *change, int64_t lanes)
{
    return ol_store_exec(change->conn, OL_Q_LANES_RESIZE, OL_PARAMS(ol_value_int(lanes)), NULL,
                         change->err);
}

static int put_entry(struct ol_config_change *change, const struct ol_config_entry *entry)
{
    switch (entry->kind) {
    case OL_CONFIG_DESTINATION:
        return put_destination(change, entry);
    case OL_CONFIG_ROUTE:
        return ol_config_change_put_route(change->conn, entry->name, entry->source, change->arena,
                                          change->err);
    case OL_CONFIG_EVENT_TYPE:
        return put_event_type(change, entry);
    case OL_CONFIG_STRICT_ORG:
        return ol_store_exec(change->conn, OL_Q_STRICT_ORG_ADD,
                             OL_PARAMS(ol_value_text(entry->name)), NULL, change->err);
    case OL_CONFIG_PROJECTION:
        if (ol_projection_put(change->conn, entry->name, entry->source, change->err) == 0)
            return 0;
        return ol_config_entry_deepen(change->err, entry->pointer, entry->name);
    case OL_CONFIG_TEMPLATE:
        return ol_rule_put_template(change->conn, entry->name, entry->source, change->err);
    case OL_CONFIG_RULE:
        if (ol_rule_put(change->conn, entry->name, entry->source, change->arena, change->err) == 0)
            return 0;
        return ol_config_entry_deepen(change->err, entry->pointer, entry->name);
    default:
        if (ol_store_exec(change->conn, OL_Q_SETTING_PUT,
                          OL_PARAMS(ol_value_text(entry->name), ol_value_text(entry->source)), NULL,
                          change->err) < 0)
            return -1;
        if (strncmp(entry->name, "sinks.", 6) == 0)
            return ol_sink_cursor_declare(change->conn, entry->name + 6, entry->source,
                                          change->err);
        return strcmp(entry->name, "relay.lanes") == 0
                   ? resize_lanes(change, strtoll(entry->source, NULL, 10))
                   : 0;
    }
}

static int delete_entry(struct ol_config_change *change, const struct ol_config_entry *entry)
{
    static const enum ol_query_id delete_queries[OL_CONFIG_COUNT] = {OL_Q_DESTINATION_DELETE,
                                                                     OL_Q_ROUTE_DELETE,
                                                                     OL_Q_EVENT_TYPE_DELETE,
                                                                     OL_Q_STRICT_ORG_DELETE,
                                                                     OL_Q_SETTING_DELETE};
    if (entry->kind == OL_CONFIG_PROJECTION)
        return ol_projection_delete(change->conn, entry->name, change->err);
    if (entry->kind == OL_CONFIG_RULE)
        return ol_rule_delete(change->conn, entry->name, change->err);
    if (entry->kind == OL_CONFIG_TEMPLATE)
        return ol_store_exec(change->conn, OL_Q_TEMPLATE_RETIRE,
                             OL_PARAMS(ol_value_text(entry->name)), NULL, change->err);
    enum { LANES_DEFAULT = 8 }; // if relay.lanes is not set
    if (ol_store_exec(change->conn, delete_queries[entry->kind],
                      OL_PARAMS(ol_value_text(entry->name)), NULL, change->err) < 0)
        return -1;
    return entry->kind == OL_CONFIG_SETTING && strcmp(entry->name, "relay.lanes") == 0
               ? resize_lanes(change, LANES_DEFAULT)
               : 0;
}

/* --- audit events --- */

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

/* X4. Names and keys, never the values of a destination: there may be secrets among them. */
static int append_audit(struct ol_config_change *change, const struct ol_config_entry *entry,
                        const struct ol_config_diff *diff)
{
    static const char *const verbs[] = {"added", "changed", "deleted"};
    struct ol_buf payload = {0};
    struct outlog_appended appended;
    char aggregate[64], type[100];
    const char *kind_name = ol_config_kind_names[entry->kind];

    snprintf(aggregate, sizeof aggregate, "outlog.%s", kind_name);
    snprintf(type, sizeof type, "outlog.%s.%s", kind_name,
             diff->kind == OL_DIFF_REMOVE ? "deleted" : "applied");
    ol_buf_text(&payload, "{\"name\":");
    ol_buf_json_text(&payload, entry->name);
    ol_buf_print(&payload, ",\"change\":\"%s\",\"keys\":", verbs[diff->kind]);
    write_keys(&payload, entry->kind == OL_CONFIG_SETTING ? NULL : diff->keys);
    if ((entry->kind == OL_CONFIG_ROUTE || entry->kind == OL_CONFIG_RULE ||
         entry->kind == OL_CONFIG_SETTING) &&
        diff->kind != OL_DIFF_REMOVE)
        ol_buf_print(&payload, ",\"value\":%s", entry->text);
    ol_buf_char(&payload, '}');
    struct outlog_new_event event = {.is_infrastructure = true,
                                     .aggregate_type = aggregate,
                                     .aggregate_id = entry->name,
                                     .event_type = type,
                                     .payload = payload.data,
                                     .actor_type = change->options->actor_type,
                                     .actor_id = change->options->actor_id,
                                     .request_id = change->options->request_id,
                                     .correlation_id = change->correlation_id};
    int result = payload.failed ? ol_no_memory(change->err)
                                : ol_append_own(change->tx, &event, 1, &appended, change->err);
    ol_buf_clear(&payload);
    return result;
}

int ol_config_change_make(struct ol_config_change *change, const struct ol_config_entry *entry,
                          enum ol_config_diff_kind kind, const char *keys)
{
    if (change->out->count == change->capacity) {
        size_t wider = change->capacity ? change->capacity * 2 : 16;
        struct ol_config_diff *all = ol_arena_array(change->arena, wider, sizeof *all);
        if (!all)
            return ol_no_memory(change->err);
        if (change->capacity)
            memcpy(all, change->out->all, change->capacity * sizeof *all);
        change->out->all = all;
        change->capacity = wider;
    }
    struct ol_config_diff *made = &change->out->all[change->out->count++];
    *made = (struct ol_config_diff){kind, ol_config_kind_names[entry->kind], entry->name, keys};
    if (change->options->dry_run)
        return 0;
    if ((kind == OL_DIFF_REMOVE ? delete_entry(change, entry) : put_entry(change, entry)) < 0)
        return -1;
    return append_audit(change, entry, made);
}
