/* apply.c: see apply.h.
 *
 * Whatever the text names becomes a clause, and so does what the store says; the difference of the
 * two lists is what has to be done: document.c reads the text, entry.c the store, change.c writes.
 */
#include "config/apply.h"

#include "config/change.h"
#include "config/document.h"
#include "log/match.h"
#include "notify/rule.h"

#include <string.h>

int ol_config_check(const char *json, size_t bytes, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_config_entries clauses = {.end = &clauses.first, .arena = &arena};
    int result = ol_config_document_read(&clauses, json, bytes, err);
    ol_arena_clear(&arena);
    return result;
}

/* --- comparing --- */

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

/* An event type in full: what the file leaves out is the default, or stays for a type that ships
 * with outlog. */
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
        copy = ol_config_entry_canonical(arena, &under);
    ol_buf_clear(&out);
    return copy;
}

/* --- the whole --- */

/* Will there be a destination of this name afterwards? */
static bool will_exist(const struct ol_config_change *a, const char *name)
{
    return ol_config_entry_find(&a->wanted, OL_CONFIG_DESTINATION, name) ||
           (!a->options->prune && ol_config_entry_find(&a->stored, OL_CONFIG_DESTINATION, name));
}

static int check_target(struct ol_config_change *a, const struct ol_config_entry *clause,
                        const char *key, const char *name)
{
    if (!name || will_exist(a, name))
        return 0;
    const char *pointer = clause->noun != OL_CONFIG_SETTING
                              ? ol_match_below(a->arena, clause->pointer, key)
                              : clause->pointer;
    return ol_fail_at(a->err, OUTLOG_INVALID_FIELD, pointer,
                      "%s: there is no destination %.100s, neither in this file nor in the store%s",
                      key, name, a->options->prune ? " after --prune" : "");
}

static bool is_sink(const struct ol_config_entry *clause)
{
    return clause->noun == OL_CONFIG_SETTING && strncmp(clause->name, "sinks.", 6) == 0;
}

/* A rule needs its destinations and its words. */
static int check_rule(struct ol_config_change *a, const struct ol_config_entry *clause)
{
    struct ol_json value;
    struct ol_rule rule;
    if (ol_json_parse(clause->text, strlen(clause->text), &value, a->err) < 0 ||
        ol_rule_read(&value, a->arena, &rule, a->err) < 0 ||
        check_target(a, clause, "channels", rule.email_to) < 0 ||
        check_target(a, clause, "channels", rule.in_app_to) < 0)
        return -1;
    if (ol_config_entry_find(&a->wanted, OL_CONFIG_TEMPLATE, rule.template) ||
        (!a->options->prune && ol_config_entry_find(&a->stored, OL_CONFIG_TEMPLATE, rule.template)))
        return 0;
    return ol_fail_at(a->err, OUTLOG_INVALID_FIELD,
                      ol_match_below(a->arena, clause->pointer, "template"),
                      "template: there is no template %.100s, neither in this file nor in the "
                      "store%s",
                      rule.template, a->options->prune ? " after --prune" : "");
}

static int check_targets(struct ol_config_change *a)
{
    struct ol_json value;
    for (const struct ol_config_entry *i = a->wanted.first; i; i = i->next) {
        if (i->noun == OL_CONFIG_RULE && check_rule(a, i) < 0)
            return -1;
        bool is_alert = i->noun == OL_CONFIG_SETTING && strcmp(i->name, "alerts.to") == 0;
        if (i->noun != OL_CONFIG_ROUTE && !is_alert && !is_sink(i))
            continue;
        if (ol_json_parse(i->text, strlen(i->text), &value, a->err) < 0)
            return -1;
        const char *name = is_alert ? ol_json_string(&value, a->arena, NULL)
                                    : ol_config_change_text(a, &value, "to");
        if (check_target(a, i, "to", name) < 0)
            return -1;
        if (is_alert)
            a->alert = name;
    }
    const struct ol_config_entry *kept =
        ol_config_entry_find(&a->stored, OL_CONFIG_SETTING, "alerts.to");
    if (!a->alert && kept && !a->options->prune &&
        ol_json_parse(kept->text, strlen(kept->text), &value, a->err) == 0)
        a->alert = ol_json_string(&value, a->arena, NULL);
    return 0;
}

static bool is_pruned(struct ol_config_change *a, const struct ol_config_entry *stored)
{
    return a->options->prune && !stored->is_fixed &&
           !ol_config_entry_find(&a->wanted, stored->noun, stored->name);
}

/* Each change is told by an event, and a rule whose query cannot be run any more refuses events: it
 * goes before the first of them. */
static int silence_pruned(struct ol_config_change *a)
{
    for (const struct ol_config_entry *i = a->stored.first; i && !a->options->dry_run; i = i->next)
        if (i->noun == OL_CONFIG_RULE && is_pruned(a, i) &&
            ol_rule_delete(a->conn, i->name, a->err) < 0)
            return -1;
    return 0;
}

