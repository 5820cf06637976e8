/* projection_c.c: a projection in C, for test_projections.py: counts orders and adds up their
 * totals in a table of its own.
 *
 *     projection_c URL VERSION      apply everything, print how many events
 *
 * A payload {"fail": …} cannot be applied. */
#include <libpq-fe.h>
#include <outlog.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run(outlog_tx *tx, const char *sql, outlog_err *err)
{
    struct sqlite3 *db = outlog_tx_sqlite(tx);
    bool ok;
    if (db) {
        ok = sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
    } else {
        PGresult *result = PQexec(outlog_tx_postgres(tx), sql);
        ok = PQresultStatus(result) == PGRES_COMMAND_OK;
        PQclear(result);
    }
    if (!ok)
        snprintf(err->message, sizeof err->message, "cannot run %s", sql);
    err->code = ok ? OUTLOG_OK : OUTLOG_STORE_ERROR;
    return ok ? 0 : -1;
}

static int begin(void *user, outlog_tx *tx, outlog_err *err)
{
    (void)user;
    return run(tx, "create table if not exists counted (n bigint, total bigint)", err) < 0 ||
                   run(tx, "delete from counted", err) < 0 ||
                   run(tx, "insert into counted values (0, 0)", err) < 0
               ? -1
               : 0;
}

static int apply(void *user, outlog_tx *tx, const struct outlog_event *events, size_t count,
                 outlog_err *err)
{
    char sql[200];
    long long n = 0, total = 0;
    (void)user;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(events[i].event_type, "order.created") != 0)
            continue;
        if (strstr(events[i].payload, "\"fail\"")) {
            err->code = OUTLOG_INVALID_FIELD;
            err->index = (int)i;
            snprintf(err->message, sizeof err->message, "this one cannot be applied");
            return -1;
        }
        const char *at = strstr(events[i].payload, "\"total\":");
        total += at ? atoll(at + strlen("\"total\":")) : 0;
        n++;
    }
    snprintf(sql, sizeof sql, "update counted set n = n + %lld, total = total + %lld", n, total);
    return run(tx, sql, err);
}

int main(int argc, char **argv)
{
    struct outlog_project project = {.name = "counted",
                                     .version = argc > 2 ? atoi(argv[2]) : 1,
                                     .begin = begin,
                                     .apply = apply};
    outlog *log = NULL;
    outlog_err err;
    size_t applied, sum = 0;

    if (argc < 2 || outlog_open(argv[1], &log, &err) < 0)
        return 2;
    do {
        if (outlog_project(log, &project, 25, 0, &applied, &err) < 0) {
            fprintf(stderr, "%s [%s]\n", err.message, outlog_code_name(err.code));
            outlog_close(log);
            return 1;
        }
        sum += applied;
    } while (applied > 0);
    printf("%zu\n", sum);
    outlog_close(log);
    return 0;
}
