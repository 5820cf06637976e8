/* kill.c: outlog kill: messages that shall not be sent. */
#include "cli/cli.h"

#include "views/message.h"

static int print(struct ol_cli *cli, outlog *log, const char *id, outlog_err *err)
{
    struct outlog_message_page page = {0};
    struct ol_buf line = {0};
    int result = 0;
    if (!cli->json)
        printf("killed %s\n", id);
    else if ((result = outlog_message_get(log, id, &page, err)) == 0) {
        ol_message_json(&page.messages[0], false, &line);
        ol_put_line(&line);
    }
    ol_buf_clear(&line);
    outlog_message_page_clear(&page);
    return result;
}

static int run(struct ol_cli *cli)
{
    struct outlog_operator by = {0};
    const char *actor = NULL;
    const struct ol_option options[] = {{"actor", OL_STRING, &actor, NULL}, {0}};
    outlog_err err;
    int status = ol_options(cli, options);
    if (status || (status = ol_cli_actor(cli, actor, &by.actor_type, &by.actor_id)))
        return status;
    if (!cli->argc)
        return ol_usage("kill which? outlog kill ID…");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    int result = outlog_kill(log, (const char *const *)cli->argv, (size_t)cli->argc, &by, &err);
    for (int i = 0; result == 0 && i < cli->argc; i++)
        result = print(cli, log, cli->argv[i], &err);
    if (result < 0)
        status = ol_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_kill = {
    .name = "kill",
    .summary = "end messages that wait, without sending them",
    .help =
        "usage: outlog kill ID… [--actor TYPE:ID] [--json]\n\n"
        "PENDING messages become DEAD; all of them or none. attempts stays as it was, and later\n"
        "messages of the same key go on. What is CLAIMED is on its way and cannot be killed. A killed\n"
        "message can be requeued. Each leaves an audit event.\n\n"
        "  outlog kill 019a7c3e-0000-7000-8000-000000000001\n",
    .run = run,
};
