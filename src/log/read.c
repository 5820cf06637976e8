/* read.c: reads the log in order, and never passes an event that can still appear (E6).
 *
 * A statement of its own asks for the settled position before the rows are read: every event at or
 * below it is then visible to the read that follows on the same server. A pooler may send the read
 * elsewhere, so the read itself checks where it is (P5). The position only grows, so a reader that
 * is far behind need not ask each time. */
#include "log/read.h"

#include "base/clock.h"
#include "log/filter.h"
#include "log/position.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    READ_ROWS_MAX = 10000,
    READ_NEAR_PAGES = 4,
    FOLLOW_POLL_FIRST_MS = 5,
    FOLLOW_POLL_LAST_MS = 50,
    READ_ROWS_FIRST = 1000
};

/* --- pages --- */

struct ol_arena *ol_read_page_reset(struct outlog_page *page)
{
    if (!page->memory)
        page->memory = calloc(1, sizeof(struct ol_arena));
    else
        ol_arena_reset(page->memory);
    page->events = NULL;
    page->count = 0;
    return page->memory;
}

void outlog_page_clear(struct outlog_page *page)
{
    if (page->memory)
        ol_arena_clear(page->memory);
    free(page->memory);
    *page = (struct outlog_page){0};
}

size_t ol_read_page_bytes(const struct outlog_page *page)
{
    const struct ol_arena *arena = page->memory;
    return arena ? arena->used : 0;
}

/* Set one field of the record from a column of the row. */
static void fill_field(struct outlog_event *to, const struct ol_field *field,
                       const struct ol_rows *rows, int column, struct ol_arena *arena, bool *failed)
{
    char *at = (char *)to + field->stored;
    int64_t number;
    switch (field->kind) {
    case OL_FIELD_UUID:
        ol_rows_uuid(rows, column, at);
        break;
    case OL_FIELD_NUMBER:
    case OL_FIELD_TIME:
        number = field->kind == OL_FIELD_TIME ? ol_rows_time(rows, column)
                                              : ol_rows_int(rows, column);
        memcpy(at, &number, sizeof number);
        break;
    case OL_FIELD_VERSION:
        to->event_version = (int)ol_rows_int(rows, column);
        break;
    default:
        ol_field_set_text(to, field->stored, ol_rows_copy(rows, column, arena, failed));
    }
}

/* From a row whose columns are those of the table, in order, and perhaps the depth. */
static bool fill_record(struct outlog_event *to, const struct ol_rows *rows, bool has_depth,
                        struct ol_arena *arena)
{
    bool failed = false;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++)
        fill_field(to, &ol_event_fields[i], rows, i, arena, &failed);
    ol_rows_text(rows, OL_EVENT_PAYLOAD, &to->payload_bytes);
    to->depth = has_depth ? (int)ol_rows_int(rows, OL_EVENT_FIELD_COUNT) : 0;
    return !failed;
}

/* How much a page may hold: events, and bytes of their payloads and metadata (0: any number). The
 * event that reaches bytes_max is the last. */
struct page_limit {
    size_t events_max, bytes_max;
    size_t bytes; /* in the page so far */
};

/* Append the rows to the events that the page has already. */
static int fill_page(outlog *log, struct outlog_page *page, struct ol_rows *rows, bool raw,
                     bool has_depth, struct page_limit *limit, outlog_err *err)
{
    struct ol_arena *arena = page->memory;
    size_t room = page->count, payload, metadata;
    int more = 0;

    while ((!limit->bytes_max || limit->bytes < limit->bytes_max) &&
           (more = ol_rows_next(rows, err)) > 0) {
        if (page->count == room) {
            size_t wider = room ? room * 2 : 64;
            struct outlog_event *events = ol_arena_array(arena, wider, sizeof *events);
            if (!events)
                return ol_no_memory(err);
            if (room)
                memcpy(events, page->events, room * sizeof *events);
            page->events = events;
            room = wider;
        }
        struct outlog_event *record = &page->events[page->count];
        if (!fill_record(record, rows, has_depth, arena))
            return ol_no_memory(err);
        ol_rows_text(rows, OL_EVENT_PAYLOAD, &payload);
        ol_rows_text(rows, OL_EVENT_METADATA, &metadata);
        limit->bytes += payload + metadata;
        if (!raw && ol_registry_upcast(&log->registry, record, arena, err) < 0)
            return -1;
        page->count++;
    }
    return more < 0 ? -1 : 0;
}

