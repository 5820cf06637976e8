/* serve.c: outlog serve: API, console and relay in one process. */
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

/* What runs beside the server, each in a thread of its own. */
struct engine {
    pthread_t id;
    bool is_running;
    int (*run)(struct engine *engine, outlog_err *err);
    struct ol_worker_options relay;
    struct ol_projector_options projector;
};

static int run_relay(struct engine *engine, outlog_err *err)
{
    struct ol_worker_stats stats = {0};
    return ol_worker_run(&engine->relay, &is_stopped, &stats, err);
}

static int run_projector(struct engine *engine, outlog_err *err)
{
    struct ol_projector_stats stats = {0};
    return ol_projector_run(&engine->projector, &is_stopped, &stats, err);
}

/* An engine ends when told to, or when it cannot start: then it is tried again, if that can help.
 */
static void *run_engine(void *argument)
{
    struct engine *engine = argument;
    outlog_err err;
    while (!atomic_load(&is_stopped) && engine->run(engine, &err) < 0) {
        ol_cli_report(&err);
        if (err.code == OUTLOG_MISUSE)
            break;
        sleep(1);
    }
    return NULL;
}

static void start(struct engine *engine)
{
    engine->is_running = pthread_create(&engine->id, NULL, run_engine, engine) == 0;
}

/* Past a pooler, for what needs a session of its own. */
static const char *direct_store(const struct ol_cli *cli)
{
    const char *direct = getenv("OUTLOG_STORE_DIRECT");
    return direct && *direct ? direct : cli->store;
}

/* What a daemon is made of beside its server. */
struct house {
    const struct ol_server_options *options;
    struct engine relay, projector;
    struct ol_sinks_thread sinks;
};

static void start_all(struct house *house)
{
    if (house->options->has_relay) {
        start(&house->relay);
        ol_sinks_start(&house->sinks, &house->relay.relay, &is_stopped);
    }
    start(&house->projector);
}

static void join_all(struct house *house)
{
    if (house->relay.is_running)
        pthread_join(house->relay.id, NULL);
    if (house->projector.is_running)
        pthread_join(house->projector.id, NULL);
    ol_sinks_join(&house->sinks);
}

/* Nothing is delivered by a daemon that cannot listen, so the others start now. */
static void be_ready(void *user, const char *host, int port)
{
    struct house *house = user;
    const struct ol_server_options *options = house->options;
    start_all(house);
    bool is_v6 = strchr(host, ':') != NULL;
    printf("outlog serve: http%s://%s%s%s:%d/%s\n", options->tls_cert ? "s" : "", is_v6 ? "[" : "",
           host, is_v6 ? "]" : "", port, options->is_dev ? "  (dev: no token needed)" : "");
    fflush(stdout);
}

static int parse(struct ol_cli *cli, struct ol_server_options *options, bool *no_relay,
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

/* The store, whose schema is there; with --dev it is made now. NULL after having said why not. */
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

/* `listen:` in the file counts when no flag names an address. */
static void take_listen(struct ol_cli *cli, const struct ol_yaml *yaml, const char **listen)
{
    struct ol_json object;
    if (ol_json_parse(yaml->json, yaml->bytes, &object, NULL) < 0)
        return;
    struct ol_json value = ol_json_get(&object, "listen");
    const char *text = ol_json_string(&value, &cli->arena, NULL);
    if (text)
        *listen = text;
}

/* serve.answers, if the store says it; each has a thread and, while it speaks, a connection. */
static int read_answers(outlog *log, int *answers, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SETTING_GET, OL_PARAMS(ol_value_text("serve.answers")),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *answers = atoi(ol_rows_text(&rows, 0, NULL)); // checked when it was applied
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

static int prepare(struct ol_cli *cli, const char *config, struct ol_server_options *options,
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
        take_listen(cli, &yaml, &options->listen);
    outlog *log = open_store(cli, options->is_dev);
    if (!log)
        return OL_EXIT_FAILED;
    if (config)
        status = ol_cli_config_apply(cli, log, config, &yaml, &plain, &changes);
    if (status == OL_EXIT_DONE && read_answers(log, &options->answers, &err) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

static int run(struct ol_cli *cli)
{
    struct ol_server_options options = ol_server_defaults(NULL);
    bool no_relay = false, has_listen = false;
    const char *config = NULL;
    char host[100] = "serve";
    outlog_err err;

    int status = parse(cli, &options, &no_relay, &has_listen, &config);
    if (status || (status = prepare(cli, config, &options, has_listen)))
        return status;
    gethostname(host, sizeof host - 1);
    options.store = cli->store;
    options.direct_store = direct_store(cli);
    options.has_relay = !no_relay;
    struct house house = {.options = &options,
                          .relay = {.run = run_relay, .relay = ol_worker_defaults(cli->store)},
                          .projector = {.run = run_projector,
                                        .projector = ol_projector_defaults(options.direct_store)}};
    options.ready = be_ready;
    options.user = &house;
    house.relay.relay.name = house.projector.projector.name = host;
    if (ol_worker_load(&house.relay.relay, &err) < 0 || ol_shutdown_prepare(cli->store, &err) < 0)
        return ol_cli_report(&err);
    options.tracer = house.relay.relay.tracer;
    options.lease_us = house.relay.relay.lease_us; // sessions are leased as lanes are
    house.relay.relay.siblings = 1;
    if (ol_server_run(&options, &is_stopped, &err) < 0)
        status = ol_cli_report(&err);
    if (!atomic_load(&is_stopped))
        atomic_store(&is_stopped, 1);
    join_all(&house);
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
        "API, console and relay in one process, until SIGTERM. Every call needs a token (outlog token\n"
        "create); --dev needs none, makes the schema where it is missing, and answers only to\n"
        "loopback names.\n\n"
        "  --listen    127.0.0.1:7400 unless told otherwise; port 0 takes a free one\n"
        "  --config    apply this file first, as `outlog apply` does\n"
        "  --no-relay  deliver nothing: relays run elsewhere\n"
        "  --threads   how many requests are worked on at a time, each with its own connection\n"
        "  --queue     how many may wait for that; the next one is answered 503 at once\n\n"
        "  outlog serve --dev\n"
        "  outlog serve --store postgres://db/app --listen 0.0.0.0:7400 --tls-cert c.pem --tls-key k.pem\n",
    .run = run,
};
