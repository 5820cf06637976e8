/* drain.c: how fast a full outbox empties, and what else could empty it.
 *
 *     bench_drain outlog URL [THREADS [UNTIL]]
 *                                        the relay: claims, null publisher, records; until all is
 * sent, or this many messages bench_drain rows URL               a row a message with its state:
 * claim by UPDATE … SKIP LOCKED, UPDATE again when it is done; on SQLite too bench_drain pgq URL
 * PgQ: next_batch, get_batch_events, finish_batch bench_drain copy URL               COPY of the
 * outbox in binary: nobody can read it faster
 *
 * Each takes batches of 1000 and acknowledges durably before the next. scripts/bench fills the
 * tables (bench/fill) and takes the time of nothing but this. */
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

enum { MOST_THREADS = 8 };

struct tally {
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

static void *relay(void *argument)
{
    struct relay *relay = argument;
    if (ol_worker_run(&relay->options, &stop, &relay->stats, &relay->err) < 0)
        bench_die("%s", relay->err.message);
    return NULL;
}

/* Where some never end: stop at once when as many were published. */
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

/* From the first claim to the last record: what it needs to find out that nothing is left is not
 * part of the work. */
static struct tally drain_outlog(const char *url, int threads, int64_t until)
{
    static struct relay relays[MOST_THREADS];
    static atomic_int begun;
    struct tally tally = {0};
    int64_t first = INT64_MAX, last = 0;

    if (threads > MOST_THREADS)
        bench_die("at most %d threads", MOST_THREADS);
    for (int i = 0; i < threads; i++) {
        relays[i].options = ol_worker_defaults(url);
        relays[i].options.until_idle = relays[i].options.quiet = true;
        relays[i].options.siblings = threads;
        relays[i].options.begun = &begun;
        pthread_create(&relays[i].thread, NULL, relay, &relays[i]);
    }
    if (until)
        wait_for(relays, threads, until);
    for (int i = 0; i < threads; i++) {
        const struct ol_worker_stats *stats = &relays[i].stats;
        pthread_join(relays[i].thread, NULL);
        if (!until && (stats->failed || stats->dead || stats->fenced))
            bench_die("a message was not published at once");
        tally.messages += stats->published;
        if (stats->published == 0)
            continue;
        first = stats->started_at < first ? stats->started_at : first;
        last = stats->recorded_at > last ? stats->recorded_at : last;
    }
    tally.seconds = tally.messages ? (double)(last - first) / 1e6 : 0;
    return tally;
}

/* --- the others, on PostgreSQL --- */

static PGconn *connect_to(const char *url)
{
    PGconn *pg = PQconnectdb(url);
    if (PQstatus(pg) != CONNECTION_OK)
        bench_die("%s", PQerrorMessage(pg));
    return pg;
}

static PGresult *ask(PGconn *pg, const char *name, int count, const char *const *values,
                     const int *lengths, const int *formats)
{
    PGresult *result = PQexecPrepared(pg, name, count, values, lengths, formats, 1);
    if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
        bench_die("%s: %s", name, PQerrorMessage(pg));
    return result;
}

static void prepare(PGconn *pg, const char *name, const char *sql)
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

static void look_at(struct tally *tally, const PGresult *result, int payload)
{
    tally->messages += PQntuples(result);
    for (int i = 0; i < PQntuples(result); i++)
        tally->bytes += PQgetlength(result, i, payload);
}

static const char claim[] =
    "update row_outbox set state = 'CLAIMED', attempts = attempts + 1, claimed_at = now(), "
    "claimed_by = 'bench' where seq in (select seq from row_outbox where state = 'PENDING' and "
    "available_at <= now() order by seq limit 1000 for update skip locked) "
    "returning seq, event_id, event_type, payload, headers, ordering_key, attempts, created_at";
static const char done[] =
    "update row_outbox set state = 'PUBLISHED', published_at = now(), claimed_at = null, "
    "claimed_by = null where seq = any($1::bigint[]) and state = 'CLAIMED' and claimed_by = 'bench'";

static struct tally drain_rows(const char *url)
{
    enum { PAYLOAD = 3 };
    struct tally tally = {0};
    char *seqs = malloc(20 + 12 * 1000);
    PGconn *pg = connect_to(url);

    prepare(pg, "claim", claim);
    prepare(pg, "done", done);
    double begun = bench_now();
    for (;;) {
        PGresult *claimed = ask(pg, "claim", 0, NULL, NULL, NULL);
        if (PQntuples(claimed) == 0)
            break;
        look_at(&tally, claimed, PAYLOAD);
        PQclear(ask(pg, "done", 1, (const char *[]){seqs}, (int[]){int8_array(claimed, seqs)},
                    (int[]){1}));
        PQclear(claimed);
    }
    tally.seconds = bench_now() - begun;
    PQfinish(pg);
    free(seqs);
    return tally;
}

static struct tally drain_pgq(const char *url)
{
    enum { DATA = 5 };
    struct tally tally = {0};
    char batch[32];
    PGconn *pg = connect_to(url);

