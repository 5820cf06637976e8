/* append.c: events per second, appended in different ways.
 *
 *     bench_append SUBJECT URL WRITERS BATCH MILLISECONDS
 *
 * Subjects on PostgreSQL (scripts/bench prepares the tables):
 *   outlog      outlog_append_now()
 *   each        outlog_begin(), outlog_append_many(), outlog_commit(): no shared commits
 *   bare        one prepared INSERT into bench.bare: the same columns and indexes, nothing else
 *   triggered   the same into bench.triggered, which also has the trigger that holds settled
 *   function    select outlog.append(…), the SQL function
 * and on SQLite:
 *   outlog      outlog_append_now()
 *   each        as above
 *   bare        a prepared INSERT into bench_bare, BATCH per transaction
 *   function    select outlog_append('{…}') of the loadable extension, BATCH per transaction;
 *               OUTLOG_EXTENSION is the extension's path
 *
 * A transaction counts when it is durable. Connections and plans are warm when the clock starts. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/timestamp.h"
#include "bench.h"

#include <endian.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BENCH_WRITERS_MAX = 64, WARM_UP = 10 };

/* One writer: its connection, in the form that its subject needs, and what it writes. */
struct writer {
    const struct subject *subject;
    const char *url;
    struct bench_batch batch;
    outlog *log;
    PGconn *pg;
    sqlite3 *db;
    sqlite3_stmt *statement;
    int64_t events;
    double begun, ended;
};

struct subject {
    const char *name;
    const char *table;
    void (*open)(struct writer *writer);
    void (*append)(struct writer *writer); /* the batch, as one durable transaction */
};

static const char *const columns =
    "(id, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type, actor_type, actor_id, "
    "request_id, correlation_id, payload";
enum { COLUMNS = 11 };

/* --- outlog --- */

static void open_outlog(struct writer *writer)
{
    outlog_err err;
    if (outlog_open(writer->url, &writer->log, &err) < 0)
        bench_die("%s", err.message);
}

static void append_outlog(struct writer *writer)
{
    outlog_err err;
    struct bench_batch *batch = &writer->batch;
    if (outlog_append_now(writer->log, batch->events, batch->count, batch->appended, &err) < 0)
        bench_die("%s", err.message);
}

static void append_each(struct writer *writer)
{
    outlog_err err;
    outlog_tx *tx;
    struct bench_batch *batch = &writer->batch;
    if (outlog_begin(writer->log, &tx, &err) < 0 ||
        outlog_append_many(tx, batch->events, batch->count, batch->appended, &err) < 0 ||
        outlog_commit(tx, &err) < 0)
        bench_die("%s", err.message);
}

/* --- PostgreSQL --- */

static void pg_expect(struct writer *writer, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bench_die("%s", PQerrorMessage(writer->pg));
    PQclear(result);
}

static void pg_connect(struct writer *writer)
{
    writer->pg = PQconnectdb(writer->url);
    if (PQstatus(writer->pg) != CONNECTION_OK)
        bench_die("%s", PQerrorMessage(writer->pg));
}

static void pg_prepare(struct writer *writer, const char *sql, int count)
{
    pg_connect(writer);
    pg_expect(writer, PQprepare(writer->pg, "append", sql, count, NULL));
}

static void open_pg_bare(struct writer *writer)
{
    char sql[1024];
    snprintf(sql, sizeof sql,
             writer->batch.count == 1
                 ? "insert into bench.%s %s) values ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)"
                 : "insert into bench.%s %s) select a,b,c,d,e,f,g,h,i,j,k::json from unnest("
                   "$1::uuid[],$2::text[],$3::text[],$4::text[],$5::bigint[],$6::text[],"
                   "$7::text[],$8::text[],$9::text[],$10::text[],$11::text[]) "
                   "u(a,b,c,d,e,f,g,h,i,j,k)",
             writer->subject->table, columns);
    pg_prepare(writer, sql, COLUMNS);
}

static void pg_insert_one(struct writer *writer)
{
    const struct outlog_new_event *event = &writer->batch.events[0];
    char id[OL_UUID_TEXT], request[OL_UUID_TEXT], correlation[OL_UUID_TEXT], seq[24];
    ol_uuid_make(id);
    ol_uuid_make(request);
    ol_uuid_make(correlation);
    snprintf(seq, sizeof seq, "%lld", (long long)writer->batch.seqs[0]);
    const char *values[COLUMNS] = {id,
                                   event->org_id,
                                   event->aggregate_type,
                                   event->aggregate_id,
                                   seq,
                                   event->event_type,
                                   "system",
                                   "system",
                                   request,
                                   correlation,
                                   event->payload};
    pg_expect(writer, PQexecPrepared(writer->pg, "append", COLUMNS, values, NULL, NULL, 0));
}

/* Arrays in PostgreSQL's binary format: the fastest way for a client. */
static void add_int(struct ol_buf *to, uint32_t number)
{
    number = htobe32(number);
    ol_buf_add(to, &number, sizeof number);
}

static void add_bytes(struct ol_buf *to, const void *bytes, size_t count)
{
    add_int(to, (uint32_t)count);
    ol_buf_add(to, bytes, count);
}

