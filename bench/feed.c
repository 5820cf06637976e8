/* feed.c: reads the whole log once.
 *
 *     bench_feed outlog URL      outlog_read() in pages of 1000
 *     bench_feed follow URL      outlog_follow() in pages of 1000, until nothing comes
 *     bench_feed copy URL        binary COPY of the same columns, consumed by libpq (PostgreSQL)
 *     bench_feed rows URL        the same rows by a prepared SELECT, stepped through (SQLite)
 *     bench_feed fill URL EVENTS append that many events, for the others to read
 *
 * Prints the number of events, the rate, and the highest resident memory of the process: a reader's
 * memory must not depend on the length of the log. */
#include "bench.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

enum { FEED_PAGE = 1000 };

/* The columns that outlog_read() returns, in its order. */
#define COLUMNS                                                                       \
    "event_id, id, causation_id, occurred_at, org_id, aggregate_type, aggregate_id, " \
    "aggregate_seq, event_type, event_version, actor_type, actor_id, request_id, "    \
    "idempotency_key, correlation_id, app_id, env_id, visibility, metadata, payload"

struct feed_result {
    int64_t events, bytes;
    double begun; /* after connecting: the handshake would dominate a short log */
};

typedef int next_page(outlog *log, int64_t after, struct outlog_page *page, outlog_err *err);

static int read_page(outlog *log, int64_t after, struct outlog_page *page, outlog_err *err)
{
    return outlog_read(log, NULL, after, FEED_PAGE, page, err);
}

static int follow_page(outlog *log, int64_t after, struct outlog_page *page, outlog_err *err)
{
    return outlog_follow(log, NULL, after, FEED_PAGE, 100, page, err);
}

static struct feed_result read_pages(const char *url, next_page *next)
{
    struct feed_result result = {0};
    struct outlog_page page = {0};
    outlog *log;
    outlog_err err;
    int64_t after = 0;

    if (outlog_open(url, &log, &err) < 0)
        bench_die("%s", err.message);
    result.begun = bench_now();
    do {
        if (next(log, after, &page, &err) < 0)
            bench_die("%s", err.message);
        after = page.next_after;
        result.events += (int64_t)page.count;
        for (size_t i = 0; i < page.count; i++)
            result.bytes += (int64_t)page.events[i].payload_bytes;
    } while (page.count > 0);
    outlog_page_clear(&page);
    outlog_close(log);
    return result;
}

static struct feed_result copy_events(const char *url)
{
    struct feed_result result = {0};
    PGconn *pg = PQconnectdb(url);
    char *row;
    int bytes;

    if (PQstatus(pg) != CONNECTION_OK)
        bench_die("%s", PQerrorMessage(pg));
    result.begun = bench_now();
    PGresult *copying = PQexec(pg, "copy (select " COLUMNS " from outlog.events) "
                                   "to stdout (format binary)");
    if (PQresultStatus(copying) != PGRES_COPY_OUT)
        bench_die("%s", PQerrorMessage(pg));
    PQclear(copying);
    while ((bytes = PQgetCopyData(pg, &row, 0)) > 0) {
        result.events += bytes > 2; // two bytes: the end
        result.bytes += bytes;
        PQfreemem(row);
    }
    if (bytes != -1)
        bench_die("%s", PQerrorMessage(pg));
    PQfinish(pg);
    return result;
}

static struct feed_result read_rows(const char *url)
{
    struct feed_result result = {0};
    sqlite3 *db;
    sqlite3_stmt *statement;

    if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "select " COLUMNS " from outlog_events order by event_id", -1,
                           &statement, NULL) != SQLITE_OK)
        bench_die("%s", sqlite3_errmsg(db));
    result.begun = bench_now();
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(statement); i++)
            result.bytes += sqlite3_column_text(statement, i) ? sqlite3_column_bytes(statement, i)
                                                              : 0;
        result.events++;
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return result;
}

static struct feed_result fill_log(const char *url, int64_t events)
{
    struct feed_result result = {0};
    struct bench_batch batch;
    outlog *log;
    outlog_err err;

    if (outlog_open(url, &log, &err) < 0)
        bench_die("%s", err.message);
    bench_batch_init(&batch, 0, 1, FEED_PAGE);
    result.begun = bench_now();
    for (; result.events < events; result.events += FEED_PAGE) {
        bench_batch_next(&batch);
        if (outlog_append_now(log, batch.events, batch.count, batch.appended, &err) < 0)
            bench_die("%s", err.message);
    }
    bench_batch_clear(&batch);
    outlog_close(log);
    return result;
}

int main(int argc, char **argv)
{
    struct feed_result result = {0};
    if (argc < 3)
        bench_die("usage: bench_feed outlog|follow|copy|rows|fill URL [EVENTS]");
    if (strcmp(argv[1], "outlog") == 0)
        result = read_pages(argv[2], read_page);
    else if (strcmp(argv[1], "follow") == 0)
        result = read_pages(argv[2], follow_page);
    else if (strcmp(argv[1], "copy") == 0)
        result = copy_events(argv[2]);
    else if (strcmp(argv[1], "rows") == 0)
        result = read_rows(argv[2]);
    else if (strcmp(argv[1], "fill") == 0 && argc == 4)
        result = fill_log(argv[2], bench_number(argv[3], "EVENTS"));
    else
        bench_die("no such subject: %s", argv[1]);
    double seconds = bench_now() - result.begun;
    printf("{\"events\":%lld,\"payload_bytes\":%lld,\"per_second\":%.1f,\"resident_peak\":%lld}\n",
           (long long)result.events, (long long)result.bytes, (double)result.events / seconds,
           (long long)bench_resident_peak());
    return 0;
}
