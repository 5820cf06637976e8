/* sql_template.h: a user's statement, with parameters that name values of an event:
 *
 *     insert into totals values (:aggregate_id, :payload.total)
 *
 * A name is a field of the event (:event_id, :org_id …), or a path into its payload or metadata
 * (:payload.customer.country, :payload.items.0.sku). The values are bound as parameters, never
 * pasted into the text. */
#ifndef OL_LOG_SQL_TEMPLATE_H
#define OL_LOG_SQL_TEMPLATE_H

#include "base/json/json.h"
#include "store/store.h"

struct ol_sql_template_param {
    int field;           /* of the event */
    const char *pointer; /* JSON pointer into payload or metadata; NULL: the field itself */
};

struct ol_sql_template {
    const char *source;
    const char **texts; /* param_count + 1 pieces of SQL */
    struct ol_sql_template_param *params;
    int param_count;
};

/* Read a statement; everything lives in `arena`.
 *
 * OUTLOG_INVALID_FIELD: an unknown name, more than one statement, or one that is not allowed: it
 * must begin with insert, update, delete, merge, replace, with or select. */
int ol_sql_template_read(const char *sql, struct ol_arena *arena, struct ol_sql_template *out,
                         outlog_err *err);

/* Fill in `values`, param_count of them, for one event. Text points into the event or into `arena`.
 * A path that does not exist gives null.
 *
 * With `has_types` all values are text, for a store that casts them (a JSON value stays JSON where
 * wants_json is set). Without, numbers stay numbers, and true and false become 1 and 0. */
int ol_sql_template_values(const struct ol_sql_template *template, const struct outlog_event *event,
                           const bool *wants_json, bool has_types, struct ol_arena *arena,
                           struct ol_value *values, outlog_err *err);

#endif
