/* torture_feed.c: writers that do everything the log allows, readers that may miss nothing (E6).
 *
 *     torture_feed URL ROWS SLEEP_MS SEED
 *
 * Writers append until ROWS events are committed, asleep for up to SLEEP_MS between an insert and
 * the end of its transaction. Readers follow them; each keeps the event_ids it was given, in order,
 * and is compared with what the table holds in the end. On PostgreSQL one more reader goes on from
 * `event_id > cursor` alone: it must be seen to lose rows, else the run has proved nothing.
 *
 * The result is one line of JSON. Writers and the final look use libpq and sqlite3 directly. */
#include "outlog.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WRITERS = 16, SQLITE_WRITERS = 4, ORGS = 4, AGGREGATES = 40, MOST_BATCH = 12 };

/* Shared with the SQLite writers, which are processes. */
struct progress {
    atomic_llong committed;
    atomic_bool is_over; /* the writers have ended; set before the readers' last look */
};

static struct progress *progress;
static const char *url;
static int64_t rows_wanted;
static unsigned sleep_ms;
static uint64_t seed;

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* --- chance --- */

struct chance {
    uint64_t state;
};

static struct chance chance_of(uint64_t who)
{
    return (struct chance){(seed + 1) * 0x9E3779B97F4A7C15u ^ (who + 1) * 0xBF58476D1CE4E5B9u};
}

static unsigned below(struct chance *chance, unsigned limit)
{
    uint64_t x = chance->state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    chance->state = x;
    return (unsigned)((x >> 16) % limit);
}

