/* doctor.c: outlog doctor: checks what the guarantees of a store depend on. */
#include "cli/cli.h"

#include "log/position.h"
#include "outbox/waiting.h"
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

static void print_log(const struct ol_cli *cli, const struct ol_position_epoch *epoch,
                      struct ol_buf *line)
{
    char detail[200];
    int bytes = snprintf(detail, sizeof detail, "log_id %s", epoch->log_id);
    if (epoch->epoch > 1)
        snprintf(detail + bytes, sizeof detail - (size_t)bytes,
                 ", epoch %lld (%s): a cursor of an earlier one is valid up to event %lld",
                 (long long)epoch->epoch, epoch->reason, (long long)epoch->began_after);
    print_check(cli, "log", CHECK_OK, detail, line);
}

/* Which server answers a plain read, when it is asked for the primary or not. */
static int find_server(struct ol_conn *conn, bool for_primary, char out[128], outlog_err *err)
{
    struct ol_rows rows;
    bool is_proxied = conn->is_proxied;
    conn->is_proxied = for_primary;
    int result =
        ol_store_query(conn, OL_Q_BACKEND_PLACE, OL_PARAMS(ol_value_int(for_primary)), &rows, err);
    conn->is_proxied = is_proxied;
    if (result < 0)
        return -1;
    if ((result = ol_rows_next(&rows, err)) > 0)
        snprintf(out, 128, "%s", ol_rows_text(&rows, 0, NULL));
    ol_rows_end(&rows);
    return result < 0 ? -1 : 0;
}

/* P5: a pooler that balances reads may send them to a standby. */
static int print_route(const struct ol_cli *cli, struct ol_conn *conn, struct ol_buf *line,
                       outlog_err *err)
{
    char primary[128] = "", other[128] = "", detail[400];
    if (!conn->is_proxied)
        return 0;
    if (find_server(conn, true, primary, err) < 0 || find_server(conn, false, other, err) < 0)
        return -1;
    if (strcmp(primary, other) == 0)
        snprintf(detail, sizeof detail,
                 "a pooler or router is in between; if it balances reads, it must send outlog's "
                 "to the primary, else they are refused");
    else
        snprintf(detail, sizeof detail,
                 "a balancing pooler is in between: it sends plain reads to %.100s; outlog asks it "
                 "for the primary, %.100s",
                 other, primary);
    print_check(cli, "pooler", CHECK_NOTE, detail, line);
    return 0;
}

static int print_checks(struct ol_cli *cli, outlog *log, int *wrong, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_buf line = {0};
    char detail[128];
    struct ol_position_epoch epoch;
    int64_t settled;
    int version, more;

    if (ol_migrate_version(log->conn, &version, err) < 0 || ol_migrate_check(log->conn, err) < 0 ||
        outlog_settled(log, &settled, err) < 0 || ol_position_epoch(log->conn, &epoch, err) < 0)
        return -1;
    print_check(cli, "store", CHECK_OK, log->conn->name, &line);
    snprintf(detail, sizeof detail, "version %d", version);
    print_check(cli, "schema", CHECK_OK, detail, &line);
    snprintf(detail, sizeof detail, "readers may pass event %lld", (long long)settled);
    print_check(cli, "settled", CHECK_OK, detail, &line);
    print_log(cli, &epoch, &line);
    if (print_route(cli, log->conn, &line, err) < 0 ||
        ol_store_query(log->conn, OL_Q_DOCTOR_CHECKS, OL_NO_PARAMS, &rows, err) < 0) {
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

/* What is due and waits for a person is said here too (L7). */
static int print_waiting(struct ol_cli *cli, outlog *log, outlog_err *err)
{
    struct ol_waitings waiting;
    struct ol_buf line = {0}, detail = {0};
    if (ol_waiting_list(log->conn, &cli->arena, &waiting, err) < 0)
        return -1;
    for (size_t i = 0; i < waiting.count; i++) {
        const struct ol_waiting *one = &waiting.all[i];
        if (!one->needs_help)
            continue;
        ol_buf_reset(&detail);
        ol_buf_print(&detail, "%lld due for %s in lane %d: %s: %s%s%s", (long long)one->count,
                     one->destination, one->lane, one->reason, one->about, one->detail ? ": " : "",
                     one->detail ? one->detail : "");
        if (!detail.failed)
            print_check(cli, "waiting", CHECK_NOTE, detail.data, &line);
    }
    ol_buf_clear(&detail);
    ol_buf_clear(&line);
    return 0;
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
    if (outlog_open(cli->store, &log, &err) < 0 || print_checks(cli, log, &wrong, &err) < 0 ||
        print_waiting(cli, log, &err) < 0)
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
