/* projections.c: outlog projections: runs, rebuilds and lists the views derived from the log. */
#include "base/duration.h"
#include "cli/cli.h"

#include "base/clock.h"
#include "projections/checkpoint.h"
#include "projections/projector.h"
#include "store/postgres/shutdown.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PROJECTIONS_LIST_MAX = 1000 };

struct projections_args {
    bool is_shadow, no_wait;
    const char *actor;
    struct outlog_operator by;
    struct ol_projector_options worker;
    const char *timeout;
    int64_t event_id;
};

static atomic_int is_stopped;

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&is_stopped, 1);
    ol_shutdown_begin();
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* --- output --- */

/* Add text with each run of white space, also line feeds, as one space. */
static void put_folded(struct ol_buf *out, const char *text)
{
    while (*text) {
        size_t bytes = strcspn(text, " \t\r\n");
        ol_cli_put_safe(out, text, bytes);
        text += bytes;
        text += strspn(text, " \t\r\n");
        if (*text)
            ol_buf_char(out, ' ');
    }
}

static const char *get_member(const struct ol_json *object, const char *key, struct ol_arena *arena)
{
    struct ol_json value = ol_json_get(object, key);
    const char *text = ol_json_string(&value, arena, NULL);
    return text ? text : "";
}

/* Print an error for people: the event, the database's message, the statement. */
static void print_error(const struct ol_cli *cli, const char *what, const char *error)
{
    struct ol_arena arena = {0};
    struct ol_json value;
    struct ol_buf line = {0};
    if (!*error || ol_json_parse(error, strlen(error), &value, NULL) < 0)
        return;
    struct ol_json event = ol_json_get(&value, "event_id");
    ol_buf_print(&line, "  %s%s", ol_cli_bad(cli), what);
    if (event.type == OL_JSON_NUMBER) {
        ol_buf_print(&line, " at event %.*s ", (int)event.bytes, event.text);
        put_folded(&line, get_member(&value, "event_type", &arena));
    }
    ol_buf_text(&line, ": ");
    put_folded(&line, get_member(&value, "message", &arena));
    ol_buf_text(&line, ol_cli_plain(cli));
    ol_cli_put_line(&line);
    const char *statement = get_member(&value, "statement", &arena);
    if (*statement) {
        ol_buf_text(&line, "    ");
        put_folded(&line, statement);
        ol_cli_put_line(&line);
    }
    ol_buf_clear(&line);
    ol_arena_clear(&arena);
}

static void print_rebuild(const struct outlog_projection *p)
{
    char done[32], upto[32], pace[32];
    int64_t eta_s, rate = ol_checkpoint_rebuild_pace(p, &eta_s);
    printf("  version %d is built aside: %s of %s events, %s events/s", p->rebuild_version,
           ol_cli_thousands(p->rebuild_event_id, done), ol_cli_thousands(p->rebuild_upto, upto),
           ol_cli_thousands(rate, pace));
    if (eta_s >= 0)
        printf(", %lld s left", (long long)eta_s);
    putchar('\n');
}

static void print_projection(const struct ol_cli *cli, const struct outlog_projection *p)
{
    struct ol_buf line = {0};
    if (cli->json) {
        ol_projection_json(p, &line);
        ol_cli_put_line(&line);
    } else {
        const char *color = strcmp(p->status, "stopped") == 0   ? ol_cli_bad(cli)
                            : strcmp(p->status, "running") == 0 ? ol_cli_good(cli)
                                                                : ol_cli_accent(cli);
        ol_cli_put_wide(&line, p->name, 24);
        ol_buf_print(&line, " %4d  %s%-10s%s %12lld %10lld  ", p->version, color, p->status,
                     ol_cli_plain(cli), (long long)p->last_applied_event_id, (long long)p->lag);
        ol_cli_put_safe(&line, p->owner, strlen(p->owner));
        ol_cli_put_line(&line);
        print_error(cli, "stopped", p->error);
        if (strcmp(p->rebuild, "aside") == 0 && !*p->rebuild_error)
            print_rebuild(p);
        print_error(cli, "the rebuild stopped", p->rebuild_error);
    }
    ol_buf_clear(&line);
}

static int list_projections(struct ol_cli *cli, outlog *log, void *args, outlog_err *err)
{
    struct outlog_projection *all = calloc(PROJECTIONS_LIST_MAX, sizeof *all);
    size_t count;
    (void)args;
    if (!all)
        return ol_no_memory(err);
    int result = outlog_projection_list(log, all, PROJECTIONS_LIST_MAX, &count, err);
    if (result == 0 && !cli->json)
        printf("%s%-24s %4s  %-10s %12s %10s  %s%s\n", ol_cli_bold(cli), "projection", "vers",
               "status", "applied", "lag", "worker", ol_cli_plain(cli));
    for (size_t i = 0; result == 0 && i < count && i < PROJECTIONS_LIST_MAX; i++)
        print_projection(cli, &all[i]);
    free(all);
    return result;
}

static int show_projection(struct ol_cli *cli, outlog *log, const char *name, outlog_err *err)
{
    struct outlog_projection projection;
    if (outlog_projection_get(log, name, &projection, err) < 0)
        return -1;
    print_projection(cli, &projection);
    return 0;
}

