/* apply.c: the text becomes a list of entries, and so does the store; the difference of the two
 * lists is what has to change. document.c reads the text, entry.c reads the store, change.c
 * writes. */
#include "config/apply.h"

#include "config/change.h"
#include "config/document.h"
#include "destinations/publisher_type.h"
#include "log/match.h"
#include "notify/rule.h"

#include <string.h>

int ol_config_check(const char *json, size_t bytes, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_config_entries entries = {.end = &entries.first, .arena = &arena};
    int result = ol_config_document_read(&entries, json, bytes, err);
    ol_arena_clear(&arena);
    return result;
}

/* --- comparing --- */

/* The top-level keys in which two objects differ; NULL when one is no object. */
static const char *find_changed_keys(struct ol_arena *arena, const char *before, const char *after)
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
            struct ol_json same = ol_json_get(other, key);
            bool is_same = same.bytes == it.value.bytes && same.type == it.value.type &&
                           (same.bytes == 0 || memcmp(same.text, it.value.text, same.bytes) == 0);
            if (is_same || (side && same.type != OL_JSON_NONE))
                continue;
            ol_buf_print(&out, "%s%s", out.bytes ? ", " : "", key);
        }
    }
    const char *copy = out.bytes ? ol_arena_copy(arena, out.data, out.bytes) : NULL;
    ol_buf_clear(&out);
    return copy;
}

/* An event type with all its keys: a key that the file leaves out has its default, or stays as it
 * is for a type that ships with outlog. */
static const char *overlay_objects(struct ol_arena *arena, const char *base, const char *over)
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
        copy = ol_config_entry_canonical(arena, &under);
    ol_buf_clear(&out);
    return copy;
}

/* --- applying --- */

/* Will there be a destination of this name after the change? */
static bool will_exist(const struct ol_config_change *change, const char *name)
{
    return ol_config_entry_find(&change->wanted, OL_CONFIG_DESTINATION, name) ||
           (!change->options->prune &&
            ol_config_entry_find(&change->stored, OL_CONFIG_DESTINATION, name));
}

static int check_target(struct ol_config_change *change, const struct ol_config_entry *entry,
                        const char *key, const char *name)
{
    if (!name || will_exist(change, name))
        return 0;
    const char *pointer = entry->kind != OL_CONFIG_SETTING
                              ? ol_match_below(change->arena, entry->pointer, key)
                              : entry->pointer;
    return ol_fail_at(change->err, OUTLOG_INVALID_FIELD, pointer,
                      "%s: there is no destination %.100s, neither in this file nor in the store%s",
                      key, name, change->options->prune ? " after --prune" : "");
}

/* The type of a destination of this file or of the store; NULL: not known. */
static const struct ol_publisher_type *find_type(struct ol_config_change *change, const char *name)
{
    const struct ol_config_entry *entry =
        ol_config_entry_find(&change->wanted, OL_CONFIG_DESTINATION, name);
    struct ol_json value;
    if (!entry)
        entry = ol_config_entry_find(&change->stored, OL_CONFIG_DESTINATION, name);
    if (!entry || ol_json_parse(entry->text, strlen(entry->text), &value, NULL) < 0)
        return NULL;
    const char *type = ol_config_change_text(change, &value, "type");
    for (size_t i = 0; type && ol_publisher_types[i]; i++)
        if (strcmp(ol_publisher_types[i]->name, type) == 0)
            return ol_publisher_types[i];
    return NULL;
}

/* An alert is a JSON object of outlog's own: not every type can send it (P7). */
static int check_alert(struct ol_config_change *change, const struct ol_config_entry *entry,
                       const char *name)
{
    const struct ol_publisher_type *type = name ? find_type(change, name) : NULL;
    if (!type || !type->has_own_form)
        return 0;
    return ol_fail_at(
        change->err, OUTLOG_INVALID_FIELD, entry->pointer,
        "to: destination %.100s has type %s, whose messages have a form of their own; "
        "send alerts to a webhook, a program or a broker",
        name, type->name);
}

static bool is_sink(const struct ol_config_entry *entry)
{
    return entry->kind == OL_CONFIG_SETTING && strncmp(entry->name, "sinks.", 6) == 0;
}

