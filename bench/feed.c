/* notification_sockets.c: reading the whole log, once.
 *
 *     bench_feed outlog URL      outlog_read() in pages of 1000
 *     bench_feed follow URL      outlog_follow() in pages of 1000, until nothing comes
 *     bench_feed copy URL        binary COPY of the same columns, consumed by libpq (PostgreSQL)
 *     bench_feed rows URL        the same rows by a prepared SELECT, stepped through (SQLite)
 *     bench_feed fill URL EVENTS append that many events, for the others to read
 *
 * Prints how many events came, how fast, and the highest resident memory of the process: a reader's
 * memory must not depend on how long the log is. */
#include "bench.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

enum { PAGE = 1000 };

/* The columns that outlog_read() brings, in its order. */
#define COLUMNS                                                                       \
    "event_id, id, causation_id, occurred_at, org_id, aggregate_type, aggregate_id, " \
    "aggregate_seq, event_type, event_version, actor_type, actor_id, request_id, "    \
    "idempotency_key, correlation_id, app_id, env_id, visibility, metadata, payload"

struct tally {
    int64_t events, bytes;
    double begun; /* when connected: a short log must not be measured by its handshake */
};

typedef int next_page(outlog *log, int64_t after, struct outlog_page *page, outlog_err *err);

static int by_read(outlog *log, int64_t after, struct outlog_page *page, outlog_err *err)
{
    return outlog_read(log, NULL, after, PAGE, page, err);
}

static int by_follow(outlog *log, int64_t after, struct outlog_page *page, outlog_err *err)
{
    return outlog_follow(log, NULL, after, PAGE, 100, page, err);
}

static struct tally pages(const char *url, next_page *next)
{
    struct tally tally = {0};
    struct outlog_page page = {0};
    outlog *log;
    outlog_err err;
    int64_t after = 0;

    if (outlog_open(url, &log, &err) < 0)
        bench_die("%s", err.message);
    tally.begun = bench_now();
    do {
        if (next(log, after, &page, &err) < 0)
            bench_die("%s", err.message);
        after = page.next_after;
        tally.events += (int64_t)page.count;
        for (size_t i = 0; i < page.count; i++)
            tally.bytes += (int64_t)page.events[i].payload_bytes;
    } while (page.count > 0);
    outlog_page_clear(&page);
    outlog_close(log);
    return tally;
}

static struct tally copy(const char *url)
{
    struct tally tally = {0};
    PGconn *pg = PQconnectdb(url);
    char *row;
    int bytes;

    if (PQstatus(pg) != CONNECTION_OK)
        bench_die("%s", PQerrorMessage(pg));
    tally.begun = bench_now();
    PGresult *result = PQexec(pg, "copy (select " COLUMNS " from outlog.events) "
                                  "to stdout (format binary)");
    if (PQresultStatus(result) != PGRES_COPY_OUT)
        bench_die("%s", PQerrorMessage(pg));
    PQclear(result);
    while ((bytes = PQgetCopyData(pg, &row, 0)) > 0) {
        tally.events += bytes > 2; // two bytes: the end
        tally.bytes += bytes;
        PQfreemem(row);
    }
    if (bytes != -1)
        bench_die("%s", PQerrorMessage(pg));
    PQfinish(pg);
    return tally;
}

static struct tally rows(const char *url)
{
    struct tally tally = {0};
    sqlite3 *db;
    sqlite3_stmt *statement;

    if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "select " COLUMNS " from outlog_events order by event_id", -1,
                           &statement, NULL) != SQLITE_OK)
        bench_die("%s", sqlite3_errmsg(db));
    tally.begun = bench_now();
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(statement); i++)
            tally.bytes += sqlite3_column_text(statement, i) ? sqlite3_column_bytes(statement, i)
                                                             : 0;
        tally.events++;
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return tally;
}

static struct tally fill(const char *url, int64_t events)
{
    struct tally tally = {0};
    struct bench_batch batch;
    outlog *log;
    outlog_err err;

    if (outlog_open(url, &log, &err) < 0)
        bench_die("%s", err.message);
    bench_batch_init(&batch, 0, 1, PAGE);
    tally.begun = bench_now();
    for (; tally.events < events; tally.events += PAGE) {
        bench_batch_next(&batch);
        if (outlog_append_now(log, batch.events, batch.count, batch.appended, &err) < 0)
            bench_die("%s", err.message);
    }
    bench_batch_clear(&batch);
    outlog_close(log);
    return tally;
}

int main(int argc, char **argv)
{
    struct tally tally = {0};
    if (argc < 3)
        bench_die("usage: bench_feed outlog|follow|copy|rows|fill URL [EVENTS]");
    if (strcmp(argv[1], "outlog") == 0)
        tally = pages(argv[2], by_read);
    else if (strcmp(argv[1], "follow") == 0)
        tally = pages(argv[2], by_follow);
    else if (strcmp(argv[1], "copy") == 0)
        tally = copy(argv[2]);
    else if (strcmp(argv[1], "rows") == 0)
        tally = rows(argv[2]);
    else if (strcmp(argv[1], "fill") == 0 && argc == 4)
        tally = fill(argv[2], bench_number(argv[3], "EVENTS"));
    else
        bench_die("no such subject: %s", argv[1]);
    double seconds = bench_now() - tally.begun;
    printf("{\"events\":%lld,\"payload_bytes\":%lld,\"per_second\":%.1f,\"resident_peak\":%lld}\n",
           (long long)tally.events, (long long)tally.bytes, (double)tally.events / seconds,
           (long long)bench_resident_peak());
    return 0;
}
