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

enum { BATCH = 100 };

struct wish {
    struct outlog_new_event event; /* of one event; for NDJSON what the lines leave out */
    const char *ndjson, *backfill, *data, *aggregate, *actor;
    int64_t version, expected;
    bool has_version, has_expected;
};

/* --- options --- */

static int parse(struct ol_cli *cli, struct wish *wish)
{
    struct outlog_new_event *event = &wish->event;
    struct ol_option options[OL_EVENT_FIELD_ALL + 9] =
        {{"infra", OL_OPTION_FLAG, &event->is_infrastructure, NULL},
         {"aggregate", OL_OPTION_STRING, &wish->aggregate, NULL},
         {"data", OL_OPTION_STRING, &wish->data, NULL},
         {"actor", OL_OPTION_STRING, &wish->actor, NULL},
         {"version", OL_OPTION_NUMBER, &wish->version, &wish->has_version},
         {"expect", OL_OPTION_NUMBER, &wish->expected, &wish->has_expected},
         {"ndjson", OL_OPTION_STRING, &wish->ndjson, NULL},
         {"backfill", OL_OPTION_STRING, &wish->backfill, NULL}};
    struct ol_option *next = options + 8;
    for (int i = 0; i < OL_EVENT_FIELD_ALL; i++)
        if (ol_event_fields[i].flag)
            *next++ = (struct ol_option){ol_event_fields[i].flag, OL_OPTION_STRING,
                                         (char *)event + ol_event_fields[i].given, NULL};
    int status = ol_cli_options(cli, options);

    if (status || (status = ol_cli_org_or_infra(event->org_id, event->is_infrastructure)))
        return status;
    if (cli->argc)
        return ol_cli_usage("append takes no argument, found '%s'", cli->argv[0]);
    if (wish->actor &&
        (status = ol_cli_actor(cli, wish->actor, &event->actor_type, &event->actor_id)))
        return status;
    if (wish->has_version)
        event->event_version = wish->version < 1 || wish->version > INT32_MAX ? -1
                                                                              : (int)wish->version;
    if (wish->has_expected)
        event->expected_seq = &wish->expected;
    if (wish->ndjson)
        return wish->aggregate || wish->data || event->id || wish->has_expected ||
                       event->idempotency_key
                   ? ol_cli_usage(
                         "with --ndjson the lines carry aggregate, data, id, key and expect")
                   : 0;
    if (wish->backfill)
        return ol_cli_usage("--backfill goes with --ndjson");
    if (!wish->aggregate || !event->event_type || !wish->data)
        return ol_cli_usage(
            "append needs --aggregate TYPE/ID, --type T and --data JSON (or --ndjson "
            "FILE); see outlog append --help");
    return ol_cli_aggregate(cli, wish->aggregate, &event->aggregate_type, &event->aggregate_id);
}

/* --- one --- */

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

static int append_one(struct ol_cli *cli, outlog *log, struct wish *wish)
{
    struct outlog_appended appended = {0};
    struct ol_buf line = {0};
    outlog_err err;

    if (!(wish->event.payload = ol_cli_text_or_file(cli, wish->data)))
        return OL_EXIT_FAILED;
    if (outlog_append_now(log, &wish->event, 1, &appended, &err) < 0) {
        if (err.code == OUTLOG_OUTCOME_UNKNOWN) // also when outlog made the id: repeat with --id
            ol_err_prefix(&err, "event %s", appended.id);
        return ol_cli_report(&err);
    }
    print_result(cli, &appended, &line);
    ol_buf_clear(&line);
    return OL_EXIT_DONE;
}

/* --- many --- */

struct import {
    struct ol_cli *cli;
    outlog *log;
    struct wish *wish;
    struct ol_progress progress;
    struct ol_arena arena; /* of the batch being gathered */
    struct outlog_new_event events[BATCH];
    struct outlog_appended appended[BATCH];
    int64_t lines[BATCH]; /* where each event of the batch stands in the file */
    size_t count;
    int64_t stored, duplicates, bytes;
    struct ol_buf line;
};

/* What was read so far is stored as one transaction. When one event of it is refused, those before
 * it are stored all the same: so "the lines before are stored" is always true. */
static int flush_batch(struct import *import, outlog_err *err)
{
    outlog_err why;
    size_t count = import->count;
    int result = 0;

    if (count == 0)
        return 0;
    if (outlog_append_now(import->log, import->events, count, import->appended, err) < 0) {
        result = -1;
        count = err->index > 0 ? (size_t)err->index : 0;
        if (count &&
            outlog_append_now(import->log, import->events, count, import->appended, &why) < 0) {
            *err = why;
            err->index = 0; // nothing of the batch is stored
            count = 0;
        }
        ol_err_prefix(err, "line %lld", (long long)import->lines[err->index >= 0 ? err->index : 0]);
    }
    for (size_t i = 0; i < count; i++) {
        import->stored += !import->appended[i].duplicate;
        import->duplicates += import->appended[i].duplicate;
        if (import->cli->json)
            print_result(import->cli, &import->appended[i], &import->line);
    }
    import->count = 0;
    ol_arena_reset(&import->arena);
    return result;
}

/* Whether the newest line cannot share a call with those before it: it is a command of its own, or
 * one of them has its id. */