int ol_read_page_fill(outlog *log, struct outlog_page *page, struct ol_rows *rows, bool raw,
                      bool has_depth, outlog_err *err)
{
    struct page_limit unlimited = {0};
    return fill_page(log, page, rows, raw, has_depth, &unlimited, err);
}

/* --- time windows --- */

static struct ol_value time_or_absent(int64_t time_us)
{
    return time_us ? ol_value_time(time_us) : ol_value_absent();
}

/* Which server gave the position; a store without servers does not ask. */
static struct ol_value same_server(const outlog *log)
{
    return log->server ? ol_value_int(log->server) : ol_value_absent();
}

int ol_read_window(outlog *log, int64_t since, int64_t until, int64_t *first, int64_t *last,
                   outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(log->conn, OL_Q_EVENTS_WINDOW,
                       OL_PARAMS(same_server(log), time_or_absent(since), time_or_absent(until)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        *first = ol_rows_is_null(&rows, 0) ? 0 : ol_rows_int(&rows, 0);
        *last = ol_rows_is_null(&rows, 1) ? 0 : ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* occurred_at orders nothing, but it nearly rises: a window becomes a range of event_ids that holds
 * all of it, and the exact condition is checked inside.
 *
 * The range stays true for what was settled then. So a reader pages through a window without a new
 * query for it, until a page is not full: a long transaction may have committed an event of the
 * window since, and `is_stale` makes the caller query the range again. */
static int narrow_window(outlog *log, const struct outlog_filter *filter, size_t limit,
                         int64_t *after, int64_t *upto, bool *is_stale, outlog_err *err)
{
    struct ol_read_window_cache *cache = &log->window;
    *is_stale = false;
    // The query costs the whole window: not for followers, which have only a page to read.
    if ((!filter->since && !filter->until) || *upto - *after <= (int64_t)limit)
        return 0;
    if (!cache->settled || cache->since != filter->since || cache->until != filter->until) {
        if (ol_read_window(log, filter->since, filter->until, &cache->first, &cache->last, err) < 0)
            return -1;
        cache->since = filter->since;
        cache->until = filter->until;
        cache->settled = log->settled;
    }
    bool is_open = !filter->until && cache->first; // its beginning is known and it has no end
    *is_stale = !is_open && cache->settled != log->settled;
    if (cache->first - 1 > *after)
        *after = cache->first - 1;
    if (!is_open && cache->last < *upto)
        *upto = cache->last;
    return 0;
}

/* --- reading --- */

/* Behind the last event of a full page there may be more. A server that keeps text in another
 * encoding counts other bytes than we do, but not twice as many. */
static bool is_full(const struct outlog_page *page, const struct page_limit *limit)
{
    return page->count == limit->events_max ||
           (limit->bytes_max && limit->bytes >= limit->bytes_max / 2);
}

static int start_over(struct outlog_page *page, struct page_limit *limit, outlog_err *err)
{
    limit->bytes = 0;
    return ol_read_page_reset(page) ? 0 : ol_no_memory(err);
}

/* How many rows to ask for. A store that returns a whole result gets a limit in bytes, and to count
 * them it reads all the rows it is asked for: so first a few, then as many as should fit. There are
 * few different numbers, because each is a statement of its own. */
static size_t choose_row_count(const struct outlog_page *page, const struct page_limit *limit)
{
    size_t left = limit->events_max - page->count, fit = READ_ROWS_FIRST;
    if (!page->count)
        return left < fit ? left : fit;
    while (fit < left && fit * 2 * limit->bytes / page->count < limit->bytes_max - limit->bytes)
        fit *= 2;
    return left < fit ? left : fit;
}

/* One query of events: those of the filter from `start`, which the query excludes, to `end`. */
struct event_range {
    enum ol_query_id query; /* OL_Q_EVENTS_READ, or _BACK with start above end */
    const struct outlog_filter *filter;
    int64_t start, end;
};

static int query_once(outlog *log, const struct event_range *range, size_t rows_max,
                      struct page_limit *limit, struct outlog_page *page, outlog_err *err)
{
    struct ol_value params[5 + OL_FILTER_PARAMS] = {ol_value_int(range->start),
                                                    ol_value_int(range->end),
                                                    ol_value_int((int64_t)rows_max),
                                                    same_server(log)};
    bool is_cut = limit->bytes_max && log->conn->store->answers_whole;
    enum ol_query_id query = range->query;
    struct ol_rows rows;

    ol_filter_params(range->filter, params + 4);
    if (is_cut) {
        query = query == OL_Q_EVENTS_READ ? OL_Q_EVENTS_READ_SHORT : OL_Q_EVENTS_READ_BACK_SHORT;
        params[4 + OL_FILTER_PARAMS] = ol_value_int((int64_t)(limit->bytes_max - limit->bytes));
    }
    if (ol_store_query(log->conn, query, params, &rows, err) < 0)
        return -1;
    int result = fill_page(log, page, &rows, range->filter->raw, false, limit, err);
    ol_rows_end(&rows);
    return result;
}

/* As many queries as fill the page, or end the range. */
static int query_range(outlog *log, struct event_range range, struct page_limit *limit,
                       struct outlog_page *page, outlog_err *err)
{
    bool is_counted = limit->bytes_max && log->conn->store->answers_whole;
    size_t asked, got;
    do {
        asked = is_counted ? choose_row_count(page, limit) : limit->events_max;
        got = page->count;
        if (query_once(log, &range, asked, limit, page, err) < 0)
            return -1;
        got = page->count - got;
        if (got)
            range.start = page->events[page->count - 1].event_id;
    } while (got == asked && page->count < limit->events_max && limit->bytes < limit->bytes_max);
    return 0;
}

static int read_rows(outlog *log, const struct outlog_filter *filter, int64_t after,
                     struct page_limit *limit, struct outlog_page *page, outlog_err *err)
{
    int64_t upto = log->settled, from = after;
    bool is_stale;
    if (narrow_window(log, filter, limit->events_max, &from, &upto, &is_stale, err) < 0)
        return -1;
    if (upto <= from && !is_stale)
        return 0;
    int result = query_range(log, (struct event_range){OL_Q_EVENTS_READ, filter, from, upto}, limit,
                             page, err);
    if (result < 0 || !is_stale || is_full(page, limit))
        return result;
    log->window.settled = 0; // query the range again, and read from the start
    return start_over(page, limit, err) < 0 ? -1 : read_rows(log, filter, after, limit, page, err);
}

static int check_read(outlog *log, const struct outlog_filter *filter, size_t limit,
                      struct outlog_page *page, outlog_err *err)
{
    if (limit < 1 || limit > READ_ROWS_MAX)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "limit must be 1 to %d", READ_ROWS_MAX);
    if (ol_filter_check(filter, err) < 0) // the store would refuse it too, but is not always asked
        return -1;
    if (log->tx)
        return ol_fail(err, OUTLOG_MISUSE,
                       "this handle has an open transaction; end it first, or read by another one");
    if (!ol_read_page_reset(page))
        return ol_no_memory(err);
    return ol_log_ready(log, err) < 0 || ol_registry_refresh(&log->registry, log->conn, err) < 0
               ? -1
               : 0;
}

static void note_log(const outlog *log, struct outlog_page *page)
{
    memcpy(page->log_id, log->log_id, sizeof page->log_id);
}

int ol_read_short(outlog *log, const struct outlog_filter *filter, int64_t after, size_t limit,
                  size_t bytes_max, struct outlog_page *page, outlog_err *err)
{
    static const struct outlog_filter everything;
    struct page_limit page_limit = {.events_max = limit, .bytes_max = bytes_max};
    int64_t settled;

    if (!filter)
        filter = &everything;
    if (check_read(log, filter, limit, page, err) < 0)
        return -1;
    bool is_fresh = filter != &everything || log->settled - after < (int64_t)limit;
    if ((is_fresh && outlog_settled(log, &settled, err) < 0) ||
        ol_position_check(log, filter->log_id, after, err) < 0)
        return -1;
    page->next_after = after;
    for (;; is_fresh = true) {
        page->settled = log->settled;
        if (log->settled > after && read_rows(log, filter, after, &page_limit, page, err) < 0)
            return -1;
        if (is_fresh || is_full(page, &page_limit))
            break;
        // Gaps made the page short of what we knew to be settled: ask for more, and read again.
        if (outlog_settled(log, &settled, err) < 0 || start_over(page, &page_limit, err) < 0)
            return -1;
    }
    if (is_full(page, &page_limit))
        page->next_after = page->events[page->count - 1].event_id;
    else if (page->settled > after)
        page->next_after = page->settled; // past what the filter skipped
    note_log(log, page);
    return 0;
}

int outlog_read(outlog *log, const struct outlog_filter *filter, int64_t after, size_t limit,
                struct outlog_page *page, outlog_err *err)
{
    return ol_read_short(log, filter, after, limit, 0, page, err);
}

/* Fill the page with the newest events of a window that reaches to now. If that succeeds, nobody
 * has to know where the window begins, and a page of a million events of today costs one page
 * (E15). Returns 1, or 0 with an empty page. */
static int read_newest(outlog *log, const struct outlog_filter *filter, int64_t upto,
                       struct page_limit *limit, struct outlog_page *page, outlog_err *err)
{
    const struct ol_read_window_cache *cache = &log->window;
    bool is_known = cache->settled && cache->since == filter->since &&
                    cache->until == filter->until;
    int64_t from = upto - READ_NEAR_PAGES * (int64_t)limit->events_max;

    if ((!filter->since && !filter->until) || is_known)
        return 0;
    struct event_range range = {OL_Q_EVENTS_READ_BACK, filter, upto + 1, from < 0 ? 0 : from};
    if (query_range(log, range, limit, page, err) < 0)
        return -1;
    return is_full(page, limit) ? 1 : start_over(page, limit, err);
}

static int read_back_rows(outlog *log, const struct outlog_filter *filter, int64_t before,
                          struct page_limit *limit, struct outlog_page *page, int64_t *from,
                          outlog_err *err)
{
    int64_t end = before <= log->settled ? before - 1 : log->settled, upto = end;
    bool is_stale;
    int is_done = read_newest(log, filter, end, limit, page, err);

    *from = 0;
    if (is_done)
        return is_done < 0 ? -1 : 0;
    if (narrow_window(log, filter, limit->events_max, from, &upto, &is_stale, err) < 0)
        return -1;
    if (is_stale) { // events that came since are the newest
        log->window.settled = 0;
        *from = 0;
        upto = end;
        if (narrow_window(log, filter, limit->events_max, from, &upto, &is_stale, err) < 0)
            return -1;
    }
    struct event_range range = {OL_Q_EVENTS_READ_BACK, filter, upto + 1, *from};
    return upto <= *from ? 0 : query_range(log, range, limit, page, err);
}

int ol_read_back_short(outlog *log, const struct outlog_filter *filter, int64_t before,
                       size_t limit, size_t bytes_max, struct outlog_page *page,
                       int64_t *next_before, outlog_err *err)
{
    static const struct outlog_filter everything;
    struct page_limit page_limit = {.events_max = limit, .bytes_max = bytes_max};
    int64_t settled, from;

    if (!filter)
        filter = &everything;
    if (check_read(log, filter, limit, page, err) < 0 || outlog_settled(log, &settled, err) < 0 ||
        (filter->log_id && before < INT64_MAX &&
         ol_position_check(log, filter->log_id, before - 1, err) < 0) ||
        read_back_rows(log, filter, before, &page_limit, page, &from, err) < 0)
        return -1;
    page->settled = page->next_after = settled;
    note_log(log, page);
    int64_t last = is_full(page, &page_limit) ? page->events[page->count - 1].event_id : 0;
    *next_before = last > from + 1 ? last : 0;
    return 0;
}

int outlog_read_back(outlog *log, const struct outlog_filter *filter, int64_t before, size_t limit,
                     struct outlog_page *page, int64_t *next_before, outlog_err *err)
{
    return ol_read_back_short(log, filter, before, limit, 0, page, next_before, err);
}

/* --- reading some fields --- */

/* The columns that events_read_some always has come first. */
static int count_always(void)
{
    int count = 0;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++)
        count += ol_event_fields[i].is_always_read;
    return count;
}

static int fill_some(struct outlog_page *page, struct ol_rows *rows, uint32_t mask, size_t limit,
                     outlog_err *err)
{
    struct ol_arena *arena = page->memory;
    int more;
    if (!(page->events = ol_arena_array(arena, limit, sizeof *page->events)))
        return ol_no_memory(err);
    while ((more = ol_rows_next(rows, err)) > 0) {
        struct outlog_event *record = &page->events[page->count++];
        bool failed = false;
        for (int i = 0, wanted = count_always(), always = 0; i < OL_EVENT_FIELD_COUNT; i++) {
            const struct ol_field *field = &ol_event_fields[i];
            if (field->is_always_read)
                fill_field(record, field, rows, always++, arena, &failed);
            else if (mask >> i & 1)
                fill_field(record, field, rows, wanted++, arena, &failed);
            if (i == OL_EVENT_PAYLOAD)
                ol_rows_text(rows, always - 1, &record->payload_bytes);
        }
        if (failed)
            return ol_no_memory(err);
    }
    return more;
}

int ol_read_some(outlog *log, uint32_t mask, int64_t after, size_t limit, struct outlog_page *page,
                 outlog_err *err)
{
    struct ol_value params[4 + OL_EVENT_FIELD_COUNT] = {ol_value_int(after), ol_value_int(0),
                                                        ol_value_int((int64_t)limit)};
    struct ol_rows rows;
    int64_t settled;

    if (!ol_read_page_reset(page))
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0 || ol_registry_refresh(&log->registry, log->conn, err) < 0 ||
        outlog_settled(log, &settled, err) < 0 || ol_position_check(log, NULL, after, err) < 0)
        return -1;
    page->settled = settled;
    page->next_after = after;
    note_log(log, page);
    if (settled <= after)
        return 0;
    params[1] = ol_value_int(settled);
    params[3] = same_server(log);
    for (int i = 0, at = 4; i < OL_EVENT_FIELD_COUNT; i++)
        if (!ol_event_fields[i].is_always_read)
            params[at++] = mask >> i & 1 ? ol_value_int(1) : ol_value_absent();
    if (ol_store_query(log->conn, OL_Q_EVENTS_READ_SOME, params, &rows, err) < 0)
        return -1;
    int result = fill_some(page, &rows, mask, limit, err);
    ol_rows_end(&rows);
    if (result == 0)
        page->next_after = page->count == limit ? page->events[page->count - 1].event_id : settled;
    return result;
}

