/* kill.c: outlog kill: makes pending messages DEAD instead of sending them. */
#include "cli/cli.h"

#include "outbox/message_view.h"

struct kill_args {
    struct outlog_message_filter filter;
    struct outlog_requeue how;
    const char *actor;
    bool all;
};

static int parse_kill_args(struct ol_cli *cli, struct kill_args *args)
{
    struct outlog_message_filter *filter = &args->filter;
    const char *since = NULL, *until = NULL;
    const struct ol_option options[] = {{"all", OL_OPTION_FLAG, &args->all, NULL},
                                        {"to", OL_OPTION_STRING, &filter->destination, NULL},
                                        {"type", OL_OPTION_STRING, &filter->event_type, NULL},
                                        {"error", OL_OPTION_STRING, &filter->error, NULL},
                                        {"retrying", OL_OPTION_FLAG, &filter->is_retrying, NULL},
                                        {"since", OL_OPTION_STRING, &since, NULL},
                                        {"until", OL_OPTION_STRING, &until, NULL},
                                        {"dry-run", OL_OPTION_FLAG, &args->how.dry_run, NULL},
                                        {"actor", OL_OPTION_STRING, &args->actor, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_window(since, until, &filter->since, &filter->until)) ||
        (status = ol_cli_actor(cli, args->actor, &args->how.by.actor_type, &args->how.by.actor_id)))
        return status;
    bool is_narrow = filter->destination || filter->event_type || filter->error ||
                     filter->is_retrying || since || until;
    if (cli->argc && (args->all || is_narrow || args->how.dry_run))
        return ol_cli_usage("give either ids or filters (--all, --to, --type, --error, --retrying, "
                            "--since, --until), not both");
    if (!cli->argc && !args->all && !is_narrow)
        return ol_cli_usage(
            "kill needs ID…, --all, --to DESTINATION, --type T, --error E, --retrying, "
            "--since T or --until T");
    return 0;
}

/* --- by id --- */

static int print_killed(struct ol_cli *cli, outlog *log, const char *id, outlog_err *err)
{
    struct outlog_message_page page = {0};
    struct ol_buf line = {0};
    int result = 0;
    if (!cli->json)
        printf("killed %s\n", id);
    else if ((result = outlog_message_get(log, id, &page, err)) == 0) {
        ol_message_view_json(&page.messages[0], false, &line);
        ol_cli_put_line(&line);
    }
    ol_buf_clear(&line);
    outlog_message_page_clear(&page);
    return result;
}

static int kill_ids(struct ol_cli *cli, outlog *log, const struct kill_args *args, outlog_err *err)
{
    int result =
        outlog_kill(log, (const char *const *)cli->argv, (size_t)cli->argc, &args->how.by, err);
    for (int i = 0; result == 0 && i < cli->argc; i++)
        result = print_killed(cli, log, cli->argv[i], err);
    return result;
}

/* --- by filter --- */

static int kill_all(struct ol_cli *cli, outlog *log, struct kill_args *args, outlog_err *err)
{
    struct ol_bulk_result result = {.verb = "killed", .is_dry = args->how.dry_run};
    ol_cli_bulk_result_begin(cli, &result, &args->how);
    int done = outlog_kill_all(log, &args->filter, &args->how, NULL, &result.skipped, err);
    ol_cli_bulk_result_end(cli, &result, done, "on their way just now");
    return done;
}

static int run_kill(struct ol_cli *cli)
{
    struct kill_args args = {0};
    outlog_err err;
    int status = parse_kill_args(cli, &args);
    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if ((cli->argc ? kill_ids(cli, log, &args, &err) : kill_all(cli, log, &args, &err)) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_kill = {
    .name = "kill",
    .summary = "make pending messages DEAD instead of sending them",
    .help =
        "usage: outlog kill ID… | --all | [--to DESTINATION] [--type T] [--error E] [--retrying]\n"
        "                   [--since T] [--until T] [--dry-run] [--actor TYPE:ID] [--json]\n\n"
        "PENDING messages become DEAD; by id all of them or none. attempts does not change, and later\n"
        "messages of the same key are delivered. A CLAIMED message is being sent and cannot be killed.\n"
        "A killed message can be requeued. Each appends an audit event.\n\n"
        "  --error      the last error, exactly or with # for each number\n"
        "  --retrying   only messages with a failed attempt\n"
        "  --dry-run    only count\n\n"
        "  outlog kill 019a7c3e-0000-7000-8000-000000000001\n"
        "  outlog kill --to billing --retrying --dry-run\n",
    .run = run_kill,
};
