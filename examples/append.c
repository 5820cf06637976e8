/* append.c: an event and a row of your own in one transaction.
 *
 *     cc -o append append.c $(pkg-config --cflags --libs outlog sqlite3 libpq)
 *     ./append sqlite:app.db
 *     ./append postgres://localhost/app
 *
 * Two ways: a transaction of the library, and one that you began on your own connection. */
#include <libpq-fe.h>
#include <outlog.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char create[] = "create table if not exists orders (id text, total int)";
static const char insert[] = "insert into orders values ('o-1', 12)";

static const struct outlog_new_event order_created = {.org_id = "acme",
                                                      .aggregate_type = "order",
                                                      .aggregate_id = "o-1",
                                                      .event_type = "order.created",
                                                      .payload = "{\"total\":12}"};

static void exit_on_error(int result, const outlog_err *err)
{
    if (result == 0)
        return;
    fprintf(stderr, "append: %s [%s]\n", err->message, outlog_code_name(err->code));
    exit(1);
}

static void print_appended(const char *how, const struct outlog_appended *done)
{
    printf("%s: event %lld, seq %lld\n", how, (long long)done->event_id,
           (long long)done->aggregate_seq);
}

/* 1. The library's own connection. */
static void append_own(outlog *log)
{
    struct outlog_appended done;
    outlog_tx *tx;
    outlog_err err;

    exit_on_error(outlog_begin(log, &tx, &err), &err);
    exit_on_error(outlog_append(tx, &order_created, &done, &err), &err);
    if (outlog_commit(tx, &err) < 0 && err.code == OUTLOG_OUTCOME_UNKNOWN) {
        bool stored; /* the commit may have happened: ask the log */
        exit_on_error(outlog_resolve(log, done.id, &stored, &done, &err), &err);
        printf("the reply to the commit was lost; the event is %s\n",
               stored ? "stored" : "not stored");
        return;
    }
    print_appended("own transaction", &done);
}

/* 2. Your connection, your transaction: the library joins it and never ends it. */
static void append_sqlite(const char *path, const char *end)
{
    struct outlog_appended done;
    outlog_tx *tx;
    outlog_err err;
    sqlite3 *db;

    if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_busy_timeout(db, 10000) != SQLITE_OK ||
        sqlite3_exec(db, create, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, "begin immediate", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, insert, NULL, NULL, NULL) != SQLITE_OK)
        exit(1);
    exit_on_error(outlog_join_sqlite(db, &tx, &err), &err);
    exit_on_error(outlog_append(tx, &order_created, &done, &err), &err);
    outlog_leave(tx);
    if (sqlite3_exec(db, end, NULL, NULL, NULL) != SQLITE_OK)
        exit(1);
    print_appended(end, &done);
    sqlite3_close(db);
}

static void append_postgres(const char *url, const char *end)
{
    struct outlog_appended done;
    outlog_tx *tx;
    outlog_err err;
    PGconn *pg = PQconnectdb(url);

    PQclear(PQexec(pg, "set client_min_messages = warning"));
    PQclear(PQexec(pg, create));
    PQclear(PQexec(pg, "begin"));
    PQclear(PQexec(pg, insert));
    exit_on_error(outlog_join_postgres(pg, &tx, &err), &err);
    exit_on_error(outlog_append(tx, &order_created, &done, &err), &err);
    outlog_leave(tx);
    PQclear(PQexec(pg, end));
    print_appended(end, &done);
    PQfinish(pg);
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "sqlite:app.db";
    outlog *log;
    outlog_err err;

    exit_on_error(outlog_open(url, &log, &err), &err);
    exit_on_error(outlog_init(log, NULL, NULL, &err), &err);
    append_own(log);
    outlog_close(log);
    for (int i = 0; i < 2; i++) {
        const char *end = i == 0 ? "rollback" : "commit"; /* the first leaves no trace */
        if (strncmp(url, "sqlite:", 7) == 0)
            append_sqlite(url + 7, end);
        else
            append_postgres(url, end);
    }
    return 0;
}
