/* entry.c: adding and finding entries, and loading those of the store. */
#include "config/entry.h"

#include <stdio.h>
#include <string.h>

const char *const ol_config_kind_names[OL_CONFIG_COUNT] = {"destination", "route",   "event_type",
                                                           "strict_org",  "setting", "projection",
                                                           "template",    "rule"};

const char *ol_config_entry_canonical(struct ol_arena *arena, const struct ol_json *value)
{
    struct ol_buf out = {0};
    const char *copy = NULL;
    if (ol_json_canonical(value, &out) == 0 && !out.failed)
        copy = ol_arena_copy(arena, out.data ? out.data : "", out.bytes);
    ol_buf_clear(&out);
    return copy;
}

int ol_config_entry_add(struct ol_config_entries *entries, enum ol_config_kind kind,
                        const char *name, const struct ol_json *value, const char *pointer,
                        outlog_err *err)
{
    struct ol_config_entry *entry = ol_arena_alloc(entries->arena, sizeof *entry);
    if (!entry || !name)
        return ol_no_memory(err);
    entry->kind = kind;
    entry->name = name;
    entry->pointer = pointer;
    entry->text = ol_config_entry_canonical(entries->arena, value);
    entry->source = ol_arena_copy(entries->arena, value->text, value->bytes);
    if (!entry->text || !entry->source)
        return ol_no_memory(err);
    *entries->end = entry;
    entries->end = &entry->next;
    return 0;
}

struct ol_config_entry *ol_config_entry_find(const struct ol_config_entries *entries,
                                             enum ol_config_kind kind, const char *name)
{
    for (struct ol_config_entry *i = entries->first; i; i = i->next)
        if (i->kind == kind && strcmp(i->name, name) == 0)
            return i;
    return NULL;
}

/* --- errors --- */

int ol_config_entry_deepen(outlog_err *err, const char *pointer, const char *what)
{
    ol_err_point_below(err, pointer);
    if (what)
        ol_err_prefix(err, "%s", what);
    return -1;
}

int ol_config_entry_refuse(outlog_err *err, const char *pointer, const char *key,
                           const char *wanted)
{
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s: %s", key, wanted);
}

/* --- entries of the store --- */

static int add_stored(struct ol_config_entries *entries, enum ol_config_kind kind, const char *name,
                      const char *text, bool is_fixed, outlog_err *err)
{
    struct ol_json value;
    if (!name || !text)
        return ol_no_memory(err);
    if (ol_json_parse(text, strlen(text), &value, err) < 0 ||
        ol_config_entry_add(entries, kind, name, &value, "", err) < 0)
        return -1;
    ol_config_entry_find(entries, kind, name)->is_fixed = is_fixed;
    return 0;
}

/* A stored event type as it would be in the file. */
static const char *make_type_json(const struct ol_rows *rows, struct ol_arena *arena)
{
    static const char *const keys[] = {"aggregate_type", "shape", "upcast", "about"};
    struct ol_buf out = {0};
    ol_buf_print(&out, "{\"version\":%lld", (long long)ol_rows_int(rows, 1));
    for (int i = 0; i < 4; i++) {
        const char *text = ol_rows_text(rows, 2 + i, NULL);
        if (!text)
            continue;
        ol_buf_print(&out, ",\"%s\":", keys[i]);
        bool is_json = i == 1 || i == 2;
        size_t bytes;
        text = ol_rows_text(rows, 2 + i, &bytes);
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

static int load_row(struct ol_config_entries *entries, enum ol_config_kind kind,
                    const struct ol_rows *rows, outlog_err *err)
{
    static const int value_column[OL_CONFIG_COUNT] =
        {[OL_CONFIG_DESTINATION] = 1, [OL_CONFIG_ROUTE] = 8,    [OL_CONFIG_SETTING] = 1,
         [OL_CONFIG_PROJECTION] = 1,  [OL_CONFIG_TEMPLATE] = 1, [OL_CONFIG_RULE] = 1};
    bool failed = false;
    const char *name = ol_rows_copy(rows, 0, entries->arena, &failed);
    const char *text = kind == OL_CONFIG_STRICT_ORG ? "true"
                       : kind == OL_CONFIG_EVENT_TYPE
                           ? make_type_json(rows, entries->arena)
                           : ol_rows_copy(rows, value_column[kind], entries->arena, &failed);
    return add_stored(entries, kind, name, text,
                      kind == OL_CONFIG_EVENT_TYPE && ol_rows_int(rows, 6), err);
}

int ol_config_entries_load(struct ol_conn *conn, struct ol_config_entries *entries, outlog_err *err)
{
    static const enum ol_query_id list_queries[OL_CONFIG_COUNT] =
        {OL_Q_DESTINATION_LIST, OL_Q_ROUTE_LIST,   OL_Q_EVENT_TYPE_LIST,
         OL_Q_STRICT_ORG_LIST,  OL_Q_SETTING_LIST, OL_Q_PROJECTION_DECLARED,
         OL_Q_TEMPLATE_LIST,    OL_Q_RULE_LIST};
    for (int kind = 0; kind < OL_CONFIG_COUNT; kind++) {
        struct ol_rows rows;
        int more;
        if (ol_store_query(conn, list_queries[kind], OL_NO_PARAMS, &rows, err) < 0)
            return -1;
        while ((more = ol_rows_next(&rows, err)) > 0)
            if (load_row(entries, (enum ol_config_kind)kind, &rows, err) < 0) {
                more = -1;
                break;
            }
        ol_rows_end(&rows);
        if (more < 0)
            return -1;
    }
    return 0;
}
