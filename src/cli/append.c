/* append.c: outlog append: one event from the options, or many from NDJSON. */
#include "cli/cli.h"

#include "base/clock.h"
#include "log/event.h"
#include "log/event_json.h"
#include "store/event_fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { APPEND_BATCH_MAX = 100 };

struct append_args {
    struct outlog_new_event event; /* the event; with NDJSON the defaults of each line */
    const char *ndjson, *backfill, *data, *aggregate, *actor;
    int64_t version, expected;
    bool has_version, has_expected;
};

/* --- options --- */

/* Check the options and put those that need it into the event; returns 0 or OL_EXIT_USAGE. */
static int check_append_args(struct ol_cli *cli, struct append_args *args)
{
    struct outlog_new_event *event = &args->event;
    int status = ol_cli_org_or_infra(event->org_id, event->is_infrastructure);
    if (status)
        return status;
    if (cli->argc)
        return ol_cli_usage("append takes no argument, found '%s'", cli->argv[0]);
    if ((status = ol_cli_actor(cli, args->actor, &event->actor_type, &event->actor_id)))
        return status;
    if (args->has_version)
        event->event_version = args->version < 1 || args->version > INT32_MAX ? -1
                                                                              : (int)args->version;
    if (args->has_expected)
        event->expected_seq = &args->expected;
    bool has_own = args->aggregate || args->data || event->id || args->has_expected ||
                   event->idempotency_key;
    if (args->ndjson && has_own)
        return ol_cli_usage("with --ndjson the lines carry aggregate, data, id, key and expect");
    if (args->ndjson)
        return 0;
    if (args->backfill)
        return ol_cli_usage("--backfill goes with --ndjson");
    if (!args->aggregate || !event->event_type || !args->data)
        return ol_cli_usage(
            "append needs --aggregate TYPE/ID, --type T and --data JSON (or --ndjson "
            "FILE); see outlog append --help");
    return ol_cli_aggregate(cli, args->aggregate, &event->aggregate_type, &event->aggregate_id);
}

static int parse_append_args(struct ol_cli *cli, struct append_args *args)
{
    struct outlog_new_event *event = &args->event;
    struct ol_option options[OL_EVENT_FIELD_ALL + 9] =
        {{"infra", OL_OPTION_FLAG, &event->is_infrastructure, NULL},
         {"aggregate", OL_OPTION_STRING, &args->aggregate, NULL},
         {"data", OL_OPTION_STRING, &args->data, NULL},
         {"actor", OL_OPTION_STRING, &args->actor, NULL},
         {"version", OL_OPTION_NUMBER, &args->version, &args->has_version},
         {"expect", OL_OPTION_NUMBER, &args->expected, &args->has_expected},
         {"ndjson", OL_OPTION_STRING, &args->ndjson, NULL},
         {"backfill", OL_OPTION_STRING, &args->backfill, NULL}};
    struct ol_option *next = options + 8;
    for (int i = 0; i < OL_EVENT_FIELD_ALL; i++)
        if (ol_event_fields[i].flag)
            *next++ = (struct ol_option){ol_event_fields[i].flag, OL_OPTION_STRING,
                                         (char *)event + ol_event_fields[i].given, NULL};
    int status = ol_cli_options(cli, options);
    return status ? status : check_append_args(cli, args);
}

/* --- one event --- */

static void print_result(const struct ol_cli *cli, const struct outlog_appended *appended,
                         struct ol_buf *line)
{
    if (cli->json) {
        ol_event_write_appended(appended, line);
    } else {
        ol_buf_print(line, "event %lld  seq %lld  id %s  correlation ",
                     (long long)appended->event_id, (long long)appended->aggregate_seq,
                     appended->id);
        ol_cli_put_safe(line, appended->correlation_id, strlen(appended->correlation_id));
        ol_buf_text(line, appended->duplicate ? "  (was there already)" : "");
    }
    ol_cli_put_line(line);
}

static int append_one(struct ol_cli *cli, outlog *log, struct append_args *args)
{
    struct outlog_appended appended = {0};
    struct ol_buf line = {0};
    outlog_err err;

    if (!(args->event.payload = ol_cli_text_or_file(cli, args->data)))
        return OL_EXIT_FAILED;
    if (outlog_append_now(log, &args->event, 1, &appended, &err) < 0) {
        if (err.code ==
            OUTLOG_OUTCOME_UNKNOWN) // the id is set even if outlog made it: repeat with --id
            ol_err_prefix(&err, "event %s", appended.id);
        return ol_cli_report(&err);
    }
    print_result(cli, &appended, &line);
    ol_buf_clear(&line);
    return OL_EXIT_DONE;
}