static void add_text(struct ol_buf *to, const char *text)
{
    add_bytes(to, text, strlen(text));
}

static void add_row(struct ol_buf *to, const struct outlog_new_event *event, int64_t seq)
{
    char text[OL_UUID_TEXT];
    uint8_t id[16];
    uint64_t number = htobe64((uint64_t)seq);
    ol_uuid_make(text);
    ol_uuid_to_bytes(text, id);
    add_bytes(&to[0], id, sizeof id);
    add_text(&to[1], event->org_id);
    add_text(&to[2], event->aggregate_type);
    add_text(&to[3], event->aggregate_id);
    add_bytes(&to[4], &number, sizeof number);
    add_text(&to[5], event->event_type);
    add_text(&to[6], "system");
    add_text(&to[7], "system");
    ol_uuid_make(text);
    add_text(&to[8], text);
    ol_uuid_make(text);
    add_text(&to[9], text);
    add_text(&to[10], event->payload);
}

static void pg_insert_many(struct writer *writer)
{
    enum { INT8 = 20, TEXT = 25, UUID = 2950 };
    const struct bench_batch *batch = &writer->batch;
    struct ol_buf arrays[COLUMNS] = {{0}};
    const char *values[COLUMNS];
    int lengths[COLUMNS], formats[COLUMNS];

    for (int i = 0; i < COLUMNS; i++) {
        add_int(&arrays[i], 1);
        add_int(&arrays[i], 0);
        add_int(&arrays[i], i == 0 ? UUID : i == 4 ? INT8 : TEXT);
        add_int(&arrays[i], (uint32_t)batch->count);
        add_int(&arrays[i], 1);
    }
    for (size_t i = 0; i < batch->count; i++)
        add_row(arrays, &batch->events[i], batch->seqs[i]);
    for (int i = 0; i < COLUMNS; i++) {
        values[i] = arrays[i].data;
        lengths[i] = (int)arrays[i].bytes;
        formats[i] = 1;
    }
    pg_expect(writer, PQexecPrepared(writer->pg, "append", COLUMNS, values, lengths, formats, 0));
    for (int i = 0; i < COLUMNS; i++)
        ol_buf_clear(&arrays[i]);
}

static void append_pg_bare(struct writer *writer)
{
    if (writer->batch.count == 1)
        pg_insert_one(writer);
    else
        pg_insert_many(writer);
}

static void open_pg_function(struct writer *writer)
{
    pg_prepare(
        writer,
        "select event_id, aggregate_seq from outlog.append(org_id => $1, aggregate_type => $2, "
        "aggregate_id => $3, event_type => $4, payload => $5)",
        5);
}

static void append_pg_function(struct writer *writer)
{
    bool many = writer->batch.count > 1;
    if (many)
        pg_expect(writer, PQexec(writer->pg, "begin"));
    for (size_t i = 0; i < writer->batch.count; i++) {
        const struct outlog_new_event *event = &writer->batch.events[i];
        const char *values[] = {event->org_id, event->aggregate_type, event->aggregate_id,
                                event->event_type, event->payload};
        pg_expect(writer, PQexecPrepared(writer->pg, "append", 5, values, NULL, NULL, 0));
    }
    if (many)
        pg_expect(writer, PQexec(writer->pg, "commit"));
}

/* --- SQLite --- */

