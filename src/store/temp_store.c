/* temp_store.c: see temp_store.h. */
#include "store/temp_store.h"

#include "base/uuid.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char suffixes[][8] = {"", "-wal", "-shm"};

/* The same URL with another database: the path of a libpq URL is the database's name. */
static int with_database(const char *url, const char *name, char *out, size_t room)
{
    const char *host = strstr(url, "://") + 3;
    const char *path = strchr(host, '/'), *query = strchr(host, '?');
    const char *end = url + strlen(url);
    if (!query)
        query = end;
    if (!path || path > query)
        path = query;
    return snprintf(out, room, "%.*s/%s%s", (int)(path - url), url, name, query) < (int)room ? 0
                                                                                             : -1;
}

static int run_alone(const char *url, const char *verb, const char *name, const char *how,
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

int ol_temp_store_open(const char *url, struct ol_temp_store *scratch, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    *scratch = (struct ol_temp_store){0};
    ol_uuid_make(id);
    if (strncmp(url, "sqlite:", 7) == 0) {
        if (snprintf(scratch->url, sizeof scratch->url, "%s.bench-%.8s", url, id + 28) >=
            (int)sizeof scratch->url)
            return ol_fail(err, OUTLOG_INVALID_FIELD, "the store's path is too long");
        return 0;
    }
    if (strncmp(url, "postgres", 8) != 0 || !strstr(url, "://"))
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "store %.40s is neither sqlite: nor postgres:", url);
    snprintf(scratch->name, sizeof scratch->name, "outlog_bench_%.8s", id + 28);
    if (snprintf(scratch->home, sizeof scratch->home, "%s", url) >= (int)sizeof scratch->home ||
        with_database(url, scratch->name, scratch->url, sizeof scratch->url) < 0)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "the store's URL is too long");
    return run_alone(url, "create", scratch->name, "", err);
}

int ol_temp_store_close(struct ol_temp_store *scratch, outlog_err *err)
{
    char path[sizeof scratch->url + 8];
    if (scratch->name[0])
        return run_alone(scratch->home, "drop", scratch->name, " with (force)", err);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(path, sizeof path, "%s%s", scratch->url + strlen("sqlite:"), suffixes[i]);
        unlink(path);
    }
    return 0;
}
