/* temp_store.h: a store of one's own beside a given one, to measure in. */
#ifndef OL_STORE_TEMP_STORE_H
#define OL_STORE_TEMP_STORE_H

#include "base/err.h"

struct ol_temp_store {
    char url[2048];
    char home[2048]; /* PostgreSQL: where to go to drop it again */
    char name[64];   /* PostgreSQL: the database */
};

/* An empty store: a file beside a SQLite store, a database on the same PostgreSQL server. */
int ol_temp_store_open(const char *url, struct ol_temp_store *scratch, outlog_err *err);
int ol_temp_store_close(struct ol_temp_store *scratch, outlog_err *err);

#endif
