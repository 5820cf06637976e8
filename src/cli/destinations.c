/* destinations.c: outlog destinations: where messages go, and how it is doing. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/uuid.h"
#include "outbox/look.h"
#include "publish/sender.h"

#include <string.h>

struct wish {
    struct outlog_operator by;
    const char *actor, *data;
};

/* --- the list --- */

struct state {
    struct ol_counts counts;
    struct ol_map breakers; /* 1: half open, 2: open */
    struct ol_arena *arena;
};

static int load_breakers(outlog *log, struct state *state, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_query(log->conn, OL_Q_BREAKER_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_next(&rows, err)) > 0)
        ol_map_add(&state->breakers, ol_column_text(&rows, 0, NULL),
                   strcmp(ol_column_text(&rows, 1, NULL), "open") == 0 ? 2 : 1);
    ol_end(&rows);
    return more < 0 ? -1 : 0;
}

struct trouble {
    struct trouble *next;
    const char *destination, *error;
};

static int load_troubles(outlog *log, struct ol_arena *arena, struct trouble **first,
                         outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    int more;
    if (ol_query(log->conn, OL_Q_LAST_ERRORS, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_next(&rows, err)) > 0) {
        struct trouble *trouble = ol_arena_alloc(arena, sizeof *trouble);
        if (!trouble)
            break;
        trouble->destination = ol_column_copy(&rows, 0, arena, &failed);
        trouble->error = ol_column_copy(&rows, 1, arena, &failed);
        trouble->next = *first;
        *first = trouble;
    }
    ol_end(&rows);
    return more < 0 || failed ? -1 : 0;
}

static const struct ol_count *count_of(const struct state *state, const char *name)
{
    static const struct ol_count none;
    for (size_t i = 0; i < state->counts.count; i++)
        if (strcmp(state->counts.all[i].destination, name) == 0)
            return &state->counts.all[i];
    return &none;
}

static const char *type_of(const char *settings, struct ol_arena *arena)
{
    struct ol_json object, type;
    if (ol_json_parse(settings, strlen(settings), &object, NULL) < 0)
        return "?";
    type = ol_json_get(&object, "type");
    const char *text = ol_json_string(&type, arena, NULL);
    return text ? text : "?";
}

static void print_json(const char *name, const char *type, bool paused, const char *breaker,
                       const struct ol_count *count, const char *error, struct ol_buf *line)
{
    ol_buf_text(line, "{\"name\":");
    ol_buf_json_text(line, name);
    ol_buf_print(line,
                 ",\"type\":\"%s\",\"paused\":%s,\"breaker\":\"%s\",\"pending\":%lld,"
                 "\"oldest_pending_ms\":",
                 type, paused ? "true" : "false", breaker, (long long)count->pending);
    if (count->oldest_pending_at)
        ol_buf_int(line, (ol_clock_wall_us() - count->oldest_pending_at) / 1000);
    else
        ol_buf_text(line, "null");
    ol_buf_text(line, ",\"last_error\":");
    ol_buf_json_text(line, error);
    ol_buf_char(line, '}');
}

static void print_row(struct ol_cli *cli, const struct ol_rows *rows, const struct state *state,
                      const struct trouble *trouble)
{
    static const char *const breakers[] = {"closed", "half_open", "open"};
    struct ol_buf line = {0};
    const char *name = ol_column_text(rows, 0, NULL);
    const char *type = type_of(ol_column_text(rows, 1, NULL), &cli->arena);
    bool paused = ol_column_int(rows, 3) != 0;
    const struct ol_count *count = count_of(state, name);
    int64_t worst = ol_map_get(&state->breakers, name);
    const char *breaker = breakers[worst > 2 ? 2 : worst];
    char pending[32], dead[32], age[32];

    while (trouble && strcmp(trouble->destination, name) != 0)
        trouble = trouble->next;
    const char *error = trouble ? trouble->error : NULL;
    if (cli->json) {
        print_json(name, type, paused, breaker, count, error, &line);
    } else {
        ol_put_wide(&line, name, 16);
        ol_buf_print(&line, " %-9s %s%-9s%s %s%11s %9s %8s  ", type,
                     paused || worst ? ol_bad(cli) : ol_good(cli), paused ? "paused" : breaker,
                     ol_plain(cli), count->is_estimate ? "~" : " ",
                     ol_thousands(count->pending, pending), ol_thousands(count->dead, dead),
                     ol_cli_age(count->oldest_pending_at, age));
        if (error)
            ol_put_safe(&line, error, strlen(error) < 80 ? strlen(error) : 80);
    }
    ol_put_line(&line);
    ol_buf_clear(&line);
}