static bool stands_alone(const struct import *import)
{
    const struct outlog_new_event *event = &import->events[import->count - 1];
    if (event->idempotency_key)
        return true;
    for (size_t i = 0; event->id && i + 1 < import->count; i++)
        if (import->events[i].id && strcasecmp(import->events[i].id, event->id) == 0)
            return true;
    return false;
}

static int take_line(struct import *import, const char *text, size_t bytes, int64_t number,
                     outlog_err *err)
{
    struct outlog_new_event *event = &import->events[import->count];
    if (ol_event_json_read(text, bytes, &import->wish->event, &import->arena, event, err) < 0 ||
        (import->wish->backfill &&
         ol_event_json_backfill(event, import->wish->backfill, &import->arena, err) < 0)) {
        outlog_err before;
        if (flush_batch(import, &before) < 0)
            *err = before;
        else
            ol_err_prefix(err, "line %lld", (long long)number);
        return -1;
    }
    import->lines[import->count++] = number;
    if (stands_alone(import) && import->count > 1) {
        struct outlog_new_event last =
            *event; // its strings live in the arena: flush keeps them below
        import->count--;
        struct ol_arena keep = import->arena;
        import->arena = (struct ol_arena){0};
        int result = flush_batch(import, err);
        ol_arena_clear(&import->arena);
        import->arena = keep;
        if (result < 0)
            return -1;
        import->events[0] = last;
        import->lines[0] = number;
        import->count = 1;
    }
    return import->events[import->count - 1].idempotency_key || import->count == BATCH
               ? flush_batch(import, err)
               : 0;
}

static int import_lines(struct import *import, FILE *file, outlog_err *err)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    int result = 0;

    for (int64_t number = 1; (bytes = getline(&text, &room, file)) >= 0; number++) {
        import->bytes += bytes;
        size_t used = (size_t)bytes;
        while (used && (text[used - 1] == '\n' || text[used - 1] == '\r'))
            used--;
        if (used && (result = take_line(import, text, used, number, err)) < 0)
            break;
        ol_progress_move(&import->progress,
                         import->progress.total ? import->bytes : import->stored);
    }
    free(text);
    if (result == 0 && (result = flush_batch(import, err)) == 0 && ferror(file))
        result = ol_fail(err, OUTLOG_INVALID_FIELD, "cannot read on after byte %lld: %s",
                         (long long)import->bytes, strerror(errno));
    return result;
}

/* The one line that tells of an error also tells how far we came. */
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

static int append_ndjson(struct ol_cli *cli, outlog *log, struct wish *wish)
{
    bool is_stdin = strcmp(wish->ndjson, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(wish->ndjson, "r");
    struct import *import = calloc(1, sizeof *import);
    char stored[32], duplicates[32];
    struct stat facts;
    outlog_err err;

    if (!file || !import) {
        free(import);
        return ol_cli_unreadable(wish->ndjson);
    }
    bool is_sized = fstat(fileno(file), &facts) == 0 && S_ISREG(facts.st_mode);
    import->cli = cli;
    import->log = log;
    import->wish = wish;
    ol_progress_begin(&import->progress, is_sized ? "bytes" : "events",
                      is_sized ? facts.st_size : 0);
    int result = import_lines(import, file, &err);
    ol_progress_end(&import->progress);
    double seconds = (double)(ol_clock_boot_us() - import->progress.started_at) / 1e6;
    fprintf(cli->json ? stderr : stdout, "%s %s appended, %s there already, in %.1f s\n",
            ol_cli_thousands(import->stored, stored), import->stored == 1 ? "event" : "events",
            ol_cli_thousands(import->duplicates, duplicates), seconds);
    fflush(stdout);
    if (result < 0)
        report_line(&err);
    ol_arena_clear(&import->arena);
    ol_buf_clear(&import->line);
    free(import);
    if (!is_stdin)
        fclose(file);
    return result < 0 ? OL_EXIT_FAILED : OL_EXIT_DONE;
}

static int run(struct ol_cli *cli)
{
    struct wish wish = {0};
    int status = parse(cli, &wish);

    if (status)
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    status = wish.ndjson ? append_ndjson(cli, log, &wish) : append_one(cli, log, &wish);
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
        "Appends one event and prints its position, or one event a line from a file. The payload is\n"
        "a JSON object and is kept byte for byte.\n\n"
        "  --expect SEQ    only if SEQ is the aggregate's last sequence (0: the first event)\n"
        "  --key K         do it once: a repeat with the same key prints the first result\n"
        "  --id UUID       your own id; a repeat with the same content prints the first result\n"
        "  --causation ID  the event that caused this one; its correlation is taken over\n"
        "  --backfill NAME label the events metadata.backfill = NAME and give each an id made from\n"
        "                  its content, so that the same file can be loaded again and adds nothing\n\n"
        "  outlog append --org acme --aggregate order/o-1 --type order.created "
        "--data '{\"total\":12}'\n"
        "  outlog append --org acme --aggregate order/o-1 --type order.paid --data @paid.json "
        "--expect 1\n"
        "  echo '{\"aggregate_type\":\"order\",\"aggregate_id\":\"o-2\","
        "\"event_type\":\"order.created\",\"payload\":{}}' |\n"
        "      outlog append --org acme --ndjson -\n",
    .run = run,
};
