/* requeue.c: outlog requeue: dead or published messages go again. */
#include "cli/cli.h"

#include <string.h>

struct wish {
    struct outlog_message_filter filter;
    struct outlog_requeue how;
    const char *actor;
    bool all;
};

static int check(struct ol_cli *cli, const struct wish *wish)
{
    const struct outlog_message_filter *filter = &wish->filter;
    bool is_narrow = filter->destination || filter->event_type || filter->since || filter->until ||
                     filter->error;
    bool is_published = filter->state && strcmp(filter->state, "PUBLISHED") == 0;
    if (filter->state && !is_published && strcmp(filter->state, "DEAD") != 0)
        return ol_cli_usage("--state is DEAD or PUBLISHED, not '%s'", filter->state);
    if (cli->argc && (wish->all || is_narrow || filter->state))
        return ol_cli_usage(
            "give ids, or say which by --all, --to, --type, --error, --since, --until; not both");
    if (!cli->argc && !wish->all && !is_narrow)
        return ol_cli_usage(
            "requeue what? ID…, --all, --to DESTINATION, --type T, --since T or --until T");
    if (is_published && !is_narrow)
        return ol_cli_usage(
            "everything ever published is too much: narrow it by --to, --type, --since or "
            "--until");
    return 0;
}

static int parse(struct ol_cli *cli, struct wish *wish)
{
    const char *since = NULL, *until = NULL;
    struct outlog_message_filter *filter = &wish->filter;
    const struct ol_option options[] = {{"all", OL_OPTION_FLAG, &wish->all, NULL},
                                        {"to", OL_OPTION_STRING, &filter->destination, NULL},
                                        {"type", OL_OPTION_STRING, &filter->event_type, NULL},
                                        {"error", OL_OPTION_STRING, &filter->error, NULL},
                                        {"since", OL_OPTION_STRING, &since, NULL},
                                        {"until", OL_OPTION_STRING, &until, NULL},
                                        {"state", OL_OPTION_STRING, &filter->state, NULL},
                                        {"dry-run", OL_OPTION_FLAG, &wish->how.dry_run, NULL},
                                        {"even-if-unknown", OL_OPTION_FLAG,
                                         &wish->how.even_if_unknown, NULL},
                                        {"actor", OL_OPTION_STRING, &wish->actor, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_window(since, until, &filter->since, &filter->until)) ||
        (status = ol_cli_actor(cli, wish->actor, &wish->how.by.actor_type, &wish->how.by.actor_id)))
        return status;
    return check(cli, wish);
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {0};
    outlog_err err;
    int status = parse(cli, &wish);
    if (status)
        return status;
    struct ol_bulk_result tally = {.verb = "requeued", .is_dry = wish.how.dry_run};
    ol_cli_bulk_result_begin(cli, &tally, &wish.how);
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    int done = cli->argc
                   ? outlog_requeue_ids(log, (const char *const *)cli->argv, (size_t)cli->argc,
                                        &wish.how, &err)
                   : outlog_requeue_all(log, &wish.filter, &wish.how, NULL, &tally.skipped, &err);
    ol_cli_bulk_result_end(cli, &tally, done,
                           "they go at most once and nobody knows whether they arrived; "
                           "--even-if-unknown sends them all the same");
    if (done < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_requeue = {
    .name = "requeue",
    .summary = "send dead or published messages again",
    .help =
        "usage: outlog requeue ID… | --all | [--to DESTINATION] [--type T] [--error E] [--since T]\n"
        "                      [--until T] [--state DEAD|PUBLISHED] [--dry-run] [--even-if-unknown]\n"
        "                      [--actor TYPE:ID] [--json]\n\n"
        "The messages become PENDING and due now. attempts goes on counting, the budget of attempts\n"
        "starts afresh, and every attempt made so far is kept. What was PUBLISHED is marked as a\n"
        "replay: receivers get it again under the same id. The order within a key holds from here on;\n"
        "younger messages that went before are not called back. Each leaves an audit event.\n\n"
        "  --error            the last error, word for word or as `outlog dead` groups it\n"
        "  --even-if-unknown  also what goes at most once and may have arrived\n"
        "  --dry-run          only count\n\n"
        "  outlog requeue 019a7c3e-0000-7000-8000-000000000001\n"
        "  outlog requeue --to billing --since 2h --dry-run\n"
        "  outlog requeue --state PUBLISHED --to search --since 2026-01-31T12:00:00Z\n",
    .run = run,
};
