/* events.c: outlog events: prints events forwards, backwards, or as they come. */
#include "cli/cli.h"
#include "cli/filter_options.h"

#include "log/read.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_PAGE = 1000, EVENTS_LIMIT_MAX = 10000, EVENTS_FOLLOW_MS = 500 };

struct events_args {
    struct outlog_filter filter;
    int64_t after, before, limit; /* before: 0 to read forwards, else where to start backwards */
    bool has_after, has_limit, follow;
    char log_id[37]; /* of the last page */
};

static volatile sig_atomic_t is_stopped;

static void on_signal(int signal)
{
    (void)signal;
    is_stopped = 1;
}

static int parse_before(const char *text, int64_t *before)
{
    size_t digits = strspn(text, "0123456789");
    bool is_end = strcmp(text, "end") == 0;
    *before = is_end ? INT64_MAX : strtoll(text, NULL, 10);
    return is_end || (digits && digits < 19 && !text[digits] && *before > 0) ? 0 : -1;
}

static int parse_time(const char *option, const char *text, int64_t *out)
{
    if (!text || ol_cli_time(text, out) == 0)
        return 0;
    return ol_cli_usage("--%s is a time like 2026-01-31T12:00:00Z or a span like 1h, not '%s'",
                        option, text);
}

/* Check --after, --before and --limit, and set the default limit; returns 0 or OL_EXIT_USAGE. */
static int check_range(struct events_args *args)
{
    if (args->after < 0)
        return ol_cli_usage("--after is an event_id, 0 or more");
    if (args->before && (args->has_after || args->follow))
        return ol_cli_usage(
            "--before reads backwards and cannot be combined with --after or --follow");
    if (!args->has_limit)
        args->limit = args->follow ? INT64_MAX : 100;
    else if (args->limit < 1)
        return ol_cli_usage("--limit is 1 or more");
    else if (args->limit > EVENTS_LIMIT_MAX && !args->follow)
        args->limit = EVENTS_LIMIT_MAX;
    return 0;
}

static int parse_events_args(struct ol_cli *cli, struct events_args *args)
{
    const char *aggregate = NULL, *since = NULL, *until = NULL, *before = NULL;
    struct outlog_filter *filter = &args->filter;
    struct ol_option options[OL_FILTER_OPTIONS_MAX + 9] =
        {{"after", OL_OPTION_NUMBER, &args->after, &args->has_after},
         {"before", OL_OPTION_STRING, &before, NULL},
         {"limit", OL_OPTION_NUMBER, &args->limit, &args->has_limit},
         {"aggregate", OL_OPTION_STRING, &aggregate, NULL},
         {"since", OL_OPTION_STRING, &since, NULL},
         {"until", OL_OPTION_STRING, &until, NULL},
         {"raw", OL_OPTION_FLAG, &filter->raw, NULL},
         {"log-id", OL_OPTION_STRING, &filter->log_id, NULL},
         {"follow", OL_OPTION_FLAG, &args->follow, NULL}};
    ol_filter_options_add(filter, options + 9);
    int status = ol_cli_options(cli, options);

    if (status || (status = ol_cli_org_or_infra(filter->org_id, filter->is_infrastructure)))
        return status;
    if (cli->argc)
        return ol_cli_usage("events takes no argument, found '%s'", cli->argv[0]);
    if (before && parse_before(before, &args->before) < 0)
        return ol_cli_usage("--before is an event_id, or end, not '%s'", before);
    if ((status = check_range(args)) || (status = parse_time("since", since, &filter->since)) ||
        (status = parse_time("until", until, &filter->until)))
        return status;
    return aggregate
               ? ol_cli_aggregate(cli, aggregate, &filter->aggregate_type, &filter->aggregate_id)
               : 0;
}