static void db_run(struct writer *writer, const char *sql)
{
    if (sqlite3_exec(writer->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        bench_die("%s: %s", sql, sqlite3_errmsg(writer->db));
}

static void db_prepare(struct writer *writer, const char *sql)
{
    if (sqlite3_prepare_v3(writer->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &writer->statement,
                           NULL))
        bench_die("%s: %s", sql, sqlite3_errmsg(writer->db));
}

static void db_open(struct writer *writer)
{
    if (sqlite3_open(writer->url + strlen("sqlite:"), &writer->db) != SQLITE_OK)
        bench_die("%s: %s", writer->url, sqlite3_errmsg(writer->db));
    sqlite3_busy_timeout(writer->db, 10000);
    db_run(writer, "pragma journal_mode=wal; pragma synchronous=full");
}

static void open_db_bare(struct writer *writer)
{
    char sql[1024];
    db_open(writer);
    snprintf(sql, sizeof sql,
             "insert into bench_bare %s, occurred_at) values (?,?,?,?,?,?,?,?,?,?,?,?)", columns);
    db_prepare(writer, sql);
}

static void db_bind(struct writer *writer, int slot, const char *text)
{
    sqlite3_bind_text(writer->statement, slot, text, -1, SQLITE_STATIC);
}

static void db_step(struct writer *writer)
{
    int result;
    while ((result = sqlite3_step(writer->statement)) == SQLITE_ROW)
        ;
    if (result != SQLITE_DONE)
        bench_die("%s", sqlite3_errmsg(writer->db));
    sqlite3_reset(writer->statement);
}

static void append_db_bare(struct writer *writer)
{
    char now[OL_TIMESTAMP_TEXT];
    ol_timestamp_format(ol_clock_wall_us(), now);
    db_run(writer, "begin immediate");
    for (size_t i = 0; i < writer->batch.count; i++) {
        const struct outlog_new_event *event = &writer->batch.events[i];
        char id[OL_UUID_TEXT], request[OL_UUID_TEXT], correlation[OL_UUID_TEXT];
        ol_uuid_make(id);
        ol_uuid_make(request);
        ol_uuid_make(correlation);
        db_bind(writer, 1, id);
        db_bind(writer, 2, event->org_id);
        db_bind(writer, 3, event->aggregate_type);
        db_bind(writer, 4, event->aggregate_id);
        sqlite3_bind_int64(writer->statement, 5, writer->batch.seqs[i]);
        db_bind(writer, 6, event->event_type);
        db_bind(writer, 7, "system");
        db_bind(writer, 8, "system");
        db_bind(writer, 9, request);
        db_bind(writer, 10, correlation);
        db_bind(writer, 11, event->payload);
        db_bind(writer, 12, now);
        db_step(writer);
    }
    db_run(writer, "commit");
}

static void open_db_function(struct writer *writer)
{
    char *message = NULL;
    const char *path = getenv("OUTLOG_EXTENSION");
    if (!path)
        bench_die("OUTLOG_EXTENSION is not set");
    db_open(writer);
    sqlite3_db_config(writer->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
    if (sqlite3_load_extension(writer->db, path, NULL, &message) != SQLITE_OK)
        bench_die("%s: %s", path, message);
    db_prepare(writer, "select outlog_append(?)");
}

static void append_db_function(struct writer *writer)
{
    char text[1024];
    db_run(writer, "begin immediate");
    for (size_t i = 0; i < writer->batch.count; i++) {
        const struct outlog_new_event *event = &writer->batch.events[i];
        snprintf(text, sizeof text,
                 "{\"org_id\":\"%s\",\"aggregate_type\":\"%s\",\"aggregate_id\":\"%s\","
                 "\"event_type\":\"%s\",\"payload\":%s}",
                 event->org_id, event->aggregate_type, event->aggregate_id, event->event_type,
                 event->payload);
        db_bind(writer, 1, text);
        db_step(writer);
    }
    db_run(writer, "commit");
}

/* --- measuring --- */

static const struct subject on_postgres[] = {
    {"outlog", NULL, open_outlog, append_outlog},
    {"each", NULL, open_outlog, append_each},
    {"bare", "bare", open_pg_bare, append_pg_bare},
    {"triggered", "triggered", open_pg_bare, append_pg_bare},
    {"function", NULL, open_pg_function, append_pg_function},
    {0},
};

static const struct subject on_sqlite[] = {
    {"outlog", NULL, open_outlog, append_outlog},
    {"each", NULL, open_outlog, append_each},
    {"bare", NULL, open_db_bare, append_db_bare},
    {"function", NULL, open_db_function, append_db_function},
    {0},
};

static pthread_barrier_t start;
static double length;

static void *run_writer(void *argument)
{
    struct writer *writer = argument;
    struct bench_batch *batch = &writer->batch;

    writer->subject->open(writer);
    for (int i = 0; i < WARM_UP; i++) {
        bench_batch_next(batch);
        writer->subject->append(writer);
    }
    pthread_barrier_wait(&start);
    writer->begun = bench_now();
    do {
        bench_batch_next(batch);
        writer->subject->append(writer);
        writer->events += (int64_t)batch->count;
        writer->ended = bench_now();
    } while (writer->ended - writer->begun < length);
    return NULL;
}

static void close_writer(struct writer *writer)
{
    outlog_close(writer->log);
    PQfinish(writer->pg);
    sqlite3_finalize(writer->statement);
    sqlite3_close(writer->db);
    bench_batch_clear(&writer->batch);
}

int main(int argc, char **argv)
{
    static struct writer writers[BENCH_WRITERS_MAX];
    pthread_t threads[BENCH_WRITERS_MAX];
    int64_t events = 0;
    double rate = 0;

    if (argc != 6)
        bench_die("usage: bench_append SUBJECT URL WRITERS BATCH MILLISECONDS");
    int count = bench_number(argv[3], "WRITERS"), batch = bench_number(argv[4], "BATCH");
    length = bench_number(argv[5], "MILLISECONDS") / 1e3;
    const struct subject *subject = strncmp(argv[2], "sqlite:", 7) == 0 ? on_sqlite : on_postgres;
    while (subject->name && strcmp(subject->name, argv[1]) != 0)
        subject++;
    if (!subject->name || count > BENCH_WRITERS_MAX)
        bench_die("no such subject, or too many writers");

    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        writers[i] = (struct writer){.subject = subject, .url = argv[2]};
        bench_batch_init(&writers[i].batch, i, count, (size_t)batch);
        pthread_create(&threads[i], NULL, run_writer, &writers[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        events += writers[i].events;
        rate += (double)writers[i].events / (writers[i].ended - writers[i].begun);
        close_writer(&writers[i]);
    }
    printf("{\"events\":%lld,\"per_second\":%.1f}\n", (long long)events, rate);
    return 0;
}
