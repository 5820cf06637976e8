/* stats.c: outlog stats: events, backlog, dead letters, lanes and relays. */
#include "cli/cli.h"

#include "base/clock.h"
#include "log/read.h"
#include "outbox/message_count.h"
#include "outbox/waiting.h"

#include <string.h>

enum { STATS_RATE_SECONDS = 60 };

struct store_stats {
    int64_t events; /* the settled position: an upper bound of their number */
    double rate;    /* events per second, in the last minute */
    struct ol_message_counts counts;
    struct ol_waitings waiting;
};

static int load_rate(outlog *log, double *rate, outlog_err *err)
{
    int64_t since = ol_clock_wall_us() - STATS_RATE_SECONDS * INT64_C(1000000), first, last;
    if (ol_read_window(log, since, 0, &first, &last, err) < 0)
        return -1;
    if (first)
        *rate = (double)(last - first + 1) / STATS_RATE_SECONDS;
    return 0;
}

static int load_stats(struct ol_cli *cli, outlog *log, struct store_stats *out, outlog_err *err)
{
    return outlog_settled(log, &out->events, err) < 0 || load_rate(log, &out->rate, err) < 0 ||
                   ol_message_counts_read(log->conn, &cli->arena, &out->counts, err) < 0 ||
                   ol_waiting_list(log->conn, &cli->arena, &out->waiting, err) < 0
               ? -1
               : 0;
}

/* --- JSON --- */

static void put_json_count(struct ol_buf *line, const struct ol_message_count *count)
{
    ol_buf_print(line,
                 "\"pending\":%lld,\"retrying\":%lld,\"claimed\":%lld,\"dead\":%lld,"
                 "\"held\":%lld,\"is_estimate\":%s,\"oldest_pending_ms\":",
                 (long long)count->pending, (long long)count->retrying, (long long)count->claimed,
                 (long long)count->dead, (long long)count->held,
                 count->is_estimate ? "true" : "false");
    if (count->oldest_pending_at)
        ol_buf_int(line, (ol_clock_wall_us() - count->oldest_pending_at) / 1000);
    else
        ol_buf_text(line, "null");
}

