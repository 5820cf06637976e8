/* sessions.c: outlog sessions: conversations, how far they are, and what they are owed. */
#include "cli/cli.h"

#include "base/json/json.h"
#include "sessions/session.h"

#include <string.h>

struct wish {
    const char *org_id, *after, *actor;
    struct outlog_operator by;
    int64_t limit;
};

static long long number_of(const struct ol_json *session, const char *name)
{
    struct ol_json value = ol_json_get(session, name);
    int64_t number = 0;
    ol_json_int(&value, &number);
    return number;
}

static void put_session(struct ol_cli *cli, const struct ol_json *session, struct ol_buf *line)
{
    const char *error = ol_cli_field(cli, session, "last_error", "");
    ol_cli_put_wide(line, ol_cli_field(cli, session, "org_id", ""), 12);
    ol_buf_char(line, ' ');
    ol_cli_put_wide(line, ol_cli_field(cli, session, "session_key", ""), 36);
    ol_buf_print(line, " %6lld %8lld  %.19s  ", number_of(session, "last_seq"),
                 number_of(session, "done_seq"), ol_cli_field(cli, session, "updated_at", ""));
    ol_cli_put_safe(line, error, strlen(error));
}

static int list(struct ol_cli *cli, outlog *log, const struct wish *wish, outlog_err *err)
{
    struct ol_buf page = {0};
    // Who may only read sees what others noted.
    ol_session_note(log, &(struct ol_session_scan){0}, err);
    int result = ol_session_list(log, wish->org_id, wish->after, (int)wish->limit, &page, err);
    if (result == 0 && !cli->json)
        printf("%s%-12s %-36s %6s %8s  %-19s  %s%s\n", ol_cli_bold(cli), "org", "session", "said",
               "answered", "updated", "last error", ol_cli_plain(cli));
    if (result == 0)
        result = ol_cli_page(cli, &page, "sessions", put_session, err);
    ol_buf_clear(&page);
    return result;
}

static int deliver(struct ol_cli *cli, outlog *log, const char *key, const struct wish *wish,
                   outlog_err *err)
{
    int64_t hurried;
    char number[32];
    if (outlog_deliver_session(log, wish->org_id ? wish->org_id : "default", key, &wish->by,
                               &hurried, err) < 0)
        return -1;
    if (cli->json)
        printf("{\"hurried\":%lld}\n", (long long)hurried);
    else if (hurried == 0)
        printf("nothing is owed\n");
    else
        printf("%s owed, being sent again now to whoever is connected\n",
               ol_cli_thousands(hurried, number));
    return 0;
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {.limit = 100};
    const struct ol_option options[] = {{"org", OL_OPTION_STRING, &wish.org_id, NULL},
                                        {"after", OL_OPTION_STRING, &wish.after, NULL},
                                        {"limit", OL_OPTION_NUMBER, &wish.limit, NULL},
                                        {"actor", OL_OPTION_STRING, &wish.actor, NULL},
                                        {0}};
    outlog_err err;
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_actor(cli, wish.actor, &wish.by.actor_type, &wish.by.actor_id)))
        return status;
    if (cli->argc && (strcmp(cli->argv[0], "deliver") != 0 || cli->argc != 2))
        return ol_cli_usage("sessions lists, or: outlog sessions deliver SESSION_KEY [--org O]");
    if (wish.limit < 1 || wish.limit > 10000)
        return ol_cli_usage("--limit is 1 to 10000");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if ((cli->argc ? deliver(cli, log, cli->argv[1], &wish, &err) : list(cli, log, &wish, &err)) <
        0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_sessions = {
    .name = "sessions",
    .summary = "live sessions: how far they are; deliver now",
    .help =
        "usage: outlog sessions [--org O] [--limit N] [--after PLACE] [--json]\n"
        "       outlog sessions deliver SESSION_KEY [--org O] [--actor TYPE:ID]\n\n"
        "Lists sessions, the newest first: how many messages were said, and up to which one they are\n"
        "answered. `deliver` sends what a session is owed to its sockets now, on every daemon, also what\n"
        "was sent a moment ago. Without --org it is the org `default`, as for a socket.\n\n"
        "  outlog sessions --org acme\n"
        "  outlog sessions deliver u-mia:helper:t-1 --org acme\n",
    .run = run,
};
