/* drain.c: how fast a full outbox is drained, by outlog and by other ways.
 *
 * bench_drain outlog URL [THREADS [UNTIL]]
 *     The relay: claims, null publisher, records; until all messages, or UNTIL of them, are sent.
 *
 * bench_drain rows URL
 *     One row with a state per message: claim with UPDATE … SKIP LOCKED, and UPDATE again when it
 * is done. Also on SQLite.
 *
 * bench_drain pgq URL
 *     PgQ: next_batch, get_batch_events, finish_batch.
 *
 * bench_drain copy URL
 *     COPY of the outbox in binary: the fastest way to read it.
 *
 * Each takes batches of 1000 and acknowledges durably before the next. scripts/bench fills the
 * tables before (bench/fill). */
#include "bench.h"

#include "relay/worker.h"
#include "store/sqlite/tune.h"

#include <endian.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BENCH_THREADS_MAX = 8 };

struct drained {
    int64_t messages, bytes;
    double seconds;
};

/* --- outlog --- */

struct relay {
    struct ol_worker_options options;
    struct ol_worker_stats stats;
    outlog_err err;
    pthread_t thread;
};

static atomic_int stop;

static void *run_relay(void *argument)
{
    struct relay *relay = argument;
    if (ol_worker_run(&relay->options, &stop, &relay->stats, &relay->err) < 0)
        bench_die("%s", relay->err.message);
    return NULL;
}

/* Stop after `until` messages, for an outbox with messages that are never sent. */
static void wait_for(const struct relay *relays, int threads, int64_t until)
{
    for (int64_t published = 0; published < until;) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        published = 0;
        for (int i = 0; i < threads; i++)
            published += *(const volatile int64_t *)&relays[i].stats.published;
    }
    atomic_store(&stop, 2);
}

/* The time is from the first claim to the last record. The last polls, which find nothing, are not
 * part of it. */
static struct drained drain_outlog(const char *url, int threads, int64_t until)
{
    static struct relay relays[BENCH_THREADS_MAX];
    static atomic_int begun;
    struct drained drained = {0};
    int64_t first = INT64_MAX, last = 0;

    if (threads > BENCH_THREADS_MAX)
        bench_die("at most %d threads", BENCH_THREADS_MAX);
    for (int i = 0; i < threads; i++) {
        relays[i].options = ol_worker_defaults(url);
        relays[i].options.until_idle = relays[i].options.quiet = true;
        relays[i].options.siblings = threads;
        relays[i].options.begun = &begun;
        pthread_create(&relays[i].thread, NULL, run_relay, &relays[i]);
    }
    if (until)
        wait_for(relays, threads, until);
    for (int i = 0; i < threads; i++) {
        const struct ol_worker_stats *stats = &relays[i].stats;
        pthread_join(relays[i].thread, NULL);
        if (!until && (stats->failed || stats->dead || stats->fenced))
            bench_die("a message was not published at once");
        drained.messages += stats->published;
        if (stats->published == 0)
            continue;
        first = stats->started_at < first ? stats->started_at : first;
        last = stats->recorded_at > last ? stats->recorded_at : last;
    }
    drained.seconds = drained.messages ? (double)(last - first) / 1e6 : 0;
    return drained;
}

/* --- the others, on PostgreSQL --- */

static PGconn *connect_to(const char *url)
{
    PGconn *pg = PQconnectdb(url);
    if (PQstatus(pg) != CONNECTION_OK)
        bench_die("%s", PQerrorMessage(pg));
    return pg;
}

static PGresult *run_prepared(PGconn *pg, const char *name, int count, const char *const *values,
                              const int *lengths, const int *formats)
{
    PGresult *result = PQexecPrepared(pg, name, count, values, lengths, formats, 1);
    if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
        bench_die("%s: %s", name, PQerrorMessage(pg));
    return result;
}

static void prepare_query(PGconn *pg, const char *name, const char *sql)
{
    PGresult *result = PQprepare(pg, name, sql, 0, NULL);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        bench_die("%s: %s", name, PQerrorMessage(pg));
    PQclear(result);
}

static int64_t number_at(const PGresult *result, int row, int column)
{
    int64_t number;
    memcpy(&number, PQgetvalue(result, row, column), sizeof number);
    return (int64_t)be64toh((uint64_t)number);
}

