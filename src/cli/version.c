/* version.c: outlog version: the program's version and its schema version. */
#include "cli/cli.h"

#include "store/migrate.h"

static int run_version(struct ol_cli *cli)
{
    int status = ol_cli_options(cli, NULL);
    if (status)
        return status;
    if (cli->argc)
        return ol_cli_usage("version takes no argument, found '%s'", cli->argv[0]);
    int schema = ol_migrate_latest(&ol_store_sqlite);
    if (cli->json)
        printf("{\"version\":\"%s\",\"schema\":%d}\n", OUTLOG_VERSION, schema);
    else
        printf("outlog %s (schema %d)\n", OUTLOG_VERSION, schema);
    return OL_EXIT_DONE;
}

const struct ol_cli_command ol_command_version = {
    .name = "version",
    .summary = "this program's version, and the schema it knows",
    .help = "usage: outlog version [--json]\n\n"
            "Prints this program's version and the version of its schema.\n\n"
            "  outlog version\n",
    .run = run_version,
};
