/* consumers.c: outlog consumers: durable cursors and their lag. */
#include "base/timestamp.h"
#include "cli/cli.h"
#include "cli/filter_options.h"

#include "log/consumer.h"

#include <stdlib.h>
#include <string.h>

enum { CONSUMERS_LIST_MAX = 10000, CONSUMERS_WAIT_MAX_S = 3600 };

/* A position of a cursor: an event_id (OUTLOG_END for the end), or a time. */
struct consumers_position {
    int64_t at;
    bool is_time;
};

struct consumers_args {
    struct outlog_filter filter;
    struct consumers_position from, to;
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

static int list_consumers(struct ol_cli *cli, outlog *log, void *args, outlog_err *err)
{
    size_t count;
    struct outlog_consumer *all = calloc(CONSUMERS_LIST_MAX, sizeof *all);
    (void)args;
    if (!all)
        return ol_no_memory(err);
    int result = outlog_consumer_list(log, all, CONSUMERS_LIST_MAX, &count, err);
    if (result == 0 && !cli->json)
        printf("%s%-24s %12s %10s  %-19s  %s%s\n", ol_cli_bold(cli), "consumer", "cursor", "lag",
               "updated", "filters", ol_cli_plain(cli));
    for (size_t i = 0; result == 0 && i < count && i < CONSUMERS_LIST_MAX; i++)
        print_consumer(cli, &all[i]);
    free(all);
    return result;
}

static int show_consumer(struct ol_cli *cli, outlog *log, const char *name, outlog_err *err)
{
    struct outlog_consumer consumer;
    if (outlog_consumer_get(log, name, &consumer, err) < 0)
        return -1;
    print_consumer(cli, &consumer);
    return 0;
}

static int create_consumer(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct consumers_args *args = context;
    const struct consumers_position *from = &args->from;
    bool created;
    if (outlog_consumer_create(log, cli->argv[1], &args->filter, from->is_time ? 0 : from->at,
                               &created, err) < 0)
        return -1;
    if (created && from->is_time &&
        outlog_consumer_reset_to_time(log, cli->argv[1], from->at, err) < 0)
        return -1;
    return show_consumer(cli, log, cli->argv[1], err);
}

static int reset_consumer(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct consumers_args *args = context;
    const struct consumers_position *to = &args->to;
    if ((to->is_time ? outlog_consumer_reset_to_time(log, cli->argv[1], to->at, err)
                     : outlog_consumer_reset(log, cli->argv[1], to->at, err)) < 0)
        return -1;
    return show_consumer(cli, log, cli->argv[1], err);
}

static int delete_consumer(struct ol_cli *cli, outlog *log, void *args, outlog_err *err)
{
    (void)args;
    return outlog_consumer_delete(log, cli->argv[1], err);
}

static int read_events(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct consumers_args *args = context;
    struct outlog_page page = {0};
    struct ol_buf line = {0};
    int result = outlog_consumer_read(log, cli->argv[1], (size_t)args->limit,
                                      (int)(args->wait * 1000), &page, err);
    for (size_t i = 0; result == 0 && i < page.count; i++) {
        ol_cli_put_event(cli, &page.events[i], &line);
        ol_cli_put_line(&line);
    }
    ol_buf_clear(&line);
    outlog_page_clear(&page);
    return result;
}

static int commit_cursor(struct ol_cli *cli, outlog *log, void *context, outlog_err *err)
{
    struct consumers_args *args = context;
    if (outlog_consumer_commit(log, cli->argv[1], args->event_id, NULL, err) < 0)
        return -1;
    return show_consumer(cli, log, cli->argv[1], err);
}

static const struct ol_cli_verb verbs[] = {
    {"create", 2, create_consumer, "consumers create NAME [--from N|end|TIME] [filters]"},
    {"reset", 2, reset_consumer, "consumers reset NAME --to 0|N|end|TIME"},
    {"delete", 2, delete_consumer, "consumers delete NAME"},
    {"read", 2, read_events, "consumers read NAME [--limit N] [--wait SECONDS]"},
    {"commit", 3, commit_cursor, "consumers commit NAME EVENT_ID"},
    {NULL, 0, list_consumers, NULL},
};

/* Parse 0, an event_id, `end`, or a time. */
static int parse_position(const char *option, const char *text, struct consumers_position *out)
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

static int parse_consumers_args(struct ol_cli *cli, struct consumers_args *args)
{
    const char *aggregate = NULL, *from = NULL, *to = NULL;
    struct outlog_filter *filter = &args->filter;
    struct ol_option options[OL_FILTER_OPTIONS_MAX + 5] =
        {{"from", OL_OPTION_STRING, &from, NULL},
         {"to", OL_OPTION_STRING, &to, &args->has_to},
         {"limit", OL_OPTION_NUMBER, &args->limit, NULL},
         {"wait", OL_OPTION_NUMBER, &args->wait, NULL},
         {"aggregate", OL_OPTION_STRING, &aggregate, NULL}};
    ol_filter_options_add(filter, options + 5);
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_org_or_infra(filter->org_id, filter->is_infrastructure)))
        return status;
    if (args->limit < 1 || args->limit > CONSUMERS_LIST_MAX)
        return ol_cli_usage("--limit is 1 to %d", CONSUMERS_LIST_MAX);
    if (args->wait < 0 || args->wait > CONSUMERS_WAIT_MAX_S)
        return ol_cli_usage("--wait is 0 to %d seconds", CONSUMERS_WAIT_MAX_S);
    if ((from && (status = parse_position("from", from, &args->from))) ||
        (to && (status = parse_position("to", to, &args->to))))
        return status;
    return aggregate
               ? ol_cli_aggregate(cli, aggregate, &filter->aggregate_type, &filter->aggregate_id)
               : 0;
}

static int run_consumers(struct ol_cli *cli)
{
    struct consumers_args args = {.limit = 100};
    const struct ol_cli_verb *verb;
    int status = parse_consumers_args(cli, &args);

    if (status || (status = ol_cli_verb(cli, verbs, &verb, &args.event_id)))
        return status;
    if (verb->run == reset_consumer && !args.has_to)
        return ol_cli_usage("reset needs --to 0, --to EVENT_ID, --to end or --to TIME");
    return ol_cli_run_verb(cli, verb, &args);
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
        "A consumer is a name with a cursor: it reads after the cursor, and commits what it has\n"
        "processed. Reading does not move the cursor, so after a crash the same events are read again.\n"
        "A commit only moves it forward; reset moves it anywhere. lag is an upper bound of the events\n"
        "that are not yet committed.\n\n"
        "  outlog consumers create billing --type order.paid\n"
        "  outlog consumers read billing --limit 10\n"
        "  outlog consumers commit billing 42\n",
    .run = run_consumers,
};
