/* init.c: outlog init: creates or upgrades the schema. */
#include "cli/cli.h"

static int run_init(struct ol_cli *cli)
{
    outlog *log = NULL;
    outlog_err err;
    int from, to, status;

    if ((status = ol_cli_options(cli, NULL)))
        return status;
    if (cli->argc)
        return ol_cli_usage("init takes no argument, found '%s'", cli->argv[0]);
    if (outlog_open(cli->store, &log, &err) < 0 || outlog_init(log, &from, &to, &err) < 0)
        status = ol_cli_report(&err);
    else if (cli->json)
        printf("{\"from\":%d,\"to\":%d}\n", from, to);
    else if (from == to)
        printf("The schema is up to date (version %d).\n", to);
    else if (from == 0)
        printf("Created the schema, version %d.\n", to);
    else
        printf("Upgraded the schema from version %d to %d.\n", from, to);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_init = {
    .name = "init",
    .summary = "create or upgrade the schema",
    .help =
        "usage: outlog init [--store URL]\n\n"
        "Creates outlog's tables in the store, or brings them up to this version. Safe to repeat\n"
        "and to run from several processes at once. Refuses a store that a newer outlog wrote.\n\n"
        "  outlog init\n"
        "  outlog init --store sqlite:app.db\n"
        "  outlog init --store postgres://app@localhost/app\n",
    .run = run_init,
};
