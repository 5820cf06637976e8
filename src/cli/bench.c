/* bench.c: outlog bench: measures this machine with this store.
 *
 * Events cannot be deleted, so nothing is written to the log itself: the benchmark uses a temporary
 * store, a file beside an SQLite store or a database on the same PostgreSQL server, and removes it
 * at the end. */
#include "cli/cli.h"

#include "base/clock.h"
#include "log/log.h"
#include "relay/worker.h"
#include "store/temp_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BENCH_WRITERS_MAX = 64,
    BENCH_BATCH_MAX = 1000,
    BENCH_AGGREGATES = 1000,
    BENCH_THREADS_MAX = 32
};

struct bench_args {
    int64_t events, batch, writers, payload_bytes, threads;
};

struct bench_writer {
    const char *url;
    const struct bench_args *args;
    int number;
    int64_t count;
    outlog_err err;
    int result;
};

static char *make_payload(int64_t bytes)
{
    static const char head[] = "{\"note\":\"", tail[] = "\"}";
    size_t fill = bytes > 20 ? (size_t)bytes - (sizeof head + sizeof tail - 2) : 1;
    char *payload = malloc(fill + sizeof head + sizeof tail);
    if (payload) {
        memcpy(payload, head, sizeof head - 1);
        memset(payload + sizeof head - 1, 'x', fill);
        memcpy(payload + sizeof head - 1 + fill, tail, sizeof tail);
    }
    return payload;
}

/* Append `count` events in batches, into arrays that hold one batch. */
static int write_batches(struct bench_writer *writer, outlog *log, struct outlog_new_event *events,
                         struct outlog_appended *appended, char (*names)[32], const char *payload)
{
    int64_t batch = writer->args->batch;
    for (int64_t done = 0; done < writer->count; done += batch) {
        int64_t count = writer->count - done < batch ? writer->count - done : batch;
        for (int64_t i = 0; i < count; i++) {
            snprintf(names[i], sizeof names[i], "a-%d-%lld", writer->number,
                     (long long)((done + i) % BENCH_AGGREGATES));
            events[i] = (struct outlog_new_event){.org_id = "bench",
                                                  .aggregate_type = "bench",
                                                  .aggregate_id = names[i],
                                                  .event_type = "bench.done",
                                                  .payload = payload};
        }
        if (outlog_append_now(log, events, (size_t)count, appended, &writer->err) < 0)
            return -1;
    }
    return 0;
}

static void *write_events(void *argument)
{
    struct bench_writer *writer = argument;
    size_t batch = (size_t)writer->args->batch;
    struct outlog_new_event *events = calloc(batch, sizeof *events);
    struct outlog_appended *appended = calloc(batch, sizeof *appended);
    char(*names)[32] = calloc(batch, sizeof *names);
    char *payload = make_payload(writer->args->payload_bytes);
    outlog *log = NULL;

    writer->result = -1;
    if (!events || !appended || !names || !payload)
        ol_no_memory(&writer->err);
    else if (outlog_open(writer->url, &log, &writer->err) == 0)
        writer->result = write_batches(writer, log, events, appended, names, payload);
    outlog_close(log);
    free(events);
    free(appended);
    free(names);
    free(payload);
    return NULL;
}

static int append_all(const char *url, const struct bench_args *args, double *seconds,
                      outlog_err *err)
{
    struct bench_writer writers[BENCH_WRITERS_MAX];
    pthread_t threads[BENCH_WRITERS_MAX];
    int result = 0, started = 0;
    int64_t begun = ol_clock_boot_us();

    for (int i = 0; i < args->writers; i++) {
        writers[i] = (struct bench_writer){.url = url,
                                           .args = args,
                                           .number = i,
                                           .count = args->events / args->writers};
        if (pthread_create(&threads[i], NULL, write_events, &writers[i]) != 0)
            break;
        started++;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        if (writers[i].result < 0) {
            *err = writers[i].err;
            result = -1;
        }
    }
    *seconds = (double)(ol_clock_boot_us() - begun) / 1e6;
    return result;
}

static void print_rate(const struct ol_cli *cli, const char *what, int64_t events, double seconds,
                       const struct bench_args *args)
{
    char rate[32], count[32];
    double per_second = seconds > 0 ? (double)events / seconds : 0;
    if (cli->json)
        printf("{\"bench\":\"%s\",\"events\":%lld,\"seconds\":%.3f,\"events_per_second\":%.0f,"
               "\"batch\":%lld,\"writers\":%lld,\"payload_bytes\":%lld}\n",
               what, (long long)events, seconds, per_second, (long long)args->batch,
               (long long)args->writers, (long long)args->payload_bytes);
    else
        printf("%-8s %12s events  %8.2f s  %12s events/s   batch %lld, %lld %s, %lld B\n", what,
               ol_cli_thousands(events, count), seconds,
               ol_cli_thousands((int64_t)per_second, rate), (long long)args->batch,
               (long long)args->writers, args->writers == 1 ? "writer" : "writers",
               (long long)args->payload_bytes);
}

