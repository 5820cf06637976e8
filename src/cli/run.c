/* run.c: outlog run: starts and moves runs, and reads one: show, replay, verify, resume. */
#include "cli/run_command.h"

#include "runs/snapshot.h"

#include <string.h>

void ol_cli_print_difference(void *user, const char *table, const char *id, const char *field,
                             const char *stored, const char *replayed)
{
    const struct ol_cli *cli = user;
    struct ol_buf line = {0};
    if (cli->json) {
        ol_buf_print(&line, "{\"table\":\"%s\",\"id\":", table);
        ol_buf_json_text(&line, id);
        ol_buf_print(&line, ",\"field\":\"%s\",\"stored\":", field);
        ol_buf_text(&line, stored);
        ol_buf_text(&line, ",\"replayed\":");
        ol_buf_text(&line, replayed);
        ol_buf_char(&line, '}');
    } else {
        ol_buf_print(&line, "%s%s%s ", ol_cli_bold(cli), table, ol_cli_plain(cli));
        ol_cli_put_safe(&line, id, strlen(id));
        ol_buf_print(&line, "  %s  %sstored%s ", field, ol_cli_bad(cli), ol_cli_plain(cli));
        ol_cli_put_safe(&line, stored, strlen(stored));
        ol_buf_print(&line, "  %sreplayed%s ", ol_cli_good(cli), ol_cli_plain(cli));
        ol_cli_put_safe(&line, replayed, strlen(replayed));
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

/* Print the differences only; with --json the whole result. */
static int verify_run(struct ol_cli *cli, outlog *log, const char *id, int *status, outlog_err *err)
{
    struct ol_buf out = {0};
    int64_t differences = 0;
    int result;
    if (cli->json) {
        result = ol_run_verify_json(log, id, NULL, &out, err);
        if (result == 0) {
            differences = strncmp(out.data, "{\"matches\":false", 16) == 0;
            ol_cli_put_line(&out);
        }
    } else {
        result = ol_run_verify(log, id, NULL, ol_cli_print_difference, cli, &differences, err);
        if (result == 0 && differences == 0)
            printf("%sThe run matches its events.%s\n", ol_cli_good(cli), ol_cli_plain(cli));
    }
    ol_buf_clear(&out);
    if (result == 0 && differences)
        *status = OL_EXIT_FAILED;
    return result;
}

/* The first word that is not an option; global options may come before it. */
static const char *first_word(const struct ol_cli *cli)
{
    for (int i = 0; i < cli->argc; i++) {
        if (strcmp(cli->argv[i], "--store") == 0)
            i++;
        else if (cli->argv[i][0] != '-')
            return cli->argv[i];
    }
    return "";
}

typedef int run_reader(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                       outlog_err *err);

static int read_run(struct ol_cli *cli, run_reader *function)
{
    struct ol_buf out = {0};
    outlog_err err;
    const char *word = first_word(cli);
    int status = ol_cli_options(cli, NULL);
    bool is_drawn = strcmp(word, "show") == 0 && !cli->json;
    if (status)
        return status;
    if (cli->argc != 2)
        return ol_cli_usage("run %s takes one run: its run_id", word);
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    int result = is_drawn    ? ol_cli_timeline(cli, log, cli->argv[1], &err)
                 : !function ? verify_run(cli, log, cli->argv[1], &status, &err)
                             : function(log, cli->argv[1], NULL, &out, &err);
    if (result < 0)
        status = ol_cli_report(&err);
    else if (out.bytes)
        ol_cli_put_line(&out);
    ol_buf_clear(&out);
    outlog_close(log);
    return status;
}

static int run_run(struct ol_cli *cli)
{
    const char *word = first_word(cli);
    if (strcmp(word, "show") == 0)
        return read_run(cli, ol_run_get);
    if (strcmp(word, "replay") == 0)
        return read_run(cli, ol_run_replay);
    if (strcmp(word, "resume") == 0)
        return read_run(cli, ol_run_resume);
    if (strcmp(word, "verify") == 0)
        return read_run(cli, NULL);
    return ol_cli_run_command(cli, "run");
}

const struct ol_cli_command ol_command_run = {
    .name = "run",
    .summary = "one run: show, replay, verify, resume; start and move it",
    .help =
        "usage: outlog run show|replay|verify|resume RUN_ID [--json]\n"
        "       outlog run start --org O|--infra --type T --version V [--signal SIGNAL_ID]\n"
        "       outlog run step RUN_ID --type T [--index N]\n"
        "       outlog run effect RUN_ID --type T --to DESTINATION --data JSON|@FILE\n"
        "                  [--step STEP_ID] [--effect-key K] [--ordering-key K]\n"
        "                  [--max-attempts N]\n"
        "       outlog run checkpoint RUN_ID --data JSON|@FILE\n"
        "       outlog run complete RUN_ID\n"
        "       outlog run fail RUN_ID --code C --message M\n"
        "       outlog run cancel RUN_ID [--reason R]\n\n"
        "show draws the run: its steps in time, with their tools, effects and attempts. replay\n"
        "rebuilds it from its events alone. verify compares that with the stored rows, prints\n"
        "every difference and exits with 1 if there is one. resume prints the run, its latest\n"
        "checkpoint and the events after it. The others change the run, each in one transaction,\n"
        "and also take --actor user:U, --key K, --request-id R and --expect SEQ.\n\n"
        "  outlog run show 019a…\n"
        "  outlog run start --org acme --type ORDER --version v1\n",
    .run = run_run,
};
