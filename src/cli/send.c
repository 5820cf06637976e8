/* send.c: outlog send: adds one message to the outbox. */
#include "base/duration.h"
#include "cli/cli.h"

#include "log/log.h"
#include "outbox/enqueue.h"
#include "outbox/waiting.h"
#include "store/message_fields.h"

#include <stdio.h>
#include <string.h>

static int read_headers(struct ol_cli *cli, const char *const *given, size_t count,
                        const char **out)
{
    struct ol_buf json = {0};
    for (size_t i = 0; i < count; i++) {
        const char *colon = strchr(given[i], ':');
        if (!colon || colon == given[i]) {
            ol_buf_clear(&json);
            return ol_cli_usage("--header is NAME:VALUE, not '%s'", given[i]);
        }
        ol_buf_char(&json, i ? ',' : '{');
        ol_buf_json(&json, given[i], (size_t)(colon - given[i]));
        ol_buf_char(&json, ':');
        colon += strspn(colon + 1, " ") + 1;
        ol_buf_json_text(&json, colon);
    }
    if (count) {
        ol_buf_char(&json, '}');
        *out = ol_arena_copy(&cli->arena, json.data, json.bytes);
    }
    ol_buf_clear(&json);
    return 0;
}

/* --header may be repeated. The table of options keeps only the last value, so headers are taken
 * out of the words before it reads them. */
static size_t pick_headers(struct ol_cli *cli, const char **out, size_t max)
{
    int kept = 0;
    size_t count = 0;
    for (int i = 0; i < cli->argc; i++) {
        if (strcmp(cli->argv[i], "--header") == 0 && i + 1 < cli->argc && count < max)
            out[count++] = cli->argv[++i];
        else if (strncmp(cli->argv[i], "--header=", 9) == 0 && count < max)
            out[count++] = cli->argv[i] + 9;
        else
            cli->argv[kept++] = cli->argv[i];
    }
    cli->argc = kept;
    return count;
}

static int parse_send_args(struct ol_cli *cli, struct outlog_new_message *draft)
{
    const char *headers[64], *delay = NULL, *data = NULL;
    int64_t attempts = 0;
    bool has_attempts = false;
    size_t count = pick_headers(cli, headers, 64);
    struct ol_option options[OL_MESSAGE_FIELD_ALL + 4] = {{"data", OL_OPTION_STRING, &data, NULL},
                                                          {"delay", OL_OPTION_STRING, &delay, NULL},
                                                          {"max-attempts", OL_OPTION_NUMBER,
                                                           &attempts, &has_attempts}};
    struct ol_option *next = options + 3;
    for (int i = 0; i < OL_MESSAGE_FIELD_ALL; i++)
        if (ol_message_fields[i].flag)
            *next++ = (struct ol_option){ol_message_fields[i].flag, OL_OPTION_STRING,
                                         (char *)draft + ol_message_fields[i].given, NULL};
    int status = ol_cli_options(cli, options);

    if (status || (status = read_headers(cli, headers, count, &draft->headers)))
        return status;
    if (cli->argc)
        return ol_cli_usage("send takes no argument, found '%s'", cli->argv[0]);
    if (!draft->destination || !draft->event_type || !data)
        return ol_cli_usage(
            "send needs --to DESTINATION, --type T and --data JSON|@FILE; see outlog send "
            "--help");
    if (delay && ol_duration_parse(delay, &draft->delay_us) < 0)
        return ol_cli_usage("--delay is a span like 5s or 1h, not '%s'", delay);
    if (has_attempts && (attempts < 1 || attempts > 1000000))
        return ol_cli_usage("--max-attempts is 1 to 1000000");
    draft->max_attempts = (int)attempts;
    if (*data != '@' && !draft->content_type && (status = ol_cli_check_json("--data", data)))
        return status;
    draft->payload = ol_cli_bytes_or_file(cli, data, &draft->payload_bytes);
    return draft->payload ? 0 : OL_EXIT_FAILED;
}

/* The message is stored all the same (P6). */
static void warn_unknown(outlog *log, const char *destination)
{
    char text[200];
    bool is_unknown;
    outlog_err ignored;
    if (ol_waiting_is_unknown(log->conn, destination, &is_unknown, text, &ignored) == 0 &&
        is_unknown)
        fprintf(stderr, "outlog: warning: %s [unknown_destination]\n", text);
}

static int run_send(struct ol_cli *cli)
{
    struct outlog_new_message draft = {0};
    struct outlog_enqueued enqueued;
    outlog_tx *tx;
    outlog_err err;
    int status = parse_send_args(cli, &draft);

    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (outlog_begin(log, &tx, &err) < 0)
        status = ol_cli_report(&err);
    else if (outlog_enqueue(tx, &draft, &enqueued, &err) < 0) {
        outlog_rollback(tx);
        status = ol_cli_report(&err);
    } else if (outlog_commit(tx, &err) < 0)
        status = ol_cli_report(&err);
    else if (cli->json)
        printf("{\"event_id\":\"%s\",\"duplicate\":%s}\n", enqueued.event_id,
               enqueued.duplicate ? "true" : "false");
    else
        printf("message %s%s\n", enqueued.event_id,
               enqueued.duplicate ? "  (was there already)" : "");
    if (!status)
        warn_unknown(log, draft.destination);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_send = {
    .name = "send",
    .summary = "add a message to the outbox",
    .help =
        "usage: outlog send --to DESTINATION --type T --data JSON|@FILE [--header N:V]…\n" OL_MESSAGE_OPTIONS
        "\n"
        "                   [--delay SPAN] [--max-attempts N] [--json]\n\n"
        "Stores one message; a relay delivers it. Messages with the same --ordering-key are delivered\n"
        "one after another, in order. With --key a repeat adds nothing and prints the first message.\n\n"
        "  outlog send --to billing --type invoice.send --data '{\"n\":1}' --ordering-key o-1\n"
        "  outlog send --to billing --type invoice.remind --data @reminder.json --delay 1h\n",
    .run = run_send,
};
