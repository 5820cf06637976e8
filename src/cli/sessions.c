/* sessions.c: outlog sessions: lists live sessions and their effects; delivers, ends, sends again.
 */
#include "cli/cli.h"

#include "base/json/json.h"
#include "sessions/session.h"

#include <string.h>

struct sessions_args {
    const char *org_id, *after, *actor, *status, *reason;
    struct outlog_operator by;
    int64_t limit;
};

static long long get_number(const struct ol_json *session, const char *name)
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
    ol_buf_print(line, " %6lld %8lld  %.19s  ", get_number(session, "last_seq"),
                 get_number(session, "done_seq"), ol_cli_field(cli, session, "updated_at", ""));
    ol_cli_put_safe(line, error, strlen(error));
}

static int list_sessions(struct ol_cli *cli, outlog *log, const struct sessions_args *args,
                         outlog_err *err)
{
    struct ol_buf page = {0};
    // A role that may only read cannot do this, and then lists what others noted.
    ol_session_note(log, &(struct ol_session_scan){0}, err);
    int result = ol_session_list(log, args->org_id, args->after, (int)args->limit, &page, err);
    if (result == 0 && !cli->json)
        printf("%s%-12s %-36s %6s %8s  %-19s  %s%s\n", ol_cli_bold(cli), "org", "session", "said",
               "answered", "updated", "last error", ol_cli_plain(cli));
    if (result == 0)
        result = ol_cli_page(cli, &page, "sessions", put_session, err);
    ol_buf_clear(&page);
    return result;
}

static int deliver_now(struct ol_cli *cli, outlog *log, const char *key,
                       const struct sessions_args *args, outlog_err *err)
{
    int64_t hurried;
    char number[32];
    if (outlog_deliver_session(log, args->org_id ? args->org_id : "default", key, &args->by,
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

static void put_effect(struct ol_cli *cli, const struct ol_json *effect, struct ol_buf *line)
{
    ol_buf_print(line, "%s %-9s ", ol_cli_field(cli, effect, "effect_id", ""),
                 ol_cli_field(cli, effect, "status", ""));
    ol_cli_put_wide(line, ol_cli_field(cli, effect, "session_key", ""), 36);
    ol_buf_print(line, " %8lld  ", get_number(effect, "attempts"));
    ol_cli_put_wide(line, ol_cli_field(cli, effect, "effect_type", ""), 20);
}

static int list_effects(struct ol_cli *cli, outlog *log, const char *key,
                        const struct sessions_args *args, outlog_err *err)
{
    struct ol_buf page = {0};
    int result = ol_session_effects(log, args->org_id, key, args->status, args->after,
                                    (int)args->limit, &page, err);
    if (result == 0 && !cli->json)
        printf("%s%-36s %-9s %-36s %8s  %s%s\n", ol_cli_bold(cli), "effect", "status", "session",
               "attempts", "type", ol_cli_plain(cli));
    if (result == 0)
        result = ol_cli_page(cli, &page, "effects", put_effect, err);
    ol_buf_clear(&page);
    return result;
}

static int change_effect(struct ol_cli *cli, outlog *log, const char *id, bool ends,
                         const struct sessions_args *args, outlog_err *err)
{
    struct ol_session_effect_call call = {.effect_id = id,
                                          .org_id = args->org_id,
                                          .reason = args->reason,
                                          .by = args->by};
    if ((ends ? ol_session_effect_end : ol_session_effect_resend)(log, &call, err) < 0)
        return -1;
    if (cli->json)
        printf("{\"effect_id\":\"%s\",\"status\":\"%s\"}\n", id, ends ? "FAILED" : "PENDING");
    else
        printf(ends ? "ended; it is not sent again\n" : "being sent again now\n");
    return 0;
}

/* What the words after `sessions` ask for; -1 also for the store's errors. */
static int run_word(struct ol_cli *cli, outlog *log, const struct sessions_args *args,
                    outlog_err *err)
{
    const char *word = cli->argc ? cli->argv[0] : NULL, *what = cli->argc > 1 ? cli->argv[1] : NULL;
    if (!word)
        return list_sessions(cli, log, args, err);
    if (strcmp(word, "effects") == 0)
        return list_effects(cli, log, what, args, err);
    if (strcmp(word, "deliver") == 0)
        return deliver_now(cli, log, what, args, err);
    return change_effect(cli, log, what, strcmp(word, "end") == 0, args, err);
}

static bool is_word(const struct ol_cli *cli)
{
    static const char *const words[] = {"deliver", "end", "resend"};
    if (cli->argc == 0 || (strcmp(cli->argv[0], "effects") == 0 && cli->argc <= 2))
        return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(cli->argv[0], words[i]) == 0)
            return cli->argc == 2;
    return false;
}

static int run_sessions(struct ol_cli *cli)
{
    struct sessions_args args = {.limit = 100};
    const struct ol_option options[] = {{"org", OL_OPTION_STRING, &args.org_id, NULL},
                                        {"after", OL_OPTION_STRING, &args.after, NULL},
                                        {"limit", OL_OPTION_NUMBER, &args.limit, NULL},
                                        {"actor", OL_OPTION_STRING, &args.actor, NULL},
                                        {"status", OL_OPTION_STRING, &args.status, NULL},
                                        {"reason", OL_OPTION_STRING, &args.reason, NULL},
                                        {0}};
    outlog_err err;
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_actor(cli, args.actor, &args.by.actor_type, &args.by.actor_id)))
        return status;
    if (!is_word(cli))
        return ol_cli_usage("sessions lists sessions, or: outlog sessions effects [SESSION_KEY], "
                            "deliver SESSION_KEY, end EFFECT_ID, resend EFFECT_ID");
    if (args.limit < 1 || args.limit > 10000)
        return ol_cli_usage("--limit is 1 to 10000");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (run_word(cli, log, &args, &err) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_sessions = {
    .name = "sessions",
    .summary = "live sessions: how far they are; deliver now",
    .help =
        "usage: outlog sessions [--org O] [--limit N] [--after PLACE] [--json]\n"
        "       outlog sessions effects [SESSION_KEY] [--org O] [--status S] [--limit N] [--json]\n"
        "       outlog sessions end|resend EFFECT_ID [--reason R] [--actor TYPE:ID]\n"
        "       outlog sessions deliver SESSION_KEY [--org O] [--actor TYPE:ID]\n\n"
        "Lists sessions, the newest first, with the number of messages and the last one that is answered.\n"
        "`effects` lists what sessions are owed and were sent, the oldest first: PENDING, EXECUTING\n"
        "(sent, not acknowledged), COMPLETED, FAILED. `end` makes one that is owed FAILED, `resend`\n"
        "sends one again, also one that was ended.\n"
        "`deliver` sends the pending effects of a session to its sockets now, on every daemon, also those\n"
        "that were sent a moment ago. Without --org it is the org `default`, as for a socket.\n\n"
        "  outlog sessions --org acme\n"
        "  outlog sessions effects --status EXECUTING\n"
        "  outlog sessions deliver u-mia:helper:t-1 --org acme\n",
    .run = run_sessions,
};
