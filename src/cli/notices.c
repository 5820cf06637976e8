/* notices.c: outlog notices: lists notifications in users' inboxes and marks them as read. */
#include "cli/cli.h"

#include "base/json/json.h"
#include "notify/inbox.h"

#include <string.h>

struct notices_args {
    const char *org_id, *user_id, *after;
    bool unread;
    int64_t limit;
};

static void put_notice(struct ol_cli *cli, const struct ol_json *notice, struct ol_buf *line)
{
    const char *subject = ol_cli_field(cli, notice, "subject", "");
    bool is_read = ol_cli_field(cli, notice, "read_at", NULL);
    ol_buf_print(line, "%s  %.19s  %-6s ", ol_cli_field(cli, notice, "id", ""),
                 ol_cli_field(cli, notice, "created_at", ""), is_read ? "read" : "unread");
    ol_cli_put_wide(line, ol_cli_field(cli, notice, "org_id", ""), 12);
    ol_buf_char(line, ' ');
    ol_cli_put_wide(line, ol_cli_field(cli, notice, "user_id", ""), 20);
    ol_buf_char(line, ' ');
    ol_cli_put_safe(line, subject, strlen(subject));
}

static int list_notices(struct ol_cli *cli, outlog *log, const struct notices_args *args,
                        outlog_err *err)
{
    struct ol_buf page = {0};
    int result = ol_inbox_list(log, args->org_id, args->user_id, args->unread ? 1 : -1, args->after,
                               (int)args->limit, &page, err);
    if (result == 0 && !cli->json)
        printf("%s%-36s  %-19s  %-6s %-12s %-20s %s%s\n", ol_cli_bold(cli), "id", "created",
               "state", "org", "user", "subject", ol_cli_plain(cli));
    if (result == 0)
        result = ol_cli_page(cli, &page, "notifications", put_notice, err);
    ol_buf_clear(&page);
    return result;
}

/* Mark the notifications named by the words as read, in one transaction. */
static int mark_read(struct ol_cli *cli, outlog *log, const char *org_id, outlog_err *err)
{
    struct ol_buf line = {0};
    outlog_tx *tx;
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    for (int i = 1; i < cli->argc; i++) {
        if (i > 1)
            ol_buf_char(&line, '\n');
        if (!cli->json)
            ol_buf_print(&line, "read %s", cli->argv[i]);
        struct ol_buf ignored = {0};
        int result =
            ol_inbox_mark_read(tx, org_id, NULL, cli->argv[i], cli->json ? &line : &ignored, err);
        ol_buf_clear(&ignored);
        if (result < 0) {
            outlog_rollback(tx);
            ol_buf_clear(&line);
            return -1;
        }
    }
    int result = outlog_commit(tx, err);
    if (result == 0)
        ol_cli_put_line(&line);
    ol_buf_clear(&line);
    return result;
}

static int run_notices(struct ol_cli *cli)
{
    struct notices_args args = {.limit = 100};
    const struct ol_option options[] = {{"org", OL_OPTION_STRING, &args.org_id, NULL},
                                        {"user", OL_OPTION_STRING, &args.user_id, NULL},
                                        {"unread", OL_OPTION_FLAG, &args.unread, NULL},
                                        {"after", OL_OPTION_STRING, &args.after, NULL},
                                        {"limit", OL_OPTION_NUMBER, &args.limit, NULL},
                                        {0}};
    outlog_err err;
    int status = ol_cli_options(cli, options);
    if (status)
        return status;
    bool is_read = cli->argc && strcmp(cli->argv[0], "read") == 0;
    if (cli->argc && !is_read)
        return ol_cli_usage("notices takes read, not '%s'", cli->argv[0]);
    if (is_read && cli->argc < 2)
        return ol_cli_usage("notices read needs ids: outlog notices read ID…");
    if (args.limit < 1 || args.limit > 10000)
        return ol_cli_usage("--limit is 1 to 10000");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if ((is_read ? mark_read(cli, log, args.org_id, &err) : list_notices(cli, log, &args, &err)) <
        0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_notices = {
    .name = "notices",
    .summary = "notifications in the feeds of users",
    .help =
        "usage: outlog notices [--org O] [--user U] [--unread] [--limit N] [--after PLACE] [--json]\n"
        "       outlog notices read ID…\n\n"
        "Lists what notification rules have added to users' feeds, the newest first. `read` marks the\n"
        "given ones as read, all of them or none.\n\n"
        "  outlog notices --org acme --user u-mia --unread\n"
        "  outlog notices read 019a7c3e-0000-7000-8000-000000000001\n",
    .run = run_notices,
};