static int put_json_lanes(outlog *log, struct ol_buf *line, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    const char *comma = "";
    if (ol_store_query(log->conn, OL_Q_LANE_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        ol_buf_print(line, "%s{\"lane\":%lld,\"owner\":", comma, (long long)ol_rows_int(&rows, 0));
        ol_buf_json_text(line, ol_rows_text(&rows, 1, NULL));
        ol_buf_print(line, ",\"head\":%lld}", (long long)ol_rows_int(&rows, 3));
        comma = ",";
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int put_json_relays(outlog *log, struct ol_buf *line, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    const char *comma = "";
    if (ol_store_query(log->conn, OL_Q_RELAY_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        ol_buf_print(line, "%s{\"name\":", comma);
        ol_buf_json_text(line, ol_rows_text(&rows, 1, NULL));
        ol_buf_text(line, ",\"started_at\":");
        ol_buf_json_time(line, ol_rows_time(&rows, 2));
        ol_buf_text(line, ",\"heartbeat_at\":");
        ol_buf_json_time(line, ol_rows_time(&rows, 3));
        ol_buf_char(line, '}');
        comma = ",";
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int print_json(outlog *log, const struct store_stats *stats, outlog_err *err)
{
    struct ol_buf line = {0};
    int result = -1;
    ol_buf_print(&line, "{\"events\":%lld,\"events_per_second\":%.2f,\"messages\":{",
                 (long long)stats->events, stats->rate);
    put_json_count(&line, &stats->counts.total);
    ol_buf_text(&line, "},\"destinations\":[");
    for (size_t i = 0; i < stats->counts.count; i++) {
        ol_buf_text(&line, i ? ",{\"name\":" : "{\"name\":");
        ol_buf_json_text(&line, stats->counts.all[i].destination);
        ol_buf_char(&line, ',');
        put_json_count(&line, &stats->counts.all[i]);
        ol_buf_char(&line, '}');
    }
    ol_buf_text(&line, "],\"waiting\":");
    ol_waiting_json(&stats->waiting, &line);
    ol_buf_text(&line, ",\"lanes\":[");
    if (put_json_lanes(log, &line, err) < 0)
        goto out;
    ol_buf_text(&line, "],\"relays\":[");
    if (put_json_relays(log, &line, err) < 0)
        goto out;
    ol_buf_text(&line, "]}");
    ol_cli_put_line(&line);
    result = 0;
out:
    ol_buf_clear(&line);
    return result;
}

/* --- for people --- */

static void print_count(const struct ol_cli *cli, const char *name,
                        const struct ol_message_count *count)
{
    struct ol_buf line = {0};
    char pending[32], retrying[32], claimed[32], dead[32], age[32];
    ol_cli_put_wide(&line, name, 16);
    ol_buf_print(&line, " %s%11s %9s %8s %s%9s%s %8s", count->is_estimate ? "~" : " ",
                 ol_cli_thousands(count->pending, pending),
                 ol_cli_thousands(count->retrying, retrying),
                 ol_cli_thousands(count->claimed, claimed), count->dead ? ol_cli_bad(cli) : "",
                 ol_cli_thousands(count->dead, dead), count->dead ? ol_cli_plain(cli) : "",
                 ol_cli_age(count->oldest_pending_at, age));
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

/* Why messages that are due have not been sent. */
static void print_waiting(const struct ol_waitings *waiting)
{
    struct ol_buf line = {0};
    char number[32], age[32];
    if (waiting->count)
        printf("waiting\n");
    for (size_t i = 0; i < waiting->count; i++) {
        const struct ol_waiting *one = &waiting->all[i];
        ol_buf_print(&line, "  %d:", one->lane);
        ol_cli_put_wide(&line, one->destination, 16);
        ol_buf_print(&line, " %9s %8s  %s%s", ol_cli_thousands(one->count, number),
                     ol_cli_age(one->since, age), one->about, one->detail ? ": " : "");
        ol_cli_put_safe(&line, one->detail ? one->detail : "",
                        one->detail ? strlen(one->detail) : 0);
        ol_cli_put_line(&line);
    }
    ol_buf_clear(&line);
}

/* Print each lane with its owner. */
static int print_lanes(outlog *log, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_buf line = {0};
    int more, count = 0, owned = 0;
    if (ol_store_query(log->conn, OL_Q_LANE_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        const char *owner = ol_rows_text(&rows, 1, NULL);
        ol_buf_print(&line, "  %lld:", (long long)ol_rows_int(&rows, 0));
        ol_cli_put_safe(&line, owner ? owner : "-", owner ? strlen(owner) : 1);
        owned += owner != NULL;
        count++;
    }
    ol_rows_end(&rows);
    if (more >= 0) {
        printf("lanes   %d of %d have an owner\n", owned, count);
        ol_cli_put_line(&line);
    }
    ol_buf_clear(&line);
    return more < 0 ? -1 : 0;
}

static int print_relays(outlog *log, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_buf line = {0};
    char age[32];
    int more, count = 0;
    if (ol_store_query(log->conn, OL_Q_RELAY_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        const char *name = ol_rows_text(&rows, 1, NULL);
        ol_buf_text(&line, "  ");
        ol_cli_put_wide(&line, name, 20);
        ol_buf_print(&line, " last heard of %s ago", ol_cli_age(ol_rows_time(&rows, 3), age));
        if (count++ == 0)
            printf("relays\n");
        ol_cli_put_line(&line);
    }
    ol_rows_end(&rows);
    ol_buf_clear(&line);
    if (more >= 0 && count == 0)
        printf("relays  none is running: outlog relay\n");
    return more < 0 ? -1 : 0;
}

static int print_stats(struct ol_cli *cli, outlog *log, const struct store_stats *stats,
                       outlog_err *err)
{
    char events[32];
    printf("events  %s, %.1f/s in the last minute\n\n", ol_cli_thousands(stats->events, events),
           stats->rate);
    printf("%s%-16s %12s %9s %8s %9s %8s%s\n", ol_cli_bold(cli), "messages to", "pending",
           "retrying", "claimed", "dead", "oldest", ol_cli_plain(cli));
    for (size_t i = 0; i < stats->counts.count; i++)
        print_count(cli, stats->counts.all[i].destination, &stats->counts.all[i]);
    print_count(cli, "all", &stats->counts.total);
    putchar('\n');
    print_waiting(&stats->waiting);
    return print_lanes(log, err) < 0 || print_relays(log, err) < 0 ? -1 : 0;
}

static int run_stats(struct ol_cli *cli)
{
    struct store_stats stats = {0};
    outlog_err err;
    int status = ol_cli_options(cli, NULL);
    if (status)
        return status;
    if (cli->argc)
        return ol_cli_usage("stats takes no argument, found '%s'", cli->argv[0]);
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (load_stats(cli, log, &stats, &err) < 0 ||
        (cli->json ? print_json(log, &stats, &err) : print_stats(cli, log, &stats, &err)) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_stats = {
    .name = "stats",
    .summary = "events, backlog, dead letters, lanes, relays",
    .help =
        "usage: outlog stats [--json]\n\n"
        "Shows the number and rate of events, the backlog and dead letters of each destination, the owner\n"
        "of each lane, and the live relays. Cheap at any size: ~ marks a number that is estimated from\n"
        "the first messages of a long backlog.\n\n"
        "  outlog stats\n"
        "  outlog stats --json | jq .messages.dead\n",
    .run = run_stats,
};
