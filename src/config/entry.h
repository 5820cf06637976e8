/* entry.h: one entry of the configuration, in outlog.yaml or in the store: a kind, a name and a
 * value.
 *
 * Values are kept in canonical form, so that equal values have equal texts. */
#ifndef OL_CONFIG_ENTRY_H
#define OL_CONFIG_ENTRY_H

#include "base/arena.h"
#include "base/json/json.h"
#include "store/store.h"

enum ol_config_kind {
    OL_CONFIG_DESTINATION,
    OL_CONFIG_ROUTE,
    OL_CONFIG_EVENT_TYPE,
    OL_CONFIG_STRICT_ORG,
    OL_CONFIG_SETTING,
    OL_CONFIG_PROJECTION,
    OL_CONFIG_TEMPLATE,
    OL_CONFIG_RULE,
    OL_CONFIG_COUNT
};

/* As people and audit events name them. */
extern const char *const ol_config_kind_names[OL_CONFIG_COUNT];

struct ol_config_entry {
    struct ol_config_entry *next;
    enum ol_config_kind kind;
    const char *name;
    const char *text;    /* canonical form */
    const char *source;  /* as written */
    const char *pointer; /* its position in the document, for errors */
    bool is_fixed;       /* ships with outlog: never pruned */
    bool is_implied;     /* only used if the store has no such entry */
};

/* In the order they were added. Start from {.end = &entries.first, .arena = arena}. */
struct ol_config_entries {
    struct ol_config_entry *first, **end;
    struct ol_arena *arena;
    bool wants_feed; /* a rule writes to the app's own feed */
};

/* `name` and `pointer` are kept as they are. A `name` of NULL means that memory was out. */
int ol_config_entry_add(struct ol_config_entries *entries, enum ol_config_kind kind,
                        const char *name, const struct ol_json *value, const char *pointer,
                        outlog_err *err);

struct ol_config_entry *ol_config_entry_find(const struct ol_config_entries *entries,
                                             enum ol_config_kind kind, const char *name);

/* A value in canonical form; NULL when memory is out. */
const char *ol_config_entry_canonical(struct ol_arena *arena, const struct ol_json *value);

/* Load all entries of the store. */
int ol_config_entries_load(struct ol_conn *conn, struct ol_config_entries *entries,
                           outlog_err *err);

/* Prepend `pointer` to the pointer of an error inside a value, and `what` (may be NULL) to its
 * message. */
int ol_config_entry_deepen(outlog_err *err, const char *pointer, const char *what);

/* OUTLOG_INVALID_FIELD: "key: wanted". */
int ol_config_entry_refuse(outlog_err *err, const char *pointer, const char *key,
                           const char *wanted);

#endif
