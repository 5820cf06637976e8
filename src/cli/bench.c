/* bench.c: outlog bench: how fast is this machine with this store?
 *
 * The log is for ever, so nothing is written to it: SQLite gets a file of its own beside the store,
 * PostgreSQL a database of its own on the same server; both are removed at the end. */
#include "cli/cli.h"

#include "base/clock.h"
#include "log/log.h"
#include "relay/worker.h"
#include "store/temp_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WRITERS = 64, MOST_BATCH = 1000, AGGREGATES = 1000, MOST_THREADS = 32 };

struct wish {
    int64_t events, batch, writers, payload_bytes, threads;
};

struct writer {
    const char *url;
    const struct wish *wish;
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

static void *write_events(void *argument)
{
    struct writer *writer = argument;
    size_t batch = (size_t)writer->wish->batch;
    struct outlog_new_event *events = calloc(batch, sizeof *events);
    struct outlog_appended *appended = calloc(batch, sizeof *appended);
    char(*names)[32] = calloc(batch, sizeof *names);
    char *payload = make_payload(writer->wish->payload_bytes);
    outlog *log = NULL;

    writer->result = -1;
    if (!events || !appended || !names || !payload)
        ol_no_memory(&writer->err);
    else if (outlog_open(writer->url, &log, &writer->err) == 0) {
        writer->result = 0;
        for (int64_t done = 0; done < writer->count && writer->result == 0;) {
            size_t count = (size_t)(writer->count - done) < batch ? (size_t)(writer->count - done)
                                                                  : batch;
            for (size_t i = 0; i < count; i++) {
                snprintf(names[i], sizeof names[i], "a-%d-%lld", writer->number,
                         (long long)((done + (int64_t)i) % AGGREGATES));
                events[i] = (struct outlog_new_event){.org_id = "bench",
                                                      .aggregate_type = "bench",
                                                      .aggregate_id = names[i],
                                                      .event_type = "bench.done",
                                                      .payload = payload};
            }
            writer->result = outlog_append_now(log, events, count, appended, &writer->err);
            done += (int64_t)count;
        }
    }
    outlog_close(log);
    free(events);
    free(appended);
    free(names);
    free(payload);
    return NULL;
}

static int append_all(const char *url, const struct wish *wish, double *seconds, outlog_err *err)
{
    struct writer writers[MOST_WRITERS];
    pthread_t threads[MOST_WRITERS];
    int result = 0, started = 0;
    int64_t begun = ol_clock_boot_us();

    for (int i = 0; i < wish->writers; i++) {
        writers[i] = (struct writer){.url = url,
                                     .wish = wish,
                                     .number = i,
                                     .count = wish->events / wish->writers};
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
                       const struct wish *wish)
{
    char rate[32], count[32];
    double per_second = seconds > 0 ? (double)events / seconds : 0;
    if (cli->json)
        printf("{\"bench\":\"%s\",\"events\":%lld,\"seconds\":%.3f,\"events_per_second\":%.0f,"
               "\"batch\":%lld,\"writers\":%lld,\"payload_bytes\":%lld}\n",
               what, (long long)events, seconds, per_second, (long long)wish->batch,
               (long long)wish->writers, (long long)wish->payload_bytes);
    else
        printf("%-8s %12s events  %8.2f s  %12s events/s   batch %lld, %lld %s, %lld B\n", what,
               ol_cli_thousands(events, count), seconds,
               ol_cli_thousands((int64_t)per_second, rate), (long long)wish->batch,
               (long long)wish->writers, wish->writers == 1 ? "writer" : "writers",
               (long long)wish->payload_bytes);
}

static int bench_feed(struct ol_cli *cli, const char *url, const struct wish *wish, outlog_err *err)
{
    outlog *log = NULL;
    struct outlog_page page = {0};
    int64_t after = 0, events = 0;
    double seconds;
    struct wish load = *wish;
    int result = -1;

    load.batch = MOST_BATCH;
    if (append_all(url, &load, &seconds, err) < 0 || outlog_open(url, &log, err) < 0)
        goto out;
    int64_t begun = ol_clock_boot_us();
    do {
        if (outlog_read(log, NULL, after, 1000, &page, err) < 0)
            goto out;
        after = page.next_after;
        events += (int64_t)page.count;
    } while (page.count > 0);
    print_rate(cli, "feed", events, (double)(ol_clock_boot_us() - begun) / 1e6, wish);
    result = 0;
out:
    outlog_page_clear(&page);
    outlog_close(log);
    return result;
}

static int bench_append(struct ol_cli *cli, const char *url, const struct wish *wish,
                        outlog_err *err)
{
    double seconds;
    if (append_all(url, wish, &seconds, err) < 0)
        return -1;
    print_rate(cli, "append", wish->events / wish->writers * wish->writers, seconds, wish);
    return 0;
}

/* --- relay --- */

/* A destination that takes everything: what is left is the relay's own work. */
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

static int enqueue_all(const char *url, const struct wish *wish, outlog_err *err)
{
    outlog *log = NULL;
    outlog_tx *tx = NULL;
    struct outlog_enqueued enqueued;
    char *payload = make_payload(wish->payload_bytes);
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
    for (int64_t i = 0; i < wish->events; i++) {
        if ((!tx && outlog_begin(log, &tx, err) < 0) ||
            outlog_enqueue(tx, &draft, &enqueued, err) < 0)
            goto out;
        if ((i + 1) % MOST_BATCH && i + 1 < wish->events)
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

struct relay {
    struct ol_worker_options options;
    struct ol_worker_stats stats;
    outlog_err err;
    pthread_t thread;
    int result;
};

static void *run_relay(void *argument)
{
    static atomic_int never;
    struct relay *relay = argument;
    relay->result = ol_worker_run(&relay->options, &never, &relay->stats, &relay->err);
    return NULL;
}

/* The time runs from the first lane that is taken to the last turn that is stored; finding out that
 * nothing is left is not part of it. */
static int drain_all(const char *url, const struct wish *wish, int64_t *messages, double *seconds,
                     outlog_err *err)
{
    struct relay relays[MOST_THREADS];
    atomic_int begun = 0;
    int result = 0, started = 0;
    int64_t first = INT64_MAX, last = 0;

    *messages = 0;
    for (; started < wish->threads; started++) {
        struct relay *relay = &relays[started];
        *relay = (struct relay){.options = ol_worker_defaults(url)};
        relay->options.siblings = (int)wish->threads;
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

/* The null publisher asks for no row a success (R4: successes are rows for webhook, smtp, sor,
 * exec): say so, because a kept attempt costs more than all the rest. */
static int bench_relay(struct ol_cli *cli, const char *url, const struct wish *wish,
                       outlog_err *err)
{
    int64_t messages;
    double seconds;
    char count[32], rate[32];

    if (add_destination(url, err) < 0 || enqueue_all(url, wish, err) < 0 ||
        drain_all(url, wish, &messages, &seconds, err) < 0)
        return -1;
    if (messages != wish->events)
        return ol_fail(err, OUTLOG_STORE_ERROR, "%lld of %lld messages were published",
                       (long long)messages, (long long)wish->events);
    double per_second = seconds > 0 ? (double)messages / seconds : 0;
    if (cli->json)
        printf("{\"bench\":\"relay\",\"messages\":%lld,\"seconds\":%.3f,"
               "\"messages_per_second\":%.0f,\"threads\":%lld,\"payload_bytes\":%lld,"
               "\"destination\":\"null\",\"attempts_kept\":\"failures\"}\n",
               (long long)messages, seconds, per_second, (long long)wish->threads,
               (long long)wish->payload_bytes);
    else
        printf("%-8s %12s messages  %8.2f s  %12s messages/s   %lld %s, %lld B, to null, "
               "attempts kept: failures\n",
               "relay", ol_cli_thousands(messages, count), seconds,
               ol_cli_thousands((int64_t)per_second, rate), (long long)wish->threads,
               wish->threads == 1 ? "thread" : "threads", (long long)wish->payload_bytes);
    return 0;
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {.events = 20000,
                        .batch = 100,
                        .writers = 1,
                        .payload_bytes = 400,
                        .threads = 1};
    const struct ol_option options[] = {{"events", OL_OPTION_NUMBER, &wish.events, NULL},
                                        {"messages", OL_OPTION_NUMBER, &wish.events, NULL},
                                        {"threads", OL_OPTION_NUMBER, &wish.threads, NULL},
                                        {"batch", OL_OPTION_NUMBER, &wish.batch, NULL},
                                        {"writers", OL_OPTION_NUMBER, &wish.writers, NULL},
                                        {"payload-bytes", OL_OPTION_NUMBER, &wish.payload_bytes,
                                         NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    const char *what = cli->argc ? cli->argv[0] : "append";
    struct ol_temp_store scratch;
    outlog_err err, ignored;
    int from, to;

    if (status)
        return status;
    int (*measure)(struct ol_cli *, const char *, const struct wish *, outlog_err *) =
        strcmp(what, "append") == 0  ? bench_append
        : strcmp(what, "feed") == 0  ? bench_feed
        : strcmp(what, "relay") == 0 ? bench_relay
                                     : NULL;
    if (cli->argc > 1 || !measure)
        return ol_cli_usage("bench measures `append`, `feed` or `relay`");
    if (wish.threads < 1 || wish.threads > MOST_THREADS)
        return ol_cli_usage("--threads 1-%d", MOST_THREADS);
    if (wish.events < 1 || wish.batch < 1 || wish.batch > MOST_BATCH || wish.writers < 1 ||
        wish.writers > MOST_WRITERS || wish.payload_bytes < 1 || wish.payload_bytes > 200000)
        return ol_cli_usage(
            "--events and --messages from 1, --batch 1-%d, --writers 1-%d, --payload-bytes 1-200000",
            MOST_BATCH, MOST_WRITERS);
    if (ol_temp_store_open(cli->store, &scratch, &err) < 0)
        return ol_cli_report(&err);
    outlog *log = NULL;
    int result =
        outlog_open(scratch.url, &log, &err) < 0 || outlog_init(log, &from, &to, &err) < 0 ? -1 : 0;
    outlog_close(log);
    if (result == 0)
        result = measure(cli, scratch.url, &wish, &err);
    if (result < 0)
        status = ol_cli_report(&err);
    ol_temp_store_close(&scratch, &ignored);
    return status;
}

const struct ol_cli_command ol_command_bench = {
    .name = "bench",
    .summary = "measure appending, reading and relaying on this machine and store",
    .help =
        "usage: outlog bench [append|feed] [--events N] [--batch N] [--writers N]\n"
        "                    [--payload-bytes N] [--json]\n"
        "       outlog bench relay [--messages N] [--threads N] [--payload-bytes N] [--json]\n\n"
        "Measures in a scratch store beside the real one (a file, or a database on the same server),\n"
        "with the same durability, and removes it. Nothing is written to the log itself. `relay` fills\n"
        "an outbox and lets a relay drain it, claims and records included, to a destination that takes\n"
        "everything and keeps no row for a success.\n\n"
        "  outlog bench append --batch 1 --writers 16\n"
        "  outlog bench feed --events 200000 --store postgres://localhost/app\n"
        "  outlog bench relay --messages 200000\n",
    .run = run,
};