/* --- events from NDJSON --- */

/* Lines that become one transaction, and the totals of the whole file. */
struct append_batch {
    struct ol_cli *cli;
    outlog *log;
    struct append_args *args;
    struct ol_progress progress;
    struct ol_arena arena; /* of this batch */
    struct outlog_new_event events[APPEND_BATCH_MAX];
    struct outlog_appended appended[APPEND_BATCH_MAX];
    int64_t lines[APPEND_BATCH_MAX]; /* line numbers in the file */
    size_t count;
    int64_t stored, duplicates, bytes;
    struct ol_buf line;
};

/* Append the batch in one transaction. If the store rejects one of its events, the events before it
 * are appended anyway, so that "the lines before it are stored" is always true. */
static int flush_batch(struct append_batch *batch, outlog_err *err)
{
    outlog_err why;
    size_t count = batch->count;
    int result = 0;

    if (count == 0)
        return 0;
    if (outlog_append_now(batch->log, batch->events, count, batch->appended, err) < 0) {
        result = -1;
        count = err->index > 0 ? (size_t)err->index : 0;
        if (count &&
            outlog_append_now(batch->log, batch->events, count, batch->appended, &why) < 0) {
            *err = why;
            err->index = 0; // nothing of the batch is stored
            count = 0;
        }
        ol_err_prefix(err, "line %lld", (long long)batch->lines[err->index >= 0 ? err->index : 0]);
    }
    for (size_t i = 0; i < count; i++) {
        batch->stored += !batch->appended[i].duplicate;
        batch->duplicates += batch->appended[i].duplicate;
        if (batch->cli->json)
            print_result(batch->cli, &batch->appended[i], &batch->line);
    }
    batch->count = 0;
    ol_arena_reset(&batch->arena);
    return result;
}

/* Whether the last line cannot share a call with those before it: it has an idempotency key, or an
 * earlier line has the same id. */
static bool needs_own_call(const struct append_batch *batch)
{
    const struct outlog_new_event *event = &batch->events[batch->count - 1];
    if (event->idempotency_key)
        return true;
    for (size_t i = 0; event->id && i + 1 < batch->count; i++)
        if (batch->events[i].id && strcasecmp(batch->events[i].id, event->id) == 0)
            return true;
    return false;
}

static int add_line(struct append_batch *batch, const char *text, size_t bytes, int64_t number,
                    outlog_err *err)
{
    struct outlog_new_event *event = &batch->events[batch->count];
    if (ol_event_json_read(text, bytes, &batch->args->event, &batch->arena, event, err) < 0 ||
        (batch->args->backfill &&
         ol_event_json_backfill(event, batch->args->backfill, &batch->arena, err) < 0)) {
        outlog_err before;
        if (flush_batch(batch, &before) < 0)
            *err = before;
        else
            ol_err_prefix(err, "line %lld", (long long)number);
        return -1;
    }
    batch->lines[batch->count++] = number;
    if (needs_own_call(batch) && batch->count > 1) {
        struct outlog_new_event last =
            *event; // its strings are in the arena, which must survive the flush
        batch->count--;
        struct ol_arena keep = batch->arena;
        batch->arena = (struct ol_arena){0};
        int result = flush_batch(batch, err);
        ol_arena_clear(&batch->arena);
        batch->arena = keep;
        if (result < 0)
            return -1;
        batch->events[0] = last;
        batch->lines[0] = number;
        batch->count = 1;
    }
    return batch->events[batch->count - 1].idempotency_key || batch->count == APPEND_BATCH_MAX
               ? flush_batch(batch, err)
               : 0;
}

static int append_lines(struct append_batch *batch, FILE *file, outlog_err *err)
{
    char *text = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    int result = 0;

    for (int64_t number = 1; (bytes = getline(&text, &capacity, file)) >= 0; number++) {
        batch->bytes += bytes;
        size_t used = (size_t)bytes;
        while (used && (text[used - 1] == '\n' || text[used - 1] == '\r'))
            used--;
        if (used && (result = add_line(batch, text, used, number, err)) < 0)
            break;
        ol_progress_move(&batch->progress, batch->progress.total ? batch->bytes : batch->stored);
    }
    free(text);
    if (result == 0 && (result = flush_batch(batch, err)) == 0 && ferror(file))
        result = ol_fail(err, OUTLOG_INVALID_FIELD, "reading stopped after byte %lld: %s",
                         (long long)batch->bytes, strerror(errno));
    return result;
}