static void nap(struct chance *chance, unsigned most_ms)
{
    unsigned us = most_ms ? below(chance, most_ms * 1000) : 0;
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* --- what the writers write --- */

/* Events for aggregates that all writers share. */
struct batch {
    struct outlog_new_event events[MOST_BATCH];
    struct outlog_appended out[MOST_BATCH];
    char org[MOST_BATCH][16], aggregate[MOST_BATCH][16], type[MOST_BATCH][16];
    unsigned count;
};

static void fill_batch(struct batch *batch, struct chance *chance)
{
    batch->count = 1 + below(chance, MOST_BATCH);
    for (unsigned i = 0; i < batch->count; i++) {
        unsigned org = below(chance, ORGS + 1);
        snprintf(batch->org[i], sizeof batch->org[i], "org-%u", org);
        snprintf(batch->aggregate[i], sizeof batch->aggregate[i], "a-%u",
                 below(chance, AGGREGATES));
        snprintf(batch->type[i], sizeof batch->type[i], "kind.%u", below(chance, 5));
        batch->events[i] = (struct outlog_new_event){.org_id = org < ORGS ? batch->org[i] : NULL,
                                                     .is_infrastructure = org == ORGS,
                                                     .aggregate_type = "shared",
                                                     .aggregate_id = batch->aggregate[i],
                                                     .event_type = batch->type[i],
                                                     .payload = "{\"n\":1}"};
    }
}

/* --- writers on PostgreSQL --- */

struct writer {
    PGconn *pg;
    struct chance chance;
    unsigned number, serial;
    bool failed; /* a deadlock: the transaction is lost, which is nobody's fault */
};

__attribute__((format(printf, 2, 3))) static void run(struct writer *writer, const char *format,
                                                      ...)
{
    char sql[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    if (writer->failed)
        return;
    PGresult *result = PQexec(writer->pg, sql);
    ExecStatusType status = PQresultStatus(result);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (state && strcmp(state, "40P01") == 0)
        writer->failed = true;
    else if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_COPY_IN)
        die("writer %u: %s: %s", writer->number, sql, PQerrorMessage(writer->pg));
    PQclear(result);
}

/* Rows past every function of ours, of an aggregate that no other statement uses. */
static int64_t insert_rows(struct writer *writer, const char *aggregate_type)
{
    unsigned count = 1 + below(&writer->chance, 20);
    run(writer,
        "insert into outlog.events (id, org_id, aggregate_type, aggregate_id, aggregate_seq, "
        "event_type, actor_type, actor_id, request_id, correlation_id, payload) "
        "select gen_random_uuid(), 'org-%u', '%s', 'w%u-%u', n, 'kind.%u', 'system', 'w', 'r', 'c', "
        "'{}' from generate_series(1, %u) n",
        below(&writer->chance, ORGS), aggregate_type, writer->number, ++writer->serial,
        below(&writer->chance, 5), count);
    return count;
}

static int64_t copy_rows(struct writer *writer)
{
    unsigned count = 1 + below(&writer->chance, 20);
    char line[256];
    run(writer,
        "copy outlog.events (id, org_id, aggregate_type, aggregate_id, aggregate_seq, "
        "event_type, actor_type, actor_id, request_id, correlation_id, payload) from stdin");
    writer->serial++;
    for (unsigned n = 1; n <= count; n++) {
        int bytes =
            snprintf(line, sizeof line,
                     "%08x-0000-4000-8000-%04x%08x\torg-1\tcopied\tw%u-%u\t%u\tkind.1\tsystem"
                     "\tw\tr\tc\t{}\n",
                     n, writer->number, writer->serial, writer->number, writer->serial, n);
        PQputCopyData(writer->pg, line, bytes);
        if (n == count / 2)
            nap(&writer->chance, sleep_ms / 10); // ids are taken while the data comes
    }
    PQputCopyEnd(writer->pg, NULL);
    PGresult *result;
    while ((result = PQgetResult(writer->pg))) {
        if (PQresultStatus(result) != PGRES_COMMAND_OK)
            die("copy: %s", PQerrorMessage(writer->pg));
        PQclear(result);
    }
    return count;
}

static int64_t call_append(struct writer *writer)
{
    unsigned count = 1 + below(&writer->chance, 4), aggregate = below(&writer->chance, AGGREGATES);
    unsigned org = below(&writer->chance, ORGS + 1);
    char name[16];
    snprintf(name, sizeof name, "'org-%u'", org);
    for (unsigned i = 0; i < count; i++)
        run(writer,
            "select outlog.append(org_id => %s, aggregate_type => 'shared', aggregate_id => 'a-%u', "
            "event_type => 'kind.%u', payload => '{}')",
            org < ORGS ? name : "null", aggregate, below(&writer->chance, 5));
    return writer->failed ? 0 : count;
}

static int64_t join_and_append(struct writer *writer)
{
    struct batch batch;
    outlog_tx *tx;
    outlog_err err;

    fill_batch(&batch, &writer->chance);
    if (outlog_join_postgres(writer->pg, &tx, &err) < 0)
        die("join: %s", err.message);
    int result = outlog_append_many(tx, batch.events, batch.count, batch.out, &err);
    outlog_leave(tx);
    if (result == 0)
        return batch.count;
    if (!strstr(err.message, "deadlock"))
        die("append_many: %s", err.message);
    return 0;
}

static int64_t write_something(struct writer *writer)
{
    int64_t count;
    switch (below(&writer->chance, 6)) {
    case 0:
        return insert_rows(writer, "inserted");
    case 1:
        return copy_rows(writer);
    case 2:
        return call_append(writer);
    case 3: // two statements: the second takes its ids long after the first
        count = insert_rows(writer, "inserted");
        nap(&writer->chance, sleep_ms / 2);
        return count + insert_rows(writer, "inserted");
    case 4: // what a savepoint undoes is gone, with its hold on the settled position
        run(writer, "savepoint undo");
        insert_rows(writer, "undone");
        nap(&writer->chance, sleep_ms / 4);
        run(writer, "rollback to savepoint undo");
        nap(&writer->chance, sleep_ms / 4);
        run(writer, "savepoint keep");
        count = insert_rows(writer, "inserted");
        run(writer, "release savepoint keep");
        return count;
    default:
        return join_and_append(writer);
    }
}

static void one_transaction(struct writer *writer)
{
    int64_t count;
    unsigned end = below(&writer->chance, 100);

    writer->failed = false;
    run(writer, "begin");
    if (below(&writer->chance, 10) == 0)
        run(writer, "set local session_replication_role = replica");
    count = write_something(writer);
    nap(&writer->chance, sleep_ms);
    if (writer->failed || end < 15) {
        writer->failed = false;
        run(writer, "rollback");
        return;
    }
    if (end < 30) {
        run(writer, "prepare transaction 'w%u-%u'", writer->number, writer->serial);
        nap(&writer->chance, sleep_ms / 2);
        if (end < 20)
            count = 0;
        run(writer, "%s prepared 'w%u-%u'", end < 20 ? "rollback" : "commit", writer->number,
            writer->serial);
    } else {
        run(writer, "commit");
    }
    atomic_fetch_add(&progress->committed, count);
}

/* A transaction of the library's own, and the single statement of outlog_append_now. */
static void library_transaction(outlog *log, struct chance *chance)
{
    struct batch batch;
    outlog_err err;
    outlog_tx *tx;

    fill_batch(&batch, chance);
    if (below(chance, 2)) {
        if (outlog_append_now(log, batch.events, batch.count, batch.out, &err) < 0) {
            if (err.code != OUTLOG_UNAVAILABLE)
                die("append_now: %s", err.message);
            return;
        }
    } else {
        if (outlog_begin(log, &tx, &err) < 0)
            die("begin: %s", err.message);
        bool ok = outlog_append_many(tx, batch.events, batch.count, batch.out, &err) == 0;
        if (!ok && err.code != OUTLOG_UNAVAILABLE)
            die("append_many: %s", err.message);
        nap(chance, strncmp(url, "sqlite:", 7) == 0 ? sleep_ms / 20 : sleep_ms);
        if (!ok || below(chance, 6) == 0) {
            outlog_rollback(tx);
            return;
        }
        if (outlog_commit(tx, &err) < 0)
            die("commit: %s", err.message);
    }
    atomic_fetch_add(&progress->committed, batch.count);
}

static bool is_enough(void)
{
    return atomic_load(&progress->committed) >= rows_wanted;
}

static outlog *open_log(void)
{
    outlog *log;
    outlog_err err;
    if (outlog_open(url, &log, &err) < 0)
        die("open: %s", err.message);
    return log;
}

static PGconn *open_pg(void)
{
    PGconn *pg = PQconnectdb(url);
    if (PQstatus(pg) != CONNECTION_OK)
        die("%s", PQerrorMessage(pg));
    PQclear(PQexec(pg, "set client_min_messages = error"));
    return pg;
}

static void *write_postgres(void *argument)
{
    unsigned number = *(unsigned *)argument;
    struct writer writer = {.number = number, .chance = chance_of(number)};

    if (number % 4 == 3) {
        outlog *log = open_log();
        while (!is_enough())
            library_transaction(log, &writer.chance);
        outlog_close(log);
        return NULL;
    }
    writer.pg = open_pg();
    while (!is_enough())
        one_transaction(&writer);
    PQfinish(writer.pg);
    return NULL;
}

/* --- writers on SQLite: processes --- */

static void exec_sqlite(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        die("%s: %s", sql, message);
}

static void own_sqlite_transaction(sqlite3 *db, struct chance *chance)
{
    struct batch batch;
    outlog_tx *tx;
    outlog_err err;

    fill_batch(&batch, chance);
    exec_sqlite(db, "begin immediate");
    if (outlog_join_sqlite(db, &tx, &err) < 0 ||
        outlog_append_many(tx, batch.events, batch.count, batch.out, &err) < 0)
        die("join: %s", err.message);
    outlog_leave(tx);
    exec_sqlite(db, "insert into orders values (1)");
    nap(chance, sleep_ms / 20);
    if (below(chance, 6) == 0) {
        exec_sqlite(db, "rollback");
        return;
    }
    exec_sqlite(db, "commit");
    atomic_fetch_add(&progress->committed, batch.count);
}

static void write_sqlite(unsigned number)
{
    struct chance chance = chance_of(number);
    outlog *log = open_log();
    sqlite3 *db;

    if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK)
        die("%s", sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, 30000);
    exec_sqlite(db, "create table if not exists orders (n integer)");
    while (!is_enough()) {
        if (below(&chance, 2))
            library_transaction(log, &chance);
        else
            own_sqlite_transaction(db, &chance);
        nap(&chance, 2);
    }
    sqlite3_close(db);
    outlog_close(log);
}

