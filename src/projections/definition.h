/* definition.h: the definition of a projection: its tables, the SQL that creates them, and the SQL
 * that each event runs.
 *
 *     {"version": 1, "tables": ["totals"], "create": SQL,
 *      "on": {"order.created": SQL, "order.created@1": [SQL, SQL]}}
 *
 * TYPE@VERSION gets events of that version as they are stored. TYPE alone gets all others, upcast
 * to the current version (upcast.h). */
#ifndef OL_PROJECTIONS_DEFINITION_H
#define OL_PROJECTIONS_DEFINITION_H

#include "log/sql_template.h"

enum { OL_PROJECTION_NAME = 64 };

/* The statements for one type of event: `count` templates from `first`. */
struct ol_projection_handler {
    const char *event_type;
    int event_version; /* 0: any */
    int first, count;
};

struct ol_projection {
    const char *name;
    int version;
    const char **tables;
    size_t table_count;
    const char *tables_json;
    const char *create; /* one or more statements; "" for none */
    struct ol_projection_handler *handlers;
    size_t handler_count;
    struct ol_sql_template *templates;
    size_t template_count;
    uint32_t fields;    /* a bit for each event field that the templates name (event_fields.h) */
    const char *source; /* the JSON it was read from */
};

/* Read and check a definition; everything lives in `arena`.
 * OUTLOG_UNKNOWN_FIELD, OUTLOG_INVALID_FIELD: err->pointer names the place. */
int ol_projection_read(const char *name, const struct ol_json *definition, struct ol_arena *arena,
                       struct ol_projection *out, outlog_err *err);

/* The handler of an event; NULL for none. *is_typed (may be NULL): some version of its type has a
 * handler. */
const struct ol_projection_handler *ol_projection_find(const struct ol_projection *projection,
                                                       const char *event_type, int event_version,
                                                       bool *is_typed);

/* Store a definition, and request its rebuild from any projector: a new name fills its tables from
 * the first event, a higher version fills shadow tables.
 * OUTLOG_INVALID_FIELD: it differs from the live one, under the same version or a lower one. */
int ol_projection_put(struct ol_conn *conn, const char *name, const char *definition,
                      outlog_err *err);

/* Delete a projection. Its tables stay: they are the user's. */
int ol_projection_delete(struct ol_conn *conn, const char *name, outlog_err *err);

#endif