static int compare(struct ol_config_change *a)
{
    if (silence_pruned(a) < 0)
        return -1;
    for (struct ol_config_entry *i = a->wanted.first; i; i = i->next) {
        const struct ol_config_entry *before = ol_config_entry_find(&a->stored, i->noun, i->name);
        if (i->is_implied && before)
            continue;
        i->is_fixed = before && before->is_fixed;
        if (i->noun == OL_CONFIG_EVENT_TYPE &&
            !(i->text = overlay(a->arena, i->is_fixed ? before->text : "{\"version\":1}", i->text)))
            return ol_no_memory(a->err);
        if (before && strcmp(before->text, i->text) == 0) {
            a->out->same_count++;
            continue;
        }
        if (ol_config_change_make(a, i, before ? OL_DIFF_EDIT : OL_DIFF_ADD,
                                  before ? changed_keys(a->arena, before->text, i->text) : NULL) <
            0)
            return -1;
    }
    for (struct ol_config_entry *i = a->stored.first; i; i = i->next)
        if (is_pruned(a, i) && ol_config_change_make(a, i, OL_DIFF_REMOVE, NULL) < 0)
            return -1;
    return 0;
}

/* What relays claim from the commit on, they claim by what destinations are then. Comes last: it
 * locks the lanes. */
static int tell_relays(struct ol_config_change *a)
{
    for (size_t i = 0; i < a->out->count; i++)
        if (a->out->all[i].noun == ol_nouns[OL_CONFIG_DESTINATION])
            return ol_store_exec(a->conn, OL_Q_LANES_INVALIDATE, OL_NO_PARAMS, NULL, a->err);
    return 0;
}

int ol_config_apply(outlog *log, const char *json, size_t bytes,
                    const struct ol_config_options *options, struct ol_arena *arena,
                    struct ol_config_diffs *out, outlog_err *err)
{
    struct ol_config_change a = {.options = options, .arena = arena, .out = out, .err = err};
    int result = -1;

    *out = (struct ol_config_diffs){0};
    a.wanted = (struct ol_config_entries){.end = &a.wanted.first, .arena = arena};
    a.stored = (struct ol_config_entries){.end = &a.stored.first, .arena = arena};
    ol_uuid_make(a.correlation_id);
    if (ol_config_document_read(&a.wanted, json, bytes, err) < 0 ||
        outlog_begin(log, &a.tx, err) < 0)
        return -1;
    a.conn = a.tx->conn;
    if (ol_store_exec(a.conn, OL_Q_CONFIG_LOCK, OL_NO_PARAMS, NULL, err) < 0 ||
        ol_config_entries_load(a.conn, &a.stored, err) < 0 || check_targets(&a) < 0 ||
        compare(&a) < 0)
        goto out;
    if (!options->dry_run && out->count &&
        (ol_store_exec(a.conn, OL_Q_DESTINATION_ALERT,
                       OL_PARAMS(ol_value_text(a.alert ? a.alert : "")), NULL, err) < 0 ||
         tell_relays(&a) < 0))
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
static bool rule_goes_to(struct ol_config_change *a, const struct ol_config_entry *clause,
                         const char *destination)
{
    struct ol_json value;
    struct ol_rule rule;
    if (ol_json_parse(clause->text, strlen(clause->text), &value, NULL) < 0 ||
        ol_rule_read(&value, a->arena, &rule, NULL) < 0)
        return false;
    return (rule.email_to && strcmp(rule.email_to, destination) == 0) ||
           (rule.in_app_to && strcmp(rule.in_app_to, destination) == 0);
}

static const struct ol_config_entry *user_of(struct ol_config_change *a, const char *destination)
{
    struct ol_json value;
    for (const struct ol_config_entry *i = a->stored.first; i; i = i->next) {
        if (i->noun == OL_CONFIG_RULE && rule_goes_to(a, i, destination))
            return i;
        bool is_alert = i->noun == OL_CONFIG_SETTING && strcmp(i->name, "alerts.to") == 0;
        if ((i->noun != OL_CONFIG_ROUTE && !is_alert && !is_sink(i)) ||
            ol_json_parse(i->text, strlen(i->text), &value, NULL) < 0)
            continue;
        const char *name = is_alert ? ol_json_string(&value, a->arena, NULL)
                                    : ol_config_change_text(a, &value, "to");
        if (name && strcmp(name, destination) == 0)
            return i;
    }
    return NULL;
}

static int remove_one(struct ol_config_change *a, const char *destination)
{
    const struct ol_config_entry *clause =
        ol_config_entry_find(&a->stored, OL_CONFIG_DESTINATION, destination);
    const struct ol_config_entry *user = user_of(a, destination);
    if (!clause)
        return ol_fail(a->err, OUTLOG_NOT_FOUND, "there is no destination %.100s", destination);
    if (user)
        return ol_fail(a->err, OUTLOG_ILLEGAL_TRANSITION,
                       "destination %.100s is in use: %s %.100s goes there; change that first",
                       destination, ol_nouns[user->noun], user->name);
    return ol_config_change_make(a, clause, OL_DIFF_REMOVE, NULL);
}

int ol_config_remove(outlog *log, const char *destination, const struct ol_config_options *options,
                     outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_config_diffs changes = {0};
    struct ol_config_change a = {.options = options, .arena = &arena, .out = &changes, .err = err};
    int result = -1;

    a.stored = (struct ol_config_entries){.end = &a.stored.first, .arena = &arena};
    ol_uuid_make(a.correlation_id);
    if (outlog_begin(log, &a.tx, err) < 0)
        return -1;
    a.conn = a.tx->conn;
    if (ol_store_exec(a.conn, OL_Q_CONFIG_LOCK, OL_NO_PARAMS, NULL, err) == 0 &&
        ol_config_entries_load(a.conn, &a.stored, err) == 0 && remove_one(&a, destination) == 0 &&
        tell_relays(&a) == 0) {
        result = outlog_commit(a.tx, err);
        a.tx = NULL;
    }
    outlog_rollback(a.tx);
    ol_arena_clear(&arena);
    return result;
}