int ol_read_follow_short(outlog *log, const struct outlog_filter *filter, int64_t after,
                         size_t limit, size_t bytes_max, int timeout_ms, struct outlog_page *page,
                         outlog_err *err)
{
    int64_t deadline = ol_clock_boot_us() + (int64_t)timeout_ms * 1000;
    struct outlog_filter same_log = filter ? *filter : (struct outlog_filter){0};
    int pause_ms = FOLLOW_POLL_FIRST_MS;
    char log_id[OL_UUID_TEXT];

    if (!log->is_waiting)
        log->is_waiting = ol_waiter_open(&log->waiter, log->conn->wake_key) == 0;
    for (;;) {
        if (ol_read_short(log, filter, after, limit, bytes_max, page, err) < 0)
            return -1;
        memcpy(log_id, page->log_id, sizeof log_id); // the log may change while we wait
        same_log.log_id = log_id;
        filter = &same_log;
        int64_t left_ms = (deadline - ol_clock_boot_us()) / 1000;
        if (page->count > 0 || left_ms <= 0)
            return 0;
        if (page->next_after > after)
            pause_ms = FOLLOW_POLL_FIRST_MS; // events come, but the filter takes none
        after = page->next_after;
        ol_store_await(log->conn, &log->waiter, pause_ms < left_ms ? pause_ms : (int)left_ms);
        pause_ms = pause_ms * 2 < FOLLOW_POLL_LAST_MS ? pause_ms * 2 : FOLLOW_POLL_LAST_MS;
    }
}

