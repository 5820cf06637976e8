/* migrate.h: bringing a store's schema up to this version. */
#ifndef OL_STORE_MIGRATE_H
#define OL_STORE_MIGRATE_H

#include "store/store.h"

/* The schema version this build knows. */
int ol_migrate_latest(const struct ol_store *store);

/* The schema version the store has; 0 without a schema. */
int ol_migrate_version(struct ol_conn *conn, int *out, outlog_err *err);

/* OUTLOG_NO_SCHEMA or OUTLOG_NEWER_SCHEMA unless the store can be used as it is. */
int ol_migrate_check(struct ol_conn *conn, outlog_err *err);

/* Apply the missing migrations, each in a transaction of its own: after an interruption the next
 * call continues where it stopped. Several processes may do this at once. */
int ol_migrate(struct ol_conn *conn, int *from, int *to, outlog_err *err);

#endif
