/* checkpoint.c: reads checkpoints from the store and writes them as JSON. */
#include "projections/checkpoint.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum { STATEMENT_BYTES_MAX = 1000 };

/* --- rows --- */

static void copy_text(const struct ol_rows *rows, int column, char *to, size_t capacity)
{
    const char *text = ol_rows_text(rows, column, NULL);
    snprintf(to, capacity, "%s", text ? text : "");
}

static int64_t read_time(const struct ol_rows *rows, int column)
{
    return ol_rows_is_null(rows, column) ? 0 : ol_rows_time(rows, column);
}

/* The columns of checkpoint_list. */
static void read_checkpoint(const struct ol_rows *rows, struct ol_checkpoint *out)
{
    struct outlog_projection *shown = &out->shown;
    copy_text(rows, 0, shown->name, sizeof shown->name);
    shown->version = (int)ol_rows_int(rows, 1);
    shown->last_applied_event_id = ol_rows_int(rows, 2);
    copy_text(rows, 3, shown->status, sizeof shown->status);
    copy_text(rows, 4, shown->error, sizeof shown->error);
    copy_text(rows, 5, shown->rebuild, sizeof shown->rebuild);
    copy_text(rows, 6, out->rebuild_id, sizeof out->rebuild_id);
    shown->rebuild_event_id = ol_rows_int(rows, 7);
    shown->rebuild_upto = ol_rows_int(rows, 8);
    shown->rebuild_started_at = read_time(rows, 9);
    copy_text(rows, 10, shown->rebuild_error, sizeof shown->rebuild_error);
    out->epoch = ol_rows_int(rows, 11);
    copy_text(rows, 12, out->owner, sizeof out->owner);
    copy_text(rows, 13, shown->owner, sizeof shown->owner);
    out->is_free = ol_rows_int(rows, 14) != 0;
    shown->updated_at = ol_rows_time(rows, 15);
    shown->rebuild_version = (int)ol_rows_int(rows, 16);
    out->declared_at = read_time(rows, 17);
    out->shown.is_in_c = ol_rows_int(rows, 18) != 0;
    if (out->is_free)
        shown->owner[0] = '\0';
    if (strcmp(shown->rebuild, "in_place") == 0) // it rebuilds the live tables
        shown->rebuild_event_id = shown->last_applied_event_id;
}

int ol_checkpoint_list(struct ol_conn *conn, struct ol_arena *arena, struct ol_checkpoint **out,
                       size_t *count, outlog_err *err)
{
    struct ol_rows rows;
    size_t capacity = 0;
    int more;

    *out = NULL;
    *count = 0;
    if (ol_store_query(conn, OL_Q_CHECKPOINT_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (*count == capacity) {
            capacity = capacity ? capacity * 2 : 8;
            struct ol_checkpoint *wider = ol_arena_array(arena, capacity, sizeof *wider);
            if (!wider) {
                more = ol_no_memory(err);
                break;
            }
            if (*count)
                memcpy(wider, *out, *count * sizeof *wider);
            *out = wider;
        }
        read_checkpoint(&rows, &(*out)[(*count)++]);
    }
    ol_rows_end(&rows);
    return more;
}

int ol_checkpoint_get(struct ol_conn *conn, const char *name, struct ol_checkpoint *out,
                      outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_checkpoint *all;
    size_t count;
    int result = ol_checkpoint_list(conn, &arena, &all, &count, err);
    for (size_t i = 0; result == 0 && i <= count; i++) {
        if (i == count)
            result = ol_fail(err, OUTLOG_NOT_FOUND,
                             "no projection %.60s; `outlog projections` lists them", name);
        else if (strcmp(all[i].shown.name, name) == 0) {
            *out = all[i];
            break;
        }
    }
    ol_arena_clear(&arena);
    return result;
}

/* --- JSON --- */

/* At max `max` bytes of a text, in whole characters. */
static void put_truncated(struct ol_buf *out, const char *text, size_t max)
{
    size_t bytes = strlen(text);
    if (bytes > max)
        for (bytes = max; bytes && ((unsigned char)text[bytes] & 0xC0) == 0x80;)
            bytes--;
    ol_buf_json(out, text, bytes);
}

void ol_checkpoint_error(const struct outlog_event *event, const char *statement,
                         const char *message, struct ol_buf *out)
{
    ol_buf_text(out, "{\"event_id\":");
    if (event)
        ol_buf_int(out, event->event_id);
    else
        ol_buf_text(out, "null");
    ol_buf_text(out, ",\"event_type\":");
    ol_buf_json_text(out, event ? event->event_type : NULL);
    ol_buf_text(out, ",\"statement\":");
    if (statement)
        put_truncated(out, statement, STATEMENT_BYTES_MAX);
    else
        ol_buf_text(out, "null");
    ol_buf_text(out, ",\"message\":");
    put_truncated(out, message, STATEMENT_BYTES_MAX / 2);
    ol_buf_char(out, '}');
}

int64_t ol_checkpoint_rebuild_pace(const struct outlog_projection *p, int64_t *eta_s)
{
    int64_t taken_us = p->rebuild_started_at ? ol_clock_wall_us() - p->rebuild_started_at : 0;
    int64_t rate = taken_us > 0 ? p->rebuild_event_id * 1000000 / taken_us : 0;
    int64_t left = p->rebuild_upto > p->rebuild_event_id ? p->rebuild_upto - p->rebuild_event_id
                                                         : 0;
    *eta_s = rate > 0 ? left / rate : -1;
    return rate;
}

static void put_rebuild(const struct outlog_projection *p, struct ol_buf *out)
{
    int64_t eta_s, rate = ol_checkpoint_rebuild_pace(p, &eta_s);
    ol_buf_print(out,
                 "{\"kind\":\"%s\",\"version\":%d,\"event_id\":%lld,\"upto\":%lld,"
                 "\"events_per_s\":%lld,\"eta_s\":",
                 p->rebuild, p->rebuild_version, (long long)p->rebuild_event_id,
                 (long long)p->rebuild_upto, (long long)rate);
    if (eta_s >= 0)
        ol_buf_int(out, eta_s);
    else
        ol_buf_text(out, "null");
    ol_buf_print(out, ",\"error\":%s}", *p->rebuild_error ? p->rebuild_error : "null");
}

void ol_projection_json(const struct outlog_projection *projection, struct ol_buf *out)
{
    ol_buf_text(out, "{\"name\":");
    ol_buf_json_text(out, projection->name);
    ol_buf_print(out,
                 ",\"version\":%d,\"status\":\"%s\",\"last_applied_event_id\":%lld,\"lag\":%lld,"
                 "\"error\":%s,\"rebuild\":",
                 projection->version, projection->status,
                 (long long)projection->last_applied_event_id, (long long)projection->lag,
                 *projection->error ? projection->error : "null");
    if (*projection->rebuild)
        put_rebuild(projection, out);
    else
        ol_buf_text(out, "null");
    ol_buf_text(out, ",\"owner\":");
    ol_buf_json_text(out, *projection->owner ? projection->owner : NULL);
    ol_buf_text(out, ",\"updated_at\":");
    ol_buf_json_time(out, projection->updated_at);
    ol_buf_char(out, '}');
}