static int list(struct ol_cli *cli, outlog *log, outlog_err *err)
{
    struct state state = {.arena = &cli->arena};
    struct trouble *troubles = NULL;
    struct ol_rows rows;
    int more = -1;

    if (ol_look_counts(log->conn, &cli->arena, &state.counts, err) < 0 ||
        load_breakers(log, &state, err) < 0 ||
        load_troubles(log, &cli->arena, &troubles, err) < 0 ||
        ol_query(log->conn, OL_Q_DESTINATION_LIST, OL_NO_PARAMS, &rows, err) < 0)
        goto out;
    if (!cli->json)
        printf("%s%-16s %-9s %-9s %12s %9s %8s  %s%s\n", ol_bold(cli), "destination", "type",
               "state", "pending", "dead", "oldest", "last error", ol_plain(cli));
    while ((more = ol_next(&rows, err)) > 0)
        print_row(cli, &rows, &state, troubles);
    ol_end(&rows);
out:
    ol_map_clear(&state.breakers);
    return more < 0 ? -1 : 0;
}

/* --- pause, resume, deliver --- */

static int pause_or_resume(struct ol_cli *cli, outlog *log, const char *name, bool paused,
                           const struct wish *wish, outlog_err *err)
{
    bool changed;
    if (outlog_destination_pause(log, name, paused, &wish->by, &changed, err) < 0)
        return -1;
    if (cli->json)
        printf("{\"name\":\"%s\",\"paused\":%s}\n", name, paused ? "true" : "false");
    else
        printf("%s %s%s\n", name, paused ? "is paused: its messages wait" : "is resumed",
               changed ? "" : " (it was before)");
    return 0;
}

static int deliver(struct ol_cli *cli, outlog *log, const char *name, const struct wish *wish,
                   outlog_err *err)
{
    int64_t hurried;
    char number[32];
    if (outlog_deliver(log, name, &wish->by, &hurried, err) < 0)
        return -1;
    if (cli->json)
        printf("{\"hurried\":%lld}\n", (long long)hurried);
    else
        printf("%s waiting messages are due now\n", ol_thousands(hurried, number));
    return 0;
}

/* --- test --- */

struct trial {
    bool is_over;
    struct outlog_outcome outcome;
    char error[400], response[400];
};

static void on_outcome(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct trial *trial = user;
    (void)tag;
    trial->is_over = true;
    trial->outcome = *outcome;
    snprintf(trial->error, sizeof trial->error, "%s", outcome->error ? outcome->error : "");
}

/* What each kind of destination can make something of. */
static const char *sample_payload(const struct ol_settings *settings, struct ol_arena *arena)
{
    if (strcmp(settings->type, "smtp") == 0)
        return ol_arena_print(arena,
                              "{\"to\":[\"%s\"],\"subject\":\"outlog test\","
                              "\"body_html\":\"<p>A test of outlog.</p>\","
                              "\"body_text\":\"A test of outlog.\"}",
                              settings->from ? settings->from : "");
    if (strcmp(settings->type, "sor") == 0)
        return "{\"entity_type\":\"outlog.test\",\"entity_id\":\"test\",\"change\":{\"test\":true},"
               "\"evidence_pack\":{}}";
    return "{\"test\":true}";
}

static int try_settings(const struct ol_settings *settings, const char *payload,
                        struct trial *trial, outlog_err *err)
{
    struct ol_sender *sender;
    struct ol_outlet *outlet;
    char id[OL_UUID_TEXT];

    ol_uuid_make(id);
    if (ol_sender_open(&sender, on_outcome, trial, err) < 0)
        return -1;
    if (ol_outlet_open(sender, settings, &outlet, err) < 0) {
        ol_sender_close(sender);
        return -1;
    }
    struct outlog_message message = {.event_id = id,
                                     .destination = settings->name,
                                     .event_type = "outlog.test",
                                     .payload = payload,
                                     .payload_bytes = strlen(payload),
                                     .content_type = "application/json",
                                     .correlation_id = id,
                                     .created_at = ol_clock_wall_us(),
                                     .attempt = 1};
    int64_t deadline = ol_clock_boot_us() + settings->timeout_us;
    ol_outlet_submit(outlet, &message, deadline, trial);
    while (!trial->is_over && ol_clock_boot_us() < deadline + 1000000)
        ol_sender_drive(sender, 100);
    ol_outlet_close(outlet); // the outcome is there at the latest now
    ol_sender_close(sender);
    return 0;
}