/* A rule needs its destinations and its template. */
static int check_rule(struct ol_config_change *change, const struct ol_config_entry *entry)
{
    struct ol_json value;
    struct ol_rule rule;
    if (ol_json_parse(entry->text, strlen(entry->text), &value, change->err) < 0 ||
        ol_rule_read(&value, change->arena, &rule, change->err) < 0 ||
        check_target(change, entry, "channels", rule.email_to) < 0 ||
        check_target(change, entry, "channels", rule.in_app_to) < 0)
        return -1;
    if (ol_config_entry_find(&change->wanted, OL_CONFIG_TEMPLATE, rule.template) ||
        (!change->options->prune &&
         ol_config_entry_find(&change->stored, OL_CONFIG_TEMPLATE, rule.template)))
        return 0;
    return ol_fail_at(change->err, OUTLOG_INVALID_FIELD,
                      ol_match_below(change->arena, entry->pointer, "template"),
                      "template: there is no template %.100s, neither in this file nor in the "
                      "store%s",
                      rule.template, change->options->prune ? " after --prune" : "");
}

static int check_targets(struct ol_config_change *change)
{
    struct ol_json value;
    for (const struct ol_config_entry *i = change->wanted.first; i; i = i->next) {
        if (i->kind == OL_CONFIG_RULE && check_rule(change, i) < 0)
            return -1;
        bool is_alert = i->kind == OL_CONFIG_SETTING && strcmp(i->name, "alerts.to") == 0;
        if (i->kind != OL_CONFIG_ROUTE && !is_alert && !is_sink(i))
            continue;
        if (ol_json_parse(i->text, strlen(i->text), &value, change->err) < 0)
            return -1;
        const char *name = is_alert ? ol_json_string(&value, change->arena, NULL)
                                    : ol_config_change_text(change, &value, "to");
        if (check_target(change, i, "to", name) < 0)
            return -1;
        if (is_alert && check_alert(change, i, name) < 0)
            return -1;
        if (is_alert)
            change->alert = name;
    }
    const struct ol_config_entry *kept =
        ol_config_entry_find(&change->stored, OL_CONFIG_SETTING, "alerts.to");
    if (!change->alert && kept && !change->options->prune &&
        ol_json_parse(kept->text, strlen(kept->text), &value, change->err) == 0)
        change->alert = ol_json_string(&value, change->arena, NULL);
    return 0;
}

static bool is_pruned(struct ol_config_change *change, const struct ol_config_entry *stored)
{
    return change->options->prune && !stored->is_fixed &&
           !ol_config_entry_find(&change->wanted, stored->kind, stored->name);
}

/* Each change appends an audit event, and a rule whose query fails refuses events. So pruned rules
 * are deleted before the first event. */
static int delete_pruned_rules(struct ol_config_change *change)
{
    for (const struct ol_config_entry *i = change->stored.first; i && !change->options->dry_run;
         i = i->next)
        if (i->kind == OL_CONFIG_RULE && is_pruned(change, i) &&
            ol_rule_delete(change->conn, i->name, change->err) < 0)
            return -1;
    return 0;
}

static int apply_differences(struct ol_config_change *change)
{
    if (delete_pruned_rules(change) < 0)
        return -1;
    for (struct ol_config_entry *i = change->wanted.first; i; i = i->next) {
        const struct ol_config_entry *before =
            ol_config_entry_find(&change->stored, i->kind, i->name);
        if (i->is_implied && before)
            continue;
        i->is_fixed = before && before->is_fixed;
        if (i->kind == OL_CONFIG_EVENT_TYPE &&
            !(i->text = overlay_objects(change->arena,
                                        i->is_fixed ? before->text : "{\"version\":1}", i->text)))
            return ol_no_memory(change->err);
        if (before && strcmp(before->text, i->text) == 0) {
            change->out->same_count++;
            continue;
        }
        if (ol_config_change_make(change, i, before ? OL_DIFF_EDIT : OL_DIFF_ADD,
                                  before ? find_changed_keys(change->arena, before->text, i->text)
                                         : NULL) < 0)
            return -1;
    }
    for (struct ol_config_entry *i = change->stored.first; i; i = i->next)
        if (is_pruned(change, i) && ol_config_change_make(change, i, OL_DIFF_REMOVE, NULL) < 0)
            return -1;
    return 0;
}

/* From the commit on relays must use the new destinations. This comes last: it locks the lanes. */
static int invalidate_lanes(struct ol_config_change *change)
{
    for (size_t i = 0; i < change->out->count; i++)
        if (change->out->all[i].entry_kind == ol_config_kind_names[OL_CONFIG_DESTINATION])
            return ol_store_exec(change->conn, OL_Q_LANES_INVALIDATE, OL_NO_PARAMS, NULL,
                                 change->err);
    return 0;
}

int ol_config_apply(outlog *log, const char *json, size_t bytes,
                    const struct ol_config_options *options, struct ol_arena *arena,
                    struct ol_config_diffs *out, outlog_err *err)
{
    struct ol_config_change change = {.options = options, .arena = arena, .out = out, .err = err};
    int result = -1;

