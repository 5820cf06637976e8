/* destinations.c: outlog destinations: health of destinations; pause, resume, deliver, test. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "outbox/destination_health.h"
#include "publish/test_send.h"

#include <string.h>

struct destinations_args {
    struct outlog_operator by;
    const char *actor, *data;
};

/* --- the list --- */

static void print_destination(struct ol_cli *cli, const struct ol_destination_health *one)
{
    struct ol_buf line = {0};
    const struct ol_message_count *count = &one->count;
    bool is_well = !one->is_paused && strcmp(one->breaker, "closed") == 0;
    char pending[32], dead[32], age[32], ok[32];

    if (cli->json) {
        ol_destination_health_json(one, &line);
    } else {
        ol_cli_put_wide(&line, one->name, 16);
        ol_buf_print(&line, " %-9s %s%-9s%s %s%11s %9s %8s %8s%s  ", one->type,
                     is_well ? ol_cli_good(cli) : ol_cli_bad(cli),
                     one->is_paused ? "paused" : one->breaker, ol_cli_plain(cli),
                     count->is_estimate ? "~" : " ", ol_cli_thousands(count->pending, pending),
                     ol_cli_thousands(count->dead, dead), ol_cli_age(count->oldest_pending_at, age),
                     ol_cli_age(one->last_ok_at, ok), one->last_ok_at ? " ago" : "    ");
        int64_t wait_us = one->retry_at - ol_clock_wall_us();
        if (one->retry_at)
            ol_buf_print(&line, "next try in %lld s: ",
                         wait_us > 0 ? (long long)((wait_us + 999999) / 1000000) : 0LL);
        size_t bytes = one->last_error ? strlen(one->last_error) : 0;
        ol_cli_put_safe(&line, one->last_error ? one->last_error : "", bytes < 80 ? bytes : 80);
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

/* Print the destination of this name, or all of them for NULL. */
static int list_destinations(struct ol_cli *cli, outlog *log, const char *name, outlog_err *err)
{
    struct ol_destination_healths all;
    if (ol_destination_health_list(log, &cli->arena, &all, err) < 0)
        return -1;
    if (!cli->json)
        printf("%s%-16s %-9s %-9s %12s %9s %8s %12s  %s%s\n", ol_cli_bold(cli), "destination",
               "type", "state", "pending", "dead", "oldest", "last success", "last error",
               ol_cli_plain(cli));
    for (size_t i = 0; i < all.count; i++)
        if (!name || strcmp(all.all[i].name, name) == 0)
            print_destination(cli, &all.all[i]);
    return 0;
}

/* --- pause, resume, deliver --- */

static int pause_or_resume(struct ol_cli *cli, outlog *log, const char *name, bool paused,
                           const struct destinations_args *args, outlog_err *err)
{
    bool changed;
    if (outlog_destination_pause(log, name, paused, &args->by, &changed, err) < 0)
        return -1;
    if (cli->json)
        return list_destinations(cli, log, name, err);
    printf("%s %s%s\n", name, paused ? "is paused: its messages wait" : "is resumed",
           changed ? "" : " (it was before)");
    return 0;
}

static int deliver_waiting(struct ol_cli *cli, outlog *log, const char *name,
                           const struct destinations_args *args, outlog_err *err)
{
    int64_t hurried;
    char number[32];
    if (outlog_deliver(log, name, &args->by, &hurried, err) < 0)
        return -1;
    if (cli->json)
        printf("{\"hurried\":%lld}\n", (long long)hurried);
    else
        printf("%s waiting messages are due now\n", ol_cli_thousands(hurried, number));
    return 0;
}

/* --- test --- */

static int test_destination(struct ol_cli *cli, outlog *log, const char *name,
                            const struct destinations_args *args, bool *is_ok, outlog_err *err)
{
    struct ol_test_send sent;
    struct ol_buf line = {0};
    const char *payload = args->data ? ol_cli_text_or_file(cli, args->data) : NULL;
    struct ol_json json;
    if (args->data && !payload)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "--data cannot be read");
    if (payload && ol_json_parse(payload, strlen(payload), &json, err) < 0) {
        ol_err_prefix(err, "--data");
        return -1;
    }
    if (ol_test_send_run(log, name, payload, &sent, err) < 0)
        return -1;
    *is_ok = sent.outcome.kind == OUTLOG_PUBLISH_OK;
    if (cli->json) {
        ol_test_send_json(&sent, &line);
    } else {
        ol_buf_print(&line, "%s%s%s", *is_ok ? ol_cli_good(cli) : ol_cli_bad(cli),
                     ol_test_send_outcome(&sent), ol_cli_plain(cli));
        if (sent.outcome.status)
            ol_buf_print(&line, "  status %d", sent.outcome.status);
        ol_buf_print(&line, "  %lld ms", (long long)(sent.outcome.duration_us / 1000));
        if (*sent.error)
            ol_buf_text(&line, "  ");
        ol_cli_put_safe(&line, sent.error, strlen(sent.error));
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
    return 0;
}

/* --- the command --- */

static int run_destinations(struct ol_cli *cli)
{
    struct destinations_args args = {0};
    outlog_err err;
    const struct ol_option options[] = {{"actor", OL_OPTION_STRING, &args.actor, NULL},
                                        {"data", OL_OPTION_STRING, &args.data, NULL},
                                        {0}};
    static const char *const verbs[] = {"pause", "resume", "deliver", "test"};
    int status = ol_cli_options(cli, options), verb = 0;
    if (status || (status = ol_cli_actor(cli, args.actor, &args.by.actor_type, &args.by.actor_id)))
        return status;
    while (cli->argc && verb < 4 && strcmp(cli->argv[0], verbs[verb]) != 0)
        verb++;
    if (cli->argc && (verb == 4 || cli->argc != 2))
        return ol_cli_usage(
            "destinations lists, or: outlog destinations pause|resume|test|deliver NAME");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    const char *name = cli->argc ? cli->argv[1] : NULL;
    bool is_ok = true;
    int result = !name      ? list_destinations(cli, log, NULL, &err)
                 : verb < 2 ? pause_or_resume(cli, log, name, verb == 0, &args, &err)
                 : verb < 3 ? deliver_waiting(cli, log, name, &args, &err)
                            : test_destination(cli, log, name, &args, &is_ok, &err);
    if (result < 0)
        status = ol_cli_report(&err);
    else if (!is_ok)
        status = OL_EXIT_FAILED;
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_destinations = {
    .name = "destinations",
    .summary = "where messages go: health, pause, resume, test",
    .help =
        "usage: outlog destinations [--json]\n"
        "       outlog destinations pause|resume NAME [--actor TYPE:ID]\n"
        "       outlog destinations deliver NAME [--actor TYPE:ID]\n"
        "       outlog destinations test NAME [--data JSON|@FILE] [--json]\n\n"
        "Lists destinations with their backlog and the time of their last success; ~ marks a number that\n"
        "is estimated from the first messages of a long backlog. While a destination is paused, its\n"
        "messages stay in the outbox. `deliver` makes messages that wait for a retry or a delay due now.\n"
        "`test` sends one message of type outlog.test from this process, not through the outbox, and\n"
        "prints the outcome; exit 1 unless the destination accepted it.\n\n"
        "  outlog destinations\n"
        "  outlog destinations test billing\n"
        "  outlog destinations pause billing --actor user:ann\n",
    .run = run_destinations,
};