    prepare(pg, "next", "select pgq.next_batch('bench', 'relay')");
    prepare(pg, "events", "select * from pgq.get_batch_events($1::bigint)");
    prepare(pg, "finish", "select pgq.finish_batch($1::bigint)");
    double begun = bench_now();
    for (;;) {
        PGresult *next = ask(pg, "next", 0, NULL, NULL, NULL);
        if (PQgetisnull(next, 0, 0))
            break;
        snprintf(batch, sizeof batch, "%lld", (long long)number_at(next, 0, 0));
        PQclear(next);
        PGresult *events = ask(pg, "events", 1, (const char *[]){batch}, NULL, NULL);
        look_at(&tally, events, DATA);
        PQclear(events);
        PQclear(ask(pg, "finish", 1, (const char *[]){batch}, NULL, NULL));
    }
    tally.seconds = bench_now() - begun;
    PQfinish(pg);
    return tally;
}

static struct tally copy(const char *url)
{
    struct tally tally = {0};
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
        tally.messages += bytes > 2; // two bytes: the end
        tally.bytes += bytes;
        PQfreemem(row);
    }
    if (bytes != -1)
        bench_die("%s", PQerrorMessage(pg));
    tally.seconds = bench_now() - begun;
    PQfinish(pg);
    return tally;
}

/* --- rows with a state, on SQLite --- */

static sqlite3_stmt *compile(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
        bench_die("%s", sqlite3_errmsg(db));
    return statement;
}

static void step(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        bench_die("%s: %s", sql, sqlite3_errmsg(db));
}

static struct tally drain_rows_sqlite(const char *path)
{
    struct tally tally = {0};
    sqlite3 *db;
    int64_t seqs[1000];
    int count;

    if (sqlite3_open(path, &db) != SQLITE_OK)
        bench_die("%s", sqlite3_errmsg(db));
    step(db, "pragma journal_mode = wal; pragma synchronous = full");
    sqlite3_stmt *take = compile(
        db,
        "update row_outbox set state = 'CLAIMED', attempts = attempts + 1, claimed_at = "
        "datetime(), claimed_by = 'bench' where seq in (select seq from row_outbox where state = "
        "'PENDING' and available_at <= datetime() order by seq limit 1000) returning seq, "
        "event_id, event_type, payload, headers, ordering_key, attempts, created_at");
    sqlite3_stmt *end = compile(
        db,
        "update row_outbox set state = 'PUBLISHED', published_at = datetime(), claimed_at = null, "
        "claimed_by = null where seq = ?1 and state = 'CLAIMED' and claimed_by = 'bench'");
    double begun = bench_now();
    do {
        count = 0;
        step(db, "begin immediate");
        while (sqlite3_step(take) == SQLITE_ROW) {
            seqs[count++] = sqlite3_column_int64(take, 0);
            for (int i = 1; i < sqlite3_column_count(take); i++)
                tally.bytes += sqlite3_column_text(take, i) ? sqlite3_column_bytes(take, i) : 0;
        }
        sqlite3_reset(take);
        step(db, "commit");
        step(db, "begin immediate");
        for (int i = 0; i < count; i++) {
            sqlite3_bind_int64(end, 1, seqs[i]);
            if (sqlite3_step(end) != SQLITE_DONE)
                bench_die("%s", sqlite3_errmsg(db));
            sqlite3_reset(end);
        }
        step(db, "commit");
        tally.messages += count;
    } while (count > 0);
    tally.seconds = bench_now() - begun;
    sqlite3_finalize(take);
    sqlite3_finalize(end);
    sqlite3_close(db);
    return tally;
}

int main(int argc, char **argv)
{
    struct tally tally;
    if (argc < 3)
        bench_die("usage: bench_drain outlog|rows|pgq|copy URL [THREADS]");
    const char *subject = argv[1], *url = argv[2];
    bool is_sqlite = strncmp(url, "sqlite:", 7) == 0;
    ol_sqlite_tune(); // as the program itself does
    if (strcmp(subject, "outlog") == 0)
        tally = drain_outlog(url, argc > 3 ? bench_number(argv[3], "THREADS") : 1,
                             argc > 4 ? bench_number(argv[4], "UNTIL") : 0);
    else if (strcmp(subject, "rows") == 0)
        tally = is_sqlite ? drain_rows_sqlite(url + 7) : drain_rows(url);
    else if (strcmp(subject, "pgq") == 0)
        tally = drain_pgq(url);
    else if (strcmp(subject, "copy") == 0)
        tally = copy(url);
    else
        bench_die("no such subject: %s", subject);
    printf("{\"messages\":%lld,\"seconds\":%.4f,\"per_second\":%.1f,\"resident_peak\":%lld}\n",
           (long long)tally.messages, tally.seconds,
           tally.seconds > 0 ? (double)tally.messages / tally.seconds : 0,
           (long long)bench_resident_peak());
    return 0;
}
