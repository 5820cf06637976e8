/* destination_health.c: joins destinations with their breakers, counts and last errors. */
#include "outbox/destination_health.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/uuid.h"

#include <string.h>

/* --- the list --- */

struct destination_error {
    struct destination_error *next;
    const char *destination, *error;
};

struct destination_breaker {
    struct destination_breaker *next;
    const char *destination, *state;
    int64_t since, retry_at;
};

struct health_loading {
    outlog *log;
    struct ol_arena *arena;
    struct ol_message_counts counts;
    struct destination_breaker *breakers; /* those that are not closed */
    struct destination_error *errors;
};

static int load_breakers(struct health_loading *loading, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    int more = 0;
    if (ol_store_query(loading->log->conn, OL_Q_BREAKER_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while (!failed && (more = ol_rows_next(&rows, err)) > 0) {
        struct destination_breaker *breaker = ol_arena_alloc(loading->arena, sizeof *breaker);
        if (!breaker) {
            failed = true;
            break;
        }
        breaker->destination = ol_rows_copy(&rows, 0, loading->arena, &failed);
        breaker->state = ol_rows_copy(&rows, 1, loading->arena, &failed);
        breaker->since = ol_rows_time(&rows, 2);
        breaker->retry_at = ol_rows_is_null(&rows, 3) ? 0 : ol_rows_time(&rows, 3);
        breaker->next = loading->breakers;
        loading->breakers = breaker;
    }
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : more < 0 ? -1 : 0;
}

static int load_errors(struct health_loading *loading, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    int more = 0;
    if (ol_store_query(loading->log->conn, OL_Q_LAST_ERRORS, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while (!failed && (more = ol_rows_next(&rows, err)) > 0) {
        struct destination_error *error = ol_arena_alloc(loading->arena, sizeof *error);
        if (!error) {
            failed = true;
            break;
        }
        error->destination = ol_rows_copy(&rows, 0, loading->arena, &failed);
        error->error = ol_rows_copy(&rows, 1, loading->arena, &failed);
        error->next = loading->errors;
        loading->errors = error;
    }
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : more < 0 ? -1 : 0;
}

static struct ol_message_count find_count(const struct health_loading *loading, const char *name)
{
    for (size_t i = 0; i < loading->counts.count; i++)
        if (strcmp(loading->counts.all[i].destination, name) == 0)
            return loading->counts.all[i];
    return (struct ol_message_count){.destination = name,
                                     .is_estimate = loading->counts.total.is_estimate};
}

static const char *read_type(const char *settings, struct ol_arena *arena)
{
    struct ol_json object, type;
    if (ol_json_parse(settings, strlen(settings), &object, NULL) < 0)
        return "?";
    type = ol_json_get(&object, "type");
    const char *text = ol_json_string(&type, arena, NULL);
    return text ? text : "?";
}

static int read_row(const struct health_loading *loading, const struct ol_rows *rows,
                    struct ol_destination_health *out)
{
    const struct destination_breaker *breaker = loading->breakers;
    const struct destination_error *error = loading->errors;
    bool failed = false;

    out->name = ol_rows_copy(rows, 0, loading->arena, &failed);
    if (failed)
        return -1;
    while (breaker && strcmp(breaker->destination, out->name) != 0)
        breaker = breaker->next;
    out->type = read_type(ol_rows_text(rows, 1, NULL), loading->arena);
    out->is_paused = ol_rows_int(rows, 3) != 0;
    out->breaker = breaker ? breaker->state : "closed";
    out->since = breaker ? breaker->since : out->is_paused ? ol_rows_time(rows, 6) : 0;
    out->retry_at = breaker ? breaker->retry_at : 0;
    out->last_ok_at = ol_rows_time(rows, 7);
    out->count = find_count(loading, out->name);
    while (error && strcmp(error->destination, out->name) != 0)
        error = error->next;
    out->last_error = error ? error->error : NULL;
    return 0;
}

static int read_rows(struct health_loading *loading, struct ol_destination_healths *out,
                     outlog_err *err)
{
    struct ol_rows rows;
    size_t capacity = 0;
    int more;
    if (ol_store_query(loading->log->conn, OL_Q_DESTINATION_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (out->count == capacity) {
            capacity = capacity ? capacity * 2 : 16;
            struct ol_destination_health *wider =
                ol_arena_array(loading->arena, capacity, sizeof *wider);
            if (wider && out->count)
                memcpy(wider, out->all, out->count * sizeof *wider);
            out->all = wider;
        }
        if (!out->all || read_row(loading, &rows, &out->all[out->count]) < 0) {
            more = ol_no_memory(err);
            break;
        }
        out->count++;
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

int ol_destination_health_list(outlog *log, struct ol_arena *arena,
                               struct ol_destination_healths *out, outlog_err *err)
{
    struct health_loading loading = {.log = log, .arena = arena};

    *out = (struct ol_destination_healths){0};
    if (ol_log_ready(log, err) < 0 ||
        ol_message_counts_read(log->conn, arena, &loading.counts, err) < 0 ||
        load_breakers(&loading, err) < 0 || load_errors(&loading, err) < 0 ||
        read_rows(&loading, out, err) < 0)
        return -1;
    out->total = loading.counts.total;
    return 0;
}

const struct ol_destination_health *ol_destination_health_find(
    const struct ol_destination_healths *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->all[i].name, name) == 0)
            return &list->all[i];
    return NULL;
}

void ol_destination_health_json(const struct ol_destination_health *destination, struct ol_buf *out)
{
    const struct ol_message_count *count = &destination->count;

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
