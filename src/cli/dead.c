/* dead.c: outlog dead: dead letters, what they have in common first. */
#include "cli/cli.h"

#include "outbox/dead_letters.h"

#include <string.h>

enum { SHOWN = 20, MOST = 10000 };

struct wish {
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

static int list(struct ol_cli *cli, outlog *log, const struct wish *wish, outlog_err *err)
{
    struct ol_dead_letters_groups groups = {0};
    int result = 0;
    bool has_groups = wish->groups || (!cli->json && !wish->after);
    if (has_groups && (result = ol_dead_letters_groups(log, wish->filter.destination, &cli->arena,
                                                       &groups, err)) == 0) {
        for (size_t i = 0; i < groups.count && (wish->groups || i < SHOWN); i++)
            print_group(cli, &groups.all[i]);
        if (groups.count > SHOWN && !wish->groups)
            printf("… and %zu more kinds: outlog dead --groups\n", groups.count - SHOWN);
        if (!groups.count && !cli->json)
            printf("no dead letters\n");
        else if (!wish->groups)
            putchar('\n');
    }
    if (result == 0 && !wish->groups)
        result =
            ol_cli_put_messages(cli, log, &wish->filter, wish->after, (size_t)wish->limit, err);
    return result;
}

static int release(struct ol_cli *cli, outlog *log, const struct wish *wish, outlog_err *err)
{
    const char *const *ids = (const char *const *)cli->argv + 1;
    size_t count = (size_t)cli->argc - 1;
    if (outlog_release_keys(log, ids, count, &wish->by, err) < 0)
        return -1;
    if (cli->json)
        printf("{\"released\":%zu}\n", count);
    else
        printf("%zu released: the keys go on, the messages stay DEAD\n", count);
    return 0;
}

static int parse(struct ol_cli *cli, struct wish *wish)
{
    const char *since = NULL, *until = NULL;
    bool has_limit = false;
    struct outlog_message_filter *filter = &wish->filter;
    const struct ol_option options[] = {{"to", OL_OPTION_STRING, &filter->destination, NULL},
                                        {"type", OL_OPTION_STRING, &filter->event_type, NULL},
                                        {"since", OL_OPTION_STRING, &since, NULL},
                                        {"until", OL_OPTION_STRING, &until, NULL},
                                        {"limit", OL_OPTION_NUMBER, &wish->limit, &has_limit},
                                        {"after", OL_OPTION_STRING, &wish->after, NULL},
                                        {"groups", OL_OPTION_FLAG, &wish->groups, NULL},
                                        {"actor", OL_OPTION_STRING, &wish->actor, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_window(since, until, &filter->since, &filter->until)) ||
        (status = ol_cli_actor(cli, wish->actor, &wish->by.actor_type, &wish->by.actor_id)))
        return status;
    if (!has_limit)
        wish->limit = cli->json ? 100 : SHOWN;
    if (wish->limit < 1 || wish->limit > MOST)
        return ol_cli_usage("--limit is 1 to %d", MOST);
    if (cli->argc && (strcmp(cli->argv[0], "release") != 0 || cli->argc < 2))
        return ol_cli_usage("dead lists dead letters, or lets keys go on: outlog dead release ID…");
    return 0;
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {.filter = {.state = "DEAD"}};
    outlog_err err;
    int status = parse(cli, &wish);
    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if ((cli->argc ? release(cli, log, &wish, &err) : list(cli, log, &wish, &err)) < 0)
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
        "Shows how many died by destination and error (numbers inside errors are written #), then the\n"
        "newest one by one. `requeue` sends them again. With `on_dead: hold` the later messages of a\n"
        "dead one's key wait: requeue it, or let the key go on without it by release.\n\n"
        "  outlog dead\n"
        "  outlog dead --to billing --groups --json\n"
        "  outlog dead release 019a7c3e-0000-7000-8000-000000000001\n",
    .run = run,
};
