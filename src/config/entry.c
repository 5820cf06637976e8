/* entry.c: see entry.h. */
#include "config/entry.h"

#include <stdio.h>
#include <string.h>

const char *const ol_nouns[OL_CONFIG_COUNT] = {"destination", "route",   "event_type",
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

int ol_config_entry_add(struct ol_config_entries *clauses, enum ol_config_kind noun,
                        const char *name, const struct ol_json *value, const char *pointer,
                        outlog_err *err)
{
    struct ol_config_entry *clause = ol_arena_alloc(clauses->arena, sizeof *clause);
    if (!clause || !name)
        return ol_no_memory(err);
    clause->noun = noun;
    clause->name = name;
    clause->pointer = pointer;
    clause->text = ol_config_entry_canonical(clauses->arena, value);
    clause->source = ol_arena_copy(clauses->arena, value->text, value->bytes);
    if (!clause->text || !clause->source)
        return ol_no_memory(err);
    *clauses->end = clause;
    clauses->end = &clause->next;
    return 0;
}

struct ol_config_entry *ol_config_entry_find(const struct ol_config_entries *clauses,
                                             enum ol_config_kind noun, const char *name)
{
    for (struct ol_config_entry *i = clauses->first; i; i = i->next)
        if (i->noun == noun && strcmp(i->name, name) == 0)
            return i;
    return NULL;
}

/* --- errors --- */

int ol_config_entry_deepen(outlog_err *err, const char *pointer, const char *what)
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

int ol_config_entry_refuse(outlog_err *err, const char *pointer, const char *key,
                           const char *wanted)
{
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s: %s", key, wanted);
}

/* --- what the store says --- */

static int add_stored(struct ol_config_entries *clauses, enum ol_config_kind noun, const char *name,
                      const char *text, bool is_fixed, outlog_err *err)
{
    struct ol_json value;
    if (!name || !text)
        return ol_no_memory(err);
    if (ol_json_parse(text, strlen(text), &value, err) < 0 ||
        ol_config_entry_add(clauses, noun, name, &value, "", err) < 0)
        return -1;
    ol_config_entry_find(clauses, noun, name)->is_fixed = is_fixed;
    return 0;
}

/* A stored event type as the file would say it. */
static const char *type_json(const struct ol_rows *rows, struct ol_arena *arena)
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

static int load_row(struct ol_config_entries *clauses, enum ol_config_kind noun,
                    const struct ol_rows *rows, outlog_err *err)
{
    static const int value_column[OL_CONFIG_COUNT] =
        {[OL_CONFIG_DESTINATION] = 1, [OL_CONFIG_ROUTE] = 8,    [OL_CONFIG_SETTING] = 1,
         [OL_CONFIG_PROJECTION] = 1,  [OL_CONFIG_TEMPLATE] = 1, [OL_CONFIG_RULE] = 1};
    bool failed = false;
    const char *name = ol_rows_copy(rows, 0, clauses->arena, &failed);
    const char *text = noun == OL_CONFIG_STRICT_ORG ? "true"
                       : noun == OL_CONFIG_EVENT_TYPE
                           ? type_json(rows, clauses->arena)
                           : ol_rows_copy(rows, value_column[noun], clauses->arena, &failed);
    return add_stored(clauses, noun, name, text,
                      noun == OL_CONFIG_EVENT_TYPE && ol_rows_int(rows, 6), err);
}

int ol_config_entries_load(struct ol_conn *conn, struct ol_config_entries *clauses, outlog_err *err)
{
    static const enum ol_query_id queries[OL_CONFIG_COUNT] =
        {OL_Q_DESTINATION_LIST, OL_Q_ROUTE_LIST,   OL_Q_EVENT_TYPE_LIST,
         OL_Q_STRICT_ORG_LIST,  OL_Q_SETTING_LIST, OL_Q_PROJECTION_DECLARED,
         OL_Q_TEMPLATE_LIST,    OL_Q_RULE_LIST};
    for (int noun = 0; noun < OL_CONFIG_COUNT; noun++) {
        struct ol_rows rows;
        int more;
        if (ol_store_query(conn, queries[noun], OL_NO_PARAMS, &rows, err) < 0)
            return -1;
        while ((more = ol_rows_next(&rows, err)) > 0)
            if (load_row(clauses, (enum ol_config_kind)noun, &rows, err) < 0) {
                more = -1;
                break;
            }
        ol_rows_end(&rows);
        if (more < 0)
            return -1;
    }
    return 0;
}