/* A binary int8[] of a result's first column. */
static int int8_array(const PGresult *from, char *out)
{
    uint32_t count = (uint32_t)PQntuples(from);
    uint32_t header[5] = {htobe32(1), 0, htobe32(20), htobe32(count), htobe32(1)};
    uint32_t eight = htobe32(8);
    char *at = out;
    memcpy(at, header, sizeof header);
    at += sizeof header;
    for (uint32_t i = 0; i < count; i++, at += 12) {
        memcpy(at, &eight, sizeof eight);
        memcpy(at + 4, PQgetvalue(from, (int)i, 0), 8);
    }
    return (int)(at - out);
}

static void count_rows(struct drained *drained, const PGresult *result, int payload)
{
    drained->messages += PQntuples(result);
    for (int i = 0; i < PQntuples(result); i++)
        drained->bytes += PQgetlength(result, i, payload);
}

static const char claim[] =
    "update row_outbox set state = 'CLAIMED', attempts = attempts + 1, claimed_at = now(), "
    "claimed_by = 'bench' where seq in (select seq from row_outbox where state = 'PENDING' and "
    "available_at <= now() order by seq limit 1000 for update skip locked) "
    "returning seq, event_id, event_type, payload, headers, ordering_key, attempts, created_at";
static const char done[] =
    "update row_outbox set state = 'PUBLISHED', published_at = now(), claimed_at = null, "
    "claimed_by = null where seq = any($1::bigint[]) and state = 'CLAIMED' and claimed_by = 'bench'";

static struct drained drain_rows(const char *url)
{
    enum { PAYLOAD = 3 };
    struct drained drained = {0};
    char *seqs = malloc(20 + 12 * 1000);
    PGconn *pg = connect_to(url);

    prepare_query(pg, "claim", claim);
    prepare_query(pg, "done", done);
    double begun = bench_now();
    for (;;) {
        PGresult *claimed = run_prepared(pg, "claim", 0, NULL, NULL, NULL);
        if (PQntuples(claimed) == 0)
            break;
        count_rows(&drained, claimed, PAYLOAD);
        PQclear(run_prepared(pg, "done", 1, (const char *[]){seqs},
                             (int[]){int8_array(claimed, seqs)}, (int[]){1}));
        PQclear(claimed);
    }
    drained.seconds = bench_now() - begun;
    PQfinish(pg);
    free(seqs);
    return drained;
}

static struct drained drain_pgq(const char *url)
{
    enum { DATA = 5 };
    struct drained drained = {0};
    char batch[32];
    PGconn *pg = connect_to(url);

    prepare_query(pg, "next", "select pgq.next_batch('bench', 'relay')");
    prepare_query(pg, "events", "select * from pgq.get_batch_events($1::bigint)");
    prepare_query(pg, "finish", "select pgq.finish_batch($1::bigint)");
    double begun = bench_now();
    for (;;) {
        PGresult *next = run_prepared(pg, "next", 0, NULL, NULL, NULL);
        if (PQgetisnull(next, 0, 0))
            break;
        snprintf(batch, sizeof batch, "%lld", (long long)number_at(next, 0, 0));
        PQclear(next);
        PGresult *events = run_prepared(pg, "events", 1, (const char *[]){batch}, NULL, NULL);
        count_rows(&drained, events, DATA);
        PQclear(events);
        PQclear(run_prepared(pg, "finish", 1, (const char *[]){batch}, NULL, NULL));
    }
    drained.seconds = bench_now() - begun;
    PQfinish(pg);
    return drained;
}

static struct drained copy_outbox(const char *url)
{
    struct drained drained = {0};
    PGconn *pg = connect_to(url);
    char *row;
    int bytes;

