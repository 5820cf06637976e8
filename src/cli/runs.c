/* runs.c: outlog runs: lists runs, the newest first. */
#include "base/timestamp.h"
#include "cli/cli.h"

#include "base/json/json.h"
#include "runs/snapshot.h"

#include <string.h>

static const char *status_color(const struct ol_cli *cli, const char *status)
{
    return strcmp(status, "COMPLETED") == 0 ? ol_cli_good(cli)
           : strcmp(status, "FAILED") == 0  ? ol_cli_bad(cli)
           : strcmp(status, "RUNNING") == 0 ? ol_cli_accent(cli)
                                            : ol_cli_dim(cli);
}

static void put_run(struct ol_cli *cli, const struct ol_json *run, struct ol_buf *line)
{
    const char *status = ol_cli_field(cli, run, "status", "-"),
               *started = ol_cli_field(cli, run, "started_at", "-");
    struct ol_json total = ol_json_get(run, "total_steps"), bad = ol_json_get(run, "failed_steps");
    int64_t at = 0, failures = 0;
    char age[32];

    ol_timestamp_parse(started, strlen(started), &at);
    ol_json_int(&bad, &failures);
    ol_buf_print(line, "%s  ", ol_cli_field(cli, run, "run_id", "-"));
    ol_buf_text(line, status_color(cli, status));
    ol_cli_put_wide(line, status, 9);
    ol_buf_print(line, "%s  ", ol_cli_plain(cli));
    ol_cli_put_wide(line, ol_cli_field(cli, run, "org_id", "-"), 12);
    ol_buf_text(line, "  ");
    ol_cli_put_wide(line, ol_cli_field(cli, run, "run_type", "-"), 20);
    ol_buf_print(line, "  %3.*s done", (int)total.bytes, total.text);
    if (failures)
        ol_buf_print(line, ", %s%lld failed%s", ol_cli_bad(cli), (long long)failures,
                     ol_cli_plain(cli));
    ol_buf_print(line, "  %s%s%s", ol_cli_dim(cli), ol_cli_age(at, age), ol_cli_plain(cli));
}

static int run_runs(struct ol_cli *cli)
{
    const char *state = NULL, *org = NULL, *after = NULL;
    int64_t limit = 100;
    struct ol_buf page = {0};
    outlog_err err;
    int status =
        ol_cli_options(cli, (const struct ol_option[]){{"status", OL_OPTION_STRING, &state, NULL},
                                                       {"org", OL_OPTION_STRING, &org, NULL},
                                                       {"after", OL_OPTION_STRING, &after, NULL},
                                                       {"limit", OL_OPTION_NUMBER, &limit, NULL},
                                                       {0}});
    static const char *const states[] = {"RUNNING", "COMPLETED", "FAILED", "CANCELLED", NULL};
    if (status || (status = ol_cli_one_of("status", state, states)))
        return status;
    if (cli->argc || limit < 1 || limit > 10000)
        return ol_cli_usage("runs takes no words, and --limit 1 to 10000");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (ol_run_list(log, state, org, after, (size_t)limit, &page, &err) < 0 ||
        ol_cli_page(cli, &page, "runs", put_run, &err) < 0)
        status = ol_cli_report(&err);
    ol_buf_clear(&page);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_runs = {
    .name = "runs",
    .summary = "orchestration runs, the newest first",
    .help = "usage: outlog runs [--status RUNNING|COMPLETED|FAILED|CANCELLED] [--org O]\n"
            "                   [--after RUN_ID] [--limit N] [--json]\n\n"
            "Lists runs with their state and how many of their steps completed and failed.\n\n"
            "  outlog runs --status RUNNING\n"
            "  outlog run show 019a…\n",
    .run = run_runs,
};
