/* dead.c: outlog dead: dead letters, what they have in common first. */
#include "cli/cli.h"

#include "base/clock.h"
#include "log/log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 20, MOST = 10000 };

struct wish {
    struct outlog_message_filter filter;
    struct outlog_operator by;
    int64_t limit;
    const char *after, *actor;
    bool groups;
};

struct group {
    const char *destination, *error;
    int64_t count, held, first_at, last_at;
};

struct groups {
    struct group *all;
    size_t count, room;
};

/* Ids and times inside an error would make a group of each message. */
static const char *general(const char *error, struct ol_arena *arena)
{
    char *text = ol_arena_copy(arena, error, strlen(error)), *to = text;
    for (const char *from = text; from && *from; from++) {
        if (isdigit((unsigned char)*from) && to > text && to[-1] == '#')
            continue;
        *to++ = isdigit((unsigned char)*from) ? '#' : *from;
    }
    if (text)
        *to = '\0';
    return text;
}

static struct group *group_of(struct groups *groups, const char *destination, const char *error,
                              struct ol_arena *arena)
{
    for (size_t i = 0; i < groups->count; i++)
        if (strcmp(groups->all[i].destination, destination) == 0 &&
            strcmp(groups->all[i].error, error) == 0)
            return &groups->all[i];
    if (groups->count == groups->room) {
        size_t room = groups->room ? groups->room * 2 : 16;
        struct group *wider = realloc(groups->all, room * sizeof *wider);
        if (!wider)
            return NULL;
        groups->all = wider;
        groups->room = room;
    }
    struct group *group = &groups->all[groups->count++];
    *group = (struct group){.destination = ol_arena_copy(arena, destination, strlen(destination)),
                            .error = error};
    return group->destination ? group : NULL;
}

static int by_count(const void *a, const void *b)
{
    const struct group *one = a, *two = b;
    if (one->count != two->count)
        return one->count > two->count ? -1 : 1;
    int order = strcmp(one->destination, two->destination);
    return order ? order : strcmp(one->error, two->error);
}

static int load(struct ol_cli *cli, outlog *log, const char *destination, struct groups *groups,
                outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_query(log->conn, OL_Q_DEAD_GROUPS, OL_PARAMS(ol_optional(destination)), &rows, err) < 0)
        return -1;
    while ((more = ol_next(&rows, err)) > 0) {
        const char *said = ol_column_text(&rows, 1, NULL);
        const char *error = general(said ? said : "", &cli->arena);
        struct group *group =
            error ? group_of(groups, ol_column_text(&rows, 0, NULL), error, &cli->arena) : NULL;
        if (!group) {
            more = ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
            break;
        }
        int64_t first = ol_column_time(&rows, 3), last = ol_column_time(&rows, 4);
        group->count += ol_column_int(&rows, 2);
        group->held += ol_column_int(&rows, 5);
        group->first_at = group->first_at && group->first_at < first ? group->first_at : first;
        group->last_at = group->last_at > last ? group->last_at : last;
    }
    ol_end(&rows);
    if (groups->count)
        qsort(groups->all, groups->count, sizeof *groups->all, by_count);
    return more < 0 ? -1 : 0;
}

static void print_group(const struct ol_cli *cli, const struct group *group)
{
    struct ol_buf line = {0};
    if (cli->json) {
        ol_buf_text(&line, "{\"destination\":");
        ol_buf_json_text(&line, group->destination);
        ol_buf_text(&line, ",\"error\":");
        ol_buf_json_text(&line, group->error);
        ol_buf_print(&line, ",\"count\":%lld,\"held\":%lld,\"first_at\":", (long long)group->count,
                     (long long)group->held);
        ol_buf_json_time(&line, group->first_at);
        ol_buf_text(&line, ",\"last_at\":");
        ol_buf_json_time(&line, group->last_at);
        ol_buf_char(&line, '}');
    } else {
        char number[32];
        ol_buf_print(&line, "%s%10s%s  ", ol_bad(cli), ol_thousands(group->count, number),
                     ol_plain(cli));
        ol_put_wide(&line, group->destination, 14);
        ol_buf_char(&line, ' ');
        ol_put_safe(&line, *group->error ? group->error : "(no error)",
                    strlen(*group->error ? group->error : "(no error)"));
        if (group->held)
            ol_buf_print(&line, "  [%lld hold their key]", (long long)group->held);
    }
    ol_put_line(&line);
    ol_buf_clear(&line);
}

static int list(struct ol_cli *cli, outlog *log, const struct wish *wish, outlog_err *err)
{
    struct groups groups = {0};
    int result = 0;
    bool has_groups = wish->groups || (!cli->json && !wish->after);
    if (has_groups && (result = load(cli, log, wish->filter.destination, &groups, err)) == 0) {
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
        result = ol_put_messages(cli, log, &wish->filter, wish->after, (size_t)wish->limit, err);
    free(groups.all);
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
    const struct ol_option options[] = {{"to", OL_STRING, &filter->destination, NULL},
                                        {"type", OL_STRING, &filter->event_type, NULL},
                                        {"since", OL_STRING, &since, NULL},
                                        {"until", OL_STRING, &until, NULL},
                                        {"limit", OL_NUMBER, &wish->limit, &has_limit},
                                        {"after", OL_STRING, &wish->after, NULL},
                                        {"groups", OL_FLAG, &wish->groups, NULL},
                                        {"actor", OL_STRING, &wish->actor, NULL},
                                        {0}};
    int status = ol_options(cli, options);
    if (status || (status = ol_cli_window(since, until, &filter->since, &filter->until)) ||
        (status = ol_cli_actor(cli, wish->actor, &wish->by.actor_type, &wish->by.actor_id)))
        return status;
    if (!has_limit)
        wish->limit = cli->json ? 100 : SHOWN;
    if (wish->limit < 1 || wish->limit > MOST)
        return ol_usage("--limit is 1 to %d", MOST);
    if (cli->argc && (strcmp(cli->argv[0], "release") != 0 || cli->argc < 2))
        return ol_usage("dead lists dead letters, or lets keys go on: outlog dead release ID…");
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
        status = ol_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_command ol_command_dead = {
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
