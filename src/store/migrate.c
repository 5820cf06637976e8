/* migrate.c: numbered migrations, forward only. */
#include "store/migrate.h"

#include "base/fault.h"

int ol_migrate_latest(const struct ol_store *store)
{
    int latest = 0;
    for (const struct ol_migration *m = store->migrations; m->version; m++)
        latest = m->version;
    return latest;
}

int ol_migrate_version(struct ol_conn *conn, int *out, outlog_err *err)
{
    outlog_err why;
    int64_t version = 0;
    if (ol_store_number(conn, OL_Q_SCHEMA_VERSION, OL_NO_PARAMS, &version, &why) < 0 &&
        why.code != OUTLOG_NO_SCHEMA) {
        if (err)
            *err = why;
        return -1;
    }
    *out = (int)version;
    return 0;
}

static int refuse_newer(const struct ol_conn *conn, int version, outlog_err *err)
{
    return ol_fail(
        err, OUTLOG_NEWER_SCHEMA,
        "%s has schema version %d, this outlog knows %d; use a newer outlog (nothing was "
        "touched)",
        conn->name, version, ol_migrate_latest(conn->store));
}

int ol_migrate_check(struct ol_conn *conn, outlog_err *err)
{
    int version, latest = ol_migrate_latest(conn->store);
    if (ol_migrate_version(conn, &version, err) < 0)
        return -1;
    if (version == 0)
        return ol_fail(err, OUTLOG_NO_SCHEMA, "%s has no outlog schema; run `outlog init` first",
                       conn->name);
    if (version > latest)
        return refuse_newer(conn, version, err);
    if (version < latest)
        return ol_fail(err, OUTLOG_NO_SCHEMA,
                       "%s has schema version %d, this outlog needs %d; run `outlog init`",
                       conn->name, version, latest);
    return 0;
}

/* In one transaction: the bootstrap, and the first migration that is not applied yet. */
static int apply_next(struct ol_conn *conn, int *version, outlog_err *err)
{
    const struct ol_store *store = conn->store;

    if (store->begin(conn, err) < 0)
        return -1;
    if (store->script(conn, store->bootstrap, err) < 0 ||
        ol_migrate_version(conn, version, err) < 0)
        goto failed;
    if (*version > ol_migrate_latest(store)) {
        refuse_newer(conn, *version, err);
        goto failed;
    }
    for (const struct ol_migration *m = store->migrations; m->version; m++) {
        if (m->version <= *version)
            continue;
        ol_fault("migrate.step");
        if (store->script(conn, m->sql, err) < 0 ||
            ol_store_exec(conn, OL_Q_SCHEMA_APPLIED,
                          OL_PARAMS(ol_value_int(m->version), ol_value_text(m->name)), NULL,
                          err) < 0) {
            ol_err_prefix(err, "migration %04d_%s", m->version, m->name);
            goto failed;
        }
        *version = m->version;
        break;
    }
    return store->commit(conn, err);
failed:
    store->rollback(conn);
    return -1;
}

int ol_migrate(struct ol_conn *conn, int *from, int *to, outlog_err *err)
{
    int latest = ol_migrate_latest(conn->store);
    if (ol_migrate_version(conn, from, err) < 0)
        return -1;
    *to = *from;
    if (*from > latest)
        return refuse_newer(conn, *from, err);
    while (*to < latest)
        if (apply_next(conn, to, err) < 0)
            return -1;
    return 0;
}
