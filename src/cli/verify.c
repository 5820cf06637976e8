/* verify.c: outlog verify --all: compares every signal and run with its events. */
#include "cli/run_command.h"

#include "runs/snapshot.h"

#include <signal.h>

enum { VERIFY_CHUNK = 100 };

static volatile sig_atomic_t is_stopped;

static void on_signal(int signal_number)
{
    (void)signal_number;
    is_stopped = 1;
}

static int verify_all(outlog *log, struct ol_verify *verify, outlog_err *err)
{
    struct ol_progress progress = {0};
    int more = 1;

    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    if (outlog_settled(log, &verify->upto, err) < 0)
        return -1;
    ol_progress_begin(&progress, "events", verify->upto);
    while (!is_stopped && (more = ol_verify_next(log, verify, VERIFY_CHUNK, err)) > 0)
        ol_progress_move(&progress, verify->after);
    if (!is_stopped && more == 0)
        more = ol_verify_orphans(log, verify, err);
    ol_progress_end(&progress);
    return more < 0 ? -1 : 0;
}

static const char *plural_suffix(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_counts(const struct ol_verify *verify)
{
    const struct {
        const char *noun;
        int64_t count;
    } parts[] = {{"run", verify->runs},
                 {"signal", verify->signals},
                 {"step", verify->steps},
                 {"effect", verify->effects},
                 {"checkpoint", verify->checkpoints}};
    char number[32];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        printf("%s%s %s%s", i ? ", " : "", ol_cli_thousands(parts[i].count, number), parts[i].noun,
               plural_suffix(parts[i].count));
    puts(".");
}

static void print_result(const struct ol_cli *cli, const struct ol_verify *verify)
{
    char differences[32];
    if (cli->json) {
        printf("{\"runs\":%lld,\"signals\":%lld,\"steps\":%lld,\"effects\":%lld,"
               "\"checkpoints\":%lld,\"differences\":%lld,\"after\":%lld,\"complete\":%s}\n",
               (long long)verify->runs, (long long)verify->signals, (long long)verify->steps,
               (long long)verify->effects, (long long)verify->checkpoints,
               (long long)verify->differences, (long long)verify->after,
               is_stopped ? "false" : "true");
        return;
    }
    if (verify->differences)
        printf("%s%s difference%s%s in ", ol_cli_bad(cli),
               ol_cli_thousands(verify->differences, differences),
               plural_suffix(verify->differences), ol_cli_plain(cli));
    else
        printf("%sEvery row matches its events:%s ", ol_cli_good(cli), ol_cli_plain(cli));
    print_counts(verify);
}

static int run_verify(struct ol_cli *cli)
{
    struct ol_verify verify = {.on_difference = ol_cli_print_difference, .user = cli};
    bool all = false;
    outlog_err err;
    int status = ol_cli_options(cli, (const struct ol_option[]){{"all", OL_OPTION_FLAG, &all, NULL},
                                                                {"after", OL_OPTION_NUMBER,
                                                                 &verify.after, NULL},
                                                                {0}});
    if (status)
        return status;
    if (!all || cli->argc)
        return ol_cli_usage("verify takes --all; `outlog run verify ID` checks one run");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    int result = verify_all(log, &verify, &err);
    if (result == 0)
        print_result(cli, &verify);
    if (result < 0 || is_stopped)
        fprintf(stderr, "To continue: outlog verify --all --after %lld\n", (long long)verify.after);
    if (result < 0)
        status = ol_cli_report(&err);
    else if (verify.differences || is_stopped)
        status = OL_EXIT_FAILED;
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_verify = {
    .name = "verify",
    .summary = "compare the state of every run with its events",
    .help =
        "usage: outlog verify --all [--after EVENT_ID] [--json]\n\n"
        "Rebuilds every signal, run, step, effect and checkpoint from the log, in the order in which\n"
        "they began, and compares every column with the stored rows. Prints each difference as table,\n"
        "id, field, stored value and replayed value, and exits with 1 if there is any. It can run\n"
        "beside writers, needs memory for one run only, and prints which --after continues it when it\n"
        "is stopped.\n\n"
        "  outlog verify --all\n"
        "  outlog verify --all --json | head\n",
    .run = run_verify,
};
