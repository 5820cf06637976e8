/* sinks.c: outlog sinks: lists the cursors of sinks, and resets one. */
#include "cli/cli.h"

#include "log/sink_cursor.h"

#include <string.h>

static void print_sink(void *user, const struct ol_sink_cursor *sink)
{
    const struct ol_cli *cli = user;
    struct ol_buf line = {0};
    if (cli->json) {
        ol_sink_cursor_json(sink, &line);
    } else {
        ol_cli_put_wide(&line, sink->name, 20);
        ol_buf_char(&line, ' ');
        ol_cli_put_wide(&line, sink->to, 16);
        ol_buf_print(&line, " %12lld %10lld  ", (long long)sink->cursor_event_id,
                     (long long)sink->lag);
        ol_cli_put_wide(&line, sink->owner ? sink->owner : "-", 16);
        ol_buf_text(&line, "  ");
        if (sink->last_error)
            ol_cli_put_safe(&line, sink->last_error, strlen(sink->last_error));
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

/* Parse `beginning`, `end` or an event_id. */
static bool parse_position(const char *text, int64_t *out)
{
    if (strcmp(text, "beginning") == 0)
        *out = 0;
    else if (strcmp(text, "end") == 0)
        *out = OUTLOG_END;
    else
        return ol_cli_event_id(text, out);
    return true;
}

static int run_sinks(struct ol_cli *cli)
{
    const char *to = NULL, *actor = NULL;
    const struct ol_option table[] = {{"to", OL_OPTION_STRING, &to, NULL},
                                      {"actor", OL_OPTION_STRING, &actor, NULL},
                                      {0}};
    struct outlog_operator by = {0};
    int64_t position = 0;
    outlog_err err;

    int status = ol_cli_options(cli, table);
    if (status || (status = ol_cli_actor(cli, actor, &by.actor_type, &by.actor_id)))
        return status;
    bool is_reset = cli->argc == 2 && strcmp(cli->argv[0], "reset") == 0;
    if (cli->argc && !is_reset)
        return ol_cli_usage(
            "sinks lists sinks, or: outlog sinks reset NAME --to beginning|end|EVENT_ID");
    if (is_reset && (!to || !parse_position(to, &position)))
        return ol_cli_usage("reset needs --to beginning, --to end or --to EVENT_ID");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (is_reset && ol_sink_cursor_reset(log, cli->argv[1], position, &by, &err) < 0)
        status = ol_cli_report(&err);
    if (!status && !cli->json)
        printf("%s%-20s %-16s %12s %10s  %-16s  %s%s\n", ol_cli_bold(cli), "sink", "to", "cursor",
               "lag", "moved by", "last error", ol_cli_plain(cli));
    if (!status && ol_sink_cursor_each(log, print_sink, cli, &err) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_sinks = {
    .name = "sinks",
    .summary = "the log streamed to brokers: cursors and lag",
    .help =
        "usage: outlog sinks [--json]\n"
        "       outlog sinks reset NAME --to beginning|end|EVENT_ID [--actor TYPE:ID]\n\n"
        "Lists the sinks that outlog.yaml declares, with their cursor and lag. `reset` moves a cursor: the\n"
        "sink sends the events after it again.\n\n"
        "  outlog sinks\n"
        "  outlog sinks reset archive --to beginning\n",
    .run = run_sinks,
};
