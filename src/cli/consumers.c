/* consumers.c: outlog consumers: durable cursors and how far behind they are. */
#include "cli/cli.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 10000 };

struct wish {
    struct outlog_filter filter;
    const char *from, *to;
    int64_t limit, wait;
};

static void print_consumer(const struct ol_cli *cli, const struct outlog_consumer *consumer)
{
    struct ol_buf line = {0};
    if (cli->json) {
        ol_buf_text(&line, "{\"name\":");
        ol_buf_json_text(&line, consumer->name);
        ol_buf_print(&line, ",\"cursor_event_id\":%lld,\"lag\":%lld,\"filters\":%s,\"updated_at\":",
                     (long long)consumer->cursor_event_id, (long long)consumer->lag,
                     consumer->filters);
        ol_buf_json_time(&line, consumer->updated_at);
        ol_buf_char(&line, '}');
    } else {
        char time[OL_TIME_TEXT];
        ol_time_format(consumer->updated_at, time);
        time[19] = '\0';
        ol_buf_print(&line, "%-24s %12lld %10lld  %s  %s", consumer->name,
                     (long long)consumer->cursor_event_id, (long long)consumer->lag, time,
                     consumer->filters);
    }
    ol_put_line(&line);
    ol_buf_clear(&line);
}

static int list(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    size_t count;
    struct outlog_consumer *all = calloc(MOST, sizeof *all);
    (void)wish;
    if (!all)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    int result = outlog_consumer_list(log, all, MOST, &count, err);
    if (result == 0 && !cli->json)
        printf("%s%-24s %12s %10s  %-19s  %s%s\n", ol_bold(cli), "consumer", "cursor", "lag",
               "updated", "filters", ol_plain(cli));
    for (size_t i = 0; result == 0 && i < count && i < MOST; i++)
        print_consumer(cli, &all[i]);
    free(all);
    return result;
}

static int show(struct ol_cli *cli, outlog *log, const char *name, outlog_err *err)
{
    struct outlog_consumer consumer;
    if (outlog_consumer_get(log, name, &consumer, err) < 0)
        return -1;
    print_consumer(cli, &consumer);
    return 0;
}

/* 0, an event_id, `end`, or a time; *is_time tells. */
static int position(const char *text, int64_t *out, bool *is_time)
{
    char *end;
    *is_time = false;
    if (strcmp(text, "end") == 0) {
        *out = OUTLOG_END;
        return 0;
    }
    *out = strtoll(text, &end, 10);
    if (end != text && !*end && *out >= 0)
        return 0;
    *is_time = true;
    return ol_cli_time(text, out);
}

static int create(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    int64_t from = 0;
    bool is_time = false, created;
    if (wish->from && position(wish->from, &from, &is_time) < 0)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "--from is an event_id, end or a time");
    if (outlog_consumer_create(log, cli->argv[1], &wish->filter, is_time ? 0 : from, &created, err) <
        0)
        return -1;
    if (created && is_time && outlog_consumer_reset_to_time(log, cli->argv[1], from, err) < 0)
        return -1;
    return show(cli, log, cli->argv[1], err);
}

static int reset(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    int64_t to;
    bool is_time;
    if (!wish->to || position(wish->to, &to, &is_time) < 0)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "say where to: --to 0, --to EVENT_ID, --to end or --to TIME");
    if ((is_time ? outlog_consumer_reset_to_time(log, cli->argv[1], to, err)
                 : outlog_consumer_reset(log, cli->argv[1], to, err)) < 0)
        return -1;
    return show(cli, log, cli->argv[1], err);
}

static int delete(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    (void)wish;
    return outlog_consumer_delete(log, cli->argv[1], err);
}

static int read_events(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_buf line = {0};
    int result = outlog_consumer_read(log, cli->argv[1], (size_t)wish->limit,
                                      (int)(wish->wait * 1000), &page, err);
    for (size_t i = 0; result == 0 && i < page.count; i++) {
        ol_put_event(cli, &page.events[i], &line);
        ol_put_line(&line);
    }
    ol_buf_clear(&line);
    outlog_page_clear(&page);
    return result;
}

