/* outbox.c: outlog outbox: lists messages with their state, or shows one with its attempts. */
#include "base/timestamp.h"
#include "cli/cli.h"

#include "base/base64.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "log/secrets.h"
#include "outbox/message_view.h"
#include "store/message_fields.h"

#include <string.h>

enum { OUTBOX_LIMIT_MAX = 10000 };

struct outbox_args {
    struct outlog_message_filter filter;
    int64_t limit;
    const char *after;
};

void ol_cli_put_message(const struct ol_cli *cli, const struct outlog_message *message,
                        struct ol_buf *out)
{
    char time[OL_TIMESTAMP_TEXT], attempts[16];
    if (cli->json) {
        ol_message_view_json(message, false, out);
        return;
    }
    const char *color = strcmp(message->state, "DEAD") == 0        ? ol_cli_bad(cli)
                        : strcmp(message->state, "PUBLISHED") == 0 ? ol_cli_good(cli)
                                                                   : ol_cli_accent(cli);
    ol_timestamp_format(message->created_at, time);
    time[19] = '\0';
    snprintf(attempts, sizeof attempts, "%d", message->attempts);
    ol_buf_print(out, "%s  %s", message->event_id, color);
    ol_cli_put_wide(out, message->state, 9);
    ol_buf_print(out, "%s %3s  %s%s%s  ", ol_cli_plain(cli), attempts, ol_cli_dim(cli), time,
                 ol_cli_plain(cli));
    ol_cli_put_wide(out, message->destination, 14);
    ol_buf_char(out, ' ');
    ol_cli_put_wide(out, message->event_type, 20);
    if (message->is_held)
        ol_buf_text(out, "  [holds its key]");
    if (message->last_error) {
        ol_buf_text(out, "  ");
        size_t bytes = strlen(message->last_error);
        ol_cli_put_safe(out, message->last_error, bytes < 100 ? bytes : 100);
    }
}

int ol_cli_put_messages(struct ol_cli *cli, outlog *log, const struct outlog_message_filter *filter,
                        const char *after, size_t limit, outlog_err *err)
{
    struct outlog_message_page page = {0};
    struct ol_buf line = {0};
    int result = outlog_messages(log, filter, after, limit, &page, err);
    if (result == 0 && !cli->json && page.count)
        printf("%s%-36s  %-9s %3s  %-19s  %-14s %s%s\n", ol_cli_bold(cli), "event_id", "state",
               "try", "created", "destination", "event_type", ol_cli_plain(cli));
    for (size_t i = 0; i < page.count; i++) {
        ol_cli_put_message(cli, &page.messages[i], &line);
        ol_cli_put_line(&line);
    }
    if (result == 0 && page.next_after)
        fprintf(stderr, "outlog: there are more: --after %s\n", page.next_after);
    ol_buf_clear(&line);
    outlog_message_page_clear(&page);
    return result;
}

/* --- show --- */

