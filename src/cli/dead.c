/* dead.c: outlog dead: dead letters, grouped by destination and error, then one by one. */
#include "cli/cli.h"

#include "outbox/dead_letters.h"

#include <string.h>

enum { DEAD_SHOWN = 20, DEAD_LIMIT_MAX = 10000 };

struct dead_args {
    struct outlog_message_filter filter;
    struct outlog_operator by;
    int64_t limit;
    const char *after, *actor;
    bool groups;
};

static void print_group(const struct ol_cli *cli, const struct ol_dead_letter_group *group)
{
    struct ol_buf line = {0};
    if (cli->json) {
        ol_dead_letters_group_json(group, &line);
    } else {
        char number[32];
        ol_buf_print(&line, "%s%10s%s  ", ol_cli_bad(cli), ol_cli_thousands(group->count, number),
                     ol_cli_plain(cli));
        ol_cli_put_wide(&line, group->destination, 14);
        ol_buf_char(&line, ' ');
        ol_cli_put_safe(&line, *group->error ? group->error : "(no error)",
                        strlen(*group->error ? group->error : "(no error)"));
        if (group->held)
            ol_buf_print(&line, "  [%lld hold their key]", (long long)group->held);
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

static int list_dead(struct ol_cli *cli, outlog *log, const struct dead_args *args, outlog_err *err)
{
    struct ol_dead_letters_groups groups = {0};
    int result = 0;
    bool has_groups = args->groups || (!cli->json && !args->after);
    if (has_groups && (result = ol_dead_letters_groups(log, args->filter.destination, &cli->arena,
                                                       &groups, err)) == 0) {
        for (size_t i = 0; i < groups.count && (args->groups || i < DEAD_SHOWN); i++)
            print_group(cli, &groups.all[i]);
        if (groups.count > DEAD_SHOWN && !args->groups)
            printf("… and %zu more kinds: outlog dead --groups\n", groups.count - DEAD_SHOWN);
        if (!groups.count && !cli->json)
            printf("no dead letters\n");
        else if (!args->groups)
            putchar('\n');
    }
    if (result == 0 && !args->groups)
        result =
            ol_cli_put_messages(cli, log, &args->filter, args->after, (size_t)args->limit, err);
    return result;
}

static int release_keys(struct ol_cli *cli, outlog *log, const struct dead_args *args,
                        outlog_err *err)
{
    const char *const *ids = (const char *const *)cli->argv + 1;
    size_t count = (size_t)cli->argc - 1;
    if (outlog_release_keys(log, ids, count, &args->by, err) < 0)
        return -1;
    if (cli->json)
        printf("{\"released\":%zu}\n", count);
    else
        printf("%zu released: the keys go on, the messages stay DEAD\n", count);
    return 0;
}

static int parse_dead_args(struct ol_cli *cli, struct dead_args *args)
{
    const char *since = NULL, *until = NULL;
    bool has_limit = false;
    struct outlog_message_filter *filter = &args->filter;
    const struct ol_option options[] = {{"to", OL_OPTION_STRING, &filter->destination, NULL},
                                        {"type", OL_OPTION_STRING, &filter->event_type, NULL},
                                        {"since", OL_OPTION_STRING, &since, NULL},
                                        {"until", OL_OPTION_STRING, &until, NULL},
                                        {"limit", OL_OPTION_NUMBER, &args->limit, &has_limit},
                                        {"after", OL_OPTION_STRING, &args->after, NULL},
                                        {"groups", OL_OPTION_FLAG, &args->groups, NULL},
                                        {"actor", OL_OPTION_STRING, &args->actor, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_window(since, until, &filter->since, &filter->until)) ||
        (status = ol_cli_actor(cli, args->actor, &args->by.actor_type, &args->by.actor_id)))
        return status;
    if (!has_limit)
        args->limit = cli->json ? 100 : DEAD_SHOWN;
    if (args->limit < 1 || args->limit > DEAD_LIMIT_MAX)
        return ol_cli_usage("--limit is 1 to %d", DEAD_LIMIT_MAX);
    if (cli->argc && (strcmp(cli->argv[0], "release") != 0 || cli->argc < 2))
        return ol_cli_usage("dead lists dead letters, or releases keys: outlog dead release ID…");
    return 0;
}

static int run_dead(struct ol_cli *cli)
{
    struct dead_args args = {.filter = {.state = "DEAD"}};
    outlog_err err;
    int status = parse_dead_args(cli, &args);
    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if ((cli->argc ? release_keys(cli, log, &args, &err) : list_dead(cli, log, &args, &err)) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_dead = {
    .name = "dead",
    .summary = "dead letters, grouped by what went wrong",
    .help =
        "usage: outlog dead [--to DESTINATION] [--type T] [--since T] [--until T] [--groups]\n"
        "                   [--limit N] [--after X] [--json]\n"
        "       outlog dead release ID… [--actor TYPE:ID]\n\n"
        "Counts dead letters by destination and error (with # for each number in an error), then lists\n"
        "the newest one by one. `requeue` sends them again. With `on_dead: hold` a dead letter blocks\n"
        "later messages with its key: requeue it, or release the key to deliver them without it.\n\n"
        "  outlog dead\n"
        "  outlog dead --to billing --groups --json\n"
        "  outlog dead release 019a7c3e-0000-7000-8000-000000000001\n",
    .run = run_dead,
};
