/* events.c: outlog events. */
#include "cli/cli.h"
#include "cli/filter_options.h"

#include "log/read.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 1000, MOST = 10000, FOLLOW_MS = 500 };

struct wish {
    struct outlog_filter filter;
    int64_t after, before, limit; /* before: 0 forwards, else backwards from there */
    bool has_after, has_limit, follow;
};

static volatile sig_atomic_t is_stopped;

static void stop(int signal)
{
    (void)signal;
    is_stopped = 1;
}

static int read_before(const char *text, int64_t *before)
{
    size_t digits = strspn(text, "0123456789");
    bool is_end = strcmp(text, "end") == 0;
    *before = is_end ? INT64_MAX : strtoll(text, NULL, 10);
    return is_end || (digits && digits < 19 && !text[digits] && *before > 0) ? 0 : -1;
}

static int parse(struct ol_cli *cli, struct wish *wish)
{
    const char *aggregate = NULL, *since = NULL, *until = NULL, *before = NULL;
    struct outlog_filter *filter = &wish->filter;
    struct ol_option options[OL_FILTER_OPTIONS_MAX + 8] =
        {{"after", OL_OPTION_NUMBER, &wish->after, &wish->has_after},
         {"before", OL_OPTION_STRING, &before, NULL},
         {"limit", OL_OPTION_NUMBER, &wish->limit, &wish->has_limit},
         {"aggregate", OL_OPTION_STRING, &aggregate, NULL},
         {"since", OL_OPTION_STRING, &since, NULL},
         {"until", OL_OPTION_STRING, &until, NULL},
         {"raw", OL_OPTION_FLAG, &filter->raw, NULL},
         {"follow", OL_OPTION_FLAG, &wish->follow, NULL}};
    ol_filter_options_add(filter, options + 8);
    int status = ol_cli_options(cli, options);

    if (status || (status = ol_cli_org_or_infra(filter->org_id, filter->is_infrastructure)))
        return status;
    if (cli->argc)
        return ol_cli_usage("events takes no argument, found '%s'", cli->argv[0]);
    if (wish->after < 0)
        return ol_cli_usage("--after is an event_id, 0 or more");
    if (before && read_before(before, &wish->before) < 0)
        return ol_cli_usage("--before is an event_id, or end, not '%s'", before);
    if (before && (wish->has_after || wish->follow))
        return ol_cli_usage("--before reads backwards: it goes with neither --after nor --follow");
    if (!wish->has_limit)
        wish->limit = wish->follow ? INT64_MAX : 100;
    else if (wish->limit < 1)
        return ol_cli_usage("--limit is 1 or more");
    else if (wish->limit > MOST && !wish->follow)
        wish->limit = MOST;
    if (since && ol_cli_time(since, &filter->since) < 0)
        return ol_cli_usage(
            "--since is a time like 2026-01-31T12:00:00Z or a span like 1h, not '%s'", since);
    if (until && ol_cli_time(until, &filter->until) < 0)
        return ol_cli_usage(
            "--until is a time like 2026-01-31T12:00:00Z or a span like 1h, not '%s'", until);
    return aggregate
               ? ol_cli_aggregate(cli, aggregate, &filter->aggregate_type, &filter->aggregate_id)
               : 0;
}

/* Print pages until the limit, the end of the log, or (following) a signal. */
static int print_events(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_buf line = {0};
    int result = -1;

    while (!is_stopped && wish->limit > 0) {
        size_t limit = wish->limit < PAGE ? (size_t)wish->limit : PAGE;
        int wait_ms = wish->follow ? FOLLOW_MS : 0;
        if (ol_read_follow_short(log, &wish->filter, wish->after, limit, OL_READ_PAGE_BYTES,
                                 wait_ms, &page, err) < 0)
            goto out;
        for (size_t i = 0; i < page.count; i++) {
            ol_cli_put_event(cli, &page.events[i], &line);
            if (!ol_cli_put_line(&line)) // whoever reads us has gone
                break;
        }
        if (fflush(stdout) != 0)
            break;
        wish->after = page.next_after;
        wish->limit -= (int64_t)page.count;
        if (!wish->follow && page.next_after >= page.settled)
            break;
    }
    result = 0;
out:
    ol_buf_clear(&line);
    outlog_page_clear(&page);
    return result;
}

/* The other way: from the newest down. */
static int print_back(struct ol_cli *cli, outlog *log, struct wish *wish, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_buf line = {0};
    int result = 0;
    bool is_read = true; // by whoever reads us

    while (is_read && wish->limit > 0 && wish->before) {
        size_t limit = wish->limit < PAGE ? (size_t)wish->limit : PAGE;
        result = ol_read_back_short(log, &wish->filter, wish->before, limit, OL_READ_PAGE_BYTES,
                                    &page, &wish->before, err);
        if (result < 0)
            break;
        for (size_t i = 0; is_read && i < page.count; i++) {
            ol_cli_put_event(cli, &page.events[i], &line);
            is_read = ol_cli_put_line(&line);
        }
        wish->limit -= (int64_t)page.count;
    }
    ol_buf_clear(&line);
    outlog_page_clear(&page);
    return result;
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
    if (wish.follow) {
        signal(SIGINT, stop);
        signal(SIGTERM, stop);
    }
    signal(SIGPIPE, SIG_IGN);
    bool from_end = wish.follow && !wish.has_after && !wish.filter.since;
    if ((from_end && outlog_settled(log, &wish.after, &err) < 0) ||
        (wish.before ? print_back : print_events)(cli, log, &wish, &err) < 0)
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
        "                     [--since T] [--until T] [--raw] [--follow] [--json]\n\n"
        "Prints events in event_id order, from the beginning or after N; 100 unless --limit says\n"
        "otherwise (10000 at most). All filters given must match. Times are RFC 3339 or spans back\n"
        "from now (90s, 1h, 7d). Old event versions are brought to the current one unless --raw.\n\n"
        "--before goes the other way, the newest first: what is older than N, or with `--before end`\n"
        "from the end of the log.\n\n"
        "--follow goes on with new events as they settle, from the end unless --after or --since is\n"
        "given, until Ctrl-C. No event is ever missed or shown twice.\n\n"
        "  outlog events --org acme --since 1h\n"
        "  outlog events --aggregate order/o-1\n"
        "  outlog events --follow --type order.created --json\n",
    .run = run,
};
