/* consumers.c: outlog consumers: durable cursors and how far behind they are. */
#include "base/timestamp.h"
#include "cli/cli.h"
#include "cli/filter_options.h"

#include "log/consumer.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 10000, MOST_WAIT_S = 3600 };

/* Where a cursor is to stand: an event_id (OUTLOG_END for the end), or before a time. */
struct position {
    int64_t at;
    bool is_time;
};

struct wish {
    struct outlog_filter filter;
    struct position from, to;
    bool has_to;
    int64_t limit, wait, event_id;
};

static void print_consumer(const struct ol_cli *cli, const struct outlog_consumer *consumer)
{
    struct ol_buf line = {0};
    if (cli->json) {
        ol_consumer_json(consumer, &line);
    } else {
        char time[OL_TIMESTAMP_TEXT];
        ol_timestamp_format(consumer->updated_at, time);
        time[19] = '\0';
        ol_cli_put_wide(&line, consumer->name, 24);
        ol_buf_print(&line, " %12lld %10lld  %s  ", (long long)consumer->cursor_event_id,
                     (long long)consumer->lag, time);
        ol_cli_put_safe(&line, consumer->filters, strlen(consumer->filters));
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

static int list(struct ol_cli *cli, outlog *log, void *wish, outlog_err *err)
{
    size_t count;
    struct outlog_consumer *all = calloc(MOST, sizeof *all);
    (void)wish;
    if (!all)
        return ol_no_memory(err);
    int result = outlog_consumer_list(log, all, MOST, &count, err);
    if (result == 0 && !cli->json)
        printf("%s%-24s %12s %10s  %-19s  %s%s\n", ol_cli_bold(cli), "consumer", "cursor", "lag",
               "updated", "filters", ol_cli_plain(cli));
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

static int create(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct wish *wish = context;
    const struct position *from = &wish->from;
    bool created;
    if (outlog_consumer_create(log, cli->argv[1], &wish->filter, from->is_time ? 0 : from->at,
                               &created, err) < 0)
        return -1;
    if (created && from->is_time &&
        outlog_consumer_reset_to_time(log, cli->argv[1], from->at, err) < 0)
        return -1;
    return show(cli, log, cli->argv[1], err);
}

static int reset(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct wish *wish = context;
    const struct position *to = &wish->to;
    if ((to->is_time ? outlog_consumer_reset_to_time(log, cli->argv[1], to->at, err)
                     : outlog_consumer_reset(log, cli->argv[1], to->at, err)) < 0)
        return -1;
    return show(cli, log, cli->argv[1], err);
}

static int delete (struct ol_cli *cli, outlog *log, void *wish, outlog_err *err)
{
    (void)wish;
    return outlog_consumer_delete(log, cli->argv[1], err);
}

static int read_events(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct wish *wish = context;
    struct outlog_page page = {0};
    struct ol_buf line = {0};
    int result = outlog_consumer_read(log, cli->argv[1], (size_t)wish->limit,
                                      (int)(wish->wait * 1000), &page, err);
    for (size_t i = 0; result == 0 && i < page.count; i++) {
        ol_cli_put_event(cli, &page.events[i], &line);
        ol_cli_put_line(&line);
    }
    ol_buf_clear(&line);
    outlog_page_clear(&page);
    return result;
}

static int commit(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct wish *wish = context;
    if (outlog_consumer_commit(log, cli->argv[1], wish->event_id, NULL, err) < 0)
        return -1;
    return show(cli, log, cli->argv[1], err);
}

static const struct ol_cli_verb verbs[] = {
    {"create", 2, create, "consumers create NAME [--from N|end|TIME] [filters]"},
    {"reset", 2, reset, "consumers reset NAME --to 0|N|end|TIME"},
    {"delete", 2, delete, "consumers delete NAME"},
    {"read", 2, read_events, "consumers read NAME [--limit N] [--wait SECONDS]"},
    {"commit", 3, commit, "consumers commit NAME EVENT_ID"},
    {NULL, 0, list, NULL},
};

/* 0, an event_id, `end`, or a time. */
static int take_position(const char *option, const char *text, struct position *out)
{
    if (strcmp(text, "end") == 0) {
        out->at = OUTLOG_END;
        return 0;
    }
    if (ol_cli_event_id(text, &out->at))
        return 0;
    out->is_time = true;
    return ol_cli_time(text, &out->at) == 0
               ? 0
               : ol_cli_usage(
                     "--%s is 0, an event_id, end, a time like 2026-01-31T12:00:00Z or a span "
                     "like 1h, not '%s'",
                     option, text);
}

static int parse(struct ol_cli *cli, struct wish *wish)
{
    const char *aggregate = NULL, *from = NULL, *to = NULL;
    struct outlog_filter *filter = &wish->filter;
    struct ol_option options[OL_FILTER_OPTIONS_MAX + 5] =
        {{"from", OL_OPTION_STRING, &from, NULL},
         {"to", OL_OPTION_STRING, &to, &wish->has_to},
         {"limit", OL_OPTION_NUMBER, &wish->limit, NULL},
         {"wait", OL_OPTION_NUMBER, &wish->wait, NULL},
         {"aggregate", OL_OPTION_STRING, &aggregate, NULL}};
    ol_filter_options_add(filter, options + 5);
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_org_or_infra(filter->org_id, filter->is_infrastructure)))
        return status;
    if (wish->limit < 1 || wish->limit > MOST)
        return ol_cli_usage("--limit is 1 to %d", MOST);
    if (wish->wait < 0 || wish->wait > MOST_WAIT_S)
        return ol_cli_usage("--wait is 0 to %d seconds", MOST_WAIT_S);
    if ((from && (status = take_position("from", from, &wish->from))) ||
        (to && (status = take_position("to", to, &wish->to))))
        return status;
    return aggregate
               ? ol_cli_aggregate(cli, aggregate, &filter->aggregate_type, &filter->aggregate_id)
               : 0;
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {.limit = 100};
    const struct ol_cli_verb *verb;
    int status = parse(cli, &wish);

    if (status || (status = ol_cli_verb(cli, verbs, &verb, &wish.event_id)))
        return status;
    if (verb->run == reset && !wish.has_to)
        return ol_cli_usage("say where to: --to 0, --to EVENT_ID, --to end or --to TIME");
    return ol_cli_do(cli, verb, &wish);
}

const struct ol_cli_command ol_command_consumers = {
    .name = "consumers",
    .summary = "durable cursors: list, create, read, commit, reset, delete",
    .help =
        "usage: outlog consumers [--json]\n"
        "       outlog consumers create NAME [--from N|end|TIME] [--org O | --infra] [--type T]\n"
        "                 [--aggregate TYPE/ID] [--correlation C]\n"
        "                 " OL_EVENT_LABEL_OPTIONS "\n"
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
