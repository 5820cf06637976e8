/* temp_store.h: an empty store beside a given one, for benchmarks. */
#ifndef OL_STORE_TEMP_STORE_H
#define OL_STORE_TEMP_STORE_H

#include "base/err.h"

struct ol_temp_store {
    char url[2048];
    char home[2048]; /* PostgreSQL: the given URL, to drop the database through */
    char name[64];   /* PostgreSQL: the database */
};

/* An empty store: a file beside a SQLite store, a database on the same PostgreSQL server. */
int ol_temp_store_open(const char *url, struct ol_temp_store *temp, outlog_err *err);
int ol_temp_store_close(struct ol_temp_store *temp, outlog_err *err);

#endif