/* --- readers --- */

struct ids {
    int64_t *at;
    size_t count, room;
};

struct reader {
    const char *name, *where;            /* what its filter means in SQL */
    void (*step)(struct reader *reader); /* take what is there now, a page at most */
    struct outlog_filter filter;
    bool is_control;
    struct chance chance;
    pthread_t thread;
    outlog *log;
    PGconn *pg;
    struct outlog_page page;
    int64_t after;
    int64_t restarts;
    struct ids seen;
};

static void keep(struct ids *ids, int64_t event_id)
{
    if (ids->count == ids->room) {
        ids->room = ids->room ? ids->room * 2 : 4096;
        if (!(ids->at = realloc(ids->at, ids->room * sizeof *ids->at)))
            die("out of memory");
    }
    ids->at[ids->count++] = event_id;
}

static void keep_page(struct reader *reader)
{
    for (size_t i = 0; i < reader->page.count; i++)
        keep(&reader->seen, reader->page.events[i].event_id);
    reader->after = reader->page.next_after;
}

static size_t any_limit(struct reader *reader)
{
    return 1 + below(&reader->chance, 400);
}

static void step_read(struct reader *reader)
{
    outlog_err err;
    const struct outlog_filter *filter = *reader->where ? &reader->filter : NULL;
    if (outlog_read(reader->log, filter, reader->after, any_limit(reader), &reader->page, &err) < 0)
        die("%s: %s", reader->name, err.message);
    keep_page(reader);
}

