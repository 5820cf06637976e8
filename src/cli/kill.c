/* kill.c: outlog kill: messages that shall not be sent. */
#include "cli/cli.h"

#include "outbox/message_view.h"

struct wish {
    struct outlog_message_filter filter;
    struct outlog_requeue how;
    const char *actor;
    bool all;
};

static int parse(struct ol_cli *cli, struct wish *wish)
{
    struct outlog_message_filter *filter = &wish->filter;
    const char *since = NULL, *until = NULL;
    const struct ol_option options[] = {{"all", OL_OPTION_FLAG, &wish->all, NULL},
                                        {"to", OL_OPTION_STRING, &filter->destination, NULL},
                                        {"type", OL_OPTION_STRING, &filter->event_type, NULL},
                                        {"error", OL_OPTION_STRING, &filter->error, NULL},
                                        {"retrying", OL_OPTION_FLAG, &filter->is_retrying, NULL},
                                        {"since", OL_OPTION_STRING, &since, NULL},
                                        {"until", OL_OPTION_STRING, &until, NULL},
                                        {"dry-run", OL_OPTION_FLAG, &wish->how.dry_run, NULL},
                                        {"actor", OL_OPTION_STRING, &wish->actor, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_window(since, until, &filter->since, &filter->until)) ||
        (status = ol_cli_actor(cli, wish->actor, &wish->how.by.actor_type, &wish->how.by.actor_id)))
        return status;
    bool is_narrow = filter->destination || filter->event_type || filter->error ||
                     filter->is_retrying || since || until;
    if (cli->argc && (wish->all || is_narrow || wish->how.dry_run))
        return ol_cli_usage("give ids, or say which by --all, --to, --type, --error, --retrying, "
                            "--since, --until; not both");
    if (!cli->argc && !wish->all && !is_narrow)
        return ol_cli_usage(
            "kill what? ID…, --all, --to DESTINATION, --type T, --error E, --retrying, "
            "--since T or --until T");
    return 0;
}

/* --- by id --- */

static int print(struct ol_cli *cli, outlog *log, const char *id, outlog_err *err)
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

static int kill_ids(struct ol_cli *cli, outlog *log, const struct wish *wish, outlog_err *err)
{
    int result =
        outlog_kill(log, (const char *const *)cli->argv, (size_t)cli->argc, &wish->how.by, err);
    for (int i = 0; result == 0 && i < cli->argc; i++)
        result = print(cli, log, cli->argv[i], err);
    return result;
}

/* --- all that match --- */

static int kill_all(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    struct ol_bulk_result tally = {.verb = "killed", .is_dry = wish->how.dry_run};
    ol_cli_bulk_result_begin(cli, &tally, &wish->how);
    int done = outlog_kill_all(log, &wish->filter, &wish->how, NULL, &tally.skipped, err);
    ol_cli_bulk_result_end(cli, &tally, done, "on their way just now");
    return done;
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {0};
    outlog_err err;
    int status = parse(cli, &wish);
    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if ((cli->argc ? kill_ids(cli, log, &wish, &err) : kill_all(cli, log, &wish, &err)) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_kill = {
    .name = "kill",
    .summary = "end messages that wait, without sending them",
    .help =
        "usage: outlog kill ID… | --all | [--to DESTINATION] [--type T] [--error E] [--retrying]\n"
        "                   [--since T] [--until T] [--dry-run] [--actor TYPE:ID] [--json]\n\n"
        "PENDING messages become DEAD; by id all of them or none. attempts stays as it was, and later\n"
        "messages of the same key go on. What is CLAIMED is on its way and cannot be killed. A killed\n"
        "message can be requeued. Each leaves an audit event.\n\n"
        "  --error      the last error, word for word or with # for each number\n"
        "  --retrying   only what was tried already\n"
        "  --dry-run    only count\n\n"
        "  outlog kill 019a7c3e-0000-7000-8000-000000000001\n"
        "  outlog kill --to billing --retrying --dry-run\n",
    .run = run,
};
