/* message_count.c: counting messages without reading the whole outbox. */
#include "outbox/message_count.h"

#include <string.h>

/* COUNT_SAMPLE: messages per lane from which a backlog is projected. */
enum { COUNT_SAMPLE = 2000, COUNT_PARKED_MAX = 20000, COUNT_DESTINATIONS_MAX = 1000 };

static int64_t read_time(const struct ol_rows *rows, int column)
{
    return ol_rows_is_null(rows, column) ? 0 : ol_rows_time(rows, column);
}

struct message_counter {
    struct ol_arena *arena;
    struct ol_message_counts *out;
    size_t capacity;
};

static struct ol_message_count *find_count(struct message_counter *c, const char *destination)
{
    struct ol_message_counts *out = c->out;
    size_t at = 0;
    while (at < out->count && strcmp(out->all[at].destination, destination) < 0)
        at++;
    if (at < out->count && strcmp(out->all[at].destination, destination) == 0)
        return &out->all[at];
    if (out->count == c->capacity) {
        size_t wider = c->capacity ? c->capacity * 2 : 16;
        struct ol_message_count *all = ol_arena_array(c->arena, wider, sizeof *all);
        if (!all)
            return NULL;
        if (out->count)
            memcpy(all, out->all, out->count * sizeof *all);
        out->all = all;
        c->capacity = wider;
    }
    const char *name = ol_arena_copy(c->arena, destination, strlen(destination));
    if (!name)
        return NULL;
    memmove(&out->all[at + 1], &out->all[at], (out->count - at) * sizeof *out->all);
    out->all[at] = (struct ol_message_count){.destination = name};
    out->count++;
    return &out->all[at];
}

static void note_oldest(struct ol_message_count *count, int64_t at)
{
    if (at && (!count->oldest_pending_at || at < count->oldest_pending_at))
        count->oldest_pending_at = at;
}

static int count_parked(struct ol_conn *conn, struct message_counter *c, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_COUNT_PARKED, OL_PARAMS(ol_value_int(COUNT_PARKED_MAX)), &rows,
                       err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        struct ol_message_count *count = find_count(c, ol_rows_text(&rows, 0, NULL));
        const char *state = ol_rows_text(&rows, 1, NULL);
        if (!count) {
            more = ol_no_memory(err);
            break;
        }
        int64_t number = ol_rows_int(&rows, 2);
        count->is_estimate |= ol_rows_int(&rows, 6) != 0;
        if (strcmp(state, "PENDING") == 0) {
            count->pending += number;
            count->retrying += ol_rows_int(&rows, 3);
            note_oldest(count, read_time(&rows, 4));
        } else if (strcmp(state, "CLAIMED") == 0) {
            count->claimed += number;
        } else {
            count->dead += number;
            count->held += ol_rows_int(&rows, 5);
        }
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

struct lane_backlog {
    const char *destination;
    int64_t number, oldest;
};

/* The backlog of a lane by destination: exact, or projected from its first messages. */
static int count_backlog(struct message_counter *c, const struct lane_backlog *parts, size_t count,
                         int64_t backlog, outlog_err *err)
{
    int64_t seen = 0;
    for (size_t i = 0; i < count; i++)
        seen += parts[i].number;
    bool is_cut = seen >= COUNT_SAMPLE && backlog > seen;
    c->out->total.is_estimate |= is_cut;
    for (size_t i = 0; i < count; i++) {
        struct ol_message_count *to = find_count(c, parts[i].destination);
        if (!to)
            return ol_no_memory(err);
        to->pending += is_cut ? (int64_t)((double)parts[i].number / (double)seen * (double)backlog)
                              : parts[i].number;
        to->is_estimate |= is_cut;
        note_oldest(to, parts[i].oldest);
    }
    return 0;
}

static int count_lanes(struct ol_conn *conn, struct message_counter *c, outlog_err *err)
{
    struct lane_backlog *parts = ol_arena_array(c->arena, COUNT_DESTINATIONS_MAX, sizeof *parts);
    struct ol_rows rows;
    size_t count = 0;
    int64_t lane = -1, backlog = 0;
    bool failed = false;
    int more;

    if (!parts)
        return ol_no_memory(err);
    if (ol_store_query(conn, OL_Q_COUNT_LANES, OL_PARAMS(ol_value_int(COUNT_SAMPLE)), &rows, err) <
        0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (ol_rows_int(&rows, 0) != lane) {
            if (count_backlog(c, parts, count, backlog, err) < 0) {
                more = -1;
                break;
            }
            lane = ol_rows_int(&rows, 0);
            backlog = ol_rows_int(&rows, 1);
            c->out->total.claimed += ol_rows_int(&rows, 5); // the open batch, for all destinations
            count = 0;
        }
        if (!ol_rows_is_null(&rows, 2) && count < COUNT_DESTINATIONS_MAX)
            parts[count++] = (struct lane_backlog){ol_rows_copy(&rows, 2, c->arena, &failed),
                                                   ol_rows_int(&rows, 3), read_time(&rows, 4)};
    }
    ol_rows_end(&rows);
    if (failed)
        return ol_no_memory(err);
    return more < 0 ? -1 : count_backlog(c, parts, count, backlog, err);
}

/* What waits for side cursors, projected where there is more than a sample shows. */
static int count_sides(struct ol_conn *conn, struct message_counter *c, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_COUNT_SIDES, OL_PARAMS(ol_value_int(COUNT_SAMPLE)), &rows, err) <
        0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        struct ol_message_count *count = find_count(c, ol_rows_text(&rows, 0, NULL));
        if (!count) {
            more = ol_no_memory(err);
            break;
        }
        int64_t number = ol_rows_int(&rows, 1);
        int64_t seen = ol_rows_int(&rows, 3), all = ol_rows_int(&rows, 4);
        bool is_cut = seen < all;
        count->pending += is_cut && seen ? (int64_t)((double)number * (double)all / (double)seen)
                                         : number;
        count->is_estimate |= is_cut;
        note_oldest(count, read_time(&rows, 2));
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

int ol_message_counts_read(struct ol_conn *conn, struct ol_arena *arena,
                           struct ol_message_counts *out, outlog_err *err)
{
    struct message_counter c = {arena, out, 0};
    *out = (struct ol_message_counts){0};
    if (count_parked(conn, &c, err) < 0 || count_lanes(conn, &c, err) < 0 ||
        count_sides(conn, &c, err) < 0)
        return -1;
    struct ol_message_count *total = &out->total;
    for (size_t i = 0; i < out->count; i++) {
        const struct ol_message_count *one = &out->all[i];
        total->pending += one->pending;
        total->retrying += one->retrying;
        total->claimed += one->claimed;
        total->dead += one->dead;
        total->held += one->held;
        total->is_estimate |= one->is_estimate;
        note_oldest(total, one->oldest_pending_at);
    }
    return 0;
}
