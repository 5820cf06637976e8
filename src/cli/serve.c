/* serve.c: outlog serve: API, console, relay and projector in one process. */
#include "cli/apply.h"
#include "cli/cli.h"

#include "log/log.h"
#include "projections/projector.h"
#include "relay/sink/sink.h"
#include "server/server.h"
#include "store/postgres/shutdown.h"
#include "telemetry/span_exporter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int is_stopped;

/* Work beside the server, in a thread of its own: the relay or the projector. */
struct serve_engine {
    pthread_t id;
    bool is_running;
    int (*run)(struct serve_engine *engine, outlog_err *err);
    struct ol_worker_options relay;
    struct ol_projector_options projector;
};

static int run_relay(struct serve_engine *engine, outlog_err *err)
{
    struct ol_worker_stats stats = {0};
    return ol_worker_run(&engine->relay, &is_stopped, &stats, err);
}

static int run_projector(struct serve_engine *engine, outlog_err *err)
{
    struct ol_projector_stats stats = {0};
    return ol_projector_run(&engine->projector, &is_stopped, &stats, err);
}

/* Run until the process stops. An engine that fails is started again, unless that cannot help. */
static void *run_engine(void *argument)
{
    struct serve_engine *engine = argument;
    outlog_err err;
    while (!atomic_load(&is_stopped) && engine->run(engine, &err) < 0) {
        ol_cli_report(&err);
        if (err.code == OUTLOG_MISUSE)
            break;
        sleep(1);
    }
    return NULL;
}

static void start_engine(struct serve_engine *engine)
{
    engine->is_running = pthread_create(&engine->id, NULL, run_engine, engine) == 0;
}

/* The URL without a pooler, for what needs a session of its own. */
static const char *direct_store(const struct ol_cli *cli)
{
    const char *direct = getenv("OUTLOG_STORE_DIRECT");
    return direct && *direct ? direct : cli->store;
}

struct serve_engines {
    const struct ol_server_options *options;
    struct serve_engine relay, projector;
    struct ol_sink_thread sinks;
};

static void start_all(struct serve_engines *engines)
{
    if (engines->options->has_relay) {
        start_engine(&engines->relay);
        ol_sink_thread_start(&engines->sinks, &engines->relay.relay, &is_stopped);
    }
    start_engine(&engines->projector);
}

static void join_all(struct serve_engines *engines)
{
    if (engines->relay.is_running)
        pthread_join(engines->relay.id, NULL);
    if (engines->projector.is_running)
        pthread_join(engines->projector.id, NULL);
    ol_sink_thread_join(&engines->sinks);
}

/* The server listens. Only now the engines start: a daemon that cannot listen must deliver nothing.
 */
static void on_ready(void *user, const char *host, int port)
{
    struct serve_engines *engines = user;
    const struct ol_server_options *options = engines->options;
    start_all(engines);
    bool is_v6 = strchr(host, ':') != NULL;
    printf("outlog serve: http%s://%s%s%s:%d/%s\n", options->tls_cert ? "s" : "", is_v6 ? "[" : "",
           host, is_v6 ? "]" : "", port, options->is_dev ? "  (dev: no token needed)" : "");
    fflush(stdout);
}

static int parse_serve_args(struct ol_cli *cli, struct ol_server_options *options, bool *no_relay,
                            bool *has_listen, const char **config)
{
    int64_t threads = options->workers, queue = (int64_t)options->queue_max;
    const char *log_format = NULL, *log_level = NULL;
    const struct ol_option table[] = {{"listen", OL_OPTION_STRING, &options->listen, has_listen},
                                      {"config", OL_OPTION_STRING, config, NULL},
                                      {"dev", OL_OPTION_FLAG, &options->is_dev, NULL},
                                      {"no-relay", OL_OPTION_FLAG, no_relay, NULL},
                                      {"tls-cert", OL_OPTION_STRING, &options->tls_cert, NULL},
                                      {"tls-key", OL_OPTION_STRING, &options->tls_key, NULL},
                                      {"threads", OL_OPTION_NUMBER, &threads, NULL},
                                      {"queue", OL_OPTION_NUMBER, &queue, NULL},
                                      {"log-format", OL_OPTION_STRING, &log_format, NULL},
                                      {"log-level", OL_OPTION_STRING, &log_level, NULL},
                                      {0}};
    int status = ol_cli_options(cli, table);
    if (status || (status = ol_cli_log(log_format, log_level)))
        return status;
    if (cli->argc)
        return ol_cli_usage("serve takes no argument, found '%s'", cli->argv[0]);
    if (threads < 1 || threads > 64)
        return ol_cli_usage("--threads is 1 to 64");
    if (queue < 1 || queue > 1000000)
        return ol_cli_usage("--queue is 1 to 1000000");
    options->workers = (int)threads;
    options->queue_max = (size_t)queue;
    return 0;
}

/* Open the store; with --dev create its schema first. NULL after printing why not. */
static outlog *open_store(struct ol_cli *cli, bool is_dev)
{
    outlog *log;
    outlog_err err;
    if (!is_dev)
        return ol_cli_open(cli);
    if (outlog_open(cli->store, &log, &err) == 0 && outlog_init(log, NULL, NULL, &err) == 0)
        return log;
    outlog_close(log);
    ol_cli_report(&err);
    return NULL;
}

