/* relay.c: outlog relay. */
#include "base/duration.h"
#include "cli/apply.h"
#include "cli/cli.h"

#include "base/clock.h"
#include "relay/sink/sink.h"
#include "store/postgres/shutdown.h"
#include "telemetry/span_exporter.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 32, UNSAID = INT32_MIN };

static atomic_int is_stopped;

/* The first asks for a clean end, the second ends at once. */
static void stop(int signal)
{
    (void)signal;
    atomic_fetch_add(&is_stopped, 1);
    ol_shutdown_begin();
}

struct thread {
    pthread_t id;
    struct ol_worker_options options;
    struct ol_worker_stats stats;
    outlog_err err;
    int result;
};

static void *run_thread(void *argument)
{
    struct thread *thread = argument;
    thread->result = ol_worker_run(&thread->options, &is_stopped, &thread->stats, &thread->err);
    return NULL;
}

/* What was said on the command line; 0 and NULL: nothing. */
struct flags {
    const char *id, *config;
    const char *lease, *poll, *patience, *log_format, *log_level;
    int64_t batch, threads;
    bool until_idle, quiet;
};

static int parse(struct ol_cli *cli, struct flags *flags)
{
    const struct ol_option table[] = {{"id", OL_OPTION_STRING, &flags->id, NULL},
                                      {"config", OL_OPTION_STRING, &flags->config, NULL},
                                      {"lease", OL_OPTION_STRING, &flags->lease, NULL},
                                      {"poll", OL_OPTION_STRING, &flags->poll, NULL},
                                      {"patience", OL_OPTION_STRING, &flags->patience, NULL},
                                      {"batch", OL_OPTION_NUMBER, &flags->batch, NULL},
                                      {"threads", OL_OPTION_NUMBER, &flags->threads, NULL},
                                      {"until-idle", OL_OPTION_FLAG, &flags->until_idle, NULL},
                                      {"quiet", OL_OPTION_FLAG, &flags->quiet, NULL},
                                      {"log-format", OL_OPTION_STRING, &flags->log_format, NULL},
                                      {"log-level", OL_OPTION_STRING, &flags->log_level, NULL},
                                      {0}};
    int status = ol_cli_options(cli, table);
    if (!status && cli->argc)
        return ol_cli_usage("relay takes no argument, found '%s'", cli->argv[0]);
    return status ? status : ol_cli_log(flags->log_format, flags->log_level);
}

static int override_span(const char *name, const char *text, int64_t *out)
{
    if (!text || ol_duration_parse(text, out) == 0)
        return 0;
    return ol_cli_usage("--%s is a span like 500ms or 30s, not '%s'", name, text);
}

/* Flags come before what outlog.yaml says. */
static int override(const struct flags *flags, struct ol_worker_options *options)
{
    int status;
    if ((status = override_span("lease", flags->lease, &options->lease_us)) ||
        (status = override_span("poll", flags->poll, &options->poll_us)) ||
        (status = override_span("patience", flags->patience, &options->patience_us)))
        return status;
    if (flags->batch != UNSAID)
        options->batch = flags->batch > 0 ? (size_t)flags->batch : 0;
    if (flags->threads != UNSAID)
        options->siblings = flags->threads > MOST_THREADS ? -1 : (int)flags->threads;
    if (options->batch < 1 || options->batch > 1000 || options->siblings < 1)
        return ol_cli_usage("--batch is 1 to 1000, --threads 1 to %d", MOST_THREADS);
    if (options->lease_us < 1000000)
        return ol_cli_usage("--lease is at least 1s");
    options->until_idle = flags->until_idle;
    options->quiet = flags->quiet;
    if (flags->id)
        options->name = flags->id;
    return 0;
}

/* As `outlog apply` does. The file may name the store. */
static int apply(struct ol_cli *cli, const char *file)
{
    const struct ol_config_options plain = {0};
    struct ol_config_diffs changes;
    struct ol_yaml yaml;
    int status = ol_cli_config_read(cli, file, &yaml);

    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    status = ol_cli_config_apply(cli, log, file, &yaml, &plain, &changes);
    outlog_close(log);
    return status;
}

static int run(struct ol_cli *cli)
{
    char host[100] = "relay", published[32], seconds[32];
    struct thread threads[MOST_THREADS];
    struct flags flags = {.batch = UNSAID, .threads = UNSAID};
    int64_t started = ol_clock_boot_us();
    outlog_err err;

    gethostname(host, sizeof host - 1);
    int status = parse(cli, &flags);
    if (status)
        return status;
    struct ol_worker_options options = ol_worker_defaults(cli->store);
    options.name = host;
    if ((status = override(&flags, &options))) // wrong usage is told before the store is asked
        return status;
    if (flags.config && (status = apply(cli, flags.config)))
        return status;
    if (ol_cli_is_missing(cli))
        return OL_EXIT_FAILED;
    options.store = cli->store;
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (ol_worker_load(&options, &err) < 0 || ol_shutdown_prepare(options.store, &err) < 0)
        return ol_cli_report(&err);
    override(&flags, &options);
    int count = options.siblings;
    atomic_int begun = 0;
    options.begun = &begun;
    struct ol_worker_stats total = {0};
    struct ol_sink_thread sinks;
    ol_sink_thread_start(&sinks, &options, &is_stopped);
    for (int i = 0; i < count; i++) {
        threads[i] = (struct thread){.options = options};
        pthread_create(&threads[i].id, NULL, run_thread, &threads[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].id, NULL);
        if (threads[i].result < 0)
            status = ol_cli_report(&threads[i].err);
        total.published += threads[i].stats.published;
        total.failed += threads[i].stats.failed;
        total.dead += threads[i].stats.dead;
        total.fenced += threads[i].stats.fenced;
    }
    ol_sink_thread_join(&sinks);
    ol_span_exporter_close(options.tracer);
    double took = (double)(ol_clock_boot_us() - started) / 1e6;
    snprintf(seconds, sizeof seconds, "%.2f", took);
    if (status == OL_EXIT_DONE)
        fprintf(stderr, "outlog relay: %s published, %lld failed attempts, %lld dead, in %s s\n",
                ol_cli_thousands(total.published, published), (long long)total.failed,
                (long long)total.dead, seconds);
    return ol_shutdown_end(status);
}

const struct ol_cli_command ol_command_relay = {
    .name = "relay",
    .summary = "deliver the outbox's messages",
    .help =
        "usage: outlog relay [--config outlog.yaml] [--id NAME] [--threads N] [--lease SPAN]\n"
        "                    [--poll SPAN] [--patience SPAN] [--batch N] [--until-idle] [--quiet]\n"
        "                    [--log-format logfmt|json] [--log-level debug|info|warn|error]\n\n"
        "Delivers messages to their destinations until it is told to stop. Start as many as you like\n"
        "on PostgreSQL: they share the lanes. SIGTERM: no new claims, what is in flight is finished or\n"
        "handed back, exit 0; a second one ends at once. Also moves the sinks of outlog.yaml.\n\n"
        "Spans, batch and threads come from `relay:` of outlog.yaml (outlog config shows them) unless a\n"
        "flag says otherwise.\n\n"
        "  --config      apply this file first, as `outlog apply` does\n"
        "  --until-idle  stop when nothing is left to send now\n\n"
        "  outlog relay --id relay-1\n",
    .run = run,
};