static void step_follow(struct reader *reader)
{
    outlog_err err;
    if (outlog_follow(reader->log, &reader->filter, reader->after, any_limit(reader), 100,
                      &reader->page, &err) < 0)
        die("%s: %s", reader->name, err.message);
    keep_page(reader);
}

/* What was read counts only once it is committed; a restart in between must bring it again. */
static void step_consumer(struct reader *reader)
{
    outlog_err err;
    bool moved;
    if (below(&reader->chance, 20) == 0) {
        outlog_close(reader->log);
        reader->log = open_log();
        reader->restarts++;
    }
    if (outlog_consumer_create(reader->log, "torture", NULL, 0, NULL, &err) < 0 ||
        outlog_consumer_read(reader->log, "torture", any_limit(reader), 50, &reader->page, &err) <
            0)
        die("%s: %s", reader->name, err.message);
    if (below(&reader->chance, 10) == 0) {
        reader->page.count = 0; // it "crashed" before the commit
        return;
    }
    int64_t before = reader->after;
    keep_page(reader);
    if (reader->after > before &&
        (outlog_consumer_commit(reader->log, "torture", reader->after, &moved, &err) < 0 || !moved))
        die("%s: commit of %lld: %s", reader->name, (long long)reader->after, err.message);
}

/* Rows of event_ids; returns how many. */
static int take_rows(struct reader *reader, const char *sql)
{
    PGresult *result = PQexec(reader->pg, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        die("%s: %s", reader->name, PQerrorMessage(reader->pg));
    int count = PQntuples(result);
    for (int i = 0; i < count; i++)
        keep(&reader->seen, reader->after = strtoll(PQgetvalue(result, i, 0), NULL, 10));
    PQclear(result);
    return count;
}

static void step_settled(struct reader *reader)
{
    char sql[256];
    PGresult *result = PQexec(reader->pg, "select outlog.settled()");
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        die("%s: %s", reader->name, PQerrorMessage(reader->pg));
    int64_t settled = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    snprintf(sql, sizeof sql,
             "select event_id from outlog.events where event_id > %lld and event_id <= %lld "
             "order by event_id limit 300",
             (long long)reader->after, (long long)settled);
    if (take_rows(reader, sql) < 300 && settled > reader->after)
        reader->after = settled; // as the documentation says: all up to it was there
}

static void step_sql_read(struct reader *reader)
{
    char sql[256];
    snprintf(sql, sizeof sql, "select event_id from outlog.read(%lld, %zu)",
             (long long)reader->after, any_limit(reader));
    take_rows(reader, sql);
}

static void step_control(struct reader *reader)
{
    char sql[256];
    snprintf(sql, sizeof sql,
             "select event_id from outlog.events where event_id > %lld order by event_id limit 300",
             (long long)reader->after);
    take_rows(reader, sql);
}

static void *read_all(void *argument)
{
    struct reader *reader = argument;
    reader->log = open_log();
    if (strncmp(url, "sqlite:", 7) != 0)
        reader->pg = open_pg();
    for (int empty = 0; empty < 3;) { // three empty looks after the end: a "crash" is no end
        bool was_over = atomic_load(&progress->is_over);
        size_t before = reader->seen.count;
        reader->step(reader);
        empty = was_over && reader->seen.count == before ? empty + 1 : 0;
        if (reader->seen.count == before)
            nap(&reader->chance, 4);
    }
    outlog_page_clear(&reader->page);
    outlog_close(reader->log);
    PQfinish(reader->pg);
    return NULL;
}

static struct reader readers[] = {
    {.name = "read", .where = "", .step = step_read},
    {.name = "read_type",
     .where = "event_type = 'kind.1'",
     .step = step_read,
     .filter = {.event_type = "kind.1"}},
    {.name = "read_org",
     .where = "org_id = 'org-2'",
     .step = step_read,
     .filter = {.org_id = "org-2"}},
    {.name = "read_infra",
     .where = "org_id is null",
     .step = step_read,
     .filter = {.is_infrastructure = true}},
    {.name = "follow", .where = "", .step = step_follow},
    {.name = "consumer", .where = "", .step = step_consumer},
    {.name = "sql_settled", .where = "", .step = step_settled},
    {.name = "sql_read", .where = "", .step = step_sql_read},
    {.name = "control", .where = "", .step = step_control, .is_control = true},
};
enum { READERS = sizeof readers / sizeof *readers, LIBRARY_READERS = 6 };

/* --- the verdict --- */

static struct ids ask_postgres(const char *sql)
{
    struct ids ids = {0};
    PGconn *pg = open_pg();
    PGresult *result = PQexec(pg, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        die("%s: %s", sql, PQerrorMessage(pg));
    for (int i = 0; i < PQntuples(result); i++)
        keep(&ids, strtoll(PQgetvalue(result, i, 0), NULL, 10));
    PQclear(result);
    PQfinish(pg);
    return ids;
}

static struct ids ask_sqlite(const char *sql)
{
    struct ids ids = {0};
    sqlite3 *db;
    sqlite3_stmt *statement;
    if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK ||
        sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
        die("%s: %s", sql, sqlite3_errmsg(db));
    while (sqlite3_step(statement) == SQLITE_ROW)
        keep(&ids, sqlite3_column_int64(statement, 0));
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return ids;
}

/* A question about the table: what comes before its name, and what after. */
static struct ids ask(const char *before, const char *after)
{
    bool is_sqlite = strncmp(url, "sqlite:", 7) == 0;
    char sql[512];
    snprintf(sql, sizeof sql, "%s %s %s", before, is_sqlite ? "outlog_events" : "outlog.events",
             after);
    return is_sqlite ? ask_sqlite(sql) : ask_postgres(sql);
}

static int64_t ask_number(const char *before, const char *after)
{
    struct ids ids = ask(before, after);
    int64_t number = ids.count == 1 ? ids.at[0] : -1;
    free(ids.at);
    return number;
}

static int ascending(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, two = *(const int64_t *)b;
    return (one > two) - (one < two);
}

static void judge(struct reader *reader)
{
    char where[128];
    int64_t unordered = 0, lost = 0, extra = 0;
    struct ids *seen = &reader->seen;

    snprintf(where, sizeof where, "%s%s order by event_id", *reader->where ? "where " : "",
             reader->where);
    struct ids truth = ask("select event_id from", where);
    for (size_t i = 1; i < seen->count; i++)
        unordered += seen->at[i] <= seen->at[i - 1];
    if (seen->count)
        qsort(seen->at, seen->count, sizeof *seen->at, ascending);
    size_t t = 0, s = 0;
    while (t < truth.count || s < seen->count) {
        if (s == seen->count || (t < truth.count && truth.at[t] < seen->at[s]))
            lost++, t++;
        else if (t == truth.count || seen->at[s] < truth.at[t])
            extra++, s++; // given twice, or never committed
        else
            t++, s++;
    }
    printf(
        "{\"name\":\"%s\",\"control\":%s,\"truth\":%zu,\"seen\":%zu,\"lost\":%lld,\"extra\":%lld,"
        "\"unordered\":%lld,\"restarts\":%lld}",
        reader->name, reader->is_control ? "true" : "false", truth.count, seen->count,
        (long long)lost, (long long)extra, (long long)unordered, (long long)reader->restarts);
    free(truth.at);
    free(seen->at);
}

static void report(int reader_count)
{
    printf("{\"seed\":%llu,\"committed\":%lld,\"rows\":%lld,\"wrong_seq\":%lld,\"undone\":%lld,"
           "\"max_event_id\":%lld,\"readers\":[",
           (unsigned long long)seed, (long long)atomic_load(&progress->committed),
           (long long)ask_number("select count(*) from", ""),
           // Without gaps, and rising with event_id: the n-th row of an aggregate has number n.
           (long long)ask_number("select count(*) from (select aggregate_seq, row_number() over "
                                 "(partition by org_id, aggregate_type, aggregate_id "
                                 "order by event_id) as n from",
                                 ") numbered where aggregate_seq <> n"),
           (long long)ask_number("select count(*) from", "where aggregate_type = 'undone'"),
           (long long)ask_number("select max(event_id) from", ""));
    for (int i = 0; i < reader_count; i++) {
        if (i)
            putchar(',');
        judge(&readers[i]);
    }
    puts("]}");
}

/* --- the run --- */

static void start_readers(int count)
{
    for (int i = 0; i < count; i++) {
        readers[i].chance = chance_of(100 + (uint64_t)i);
        pthread_create(&readers[i].thread, NULL, read_all, &readers[i]);
    }
}

static void join_readers(int count)
{
    atomic_store(&progress->is_over, true);
    for (int i = 0; i < count; i++)
        pthread_join(readers[i].thread, NULL);
}

static void torture_postgres(void)
{
    pthread_t writers[WRITERS];
    unsigned numbers[WRITERS];

    start_readers(READERS);
    for (unsigned i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        pthread_create(&writers[i], NULL, write_postgres, &numbers[i]);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    join_readers(READERS);
    report(READERS);
}

static void torture_sqlite(void)
{
    pid_t writers[SQLITE_WRITERS];
    int status;

    for (unsigned i = 0; i < SQLITE_WRITERS; i++) // before there are threads
        if ((writers[i] = fork()) == 0) {
            write_sqlite(i);
            exit(0);
        }
    start_readers(LIBRARY_READERS);
    for (unsigned i = 0; i < SQLITE_WRITERS; i++)
        if (waitpid(writers[i], &status, 0) < 0 || status != 0)
            die("writer %u ended with status %d", i, status);
    join_readers(LIBRARY_READERS);
    report(LIBRARY_READERS);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        die("usage: torture_feed URL ROWS SLEEP_MS SEED");
    url = argv[1];
    rows_wanted = strtoll(argv[2], NULL, 10);
    sleep_ms = (unsigned)strtoul(argv[3], NULL, 10);
    seed = strtoull(argv[4], NULL, 10);
    progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED)
        die("mmap failed");
    if (strncmp(url, "sqlite:", 7) == 0)
        torture_sqlite();
    else
        torture_postgres();
    return 0;
}
