/* tables.h: the tables that an export contains beside the log, described once for both directions.
 */
#ifndef OL_EXPORT_TABLES_H
#define OL_EXPORT_TABLES_H

#include "base/json/json.h"
#include "store/store.h"

enum { OL_EXPORT_COLUMNS_MAX = 24, OL_EXPORT_KEYS_MAX = 4 };

struct ol_export_table {
    const char *name; /* the member of its lines */
    enum ol_query_id list, put;
    int keys; /* the first columns are the key that pages continue after: how many */

    /* Instead of `put`, where importing a row means to compile its source for the store. */
    int (*make)(struct ol_conn *conn, const char *name, const char *source, struct ol_arena *arena,
                outlog_err *err);

    /* t: text, i: number, T: time; k: a key that is not exported, as the new store has its own. */
    struct {
        const char *name;
        char kind;
    } columns[OL_EXPORT_COLUMNS_MAX];
};

/* The tables in the order in which they are written and read; NULL after the last one. */
const struct ol_export_table *ol_export_table_at(size_t number);

/* The table with this name, or NULL. */
const struct ol_export_table *ol_export_table_named(const struct ol_json *name);

#endif
