/* relay.c: outlog relay: delivers messages until it gets a signal. */
#include "base/duration.h"
#include "cli/apply.h"
#include "cli/cli.h"

#include "base/clock.h"
#include "log/log.h"
#include "outbox/waiting.h"
#include "relay/sink/sink.h"
#include "store/postgres/shutdown.h"
#include "telemetry/span_exporter.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RELAY_THREADS_MAX = 32, RELAY_NOT_GIVEN = INT32_MIN };

static atomic_int is_stopped;

/* The first signal stops the relay cleanly, the second at once. */
static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&is_stopped, 1);
    ol_shutdown_begin();
}

struct relay_thread {
    pthread_t id;
    struct ol_worker_options options;
    struct ol_worker_stats stats;
    outlog_err err;
    int result;
};

static void *run_thread(void *argument)
{
    struct relay_thread *thread = argument;
    thread->result = ol_worker_run(&thread->options, &is_stopped, &thread->stats, &thread->err);
    return NULL;
}

/* Options as given; NULL or RELAY_NOT_GIVEN for those that were not. */
struct relay_args {
    const char *id, *config;
    const char *lease, *poll, *patience, *log_format, *log_level;
    int64_t batch, threads;
    bool until_idle, quiet;
};

static int parse_relay_args(struct ol_cli *cli, struct relay_args *args)
{
    const struct ol_option table[] = {{"id", OL_OPTION_STRING, &args->id, NULL},
                                      {"config", OL_OPTION_STRING, &args->config, NULL},
                                      {"lease", OL_OPTION_STRING, &args->lease, NULL},
                                      {"poll", OL_OPTION_STRING, &args->poll, NULL},
                                      {"patience", OL_OPTION_STRING, &args->patience, NULL},
                                      {"batch", OL_OPTION_NUMBER, &args->batch, NULL},
                                      {"threads", OL_OPTION_NUMBER, &args->threads, NULL},
                                      {"until-idle", OL_OPTION_FLAG, &args->until_idle, NULL},
                                      {"quiet", OL_OPTION_FLAG, &args->quiet, NULL},
                                      {"log-format", OL_OPTION_STRING, &args->log_format, NULL},
                                      {"log-level", OL_OPTION_STRING, &args->log_level, NULL},
                                      {0}};
    int status = ol_cli_options(cli, table);
    if (!status && cli->argc)
        return ol_cli_usage("relay takes no argument, found '%s'", cli->argv[0]);
    return status ? status : ol_cli_log(args->log_format, args->log_level);
}

static int override_span(const char *name, const char *text, int64_t *out)
{
    if (!text || ol_duration_parse(text, out) == 0)
        return 0;
    return ol_cli_usage("--%s is a span like 500ms or 30s, not '%s'", name, text);
}

/* Flags override the settings of outlog.yaml. */
static int override_options(const struct relay_args *args, struct ol_worker_options *options)
{
    int status;
    if ((status = override_span("lease", args->lease, &options->lease_us)) ||
        (status = override_span("poll", args->poll, &options->poll_us)) ||
        (status = override_span("patience", args->patience, &options->patience_us)))
        return status;
    if (args->batch != RELAY_NOT_GIVEN)
        options->batch = args->batch > 0 ? (size_t)args->batch : 0;
    if (args->threads != RELAY_NOT_GIVEN)
        options->siblings = args->threads > RELAY_THREADS_MAX ? -1 : (int)args->threads;
    if (options->batch < 1 || options->batch > 1000 || options->siblings < 1)
        return ol_cli_usage("--batch is 1 to 1000, --threads 1 to %d", RELAY_THREADS_MAX);
    if (options->lease_us < 1000000)
        return ol_cli_usage("--lease is at least 1s");
    options->until_idle = args->until_idle;
    options->quiet = args->quiet;
    if (args->id)
        options->name = args->id;
    return 0;
}

/* Apply a file like `outlog apply` does. The file may name the store. */
static int apply_config(struct ol_cli *cli, const char *file)
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

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Run options->siblings relay threads and the sinks until they end; `total` gets the sum of their
 * stats. Returns the exit status. */