/* --- a worker --- */

static int run_worker(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct projections_args *args = context;
    struct ol_projector_stats stats = {0};
    int64_t started = ol_clock_boot_us();
    char applied[32];
    (void)log;
    if (ol_shutdown_prepare(cli->store, err) < 0)
        return -1;
    watch_signals();
    args->worker.store = cli->store;
    if (ol_projector_run(&args->worker, &is_stopped, &stats, err) < 0)
        return -1;
    fprintf(stderr, "outlog projections: %s events applied, %lld swaps, %lld stops, in %.2f s\n",
            ol_cli_thousands(stats.applied, applied), (long long)stats.swaps,
            (long long)stats.stops, (double)(ol_clock_boot_us() - started) / 1e6);
    return ol_shutdown_end(0);
}

struct projector_thread {
    pthread_t id;
    struct ol_projector_options options;
    struct ol_projector_stats stats;
    atomic_int stop;
    outlog_err err;
    atomic_int has_failed;
};

static void *run_thread(void *argument)
{
    struct projector_thread *thread = argument;
    if (ol_projector_run(&thread->options, &thread->stop, &thread->stats, &thread->err) < 0)
        atomic_store(&thread->has_failed, 1);
    return NULL;
}

/* --- rebuild --- */

static void draw_rebuild(struct ol_progress *progress, const struct outlog_projection *p)
{
    if (p->rebuild_upto > progress->total)
        progress->total = p->rebuild_upto;
    ol_progress_move(progress, p->rebuild_event_id);
}

/* Print progress until the rebuild is done, has stopped, or we get a signal. After a signal another
 * worker continues it. */
static int follow_rebuild(struct ol_cli *cli, outlog *log, struct projector_thread *thread,
                          const char *name, outlog_err *err)
{
    struct ol_progress progress;
    struct outlog_projection p;
    int result;
    ol_progress_begin(&progress, "events", 0);
    for (;;) {
        result = outlog_projection_get(log, name, &p, err);
        bool has_stopped = *p.rebuild_error || (*p.error && strcmp(p.rebuild, "in_place") == 0);
        if (result < 0 || !*p.rebuild || has_stopped || atomic_load(&is_stopped))
            break;
        if (atomic_load(&thread->has_failed)) {
            *err = thread->err;
            result = -1;
            break;
        }
        draw_rebuild(&progress, &p);
        ol_clock_sleep_us(50000);
    }
    ol_progress_end(&progress);
    double seconds = (double)(ol_clock_boot_us() - progress.started_at) / 1e6;
    if (result < 0)
        return -1;
    if (!cli->json && !*p.rebuild)
        fprintf(stderr, "%s rebuilt up to event %lld in %.1f s, %.0f events/s\n", name,
                (long long)p.last_applied_event_id, seconds,
                seconds > 0 ? (double)p.last_applied_event_id / seconds : 0.0);
    else if (atomic_load(&is_stopped))
        fprintf(stderr, "a worker continues the rebuild of %s: outlog projections run\n", name);
    print_projection(cli, &p);
    return *p.rebuild && !atomic_load(&is_stopped)
               ? ol_fail(err, OUTLOG_STORE_ERROR,
                         "the rebuild of %s stopped; see above, then skip the event or correct the "
                         "definition and retry",
                         name)
               : 0;
}

static int rebuild_projection(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct projections_args *args = context;
    const char *name = cli->argv[1];
    struct outlog_projection before;
    if (outlog_projection_rebuild(log, name, args->is_shadow, &args->by, err) < 0 ||
        outlog_projection_get(log, name, &before, err) < 0)
        return -1;
    if (args->no_wait || before.is_in_c) // its own process starts over with its next batch
        return show_projection(cli, log, name, err);
    struct projector_thread thread = {.options = args->worker};
    thread.options.store = cli->store;
    thread.options.only = name;
    watch_signals();
    if (pthread_create(&thread.id, NULL, run_thread, &thread) != 0)
        return ol_fail(err, OUTLOG_NO_MEMORY, "cannot start a thread");
    int result = follow_rebuild(cli, log, &thread, name, err);
    atomic_store(&thread.stop, 1);
    pthread_join(thread.id, NULL);
    return result;
}

/* --- the other verbs --- */

static int cancel_rebuild(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct projections_args *args = context;
    return outlog_projection_cancel(log, cli->argv[1], &args->by, err) < 0
               ? -1
               : show_projection(cli, log, cli->argv[1], err);
}

static int skip_event(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct projections_args *args = context;
    return outlog_projection_skip(log, cli->argv[1], args->event_id, &args->by, err) < 0
               ? -1
               : show_projection(cli, log, cli->argv[1], err);
}

static int retry_projection(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct projections_args *args = context;
    return outlog_projection_retry(log, cli->argv[1], &args->by, err) < 0
               ? -1
               : show_projection(cli, log, cli->argv[1], err);
}