    *out = (struct ol_config_diffs){0};
    change.wanted = (struct ol_config_entries){.end = &change.wanted.first, .arena = arena};
    change.stored = (struct ol_config_entries){.end = &change.stored.first, .arena = arena};
    ol_uuid_make(change.correlation_id);
    if (ol_config_document_read(&change.wanted, json, bytes, err) < 0 ||
        outlog_begin(log, &change.tx, err) < 0)
        return -1;
    change.conn = change.tx->conn;
    if (ol_store_exec(change.conn, OL_Q_CONFIG_LOCK, OL_NO_PARAMS, NULL, err) < 0 ||
        ol_config_entries_load(change.conn, &change.stored, err) < 0 ||
        check_targets(&change) < 0 || apply_differences(&change) < 0)
        goto out;
    if (!options->dry_run && out->count &&
        (ol_store_exec(change.conn, OL_Q_DESTINATION_ALERT,
                       OL_PARAMS(ol_value_text(change.alert ? change.alert : "")), NULL, err) < 0 ||
         invalidate_lanes(&change) < 0))
        goto out;
    if (options->dry_run || !out->count) { // nothing was written
        result = 0;
        goto out;
    }
    result = outlog_commit(change.tx, err);
    change.tx = NULL;
out:
    outlog_rollback(change.tx);
    return result;
}

/* --- one destination --- */

static bool rule_uses(struct ol_config_change *change, const struct ol_config_entry *entry,
                      const char *destination)
{
    struct ol_json value;
    struct ol_rule rule;
    if (ol_json_parse(entry->text, strlen(entry->text), &value, NULL) < 0 ||
        ol_rule_read(&value, change->arena, &rule, NULL) < 0)
        return false;
    return (rule.email_to && strcmp(rule.email_to, destination) == 0) ||
           (rule.in_app_to && strcmp(rule.in_app_to, destination) == 0);
}

static const struct ol_config_entry *find_user(struct ol_config_change *change,
                                               const char *destination)
{
    struct ol_json value;
    for (const struct ol_config_entry *i = change->stored.first; i; i = i->next) {
        if (i->kind == OL_CONFIG_RULE && rule_uses(change, i, destination))
            return i;
        bool is_alert = i->kind == OL_CONFIG_SETTING && strcmp(i->name, "alerts.to") == 0;
        if ((i->kind != OL_CONFIG_ROUTE && !is_alert && !is_sink(i)) ||
            ol_json_parse(i->text, strlen(i->text), &value, NULL) < 0)
            continue;
        const char *name = is_alert ? ol_json_string(&value, change->arena, NULL)
                                    : ol_config_change_text(change, &value, "to");
        if (name && strcmp(name, destination) == 0)
            return i;
    }
    return NULL;
}

static int remove_destination(struct ol_config_change *change, const char *destination)
{
    const struct ol_config_entry *entry =
        ol_config_entry_find(&change->stored, OL_CONFIG_DESTINATION, destination);
    const struct ol_config_entry *user = find_user(change, destination);
    if (!entry)
        return ol_fail(change->err, OUTLOG_NOT_FOUND, "there is no destination %.100s",
                       destination);
    if (user)
        return ol_fail(change->err, OUTLOG_ILLEGAL_TRANSITION,
                       "destination %.100s is in use: %s %.100s goes there; change that first",
                       destination, ol_config_kind_names[user->kind], user->name);
    return ol_config_change_make(change, entry, OL_DIFF_REMOVE, NULL);
}

int ol_config_remove(outlog *log, const char *destination, const struct ol_config_options *options,
                     outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_config_diffs changes = {0};
    struct ol_config_change change = {.options = options,
                                      .arena = &arena,
                                      .out = &changes,
                                      .err = err};
    int result = -1;

    change.stored = (struct ol_config_entries){.end = &change.stored.first, .arena = &arena};
    ol_uuid_make(change.correlation_id);
    if (outlog_begin(log, &change.tx, err) < 0)
        return -1;
    change.conn = change.tx->conn;
    if (ol_store_exec(change.conn, OL_Q_CONFIG_LOCK, OL_NO_PARAMS, NULL, err) == 0 &&
        ol_config_entries_load(change.conn, &change.stored, err) == 0 &&
        remove_destination(&change, destination) == 0 && invalidate_lanes(&change) == 0) {
        result = outlog_commit(change.tx, err);
        change.tx = NULL;
    }
    outlog_rollback(change.tx);
    ol_arena_clear(&arena);
    return result;
}