static int run_threads(struct ol_worker_options *options, struct ol_worker_stats *total)
{
    struct relay_thread threads[RELAY_THREADS_MAX];
    struct ol_sink_thread sinks;
    atomic_int begun = 0;
    int count = options->siblings, status = OL_EXIT_DONE;

    options->begun = &begun;
    ol_sink_thread_start(&sinks, options, &is_stopped);
    for (int i = 0; i < count; i++) {
        threads[i] = (struct relay_thread){.options = *options};
        pthread_create(&threads[i].id, NULL, run_thread, &threads[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].id, NULL);
        if (threads[i].result < 0)
            status = ol_cli_report(&threads[i].err);
        total->published += threads[i].stats.published;
        total->failed += threads[i].stats.failed;
        total->dead += threads[i].stats.dead;
        total->fenced += threads[i].stats.fenced;
    }
    ol_sink_thread_join(&sinks);
    ol_span_exporter_close(options->tracer);
    return status;
}

/* Nothing waits in silence (L7): say what is left, and why. */
static void print_waiting(struct ol_cli *cli)
{
    struct ol_waitings waiting;
    outlog_err err;
    char number[32];
    outlog *log = ol_cli_open(cli);
    if (!log)
        return;
    if (ol_waiting_list(log->conn, &cli->arena, &waiting, &err) == 0)
        for (size_t i = 0; i < waiting.count; i++) {
            const struct ol_waiting *one = &waiting.all[i];
            bool is_ours = strcmp(one->reason, "no_relay") == 0; // we have just released the lane
            fprintf(stderr, "outlog relay: %s wait for %s: %s%s%s\n",
                    ol_cli_thousands(one->count, number), one->destination,
                    is_ours ? "it takes no messages now; the log says why" : one->about,
                    one->detail ? ": " : "", one->detail ? one->detail : "");
        }
    outlog_close(log);
}

static int run_relay(struct ol_cli *cli)
{
    char host[100] = "relay", published[32];
    struct relay_args args = {.batch = RELAY_NOT_GIVEN, .threads = RELAY_NOT_GIVEN};
    struct ol_worker_stats total = {0};
    int64_t started = ol_clock_boot_us();
    outlog_err err;

    gethostname(host, sizeof host - 1);
    int status = parse_relay_args(cli, &args);
    if (status)
        return status;
    struct ol_worker_options options = ol_worker_defaults(cli->store);
    options.name = host;
    if ((status = override_options(&args, &options))) // report wrong usage before opening the store
        return status;
    if (args.config && (status = apply_config(cli, args.config)))
        return status;
    if (ol_cli_is_missing(cli))
        return OL_EXIT_FAILED;
    options.store = cli->store;
    watch_signals();
    if (ol_worker_load(&options, &err) < 0 || ol_shutdown_prepare(options.store, &err) < 0)
        return ol_cli_report(&err);
    override_options(&args, &options);
    status = run_threads(&options, &total);
    if (status == OL_EXIT_DONE)
        fprintf(stderr, "outlog relay: %s published, %lld failed attempts, %lld dead, in %.2f s\n",
                ol_cli_thousands(total.published, published), (long long)total.failed,
                (long long)total.dead, (double)(ol_clock_boot_us() - started) / 1e6);
    if (status == OL_EXIT_DONE && options.until_idle && atomic_load(&is_stopped) == 0)
        print_waiting(cli);
    return ol_shutdown_end(status);
}

const struct ol_cli_command ol_command_relay = {
    .name = "relay",
    .summary = "deliver the outbox's messages",
    .help =
        "usage: outlog relay [--config outlog.yaml] [--id NAME] [--threads N] [--lease SPAN]\n"
        "                    [--poll SPAN] [--patience SPAN] [--batch N] [--until-idle] [--quiet]\n"
        "                    [--log-format logfmt|json] [--log-level debug|info|warn|error]\n\n"
        "Delivers messages to their destinations until SIGTERM. Start as many as you like on PostgreSQL:\n"
        "they share the lanes. After SIGTERM it claims nothing, finishes or hands back what is in\n"
        "flight, and exits with 0; a second SIGTERM ends it at once. Also runs the sinks of\n"
        "outlog.yaml.\n\n"
        "Flags override the settings of `relay:` in outlog.yaml, which `outlog config` shows.\n\n"
        "  --config      apply this file first, as `outlog apply` does\n"
        "  --until-idle  stop when nothing is due\n\n"
        "  outlog relay --id relay-1\n",
    .run = run_relay,
};