static int bench_feed(struct ol_cli *cli, const char *url, const struct bench_args *args,
                      outlog_err *err)
{
    outlog *log = NULL;
    struct outlog_page page = {0};
    int64_t after = 0, events = 0;
    double seconds;
    struct bench_args fill = *args;
    int result = -1;

    fill.batch = BENCH_BATCH_MAX;
    if (append_all(url, &fill, &seconds, err) < 0 || outlog_open(url, &log, err) < 0)
        goto out;
    int64_t begun = ol_clock_boot_us();
    do {
        if (outlog_read(log, NULL, after, 1000, &page, err) < 0)
            goto out;
        after = page.next_after;
        events += (int64_t)page.count;
    } while (page.count > 0);
    print_rate(cli, "feed", events, (double)(ol_clock_boot_us() - begun) / 1e6, args);
    result = 0;
out:
    outlog_page_clear(&page);
    outlog_close(log);
    return result;
}

static int bench_append(struct ol_cli *cli, const char *url, const struct bench_args *args,
                        outlog_err *err)
{
    double seconds;
    if (append_all(url, args, &seconds, err) < 0)
        return -1;
    print_rate(cli, "append", args->events / args->writers * args->writers, seconds, args);
    return 0;
}

/* --- relay --- */

/* A destination that accepts everything, so that only the relay's own work is measured. */
static int add_destination(const char *url, outlog_err *err)
{
    struct ol_conn *conn;
    if (ol_store_open(url, &conn, err) < 0)
        return -1;
    int result =
        ol_store_exec(conn, OL_Q_DESTINATION_PUT,
                      OL_PARAMS(ol_value_text("bench"), ol_value_text("{\"type\":\"null\"}"),
                                ol_value_text("at_least_once"), ol_value_text("skip"),
                                ol_value_int(0)),
                      NULL, err);
    ol_store_close(conn);
    return result;
}

static int enqueue_all(const char *url, const struct bench_args *args, outlog_err *err)
{
    outlog *log = NULL;
    outlog_tx *tx = NULL;
    struct outlog_enqueued enqueued;
    char *payload = make_payload(args->payload_bytes);
    int result = -1;

    if (!payload) {
        ol_no_memory(err);
        goto out;
    }
    const struct outlog_new_message draft = {.destination = "bench",
                                             .event_type = "bench.done",
                                             .payload = payload,
                                             .payload_bytes = strlen(payload)};
    if (outlog_open(url, &log, err) < 0)
        goto out;
    for (int64_t i = 0; i < args->events; i++) {
        if ((!tx && outlog_begin(log, &tx, err) < 0) ||
            outlog_enqueue(tx, &draft, &enqueued, err) < 0)
            goto out;
        if ((i + 1) % BENCH_BATCH_MAX && i + 1 < args->events)
            continue;
        outlog_tx *full = tx;
        tx = NULL;
        if (outlog_commit(full, err) < 0)
            goto out;
    }
    result = 0;
out:
    if (tx)
        outlog_rollback(tx);
    outlog_close(log);
    free(payload);
    return result;
}

struct bench_relay {
    struct ol_worker_options options;
    struct ol_worker_stats stats;
    outlog_err err;
    pthread_t thread;
    int result;
};

static void *run_relay(void *argument)
{
    static atomic_int never;
    struct bench_relay *relay = argument;
    relay->result = ol_worker_run(&relay->options, &never, &relay->stats, &relay->err);
    return NULL;
}

/* The time runs from the first claimed lane to the last recorded turn. The last polls, which find
 * nothing, are not part of it. */
static int drain_all(const char *url, const struct bench_args *args, int64_t *messages,
                     double *seconds, outlog_err *err)
{
    struct bench_relay relays[BENCH_THREADS_MAX];
    atomic_int begun = 0;
    int result = 0, started = 0;
    int64_t first = INT64_MAX, last = 0;

    *messages = 0;
    for (; started < args->threads; started++) {
        struct bench_relay *relay = &relays[started];
        *relay = (struct bench_relay){.options = ol_worker_defaults(url)};
        relay->options.siblings = (int)args->threads;
        relay->options.begun = &begun;
        relay->options.until_idle = relay->options.quiet = true;
        if (pthread_create(&relay->thread, NULL, run_relay, relay) != 0)
            break;
    }
    for (int i = 0; i < started; i++) {
        const struct ol_worker_stats *stats = &relays[i].stats;
        pthread_join(relays[i].thread, NULL);
        if (relays[i].result < 0) {
            *err = relays[i].err;
            result = -1;
        }
        *messages += stats->published;
        if (stats->published && stats->started_at < first)
            first = stats->started_at;
        if (stats->published && stats->recorded_at > last)
            last = stats->recorded_at;
    }
    *seconds = last > first ? (double)(last - first) / 1e6 : 0;
    return result;
}

/* The null publisher stores no row per success (R4: webhook, smtp, sor and exec do). The output
 * says so, because storing an attempt costs more than everything else. */