static int wait_for_event(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct projections_args *args = context;
    int64_t timeout_us = 5 * INT64_C(1000000), reached;
    struct ol_buf line = {0};
    if (args->timeout)
        ol_duration_parse(args->timeout, &timeout_us);
    if (outlog_projection_wait(log, cli->argv[1], args->event_id, (int)(timeout_us / 1000),
                               &reached, err) < 0)
        return -1;
    if (cli->json) {
        ol_buf_text(&line, "{\"name\":");
        ol_buf_json_text(&line, cli->argv[1]);
        ol_buf_print(&line, ",\"last_applied_event_id\":%lld}", (long long)reached);
    } else {
        ol_buf_print(&line, "%s has applied event %lld", cli->argv[1], (long long)reached);
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
    return 0;
}

static const struct ol_cli_verb verbs[] = {
    {"run", 1, run_worker,
     "projections run [--id NAME] [--lease SPAN] [--poll SPAN] [--until-idle]"},
    {"rebuild", 2, rebuild_projection, "projections rebuild NAME [--aside] [--no-wait]"},
    {"cancel", 2, cancel_rebuild, "projections cancel NAME"},
    {"skip", 3, skip_event, "projections skip NAME EVENT_ID"},
    {"retry", 2, retry_projection, "projections retry NAME"},
    {"wait", 3, wait_for_event, "projections wait NAME EVENT_ID [--timeout SPAN]"},
    {NULL, 0, list_projections, NULL},
};

static int parse_duration(const char *name, const char *text, int64_t min_us, int64_t *out)
{
    int64_t ignored;
    if (!text || (ol_duration_parse(text, out ? out : &ignored) == 0 && (!out || *out >= min_us)))
        return 0;
    return ol_cli_usage("--%s is a span like 500ms or 30s, not '%s'", name, text);
}

static int parse_projections_args(struct ol_cli *cli, struct projections_args *args)
{
    const char *id = NULL, *lease = NULL, *poll = NULL;
    const struct ol_option options[] = {{"aside", OL_OPTION_FLAG, &args->is_shadow, NULL},
                                        {"no-wait", OL_OPTION_FLAG, &args->no_wait, NULL},
                                        {"actor", OL_OPTION_STRING, &args->actor, NULL},
                                        {"id", OL_OPTION_STRING, &id, NULL},
                                        {"lease", OL_OPTION_STRING, &lease, NULL},
                                        {"poll", OL_OPTION_STRING, &poll, NULL},
                                        {"until-idle", OL_OPTION_FLAG, &args->worker.until_idle,
                                         NULL},
                                        {"timeout", OL_OPTION_STRING, &args->timeout, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status || (status = parse_duration("lease", lease, 1000000, &args->worker.lease_us)) ||
        (status = parse_duration("poll", poll, 1000, &args->worker.poll_us)) ||
        (status = parse_duration("timeout", args->timeout, 0, NULL)) ||
        (status = ol_cli_actor(cli, args->actor, &args->by.actor_type, &args->by.actor_id)))
        return status;
    if (id)
        args->worker.name = id;
    return 0;
}

static int run_projections(struct ol_cli *cli)
{
    struct projections_args args = {.worker = ol_projector_defaults(NULL)};
    const struct ol_cli_verb *verb;
    char host[100] = "projector";

    gethostname(host, sizeof host - 1);
    args.worker.name = host;
    int status = parse_projections_args(cli, &args);
    if (status || (status = ol_cli_verb(cli, verbs, &verb, &args.event_id)))
        return status;
    return ol_cli_run_verb(cli, verb, &args);
}

const struct ol_cli_command ol_command_projections = {
    .name = "projections",
    .summary = "views derived from the log: list, run, rebuild, skip, retry, wait",
    .help =
        "usage: outlog projections [--json]\n"
        "       outlog projections run [--id NAME] [--lease SPAN] [--poll SPAN] [--until-idle]\n"
        "       outlog projections rebuild NAME [--aside] [--no-wait] [--actor TYPE:ID]\n"
        "       outlog projections cancel NAME [--actor TYPE:ID]\n"
        "       outlog projections skip NAME EVENT_ID [--actor TYPE:ID]\n"
        "       outlog projections retry NAME [--actor TYPE:ID]\n"
        "       outlog projections wait NAME EVENT_ID [--timeout SPAN]\n\n"
        "Projections are declared in outlog.yaml (`outlog apply`). `run` is a worker: it applies events to\n"
        "them until SIGTERM. Start as many as you like; each projection belongs to one at a time.\n\n"
        "  rebuild       build the view again from the whole log: in place, so that readers see it, or\n"
        "  --aside       beside the live view, which it replaces once it has caught up\n"
        "  --no-wait     only request the rebuild; a worker does it\n"
        "  cancel        cancel a rebuild aside\n"
        "  skip          continue after an event that cannot be applied\n"
        "  retry         try the event again at which it stopped\n"
        "  wait          until the view contains the event; --timeout is 5s by default\n"
        "  --until-idle  stop when everything is applied\n\n"
        "  outlog projections run --id projector-1\n"
        "  outlog projections rebuild totals --aside\n"
        "  outlog projections wait totals 42 --timeout 2s\n",
    .run = run_projections,
};