static int read_settings(outlog *log, const char *name, struct ol_settings **out, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_query(log->conn, OL_Q_DESTINATION_GET, OL_PARAMS(ol_text(name)), &rows, err) < 0)
        return -1;
    int got = ol_next(&rows, err), result = -1;
    if (got > 0) {
        size_t bytes;
        const char *json = ol_column_text(&rows, 1, &bytes);
        result = ol_settings_open(name, json, bytes, OL_SETTINGS_USE, out, err);
    } else if (got == 0) {
        ol_fail(err, OUTLOG_NOT_FOUND,
                "there is no destination %.100s; `outlog destinations` lists them", name);
    }
    ol_end(&rows);
    return result;
}

static int test(struct ol_cli *cli, outlog *log, const char *name, const struct wish *wish,
                bool *is_ok, outlog_err *err)
{
    static const char *const words[] = {"ok", "failed", "unknown", "released"};
    struct ol_settings *settings = NULL;
    struct trial trial = {0};
    struct ol_buf line = {0};
    const char *payload = wish->data ? ol_cli_text_or_file(cli, wish->data) : NULL;
    if (wish->data && !payload)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "--data cannot be read");
    if (read_settings(log, name, &settings, err) < 0)
        return -1;
    int result = try_settings(settings, payload ? payload : sample_payload(settings, &cli->arena),
                              &trial, err);
    ol_settings_close(settings);
    if (result < 0)
        return -1;
    *is_ok = trial.outcome.kind == OUTLOG_PUBLISH_OK;
    if (cli->json) {
        ol_buf_print(&line, "{\"outcome\":\"%s\",\"status\":", words[trial.outcome.kind]);
        if (trial.outcome.status)
            ol_buf_int(&line, trial.outcome.status);
        else
            ol_buf_text(&line, "null");
        ol_buf_print(&line, ",\"duration_ms\":%lld,\"error\":",
                     (long long)(trial.outcome.duration_us / 1000));
        ol_buf_json_text(&line, *trial.error ? trial.error : NULL);
        ol_buf_char(&line, '}');
    } else {
        ol_buf_print(&line, "%s%s%s", *is_ok ? ol_good(cli) : ol_bad(cli),
                     words[trial.outcome.kind], ol_plain(cli));
        if (trial.outcome.status)
            ol_buf_print(&line, "  status %d", trial.outcome.status);
        ol_buf_print(&line, "  %lld ms", (long long)(trial.outcome.duration_us / 1000));
        if (*trial.error)
            ol_buf_text(&line, "  ");
        ol_put_safe(&line, trial.error, strlen(trial.error));
    }
    ol_put_line(&line);
    ol_buf_clear(&line);
    return 0;
}

/* --- the command --- */

static int run(struct ol_cli *cli)
{
    struct wish wish = {0};
    outlog_err err;
    const struct ol_option options[] = {{"actor", OL_STRING, &wish.actor, NULL},
                                        {"data", OL_STRING, &wish.data, NULL},
                                        {0}};
    static const char *const verbs[] = {"pause", "resume", "deliver", "test"};
    int status = ol_options(cli, options), verb = 0;
    if (status || (status = ol_cli_actor(cli, wish.actor, &wish.by.actor_type, &wish.by.actor_id)))
        return status;
    while (cli->argc && verb < 4 && strcmp(cli->argv[0], verbs[verb]) != 0)
        verb++;
    if (cli->argc && (verb == 4 || cli->argc != 2))
        return ol_usage(
            "destinations lists, or: outlog destinations pause|resume|test|deliver NAME");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    const char *name = cli->argc ? cli->argv[1] : NULL;
    bool is_ok = true;
    int result = !name      ? list(cli, log, &err)
                 : verb < 2 ? pause_or_resume(cli, log, name, verb == 0, &wish, &err)
                 : verb < 3 ? deliver(cli, log, name, &wish, &err)
                            : test(cli, log, name, &wish, &is_ok, &err);
    if (result < 0)
        status = ol_report(&err);
    else if (!is_ok)
        status = OL_EXIT_FAILED;
    outlog_close(log);
    return status;
}

const struct ol_command ol_command_destinations = {
    .name = "destinations",
    .summary = "where messages go: health, pause, resume, test",
    .help =
        "usage: outlog destinations [--json]\n"
        "       outlog destinations pause|resume NAME [--actor TYPE:ID]\n"
        "       outlog destinations deliver NAME [--actor TYPE:ID]\n"
        "       outlog destinations test NAME [--data JSON|@FILE] [--json]\n\n"
        "Lists destinations with what waits for them; ~ marks a number that is projected from the first\n"
        "messages of a long backlog. A paused one keeps its messages. `deliver` makes everything due now\n"
        "that waits for its next try or its time. `test` sends one message of type outlog.test from\n"
        "here, past the outbox, and says what came of it; exit 1 unless it was taken.\n\n"
        "  outlog destinations\n"
        "  outlog destinations test billing\n"
        "  outlog destinations pause billing --actor user:ann\n",
    .run = run,
};