static int bench_relay(struct ol_cli *cli, const char *url, const struct bench_args *args,
                       outlog_err *err)
{
    int64_t messages;
    double seconds;
    char count[32], rate[32];

    if (add_destination(url, err) < 0 || enqueue_all(url, args, err) < 0 ||
        drain_all(url, args, &messages, &seconds, err) < 0)
        return -1;
    if (messages != args->events)
        return ol_fail(err, OUTLOG_STORE_ERROR, "%lld of %lld messages were published",
                       (long long)messages, (long long)args->events);
    double per_second = seconds > 0 ? (double)messages / seconds : 0;
    if (cli->json)
        printf("{\"bench\":\"relay\",\"messages\":%lld,\"seconds\":%.3f,"
               "\"messages_per_second\":%.0f,\"threads\":%lld,\"payload_bytes\":%lld,"
               "\"destination\":\"null\",\"attempts_kept\":\"failures\"}\n",
               (long long)messages, seconds, per_second, (long long)args->threads,
               (long long)args->payload_bytes);
    else
        printf("%-8s %12s messages  %8.2f s  %12s messages/s   %lld %s, %lld B, to null, "
               "attempts kept: failures\n",
               "relay", ol_cli_thousands(messages, count), seconds,
               ol_cli_thousands((int64_t)per_second, rate), (long long)args->threads,
               args->threads == 1 ? "thread" : "threads", (long long)args->payload_bytes);
    return 0;
}

typedef int bench_function(struct ol_cli *cli, const char *url, const struct bench_args *args,
                           outlog_err *err);

/* What `outlog bench WORD` measures, or NULL. */
static bench_function *find_bench(const char *word)
{
    return strcmp(word, "append") == 0  ? bench_append
           : strcmp(word, "feed") == 0  ? bench_feed
           : strcmp(word, "relay") == 0 ? bench_relay
                                        : NULL;
}

static int parse_bench_args(struct ol_cli *cli, struct bench_args *args)
{
    const struct ol_option options[] = {{"events", OL_OPTION_NUMBER, &args->events, NULL},
                                        {"messages", OL_OPTION_NUMBER, &args->events, NULL},
                                        {"threads", OL_OPTION_NUMBER, &args->threads, NULL},
                                        {"batch", OL_OPTION_NUMBER, &args->batch, NULL},
                                        {"writers", OL_OPTION_NUMBER, &args->writers, NULL},
                                        {"payload-bytes", OL_OPTION_NUMBER, &args->payload_bytes,
                                         NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status)
        return status;
    if (cli->argc > 1 || (cli->argc && !find_bench(cli->argv[0])))
        return ol_cli_usage("bench measures `append`, `feed` or `relay`");
    if (args->threads < 1 || args->threads > BENCH_THREADS_MAX)
        return ol_cli_usage("--threads 1-%d", BENCH_THREADS_MAX);
    if (args->events < 1 || args->batch < 1 || args->batch > BENCH_BATCH_MAX || args->writers < 1 ||
        args->writers > BENCH_WRITERS_MAX || args->payload_bytes < 1 ||
        args->payload_bytes > 200000)
        return ol_cli_usage(
            "--events and --messages from 1, --batch 1-%d, --writers 1-%d, --payload-bytes 1-200000",
            BENCH_BATCH_MAX, BENCH_WRITERS_MAX);
    return 0;
}

static int run_bench(struct ol_cli *cli)
{
    struct bench_args args = {.events = 20000,
                              .batch = 100,
                              .writers = 1,
                              .payload_bytes = 400,
                              .threads = 1};
    struct ol_temp_store temp;
    outlog_err err, ignored;
    outlog *log = NULL;
    int from, to;
    int status = parse_bench_args(cli, &args);

    if (status)
        return status;
    bench_function *measure = find_bench(cli->argc ? cli->argv[0] : "append");
    if (ol_temp_store_open(cli->store, &temp, &err) < 0)
        return ol_cli_report(&err);
    int result =
        outlog_open(temp.url, &log, &err) < 0 || outlog_init(log, &from, &to, &err) < 0 ? -1 : 0;
    outlog_close(log);
    if (result == 0)
        result = measure(cli, temp.url, &args, &err);
    if (result < 0)
        status = ol_cli_report(&err);
    ol_temp_store_close(&temp, &ignored);
    return status;
}

const struct ol_cli_command ol_command_bench = {
    .name = "bench",
    .summary = "measure appending, reading and relaying on this machine and store",
    .help =
        "usage: outlog bench [append|feed] [--events N] [--batch N] [--writers N]\n"
        "                    [--payload-bytes N] [--json]\n"
        "       outlog bench relay [--messages N] [--threads N] [--payload-bytes N] [--json]\n\n"
        "Measures in a temporary store beside the real one (a file, or a database on the same server),\n"
        "with the same durability, and removes it. Nothing is written to the log itself. `relay` fills\n"
        "an outbox and lets a relay drain it, claims and records included, to a destination that\n"
        "accepts everything and stores no row for a success.\n\n"
        "  outlog bench append --batch 1 --writers 16\n"
        "  outlog bench feed --events 200000 --store postgres://localhost/app\n"
        "  outlog bench relay --messages 200000\n",
    .run = run_bench,
};
