/* temp_store.c: a file beside a SQLite store, a database on the same PostgreSQL server. */
#include "store/temp_store.h"

#include "base/uuid.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char suffixes[][8] = {"", "-wal", "-shm"};

/* The same URL with another database: the path of a libpq URL is the database's name. */
static int with_database(const char *url, const char *name, char *out, size_t size)
{
    const char *host = strstr(url, "://") + 3;
    const char *path = strchr(host, '/'), *query = strchr(host, '?');
    const char *end = url + strlen(url);
    if (!query)
        query = end;
    if (!path || path > query)
        path = query;
    return snprintf(out, size, "%.*s/%s%s", (int)(path - url), url, name, query) < (int)size ? 0
                                                                                             : -1;
}

static int run_command(const char *url, const char *verb, const char *name, const char *how,
                       outlog_err *err)
{
    struct ol_conn *conn;
    char sql[160];
    if (ol_store_open(url, &conn, err) < 0)
        return -1;
    snprintf(sql, sizeof sql, "%s database %s%s", verb, name, how);
    int result = conn->store->script(conn, sql, err);
    ol_store_close(conn);
    return result;
}

int ol_temp_store_open(const char *url, struct ol_temp_store *temp, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    *temp = (struct ol_temp_store){0};
    ol_uuid_make(id);
    if (strncmp(url, "sqlite:", 7) == 0) {
        if (snprintf(temp->url, sizeof temp->url, "%s.bench-%.8s", url, id + 28) >=
            (int)sizeof temp->url)
            return ol_fail(err, OUTLOG_INVALID_FIELD, "the store's path is too long");
        return 0;
    }
    if (strncmp(url, "postgres", 8) != 0 || !strstr(url, "://"))
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "store %.40s is neither sqlite: nor postgres:", url);
    snprintf(temp->name, sizeof temp->name, "outlog_bench_%.8s", id + 28);
    if (snprintf(temp->home, sizeof temp->home, "%s", url) >= (int)sizeof temp->home ||
        with_database(url, temp->name, temp->url, sizeof temp->url) < 0)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "the store's URL is too long");
    return run_command(url, "create", temp->name, "", err);
}

int ol_temp_store_close(struct ol_temp_store *temp, outlog_err *err)
{
    char path[sizeof temp->url + 8];
    if (temp->name[0])
        return run_command(temp->home, "drop", temp->name, " with (force)", err);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(path, sizeof path, "%s%s", temp->url + strlen("sqlite:"), suffixes[i]);
        unlink(path);
    }
    return 0;
}