static int commit(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    char *end;
    long long event_id = strtoll(cli->argv[2], &end, 10);
    (void)wish;
    if (end == cli->argv[2] || *end)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "'%s' is no event_id", cli->argv[2]);
    if (outlog_consumer_commit(log, cli->argv[1], event_id, NULL, err) < 0)
        return -1;
    return show(cli, log, cli->argv[1], err);
}

static const struct {
    const char *name;
    int words; /* with its own name */
    int (*run)(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err);
    const char *usage;
} actions[] = {
    {"create", 2, create, "consumers create NAME [--from N|end|TIME] [filters]"},
    {"reset", 2, reset, "consumers reset NAME --to 0|N|end|TIME"},
    {"delete", 2, delete, "consumers delete NAME"},
    {"read", 2, read_events, "consumers read NAME [--limit N] [--wait SECONDS]"},
    {"commit", 3, commit, "consumers commit NAME EVENT_ID"},
};

static int parse(struct ol_cli *cli, struct wish *wish)
{
    const char *aggregate = NULL;
    struct outlog_filter *filter = &wish->filter;
    const struct ol_option options[] = {
        {"from", OL_STRING, &wish->from, NULL},
        {"to", OL_STRING, &wish->to, NULL},
        {"limit", OL_NUMBER, &wish->limit, NULL},
        {"wait", OL_NUMBER, &wish->wait, NULL},
        {"org", OL_STRING, &filter->org_id, NULL},
        {"type", OL_STRING, &filter->event_type, NULL},
        {"aggregate", OL_STRING, &aggregate, NULL},
        {"correlation", OL_STRING, &filter->correlation_id, NULL},
        {"app", OL_STRING, &filter->app_id, NULL},
        {"env", OL_STRING, &filter->env_id, NULL},
        {0}};
    int status = ol_options(cli, options);
    if (status)
        return status;
    if (wish->limit < 1 || wish->limit > MOST)
        return ol_usage("--limit is 1 to %d", MOST);
    return aggregate ? ol_cli_aggregate(cli, aggregate, &filter->aggregate_type,
                                        &filter->aggregate_id)
                     : 0;
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {.limit = 100};
    outlog_err err;
    int (*action)(struct ol_cli *, outlog *, struct wish *, outlog_err *) = list;
    int status = parse(cli, &wish);

    if (status)
        return status;
    if (cli->argc) {
        action = NULL;
        for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
            if (strcmp(actions[i].name, cli->argv[0]) != 0)
                continue;
            if (cli->argc != actions[i].words)
                return ol_usage("usage: outlog %s", actions[i].usage);
            action = actions[i].run;
        }
        if (!action)
            return ol_usage("consumers knows create, reset, delete, read and commit, not '%s'",
                            cli->argv[0]);
    }
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (action(cli, log, &wish, &err) < 0)
        status = ol_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_command ol_command_consumers = {
    .name = "consumers",
    .summary = "durable cursors: list, create, read, commit, reset, delete",
    .help =
        "usage: outlog consumers [--json]\n"
        "       outlog consumers create NAME [--from N|end|TIME] [--org O] [--type T] …\n"
        "       outlog consumers read NAME [--limit N] [--wait SECONDS]\n"
        "       outlog consumers commit NAME EVENT_ID\n"
        "       outlog consumers reset NAME --to 0|N|end|TIME\n"
        "       outlog consumers delete NAME\n\n"
        "A consumer is a name with a cursor: it reads after the cursor, and commits when it has\n"
        "processed. Reading moves nothing, so after a crash the same events come again. The cursor\n"
        "moves forward only; reset puts it anywhere. lag is an upper bound of what is waiting.\n\n"
        "  outlog consumers create billing --type order.paid\n"
        "  outlog consumers read billing --limit 10\n"
        "  outlog consumers commit billing 42\n",
    .run = run,
};
