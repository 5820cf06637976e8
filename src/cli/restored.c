/* restored.c: outlog restored: the store is an older backup: begin a new epoch of the log (R3). */
#include "cli/cli.h"

#include "log/audit.h"
#include "log/position.h"

#include <stdio.h>

struct restored_args {
    int64_t above;
    const char *actor;
    struct outlog_operator by;
};

static void put_epoch(const struct ol_position_epoch *epoch, int64_t above, struct ol_buf *out)
{
    ol_buf_print(out, "{\"log_id\":\"%s\",\"began_after\":%lld,\"above\":%lld}", epoch->log_id,
                 (long long)epoch->began_after, (long long)above);
}

/* The audit event is the first of the new epoch: its id is above all that were given out. */
static int begin_epoch(outlog_tx *tx, const struct restored_args *args,
                       struct ol_position_epoch *epoch, outlog_err *err)
{
    struct ol_buf payload = {0};
    if (ol_position_restart(tx, args->above, err) < 0 ||
        ol_position_epoch(tx->conn, epoch, err) < 0)
        return -1;
    put_epoch(epoch, args->above, &payload);
    int result = payload.failed ? ol_no_memory(err)
                                : ol_audit_append(tx, &args->by, "outlog.log.restored",
                                                  "outlog.log", "log", payload.data, err);
    ol_buf_clear(&payload);
    return result;
}

static int restart_log(struct ol_cli *cli, outlog *log, const struct restored_args *args,
                       outlog_err *err)
{
    struct ol_position_epoch epoch;
    struct ol_buf line = {0};
    outlog_tx *tx;

    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (begin_epoch(tx, args, &epoch, err) < 0) {
        outlog_rollback(tx);
        return -1;
    }
    if (outlog_commit(tx, err) < 0)
        return -1;
    if (cli->json)
        put_epoch(&epoch, args->above, &line);
    else
        ol_buf_print(&line,
                     "log %s: it has the events up to %lld; readers that had read further go on "
                     "from there",
                     epoch.log_id, (long long)epoch.began_after);
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
    return 0;
}

static int run_restored(struct ol_cli *cli)
{
    struct restored_args args = {0};
    outlog_err err;
    int status =
        ol_cli_options(cli,
                       (const struct ol_option[]){{"above", OL_OPTION_NUMBER, &args.above, NULL},
                                                  {"actor", OL_OPTION_STRING, &args.actor, NULL},
                                                  {0}});
    if (status || (status = ol_cli_actor(cli, args.actor, &args.by.actor_type, &args.by.actor_id)))
        return status;
    if (cli->argc)
        return ol_cli_usage("restored takes no argument, found '%s'", cli->argv[0]);
    if (args.above < 0)
        return ol_cli_usage("--above is an event_id, 0 or more");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (restart_log(cli, log, &args, &err) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_restored = {
    .name = "restored",
    .summary = "the store was restored from a backup: begin a new epoch of the log",
    .help =
        "usage: outlog restored [--above EVENT_ID] [--actor TYPE:ID] [--json]\n\n"
        "Run it after a backup was restored, before anybody appends. The log gets a new log_id: a reader\n"
        "that sends its old one with a cursor from beyond the backup is refused (beyond_log) and told where\n"
        "to go on. --above is the highest event_id that any reader outside of the store has seen: ids go on\n"
        "above it, so that a reader without a log_id misses nothing either.\n\n"
        "  outlog restored --above 204711\n",
    .run = run_restored,
};