static void print_field(const struct ol_cli *cli, const char *name, const char *value)
{
    struct ol_buf line = {0};
    if (!value)
        return;
    ol_buf_print(&line, "%s%-16s%s ", ol_cli_dim(cli), name, ol_cli_plain(cli));
    ol_cli_put_safe(&line, value, strlen(value));
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

static void print_time(const struct ol_cli *cli, const char *name, int64_t time)
{
    char text[OL_TIMESTAMP_TEXT];
    if (time)
        print_field(cli, name, ol_timestamp_format(time, text));
}

static void print_attempt(const struct ol_cli *cli, const struct outlog_attempt *attempt)
{
    char time[OL_TIMESTAMP_TEXT];
    struct ol_buf line = {0};
    ol_timestamp_format(attempt->started_at, time);
    time[23] = '\0';
    ol_buf_print(&line, "  %d  %s%s%s  %s%s%s  %lld ms", attempt->attempt, ol_cli_dim(cli), time,
                 ol_cli_plain(cli),
                 strcmp(attempt->outcome, "ok") == 0 ? ol_cli_good(cli) : ol_cli_bad(cli),
                 attempt->outcome, ol_cli_plain(cli), (long long)attempt->duration_ms);
    if (attempt->status)
        ol_buf_print(&line, "  status %d", attempt->status);
    if (attempt->permanent)
        ol_buf_text(&line, "  permanent");
    const char *texts[] = {attempt->error, attempt->response};
    for (int i = 0; i < 2; i++)
        if (texts[i]) {
            ol_buf_text(&line, "  ");
            ol_cli_put_safe(&line, texts[i], strlen(texts[i]));
        }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

/* A JSON object, with its secrets masked. */
static void print_document(const struct ol_cli *cli, const char *name, const char *document)
{
    struct ol_buf text = {0}, line = {0};
    struct ol_json object;
    if (!document || ol_json_parse(document, strlen(document), &object, NULL) < 0)
        return;
    ol_secrets_mask(&object, &text);
    ol_buf_print(&line, "%s%-16s%s ", ol_cli_dim(cli), name, ol_cli_plain(cli));
    if (!text.failed)
        ol_cli_put_safe(&line, text.data, text.bytes);
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
    ol_buf_clear(&text);
}

static void print_payload(const struct ol_cli *cli, const struct outlog_message *message)
{
    struct ol_buf line = {0};
    ol_buf_print(&line, "%s%-16s%s ", ol_cli_dim(cli), "payload", ol_cli_plain(cli));
    if (message->payload && ol_utf8_is_valid(message->payload, message->payload_bytes)) {
        ol_cli_put_safe(&line, message->payload, message->payload_bytes);
    } else if (message->payload) {
        ol_buf_print(&line, "(%zu bytes, base64) ", message->payload_bytes);
        ol_base64_encode(&line, message->payload, message->payload_bytes, 0);
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

/* The count of attempts includes max_attempts, and the list of attempts what the last one came to.
 */
static bool is_told_elsewhere(int field)
{
    return field == OL_MESSAGE_MAX_ATTEMPTS || field == OL_MESSAGE_ERROR_DETAILS ||
           field == OL_MESSAGE_RESULT;
}

static void print_shown_field(const struct ol_cli *cli, const struct ol_field *field,
                              const struct outlog_message *m)
{
    const char *at = (const char *)m + field->stored;
    char attempts[40];
    int64_t time;
    switch (field->kind) {
    case OL_FIELD_UUID:
        print_field(cli, field->name, *at ? at : NULL);
        break;
    case OL_FIELD_COUNT:
        snprintf(attempts, sizeof attempts, m->max_attempts ? "%d of %d" : "%d", m->attempts,
                 m->max_attempts);
        print_field(cli, field->name, attempts);
        break;
    case OL_FIELD_TIME:
        memcpy(&time, at, sizeof time);
        print_time(cli, field->name, time);
        break;
    case OL_FIELD_JSON:
        print_document(cli, field->name, ol_field_text(m, field->stored));
        break;
    default:
        print_field(cli, field->name, ol_field_text(m, field->stored));
    }
}

static void print_message(const struct ol_cli *cli, const struct outlog_message *m)
{
    static const int shown[] = {OL_MESSAGE_SHOWN_IDS};
    for (int i = 0; i < OL_MESSAGE_SHOWN_COUNT; i++)
        if (!is_told_elsewhere(shown[i]))
            print_shown_field(cli, &ol_message_fields[shown[i]], m);
    print_field(cli, "held", m->is_held ? "yes: later messages of its key wait" : NULL);
    print_field(cli, "replay", m->is_replay ? "yes" : NULL);
    print_payload(cli, m);
    printf("attempts\n");
    for (size_t i = 0; i < m->attempt_count; i++)
        print_attempt(cli, &m->attempts_log[i]);
}

static int show_message(struct ol_cli *cli, outlog *log, const char *id, outlog_err *err)
{
    struct outlog_message_page page = {0};
    struct ol_buf line = {0};
    int result = outlog_message_get(log, id, &page, err);
    if (result == 0 && cli->json) {
        ol_message_view_json(&page.messages[0], true, &line);
        ol_cli_put_line(&line);
    } else if (result == 0) {
        print_message(cli, &page.messages[0]);
    }
    ol_buf_clear(&line);
    outlog_message_page_clear(&page);
    return result;
}

/* --- the command --- */

static int parse_outbox_args(struct ol_cli *cli, struct outbox_args *args)
{
    const char *since = NULL, *until = NULL;
    struct outlog_message_filter *filter = &args->filter;
    const struct ol_option options[] = {{"state", OL_OPTION_STRING, &filter->state, NULL},
                                        {"to", OL_OPTION_STRING, &filter->destination, NULL},
                                        {"type", OL_OPTION_STRING, &filter->event_type, NULL},
                                        {"retrying", OL_OPTION_FLAG, &filter->is_retrying, NULL},
                                        {"since", OL_OPTION_STRING, &since, NULL},
                                        {"until", OL_OPTION_STRING, &until, NULL},
                                        {"limit", OL_OPTION_NUMBER, &args->limit, NULL},
                                        {"after", OL_OPTION_STRING, &args->after, NULL},
                                        {0}};
    static const char *const states[] = {"PENDING", "CLAIMED", "PUBLISHED", "DEAD", NULL};
    int status = ol_cli_options(cli, options);
    if (status || (status = ol_cli_one_of("state", filter->state, states)) ||
        (status = ol_cli_window(since, until, &filter->since, &filter->until)))
        return status;
    if (args->limit < 1 || args->limit > OUTBOX_LIMIT_MAX)
        return ol_cli_usage("--limit is 1 to %d", OUTBOX_LIMIT_MAX);
    bool is_show = cli->argc == 2 && strcmp(cli->argv[0], "show") == 0;
    if (cli->argc && !is_show)
        return ol_cli_usage("outbox lists messages, or shows one: outlog outbox show ID");
    return 0;
}

static int run_outbox(struct ol_cli *cli)
{
    struct outbox_args args = {.limit = 100};
    outlog_err err;
    int status = parse_outbox_args(cli, &args);
    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if ((cli->argc ? show_message(cli, log, cli->argv[1], &err)
                   : ol_cli_put_messages(cli, log, &args.filter, args.after, (size_t)args.limit,
                                         &err)) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_outbox = {
    .name = "outbox",
    .summary = "messages and their state; one with every attempt",
    .help =
        "usage: outlog outbox [--state PENDING|CLAIMED|PUBLISHED|DEAD] [--to DESTINATION] [--type T]\n"
        "                     [--retrying] [--since T] [--until T] [--limit N] [--after X] [--json]\n"
        "       outlog outbox show ID [--json]\n\n"
        "Lists messages, the newest first. A PENDING message with attempts above 0 waits for its next\n"
        "attempt: --retrying lists only those. --after continues a list from where it ended.\n\n"
        "  outlog outbox --to billing --since 1h\n"
        "  outlog outbox --retrying\n"
        "  outlog outbox show 019a7c3e-0000-7000-8000-000000000001\n",
    .run = run_outbox,
};
