/* entry.h: one thing that outlog.yaml or the store says: a noun, a name and a value.
 *
 * Values are kept in normal form, so that equal texts are the same thing. */
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

/* As people say them. */
extern const char *const ol_nouns[OL_CONFIG_COUNT];

struct ol_config_entry {
    struct ol_config_entry *next;
    enum ol_config_kind noun;
    const char *name;
    const char *text;    /* normal form */
    const char *source;  /* as written */
    const char *pointer; /* where it stands, for errors */
    bool is_fixed;       /* ships with outlog: never pruned */
    bool is_implied;     /* only where nothing else is said of it */
};

/* In the order they were added. Start from {.end = &clauses.first, .arena = arena}. */
struct ol_config_entries {
    struct ol_config_entry *first, **end;
    struct ol_arena *arena;
    bool wants_feed; /* a rule writes to the app's own feed */
};

/* `name` and `pointer` are kept as they are. A `name` of NULL means that memory was out. */
int ol_config_entry_add(struct ol_config_entries *clauses, enum ol_config_kind noun,
                        const char *name, const struct ol_json *value, const char *pointer,
                        outlog_err *err);

struct ol_config_entry *ol_config_entry_find(const struct ol_config_entries *clauses,
                                             enum ol_config_kind noun, const char *name);

/* A value in normal form; NULL when memory is out. */
const char *ol_config_entry_canonical(struct ol_arena *arena, const struct ol_json *value);

/* Everything that the store says. */
int ol_config_entries_load(struct ol_conn *conn, struct ol_config_entries *clauses,
                           outlog_err *err);

/* An error inside a value, seen from outside: its pointer grows at the front. `what` may be NULL.
 */
int ol_config_entry_deepen(outlog_err *err, const char *pointer, const char *what);

/* OUTLOG_INVALID_FIELD: "key: wanted". */
int ol_config_entry_refuse(outlog_err *err, const char *pointer, const char *key,
                           const char *wanted);

#endif
