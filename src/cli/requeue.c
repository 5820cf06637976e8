/* requeue.c: outlog requeue: makes dead or published messages PENDING again. */
#include "cli/cli.h"

#include <string.h>

struct requeue_args {
    struct outlog_message_filter filter;
    struct outlog_requeue how;
    const char *actor;
    bool all;
};

static int check_requeue_args(struct ol_cli *cli, const struct requeue_args *args)
{
    const struct outlog_message_filter *filter = &args->filter;
    bool is_narrow = filter->destination || filter->event_type || filter->since || filter->until ||
                     filter->error;
    bool is_published = filter->state && strcmp(filter->state, "PUBLISHED") == 0;
    if (filter->state && !is_published && strcmp(filter->state, "DEAD") != 0)
        return ol_cli_usage("--state is DEAD or PUBLISHED, not '%s'", filter->state);
    if (cli->argc && (args->all || is_narrow || filter->state))
        return ol_cli_usage(
            "give either ids or filters (--all, --to, --type, --error, --since, --until), not both");
    if (!cli->argc && !args->all && !is_narrow)
        return ol_cli_usage(
            "requeue needs ID…, --all, --to DESTINATION, --type T, --since T or --until T");
    if (is_published && !is_narrow)
        return ol_cli_usage(
            "--state PUBLISHED needs a filter: --to, --type, --error, --since or --until");
    return 0;
}

static int parse_requeue_args(struct ol_cli *cli, struct requeue_args *args)
{
    const char *since = NULL, *until = NULL;
    struct outlog_message_filter *filter = &args->filter;
    const struct ol_option options[] = {{"all", OL_OPTION_FLAG, &args->all, NULL},
                                        {"to", OL_OPTION_STRING, &filter->destination, NULL},
                                        {"type", OL_OPTION_STRING, &filter->event_type, NULL},
                                        {"error", OL_OPTION_STRING, &filter->error, NULL},
                                        {"since", OL_OPTION_STRING, &since, NULL},
                                        {"until", OL_OPTION_STRING, &until, NULL},
                                        {"state", OL_OPTION_STRING, &filter->state, NULL},
                                        {"dry-run", OL_OPTION_FLAG, &args->how.dry_run, NULL},
                                        {"even-if-unknown", OL_OPTION_FLAG,
                                         &args->how.even_if_unknown, NULL},
                                        {"actor", OL_OPTION_STRING, &args->actor, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_window(since, until, &filter->since, &filter->until)) ||
        (status = ol_cli_actor(cli, args->actor, &args->how.by.actor_type, &args->how.by.actor_id)))
        return status;
    return check_requeue_args(cli, args);
}

static int run_requeue(struct ol_cli *cli)
{
    struct requeue_args args = {0};
    outlog_err err;
    int status = parse_requeue_args(cli, &args);
    if (status)
        return status;
    struct ol_bulk_result result = {.verb = "requeued", .is_dry = args.how.dry_run};
    ol_cli_bulk_result_begin(cli, &result, &args.how);
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    int done = cli->argc
                   ? outlog_requeue_ids(log, (const char *const *)cli->argv, (size_t)cli->argc,
                                        &args.how, &err)
                   : outlog_requeue_all(log, &args.filter, &args.how, NULL, &result.skipped, &err);
    ol_cli_bulk_result_end(cli, &result, done,
                           "their guarantee is at most once and they may have arrived; "
                           "--even-if-unknown sends them anyway");
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
        "The messages become PENDING and due now. attempts keeps counting, max_attempts counts from here,\n"
        "and the record of past attempts is kept. A PUBLISHED message is marked as a replay: receivers\n"
        "get it again with the same id. From now on the order within a key holds again; later messages\n"
        "that were already delivered stay delivered. Each appends an audit event.\n\n"
        "  --error            the last error, exactly or as `outlog dead` groups it\n"
        "  --even-if-unknown  also at-most-once messages that may have arrived\n"
        "  --dry-run          only count\n\n"
        "  outlog requeue 019a7c3e-0000-7000-8000-000000000001\n"
        "  outlog requeue --to billing --since 2h --dry-run\n"
        "  outlog requeue --state PUBLISHED --to search --since 2026-01-31T12:00:00Z\n",
    .run = run_requeue,
};
