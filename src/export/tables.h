/* tables.h: what stands beside the log and moves with it: one entry a table, for both directions.
 */
#ifndef OL_EXPORT_TABLES_H
#define OL_EXPORT_TABLES_H

#include "base/json/json.h"
#include "store/store.h"

enum { OL_EXPORT_COLUMNS_MAX = 24, OL_EXPORT_KEYS_MAX = 4 };

struct ol_export_table {
    const char *name; /* of its lines */
    enum ol_query_id list, put;
    int keys; /* so many of the first columns are the key that pages go by */

    /* Instead of `put`, for what each store says in its own words: a name, and the source of it. */
    int (*make)(struct ol_conn *conn, const char *name, const char *source, struct ol_arena *arena,
                outlog_err *err);

    /* t: text, i: number, T: time; k: only a key, which is another on the other side. */
    struct {
        const char *name;
        char kind;
    } columns[OL_EXPORT_COLUMNS_MAX];
};

/* In the order in which they are written and read; NULL for a number past the last one. */
const struct ol_export_table *ol_export_table_at(size_t number);
const struct ol_export_table *ol_export_table_named(const struct ol_json *name);

#endif