/* Print pages until the limit, the end of the log, or (following) a signal. */
static int print_events(struct ol_cli *cli, outlog *log, struct events_args *args, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_buf line = {0};
    int result = -1;

    while (!is_stopped && args->limit > 0) {
        size_t limit = args->limit < EVENTS_PAGE ? (size_t)args->limit : EVENTS_PAGE;
        int wait_ms = args->follow ? EVENTS_FOLLOW_MS : 0;
        if (ol_read_follow_short(log, &args->filter, args->after, limit, OL_READ_PAGE_BYTES,
                                 wait_ms, &page, err) < 0)
            goto out;
        for (size_t i = 0; i < page.count; i++) {
            ol_cli_put_event(cli, &page.events[i], &line);
            if (!ol_cli_put_line(&line)) // the reader has closed the pipe
                break;
        }
        if (fflush(stdout) != 0)
            break;
        args->after = page.next_after;
        memcpy(args->log_id, page.log_id, sizeof args->log_id);
        args->filter.log_id = args->log_id;
        args->limit -= (int64_t)page.count;
        if (!args->follow && page.next_after >= page.settled)
            break;
    }
    result = 0;
out:
    ol_buf_clear(&line);
    outlog_page_clear(&page);
    return result;
}

/* Print pages from the newest event to the oldest. */
static int print_backwards(struct ol_cli *cli, outlog *log, struct events_args *args,
                           outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_buf line = {0};
    int result = 0;
    bool is_open = true; // the pipe that we write to

    while (is_open && args->limit > 0 && args->before) {
        size_t limit = args->limit < EVENTS_PAGE ? (size_t)args->limit : EVENTS_PAGE;
        result = ol_read_back_short(log, &args->filter, args->before, limit, OL_READ_PAGE_BYTES,
                                    &page, &args->before, err);
        if (result < 0)
            break;
        for (size_t i = 0; is_open && i < page.count; i++) {
            ol_cli_put_event(cli, &page.events[i], &line);
            is_open = ol_cli_put_line(&line);
        }
        args->limit -= (int64_t)page.count;
    }
    ol_buf_clear(&line);
    outlog_page_clear(&page);
    return result;
}

static int run_events(struct ol_cli *cli)
{
    struct events_args args = {0};
    outlog_err err;
    int status = parse_events_args(cli, &args);

    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (args.follow) {
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
    }
    signal(SIGPIPE, SIG_IGN);
    bool from_end = args.follow && !args.has_after && !args.filter.since;
    if ((from_end && outlog_settled(log, &args.after, &err) < 0) ||
        (args.before ? print_backwards : print_events)(cli, log, &args, &err) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_events = {
    .name = "events",
    .summary = "read the log, or follow it",
    .help =
        "usage: outlog events [--after N | --before N] [--limit N] [--org O | --infra] [--type T]\n"
        "                     [--aggregate TYPE/ID] [--correlation C]\n"
        "                     " OL_EVENT_LABEL_OPTIONS "\n"
        "                     [--since T] [--until T] [--log-id ID] [--raw] [--follow] [--json]\n\n"
        "Prints events in event_id order, from the beginning or after N; --limit is 100 by default and\n"
        "10000 at most. An event must match all filters. Times are RFC 3339 or spans back from now\n"
        "(90s, 1h, 7d). Old event versions are upcast to the current one unless --raw is given.\n\n"
        "--before reads backwards, the newest first: events older than N, or with `--before end` from\n"
        "the end of the log.\n\n"
        "--follow continues with new events as they settle, until Ctrl-C; it starts at the end of the log\n"
        "unless --after or --since is given. No event is missed or shown twice.\n\n"
        "--log-id is the log that N is of, as `outlog doctor` and the HTTP API show it: if the store was\n"
        "restored from a backup since, the cursor is refused (beyond_log) instead of skipping events.\n\n"
        "  outlog events --org acme --since 1h\n"
        "  outlog events --aggregate order/o-1\n"
        "  outlog events --follow --type order.created --json\n",
    .run = run_events,
};