    double begun = bench_now();
    PGresult *result = PQexec(
        pg, "copy (select seq, event_id, org_id, destination, event_type, payload, payload_bytes, "
            "content_type, headers, metadata, idempotency_key, ordering_key, partition_key, "
            "correlation_id, causation_id, aggregate_type, aggregate_id, created_at, available_at, "
            "max_attempts, at_most_once from outlog.outbox) to stdout (format binary)");
    if (PQresultStatus(result) != PGRES_COPY_OUT)
        bench_die("%s", PQerrorMessage(pg));
    PQclear(result);
    while ((bytes = PQgetCopyData(pg, &row, 0)) > 0) {
        drained.messages += bytes > 2; // two bytes: the end
        drained.bytes += bytes;
        PQfreemem(row);
    }
    if (bytes != -1)
        bench_die("%s", PQerrorMessage(pg));
    drained.seconds = bench_now() - begun;
    PQfinish(pg);
    return drained;
}

/* --- rows with a state, on SQLite --- */

static sqlite3_stmt *prepare_statement(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
        bench_die("%s", sqlite3_errmsg(db));
    return statement;
}

static void run_statement(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        bench_die("%s: %s", sql, sqlite3_errmsg(db));
}

static struct drained drain_rows_sqlite(const char *path)
{
    struct drained drained = {0};
    sqlite3 *db;
    int64_t seqs[1000];
    int count;

    if (sqlite3_open(path, &db) != SQLITE_OK)
        bench_die("%s", sqlite3_errmsg(db));
    run_statement(db, "pragma journal_mode = wal; pragma synchronous = full");
    sqlite3_stmt *take = prepare_statement(
        db,
        "update row_outbox set state = 'CLAIMED', attempts = attempts + 1, claimed_at = "
        "datetime(), claimed_by = 'bench' where seq in (select seq from row_outbox where state = "
        "'PENDING' and available_at <= datetime() order by seq limit 1000) returning seq, "
        "event_id, event_type, payload, headers, ordering_key, attempts, created_at");
    sqlite3_stmt *end = prepare_statement(
        db,
        "update row_outbox set state = 'PUBLISHED', published_at = datetime(), claimed_at = null, "
        "claimed_by = null where seq = ?1 and state = 'CLAIMED' and claimed_by = 'bench'");
    double begun = bench_now();
    do {
        count = 0;
        run_statement(db, "begin immediate");
        while (sqlite3_step(take) == SQLITE_ROW) {
            seqs[count++] = sqlite3_column_int64(take, 0);
            for (int i = 1; i < sqlite3_column_count(take); i++)
                drained.bytes += sqlite3_column_text(take, i) ? sqlite3_column_bytes(take, i) : 0;
        }
        sqlite3_reset(take);
        run_statement(db, "commit");
        run_statement(db, "begin immediate");
        for (int i = 0; i < count; i++) {
            sqlite3_bind_int64(end, 1, seqs[i]);
            if (sqlite3_step(end) != SQLITE_DONE)
                bench_die("%s", sqlite3_errmsg(db));
            sqlite3_reset(end);
        }
        run_statement(db, "commit");
        drained.messages += count;
    } while (count > 0);
    drained.seconds = bench_now() - begun;
    sqlite3_finalize(take);
    sqlite3_finalize(end);
    sqlite3_close(db);
    return drained;
}

int main(int argc, char **argv)
{
    struct drained drained;
    if (argc < 3)
        bench_die("usage: bench_drain outlog|rows|pgq|copy URL [THREADS]");
    const char *subject = argv[1], *url = argv[2];
    bool is_sqlite = strncmp(url, "sqlite:", 7) == 0;
    ol_sqlite_tune(); // like main() of outlog
    if (strcmp(subject, "outlog") == 0)
        drained = drain_outlog(url, argc > 3 ? bench_number(argv[3], "THREADS") : 1,
                               argc > 4 ? bench_number(argv[4], "UNTIL") : 0);
    else if (strcmp(subject, "rows") == 0)
        drained = is_sqlite ? drain_rows_sqlite(url + 7) : drain_rows(url);
    else if (strcmp(subject, "pgq") == 0)
        drained = drain_pgq(url);
    else if (strcmp(subject, "copy") == 0)
        drained = copy_outbox(url);
    else
        bench_die("no such subject: %s", subject);
    printf("{\"messages\":%lld,\"seconds\":%.4f,\"per_second\":%.1f,\"resident_peak\":%lld}\n",
           (long long)drained.messages, drained.seconds,
           drained.seconds > 0 ? (double)drained.messages / drained.seconds : 0,
           (long long)bench_resident_peak());
    return 0;
}
