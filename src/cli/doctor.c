/* doctor.c: outlog doctor: checks what the guarantees of a store depend on. */
#include "cli/cli.h"

#include "log/log.h"
#include "store/migrate.h"

#include <string.h>

enum { CHECK_WRONG, CHECK_OK, CHECK_NOTE }; /* the states of the query doctor_checks */

static void print_check(const struct ol_cli *cli, const char *name, int64_t state,
                        const char *detail, struct ol_buf *line)
{
    static const char *const words[] = {"wrong", "ok", "note"};
    if (cli->json) {
        ol_buf_text(line, "{\"check\":");
        ol_buf_json_text(line, name);
        ol_buf_print(line, ",\"state\":\"%s\",\"detail\":", words[state]);
        ol_buf_json_text(line, detail);
        ol_buf_char(line, '}');
    } else {
        ol_buf_print(line, "%s%-5s%s %-13s ",
                     state == CHECK_WRONG ? ol_cli_bad(cli) : ol_cli_good(cli), words[state],
                     ol_cli_plain(cli), name);
        ol_cli_put_safe(line, detail, strlen(detail));
    }
    ol_cli_put_line(line);
}

static int print_checks(struct ol_cli *cli, outlog *log, int *wrong, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_buf line = {0};
    char detail[128];
    int64_t settled;
    int version, more;

    if (ol_migrate_version(log->conn, &version, err) < 0 || ol_migrate_check(log->conn, err) < 0 ||
        outlog_settled(log, &settled, err) < 0)
        return -1;
    print_check(cli, "store", CHECK_OK, log->conn->name, &line);
    snprintf(detail, sizeof detail, "version %d", version);
    print_check(cli, "schema", CHECK_OK, detail, &line);
    snprintf(detail, sizeof detail, "readers may pass event %lld", (long long)settled);
    print_check(cli, "settled", CHECK_OK, detail, &line);
    if (ol_store_query(log->conn, OL_Q_DOCTOR_CHECKS, OL_NO_PARAMS, &rows, err) < 0) {
        ol_buf_clear(&line);
        return -1;
    }
    while ((more = ol_rows_next(&rows, err)) > 0) {
        int64_t state = ol_rows_int(&rows, 1);
        *wrong += state == CHECK_WRONG;
        print_check(cli, ol_rows_text(&rows, 0, NULL), state, ol_rows_text(&rows, 2, NULL), &line);
    }
    ol_rows_end(&rows);
    ol_buf_clear(&line);
    return more;
}

static int run_doctor(struct ol_cli *cli)
{
    outlog *log = NULL;
    outlog_err err;
    int wrong = 0, status = ol_cli_options(cli, NULL);

    if (status)
        return status;
    if (cli->argc)
        return ol_cli_usage("doctor takes no argument, found '%s'", cli->argv[0]);
    if (ol_cli_is_missing(cli))
        return OL_EXIT_FAILED;
    if (outlog_open(cli->store, &log, &err) < 0 || print_checks(cli, log, &wrong, &err) < 0)
        status = ol_cli_report(&err);
    else if (wrong)
        status = OL_EXIT_FAILED;
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_doctor = {
    .name = "doctor",
    .summary = "check the store: versions, durability, triggers, roles",
    .help =
        "usage: outlog doctor [--json]\n\n"
        "Checks what outlog's guarantees depend on and prints how to fix what is wrong. Changes nothing.\n"
        "Exit 1 if a line begins with `wrong`.\n\n"
        "  outlog doctor\n"
        "  outlog doctor --store postgres://app@localhost/app\n",
    .run = run_doctor,
};