/* Use `listen:` of the file, if it has one. */
static void read_listen(struct ol_cli *cli, const struct ol_yaml *yaml, const char **listen)
{
    struct ol_json object;
    if (ol_json_parse(yaml->json, yaml->bytes, &object, NULL) < 0)
        return;
    struct ol_json value = ol_json_get(&object, "listen");
    const char *text = ol_json_string(&value, &cli->arena, NULL);
    if (text)
        *listen = text;
}

/* Read a number of the settings, if the store has it. */
static int read_setting(outlog *log, const char *name, int *out, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(log->conn, OL_Q_SETTING_GET, OL_PARAMS(ol_value_text(name)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *out = atoi(ol_rows_text(&rows, 0, NULL)); // checked when it was applied
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* serve.answers: each answer uses a thread and, while it is streamed, a connection. */
static int read_settings(outlog *log, struct ol_server_options *options, outlog_err *err)
{
    int strangers = (int)options->strangers_max;
    if (ol_log_ready(log, err) < 0 ||
        read_setting(log, "serve.answers", &options->answers, err) < 0 ||
        read_setting(log, "serve.strangers", &strangers, err) < 0)
        return -1;
    options->strangers_max = (size_t)strangers;
    return 0;
}

static int prepare_store(struct ol_cli *cli, const char *config, struct ol_server_options *options,
                         bool has_listen)
{
    const struct ol_config_options plain = {0};
    struct ol_config_diffs changes;
    struct ol_yaml yaml;
    outlog_err err;
    int status = config ? ol_cli_config_read(cli, config, &yaml) : OL_EXIT_DONE;

    if (status)
        return status;
    if (config && !has_listen)
        read_listen(cli, &yaml, &options->listen);
    outlog *log = open_store(cli, options->is_dev);
    if (!log)
        return OL_EXIT_FAILED;
    if (config)
        status = ol_cli_config_apply(cli, log, config, &yaml, &plain, &changes);
    if (status == OL_EXIT_DONE && read_settings(log, options, &err) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

static int run_serve(struct ol_cli *cli)
{
    struct ol_server_options options = ol_server_defaults(NULL);
    bool no_relay = false, has_listen = false;
    const char *config = NULL;
    char host[100] = "serve";
    outlog_err err;

    int status = parse_serve_args(cli, &options, &no_relay, &has_listen, &config);
    if (status || (status = prepare_store(cli, config, &options, has_listen)))
        return status;
    gethostname(host, sizeof host - 1);
    options.store = cli->store;
    options.direct_store = direct_store(cli);
    options.has_relay = !no_relay;
    struct serve_engines engines = {.options = &options,
                                    .relay = {.run = run_relay,
                                              .relay = ol_worker_defaults(cli->store)},
                                    .projector = {.run = run_projector,
                                                  .projector =
                                                      ol_projector_defaults(options.direct_store)}};
    options.ready = on_ready;
    options.user = &engines;
    engines.relay.relay.name = engines.projector.projector.name = host;
    if (ol_worker_load(&engines.relay.relay, &err) < 0 || ol_shutdown_prepare(cli->store, &err) < 0)
        return ol_cli_report(&err);
    options.tracer = engines.relay.relay.tracer;
    options.lease_us = engines.relay.relay.lease_us; // sessions have the same lease as lanes
    engines.relay.relay.siblings = 1;
    if (ol_server_run(&options, &is_stopped, &err) < 0)
        status = ol_cli_report(&err);
    if (!atomic_load(&is_stopped))
        atomic_store(&is_stopped, 1);
    join_all(&engines);
    ol_span_exporter_close(options.tracer);
    return ol_shutdown_end(status);
}

const struct ol_cli_command ol_command_serve = {
    .name = "serve",
    .summary = "serve the API and the console, and deliver",
    .help =
        "usage: outlog serve [--listen HOST:PORT] [--config outlog.yaml] [--dev] [--no-relay]\n"
        "                    [--threads N] [--queue N] [--tls-cert FILE --tls-key FILE]\n"
        "                    [--log-format logfmt|json] [--log-level debug|info|warn|error]\n\n"
        "API, console and relay in one process, until SIGTERM. Every request needs a token (outlog token\n"
        "create). --dev needs none, creates the schema if it is missing, and accepts only loopback\n"
        "names.\n\n"
        "  --listen    127.0.0.1:7400 by default; port 0 picks a free one\n"
        "  --config    apply this file first, as `outlog apply` does\n"
        "  --no-relay  do not deliver: relays run elsewhere\n"
        "  --threads   how many requests are processed at a time, each with its own connection\n"
        "  --queue     how many may wait for a thread; further ones get 503 at once\n\n"
        "  outlog serve --dev\n"
        "  outlog serve --store postgres://db/app --listen 0.0.0.0:7400 --tls-cert c.pem --tls-key k.pem\n",
    .run = run_serve,
};
