/* clause.h: one thing that outlog.yaml or the store says: a noun, a name and a value.
 *
 * Values are kept in normal form, so that equal texts are the same thing. */
#ifndef OL_RELAY_CLAUSE_H
#define OL_RELAY_CLAUSE_H

#include "base/arena.h"
#include "base/json.h"
#include "store/store.h"

enum ol_noun {
    OL_NOUN_DESTINATION,
    OL_NOUN_ROUTE,
    OL_NOUN_EVENT_TYPE,
    OL_NOUN_STRICT_ORG,
    OL_NOUN_SETTING,
    OL_NOUN_PROJECTION,
    OL_NOUN_TEMPLATE,
    OL_NOUN_RULE,
    OL_NOUN_COUNT
};

/* As people say them. */
extern const char *const ol_nouns[OL_NOUN_COUNT];

struct ol_clause {
    struct ol_clause *next;
    enum ol_noun noun;
    const char *name;
    const char *text;    /* normal form */
    const char *source;  /* as written */
    const char *pointer; /* where it stands, for errors */
    bool is_fixed;       /* ships with outlog: never pruned */
    bool is_implied;     /* only where nothing else is said of it */
};

/* In the order they were added. Start from {.end = &clauses.first, .arena = arena}. */
struct ol_clauses {
    struct ol_clause *first, **end;
    struct ol_arena *arena;
    bool wants_feed; /* a rule writes to the app's own feed */
};

/* `name` and `pointer` are kept as they are. A `name` of NULL means that memory was out. */
int ol_clause_add(struct ol_clauses *clauses, enum ol_noun noun, const char *name,
                  const struct ol_json *value, const char *pointer, outlog_err *err);

struct ol_clause *ol_clause_find(const struct ol_clauses *clauses, enum ol_noun noun,
                                 const char *name);

/* A value in normal form; NULL when memory is out. */
const char *ol_clause_normal(struct ol_arena *arena, const struct ol_json *value);

/* Everything that the store says. */
int ol_clauses_load(struct ol_conn *conn, struct ol_clauses *clauses, outlog_err *err);

/* An error inside a value, seen from outside: its pointer grows at the front. `what` may be NULL. */
int ol_clause_deepen(outlog_err *err, const char *pointer, const char *what);

/* OUTLOG_INVALID_FIELD: "key: wanted". */
int ol_clause_wrong(outlog_err *err, const char *pointer, const char *key, const char *wanted);

#endif