int outlog_follow(outlog *log, const struct outlog_filter *filter, int64_t after, size_t limit,
                  int timeout_ms, struct outlog_page *page, outlog_err *err)
{
    return ol_read_follow_short(log, filter, after, limit, 0, timeout_ms, page, err);
}

int outlog_get(outlog *log, const char *id, struct outlog_page *page, outlog_err *err)
{
    char uuid[OL_UUID_TEXT];
    struct ol_rows rows;
    size_t digits = strspn(id, "0123456789");
    bool is_number = digits > 0 && digits < 19 && id[digits] == '\0';

    if (!is_number && !ol_uuid_parse(id, uuid))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "%.60s is neither an event_id nor a UUID", id);
    if (!ol_read_page_reset(page))
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0 || ol_registry_refresh(&log->registry, log->conn, err) < 0 ||
        ol_store_query(log->conn, OL_Q_EVENT_GET,
                       OL_PARAMS(is_number ? ol_value_absent() : ol_value_text(uuid),
                                 is_number ? ol_value_int(strtoll(id, NULL, 10))
                                           : ol_value_absent()),
                       &rows, err) < 0)
        return -1;
    int result = ol_read_page_fill(log, page, &rows, false, false, err);
    ol_rows_end(&rows);
    if (result == 0 && page->count == 0)
        return ol_fail(err, OUTLOG_NOT_FOUND, "no event %.60s", id);
    return result;
}
