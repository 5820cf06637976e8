/* destination.c: see destination.h. */
#include "views/destination.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/uuid.h"
#include "publish/sender.h"

#include <stdio.h>
#include <string.h>

/* --- the list --- */

struct trouble {
    struct trouble *next;
    const char *destination, *error;
};

struct breaker {
    struct breaker *next;
    const char *destination, *state;
    int64_t since, retry_at;
};

struct loading {
    outlog *log;
    struct ol_arena *arena;
    struct ol_counts counts;
    struct breaker *breakers; /* those that are not closed */
    struct trouble *troubles;
};

static int no_memory(outlog_err *err)
{
    return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
}

static int load_breakers(struct loading *loading, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    int more = 0;
    if (ol_query(loading->log->conn, OL_Q_BREAKER_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while (!failed && (more = ol_next(&rows, err)) > 0) {
        struct breaker *breaker = ol_arena_alloc(loading->arena, sizeof *breaker);
        if (!breaker) {
            failed = true;
            break;
        }
        breaker->destination = ol_column_copy(&rows, 0, loading->arena, &failed);
        breaker->state = ol_column_copy(&rows, 1, loading->arena, &failed);
        breaker->since = ol_column_time(&rows, 2);
        breaker->retry_at = ol_is_null(&rows, 3) ? 0 : ol_column_time(&rows, 3);
        breaker->next = loading->breakers;
        loading->breakers = breaker;
    }
    ol_end(&rows);
    return failed ? no_memory(err) : more < 0 ? -1 : 0;
}

static int load_troubles(struct loading *loading, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    int more = 0;
    if (ol_query(loading->log->conn, OL_Q_LAST_ERRORS, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while (!failed && (more = ol_next(&rows, err)) > 0) {
        struct trouble *trouble = ol_arena_alloc(loading->arena, sizeof *trouble);
        if (!trouble) {
            failed = true;
            break;
        }
        trouble->destination = ol_column_copy(&rows, 0, loading->arena, &failed);
        trouble->error = ol_column_copy(&rows, 1, loading->arena, &failed);
        trouble->next = loading->troubles;
        loading->troubles = trouble;
    }
    ol_end(&rows);
    return failed ? no_memory(err) : more < 0 ? -1 : 0;
}

static struct ol_count count_of(const struct loading *loading, const char *name)
{
    for (size_t i = 0; i < loading->counts.count; i++)
        if (strcmp(loading->counts.all[i].destination, name) == 0)
            return loading->counts.all[i];
    return (struct ol_count){.destination = name};
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

static int read_row(const struct loading *loading, const struct ol_rows *rows,
                    struct ol_destination *out)
{
    const struct breaker *breaker = loading->breakers;
    const struct trouble *trouble = loading->troubles;
    bool failed = false;

    out->name = ol_column_copy(rows, 0, loading->arena, &failed);
    if (failed)
        return -1;
    while (breaker && strcmp(breaker->destination, out->name) != 0)
        breaker = breaker->next;
    out->type = type_of(ol_column_text(rows, 1, NULL), loading->arena);
    out->is_paused = ol_column_int(rows, 3) != 0;
    out->breaker = breaker ? breaker->state : "closed";
    out->since = breaker ? breaker->since : out->is_paused ? ol_column_time(rows, 6) : 0;
    out->retry_at = breaker ? breaker->retry_at : 0;
    out->last_ok_at = ol_column_time(rows, 7);
    out->count = count_of(loading, out->name);
    while (trouble && strcmp(trouble->destination, out->name) != 0)
        trouble = trouble->next;
    out->last_error = trouble ? trouble->error : NULL;
    return 0;
}

static int read_rows(struct loading *loading, struct ol_destinations *out, outlog_err *err)
{
    struct ol_rows rows;
    size_t room = 0;
    int more;
    if (ol_query(loading->log->conn, OL_Q_DESTINATION_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_next(&rows, err)) > 0) {
        if (out->count == room) {
            room = room ? room * 2 : 16;
            struct ol_destination *wider = ol_arena_array(loading->arena, room, sizeof *wider);
            if (wider && out->count)
                memcpy(wider, out->all, out->count * sizeof *wider);
            out->all = wider;
        }
        if (!out->all || read_row(loading, &rows, &out->all[out->count]) < 0) {
            more = no_memory(err);
            break;
        }
        out->count++;
    }
    ol_end(&rows);
    return more < 0 ? -1 : 0;
}

int ol_destination_list(outlog *log, struct ol_arena *arena, struct ol_destinations *out,
                        outlog_err *err)
{
    struct loading loading = {.log = log, .arena = arena};

    *out = (struct ol_destinations){0};
    if (ol_log_ready(log, err) < 0 || ol_look_counts(log->conn, arena, &loading.counts, err) < 0 ||
        load_breakers(&loading, err) < 0 || load_troubles(&loading, err) < 0 ||
        read_rows(&loading, out, err) < 0)
        return -1;
    out->total = loading.counts.total;
    return 0;
}

const struct ol_destination *ol_destination_find(const struct ol_destinations *list,
                                                 const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->all[i].name, name) == 0)
            return &list->all[i];
    return NULL;
}

void ol_destination_json(const struct ol_destination *destination, struct ol_buf *out)
{
    const struct ol_count *count = &destination->count;

    ol_buf_text(out, "{\"name\":");
    ol_buf_json_text(out, destination->name);
    ol_buf_text(out, ",\"type\":");
    ol_buf_json_text(out, destination->type);
    ol_buf_print(out, ",\"paused\":%s,\"breaker\":\"%s\",\"pending\":%lld,\"oldest_pending_ms\":",
                 destination->is_paused ? "true" : "false", destination->breaker,
                 (long long)count->pending);
    if (count->oldest_pending_at)
        ol_buf_int(out, (ol_clock_wall_us() - count->oldest_pending_at) / 1000);
    else
        ol_buf_text(out, "null");
    ol_buf_text(out, ",\"last_error\":");
    ol_buf_json_text(out, destination->last_error);
    ol_buf_text(out, ",\"last_ok_at\":");
    ol_buf_json_time(out, destination->last_ok_at);
    ol_buf_text(out, ",\"retry_at\":");
    ol_buf_json_time(out, destination->retry_at);
    ol_buf_char(out, '}');
}

/* --- trying one --- */

static void on_outcome(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct ol_trial *trial = user;
    (void)tag;
    trial->is_over = true;
    trial->outcome = *outcome;
    snprintf(trial->error, sizeof trial->error, "%s", outcome->error ? outcome->error : "");
}

static void write_sample(const struct ol_settings *settings, struct ol_buf *out)
{
    if (strcmp(settings->type, "smtp") == 0) {
        ol_buf_text(out, "{\"to\":[");
        ol_buf_json_text(out, settings->from ? settings->from : "");
        ol_buf_text(out, "],\"subject\":\"outlog test\",\"body_html\":\"<p>A test of outlog.</p>\","
                         "\"body_text\":\"A test of outlog.\"}");
    } else if (strcmp(settings->type, "sor") == 0) {
        ol_buf_text(out, "{\"entity_type\":\"outlog.test\",\"entity_id\":\"test\","
                         "\"change\":{\"test\":true},\"evidence_pack\":{}}");
    } else {
        ol_buf_text(out, "{\"test\":true}");
    }
}

static int try_settings(const struct ol_settings *settings, const char *payload,
                        struct ol_trial *trial, outlog_err *err)
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
    if (ol_log_ready(log, err) < 0 ||
        ol_query(log->conn, OL_Q_DESTINATION_GET, OL_PARAMS(ol_text(name)), &rows, err) < 0)
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

int ol_destination_test(outlog *log, const char *name, const char *payload, struct ol_trial *out,
                        outlog_err *err)
{
    struct ol_settings *settings;
    struct ol_buf sample = {0};
    int result;

    *out = (struct ol_trial){0};
    if (read_settings(log, name, &settings, err) < 0)
        return -1;
    write_sample(settings, &sample);
    result = sample.failed ? no_memory(err)
                           : try_settings(settings, payload ? payload : sample.data, out, err);
    ol_buf_clear(&sample);
    ol_settings_close(settings);
    return result;
}

const char *ol_trial_word(const struct ol_trial *trial)
{
    static const char *const words[] = {"ok", "failed", "unknown", "released"};
    return words[trial->outcome.kind];
}

void ol_trial_json(const struct ol_trial *trial, struct ol_buf *out)
{
    ol_buf_print(out, "{\"outcome\":\"%s\",\"status\":", ol_trial_word(trial));
    if (trial->outcome.status)
        ol_buf_int(out, trial->outcome.status);
    else
        ol_buf_text(out, "null");
    ol_buf_print(out, ",\"duration_ms\":%lld,\"error\":",
                 (long long)(trial->outcome.duration_us / 1000));
    ol_buf_json_text(out, *trial->error ? trial->error : NULL);
    ol_buf_char(out, '}');
}