/* Add to the error which lines were stored. */
static int report_line(outlog_err *err)
{
    static const char more[] = "; the lines before it are stored, it and those after it are not";
    size_t used = strlen(err->message);
    if (used + sizeof more > sizeof err->message)
        for (used = sizeof err->message - sizeof more;
             ((unsigned char)err->message[used] & 0xC0) == 0x80;)
            used--; // not in the middle of a character
    if (err->code != OUTLOG_OUTCOME_UNKNOWN)
        memcpy(err->message + used, more, sizeof more);
    return ol_cli_report(err);
}

static int append_ndjson(struct ol_cli *cli, outlog *log, struct append_args *args)
{
    bool is_stdin = strcmp(args->ndjson, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(args->ndjson, "r");
    struct append_batch *batch = calloc(1, sizeof *batch);
    char stored[32], duplicates[32];
    struct stat facts;
    outlog_err err;

    if (!file || !batch) {
        free(batch);
        return ol_cli_unreadable(args->ndjson);
    }
    bool is_sized = fstat(fileno(file), &facts) == 0 && S_ISREG(facts.st_mode);
    batch->cli = cli;
    batch->log = log;
    batch->args = args;
    ol_progress_begin(&batch->progress, is_sized ? "bytes" : "events",
                      is_sized ? facts.st_size : 0);
    int result = append_lines(batch, file, &err);
    ol_progress_end(&batch->progress);
    double seconds = (double)(ol_clock_boot_us() - batch->progress.started_at) / 1e6;
    fprintf(cli->json ? stderr : stdout, "%s %s appended, %s there already, in %.1f s\n",
            ol_cli_thousands(batch->stored, stored), batch->stored == 1 ? "event" : "events",
            ol_cli_thousands(batch->duplicates, duplicates), seconds);
    fflush(stdout);
    if (result < 0)
        report_line(&err);
    ol_arena_clear(&batch->arena);
    ol_buf_clear(&batch->line);
    free(batch);
    if (!is_stdin)
        fclose(file);
    return result < 0 ? OL_EXIT_FAILED : OL_EXIT_DONE;
}

static int run_append(struct ol_cli *cli)
{
    struct append_args args = {0};
    int status = parse_append_args(cli, &args);

    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    status = args.ndjson ? append_ndjson(cli, log, &args) : append_one(cli, log, &args);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_append = {
    .name = "append",
    .summary = "append an event, or many from NDJSON",
    .help =
        "usage: outlog append --org O | --infra  --aggregate TYPE/ID --type T --data JSON|@FILE\n"
        "                     [--expect SEQ] [--key K] [--id UUID] [--causation ID]\n"
        "                     [--correlation C] [--actor TYPE:ID] [--version N] [--metadata JSON]\n"
        "                     [--request-id R] " OL_EVENT_LABEL_OPTIONS "\n"
        "       outlog append --ndjson FILE|- [--org O] [--actor TYPE:ID] [--backfill NAME]\n\n"
        "Appends one event and prints its position, or one event per line of a file. The payload is\n"
        "a JSON object and is stored byte for byte.\n\n"
        "  --expect SEQ    only if SEQ is the aggregate's last sequence (0: the first event)\n"
        "  --key K         idempotency key: a repeat with the same key prints the first result\n"
        "  --id UUID       your own id; a repeat with the same content prints the first result\n"
        "  --causation ID  the event that caused this one; its correlation id is copied\n"
        "  --backfill NAME set metadata.backfill = NAME and derive each id from the content of its line,\n"
        "                  so that loading the same file again adds nothing\n\n"
        "  outlog append --org acme --aggregate order/o-1 --type order.created "
        "--data '{\"total\":12}'\n"
        "  outlog append --org acme --aggregate order/o-1 --type order.paid --data @paid.json "
        "--expect 1\n"
        "  echo '{\"aggregate_type\":\"order\",\"aggregate_id\":\"o-2\","
        "\"event_type\":\"order.created\",\"payload\":{}}' |\n"
        "      outlog append --org acme --ndjson -\n",
    .run = run_append,
};
