/* read.c: reading the log in order, without ever passing an event that can still appear (E6).
 *
 * The settled position is asked for before the rows are read, in a statement of its own: every
 * event at or below it is then visible to the read that follows. It only grows, so a reader that
 * is far behind need not ask each time. */
#include "log/read.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "log/event_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 10000, NEAR_PAGES = 4, POLL_FIRST_MS = 5, POLL_LAST_MS = 50, ASK_FIRST = 1000 };

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

/* The columns of events_read, in order. */
enum {
    EVENT_ID,
    ID,
    CAUSATION_ID,
    OCCURRED_AT,
    ORG_ID,
    AGGREGATE_TYPE,
    AGGREGATE_ID,
    AGGREGATE_SEQ,
    EVENT_TYPE,
    EVENT_VERSION,
    ACTOR_TYPE,
    ACTOR_ID,
    REQUEST_ID,
    IDEMPOTENCY_KEY,
    CORRELATION_ID,
    APP_ID,
    ENV_ID,
    VISIBILITY,
    METADATA,
    PAYLOAD,
    DEPTH
};

static bool fill_record(struct outlog_event *to, const struct ol_rows *rows, bool has_depth,
                        struct ol_arena *arena)
{
    bool failed = false;
    to->event_id = ol_rows_int(rows, EVENT_ID);
    ol_rows_uuid(rows, ID, to->id);
    ol_rows_uuid(rows, CAUSATION_ID, to->causation_id);
    to->occurred_at = ol_rows_time(rows, OCCURRED_AT);
    to->org_id = ol_rows_copy(rows, ORG_ID, arena, &failed);
    to->aggregate_type = ol_rows_copy(rows, AGGREGATE_TYPE, arena, &failed);
    to->aggregate_id = ol_rows_copy(rows, AGGREGATE_ID, arena, &failed);
    to->aggregate_seq = ol_rows_int(rows, AGGREGATE_SEQ);
    to->event_type = ol_rows_copy(rows, EVENT_TYPE, arena, &failed);
    to->event_version = (int)ol_rows_int(rows, EVENT_VERSION);
    to->actor_type = ol_rows_copy(rows, ACTOR_TYPE, arena, &failed);
    to->actor_id = ol_rows_copy(rows, ACTOR_ID, arena, &failed);
    to->request_id = ol_rows_copy(rows, REQUEST_ID, arena, &failed);
    to->idempotency_key = ol_rows_copy(rows, IDEMPOTENCY_KEY, arena, &failed);
    to->correlation_id = ol_rows_copy(rows, CORRELATION_ID, arena, &failed);
    to->app_id = ol_rows_copy(rows, APP_ID, arena, &failed);
    to->env_id = ol_rows_copy(rows, ENV_ID, arena, &failed);
    to->visibility = ol_rows_copy(rows, VISIBILITY, arena, &failed);
    to->metadata = ol_rows_copy(rows, METADATA, arena, &failed);
    ol_rows_text(rows, PAYLOAD, &to->payload_bytes);
    to->payload = ol_rows_copy(rows, PAYLOAD, arena, &failed);
    to->depth = has_depth ? (int)ol_rows_int(rows, DEPTH) : 0;
    return !failed;
}

/* How much a page may hold: events, and bytes of their payloads and metadata, of which the event
 * that reaches them is the last (0: any number). */
struct measure {
    size_t limit, most_bytes;
    size_t bytes; /* are there */
};

/* The page may have events already: these follow. */
static int fill(outlog *log, struct outlog_page *page, struct ol_rows *rows, bool raw,
                bool has_depth, struct measure *most, outlog_err *err)
{
    struct ol_arena *arena = page->memory;
    size_t room = page->count, payload, metadata;
    int more = 0;

    while ((!most->most_bytes || most->bytes < most->most_bytes) &&
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
        ol_rows_text(rows, PAYLOAD, &payload);
        ol_rows_text(rows, METADATA, &metadata);
        most->bytes += payload + metadata;
        if (!raw && ol_registry_upcast(&log->registry, record, arena, err) < 0)
            return -1;
        page->count++;
    }
    return more < 0 ? -1 : 0;
}

int ol_read_page_fill(outlog *log, struct outlog_page *page, struct ol_rows *rows, bool raw,
                      bool has_depth, outlog_err *err)
{
    struct measure any = {0};
    return fill(log, page, rows, raw, has_depth, &any, err);
}

/* --- settled --- */

int outlog_settled(outlog *log, int64_t *settled, outlog_err *err)
{
    int64_t now;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_number(log->conn, OL_Q_EVENTS_SETTLED, OL_NO_PARAMS, &now, err) < 0)
        return -1;
    if (log->tx) { // a store with one writer counts what this very transaction may yet take back
        *settled = now;
        return 0;
    }
    if (now > log->settled)
        log->settled = now;
    *settled = log->settled;
    return 0;
}

/* --- time windows --- */

static struct ol_value time_or_absent(int64_t time_us)
{
    return time_us ? ol_value_time(time_us) : ol_value_absent();
}

int ol_read_window(outlog *log, int64_t since, int64_t until, int64_t *first, int64_t *last,
                   outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(log->conn, OL_Q_EVENTS_WINDOW,
                       OL_PARAMS(time_or_absent(since), time_or_absent(until)), &rows, err) < 0)
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
 * What was found stays true for what was settled then. So a reader pages through a window without
 * looking again, until a page is not full: a writer that was open for long may have committed an
 * event of the window since, and `is_stale` makes it look once more. */
static int narrow(outlog *log, const struct outlog_filter *filter, size_t limit, int64_t *after,
                  int64_t *upto, bool *is_stale, outlog_err *err)
{
    struct ol_read_window_cache *cache = &log->window;
    *is_stale = false;
    // To look costs the whole window: not for those who follow, and have but a page to read.
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

/* Nothing is known then of what is behind its last event. A server that keeps text in another
 * encoding counts other bytes than we do, but not twice as many. */
static bool is_full(const struct outlog_page *page, const struct measure *most)
{
    return page->count == most->limit || (most->most_bytes && most->bytes >= most->most_bytes / 2);
}

static int start_over(struct outlog_page *page, struct measure *most, outlog_err *err)
{
    most->bytes = 0;
    return ol_read_page_reset(page) ? 0 : ol_no_memory(err);
}

/* How many rows to ask for. A store that answers whole is told how many bytes may come, and to
 * count them it looks at all the rows it is asked for: so at first for some, then for as many as
 * should fit. They are few different numbers, as each is another statement. */
static size_t ask_for(const struct outlog_page *page, const struct measure *most)
{
    size_t left = most->limit - page->count, fit = ASK_FIRST;
    if (!page->count)
        return left < fit ? left : fit;
    while (fit < left && fit * 2 * most->bytes / page->count < most->most_bytes - most->bytes)
        fit *= 2;
    return left < fit ? left : fit;
}

static int query_some(outlog *log, enum ol_query_id query, const struct outlog_filter *filter,
                      int64_t one, int64_t other, size_t limit, struct measure *most,
                      struct outlog_page *page, outlog_err *err)
{
    // Narrower than any org: the org is then only checked, see events_read.
    bool is_narrow = filter->correlation_id || filter->aggregate_id;
    const char *org_key = filter->is_infrastructure ? "" : filter->org_id;
    bool is_cut = most->most_bytes && log->conn->store->answers_whole;
    struct ol_rows rows;
    if (is_cut)
        query = query == OL_Q_EVENTS_READ ? OL_Q_EVENTS_READ_SHORT : OL_Q_EVENTS_READ_BACK_SHORT;
    if (ol_store_query(
            log->conn, query,
            OL_PARAMS(ol_value_int(one), ol_value_int(other), ol_value_int((int64_t)limit),
                      ol_value_optional(is_narrow ? NULL : filter->org_id),
                      filter->is_infrastructure && !is_narrow ? ol_value_int(1) : ol_value_absent(),
                      ol_value_optional(filter->event_type),
                      ol_value_optional(filter->aggregate_type),
                      ol_value_optional(filter->aggregate_id),
                      ol_value_optional(filter->correlation_id), ol_value_optional(filter->app_id),
                      ol_value_optional(filter->env_id), ol_value_optional(filter->visibility),
                      time_or_absent(filter->since), time_or_absent(filter->until),
                      ol_value_optional(is_narrow ? org_key : NULL),
                      ol_value_int(is_cut ? (int64_t)(most->most_bytes - most->bytes) : 0)),
            &rows, err) < 0)
        return -1;
    int result = fill(log, page, &rows, filter->raw, false, most, err);
    ol_rows_end(&rows);
    return result;
}

/* Both queries have the same parameters; the first of them is where to go on. */
static int query_rows(outlog *log, enum ol_query_id query, const struct outlog_filter *filter,
                      int64_t one, int64_t other, struct measure *most, struct outlog_page *page,
                      outlog_err *err)
{
    bool is_counted = most->most_bytes && log->conn->store->answers_whole;
    size_t asked, got;
    do {
        asked = is_counted ? ask_for(page, most) : most->limit;
        got = page->count;
        if (query_some(log, query, filter, one, other, asked, most, page, err) < 0)
            return -1;
        got = page->count - got;
        if (got)
            one = page->events[page->count - 1].event_id;
    } while (got == asked && page->count < most->limit && most->bytes < most->most_bytes);
    return 0;
}

static int read_rows(outlog *log, const struct outlog_filter *filter, int64_t after,
                     struct measure *most, struct outlog_page *page, outlog_err *err)
{
    int64_t upto = log->settled, from = after;
    bool is_stale;
    if (narrow(log, filter, most->limit, &from, &upto, &is_stale, err) < 0)
        return -1;
    if (upto <= from && !is_stale)
        return 0;
    int result = query_rows(log, OL_Q_EVENTS_READ, filter, from, upto, most, page, err);
    if (result < 0 || !is_stale || is_full(page, most))
        return result;
    log->window.settled = 0; // look again, and read it anew
    return start_over(page, most, err) < 0 ? -1 : read_rows(log, filter, after, most, page, err);
}

struct filter_field {
    const char *name;
    size_t offset;
};

static const struct filter_field filter_fields[] = {
    {"org_id", offsetof(struct outlog_filter, org_id)},
    {"event_type", offsetof(struct outlog_filter, event_type)},
    {"aggregate_type", offsetof(struct outlog_filter, aggregate_type)},
    {"aggregate_id", offsetof(struct outlog_filter, aggregate_id)},
    {"correlation_id", offsetof(struct outlog_filter, correlation_id)},
    {"app_id", offsetof(struct outlog_filter, app_id)},
    {"env_id", offsetof(struct outlog_filter, env_id)},
    {"visibility", offsetof(struct outlog_filter, visibility)},
};
enum { FILTER_FIELDS = sizeof filter_fields / sizeof *filter_fields };

static const char *filter_text(const struct outlog_filter *filter, int field)
{
    const char *text;
    memcpy(&text, (const char *)filter + filter_fields[field].offset, sizeof text);
    return text;
}

/* The store would say the same, but a log that has nothing to read is not asked. */
static int check_texts(const struct outlog_filter *filter, outlog_err *err)
{
    char pointer[64];
    for (int i = 0; i < FILTER_FIELDS; i++) {
        const char *text = filter_text(filter, i);
        if (!text || ol_utf8_is_valid(text, strlen(text)))
            continue;
        snprintf(pointer, sizeof pointer, "/%s", filter_fields[i].name);
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is not UTF-8", pointer + 1);
    }
    return 0;
}

static int check_read(outlog *log, const struct outlog_filter *filter, size_t limit,
                      struct outlog_page *page, outlog_err *err)
{
    if (limit < 1 || limit > MOST_ROWS)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "limit must be 1 to %d", MOST_ROWS);
    if (filter->org_id && filter->is_infrastructure)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "infrastructure events have no org_id");
    if (check_texts(filter, err) < 0)
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

int ol_read_short(outlog *log, const struct outlog_filter *filter, int64_t after, size_t limit,
                  size_t most_bytes, struct outlog_page *page, outlog_err *err)
{
    static const struct outlog_filter everything;
    struct measure most = {.limit = limit, .most_bytes = most_bytes};
    int64_t settled;

    if (!filter)
        filter = &everything;
    if (check_read(log, filter, limit, page, err) < 0)
        return -1;
    bool is_fresh = filter != &everything || log->settled - after < (int64_t)limit;
    if (is_fresh && outlog_settled(log, &settled, err) < 0)
        return -1;
    page->next_after = after;
    for (;; is_fresh = true) {
        page->settled = log->settled;
        if (log->settled > after && read_rows(log, filter, after, &most, page, err) < 0)
            return -1;
        if (is_fresh || is_full(page, &most))
            break;
        // Gaps made the page short of what we knew to be settled: look again, at all of it.
        if (outlog_settled(log, &settled, err) < 0 || start_over(page, &most, err) < 0)
            return -1;
    }
    if (is_full(page, &most))
        page->next_after = page->events[page->count - 1].event_id;
    else if (page->settled > after)
        page->next_after = page->settled; // past what the filter skipped
    return 0;
}

int outlog_read(outlog *log, const struct outlog_filter *filter, int64_t after, size_t limit,
                struct outlog_page *page, outlog_err *err)
{
    return ol_read_short(log, filter, after, limit, 0, page, err);
}

/* The newest of a window that reaches to now fill a page: then nobody has to know where it begins,
 * and a million events of today cost what is shown of them (E15). 1 when they did, 0 with an empty
 * page. */
static int read_newest(outlog *log, const struct outlog_filter *filter, int64_t upto,
                       struct measure *most, struct outlog_page *page, outlog_err *err)
{
    const struct ol_read_window_cache *cache = &log->window;
    bool is_known = cache->settled && cache->since == filter->since &&
                    cache->until == filter->until;
    int64_t from = upto - NEAR_PAGES * (int64_t)most->limit;

    if ((!filter->since && !filter->until) || is_known)
        return 0;
    if (query_rows(log, OL_Q_EVENTS_READ_BACK, filter, upto + 1, from < 0 ? 0 : from, most, page,
                   err) < 0)
        return -1;
    return is_full(page, most) ? 1 : start_over(page, most, err);
}

static int read_back_rows(outlog *log, const struct outlog_filter *filter, int64_t before,
                          struct measure *most, struct outlog_page *page, int64_t *from,
                          outlog_err *err)
{
    int64_t end = before <= log->settled ? before - 1 : log->settled, upto = end;
    bool is_stale;
    int is_done = read_newest(log, filter, end, most, page, err);

    *from = 0;
    if (is_done)
        return is_done < 0 ? -1 : 0;
    if (narrow(log, filter, most->limit, from, &upto, &is_stale, err) < 0)
        return -1;
    if (is_stale) { // what came since is what is asked for first
        log->window.settled = 0;
        *from = 0;
        upto = end;
        if (narrow(log, filter, most->limit, from, &upto, &is_stale, err) < 0)
            return -1;
    }
    return upto <= *from
               ? 0
               : query_rows(log, OL_Q_EVENTS_READ_BACK, filter, upto + 1, *from, most, page, err);
}

int ol_read_back_short(outlog *log, const struct outlog_filter *filter, int64_t before,
                       size_t limit, size_t most_bytes, struct outlog_page *page,
                       int64_t *next_before, outlog_err *err)
{
    static const struct outlog_filter everything;
    struct measure most = {.limit = limit, .most_bytes = most_bytes};
    int64_t settled, from;

    if (!filter)
        filter = &everything;
    if (check_read(log, filter, limit, page, err) < 0 || outlog_settled(log, &settled, err) < 0 ||
        read_back_rows(log, filter, before, &most, page, &from, err) < 0)
        return -1;
    page->settled = page->next_after = settled;
    int64_t last = is_full(page, &most) ? page->events[page->count - 1].event_id : 0;
    *next_before = last > from + 1 ? last : 0;
    return 0;
}

int outlog_read_back(outlog *log, const struct outlog_filter *filter, int64_t before, size_t limit,
                     struct outlog_page *page, int64_t *next_before, outlog_err *err)
{
    return ol_read_back_short(log, filter, before, limit, 0, page, next_before, err);
}

/* --- reading some fields --- */

static bool fill_field(struct outlog_event *to, const struct ol_event_field *field,
                       const struct ol_rows *rows, int column, struct ol_arena *arena)
{
    char *at = (char *)to + field->offset;
    bool failed = false;
    if (field->kind == OL_EVENT_FIELD_UUID) {
        ol_rows_uuid(rows, column, at);
    } else if (field->kind == OL_EVENT_FIELD_TIME || field->kind == OL_EVENT_FIELD_NUMBER) {
        int64_t number = field->kind == OL_EVENT_FIELD_TIME ? ol_rows_time(rows, column)
                                                            : ol_rows_int(rows, column);
        memcpy(at, &number, sizeof number);
    } else {
        const char *text = ol_rows_copy(rows, column, arena, &failed);
        memcpy(at, &text, sizeof text);
    }
    return !failed;
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
        record->event_id = ol_rows_int(rows, 0);
        record->event_type = ol_rows_copy(rows, 1, arena, &failed);
        record->event_version = (int)ol_rows_int(rows, 2);
        ol_rows_text(rows, 3, &record->payload_bytes);
        record->payload = ol_rows_copy(rows, 3, arena, &failed);
        for (int i = OL_EVENT_FIELD_ALWAYS, column = i; i < OL_EVENT_FIELD_COUNT; i++)
            if (mask >> i & 1)
                failed |= !fill_field(record, &ol_fields[i], rows, column++, arena);
        if (failed)
            return ol_no_memory(err);
    }
    return more;
}

int ol_read_some(outlog *log, uint32_t mask, int64_t after, size_t limit, struct outlog_page *page,
                 outlog_err *err)
{
    struct ol_value params[3 + OL_EVENT_FIELD_COUNT - OL_EVENT_FIELD_ALWAYS] =
        {ol_value_int(after), ol_value_int(0), ol_value_int((int64_t)limit)};
    struct ol_rows rows;
    int64_t settled;

    if (!ol_read_page_reset(page))
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0 || ol_registry_refresh(&log->registry, log->conn, err) < 0 ||
        outlog_settled(log, &settled, err) < 0)
        return -1;
    page->settled = settled;
    page->next_after = after;
    if (settled <= after)
        return 0;
    params[1] = ol_value_int(settled);
    for (int i = OL_EVENT_FIELD_ALWAYS; i < OL_EVENT_FIELD_COUNT; i++)
        params[3 + i - OL_EVENT_FIELD_ALWAYS] = mask >> i & 1 ? ol_value_int(1) : ol_value_absent();
    if (ol_store_query(log->conn, OL_Q_EVENTS_READ_SOME, params, &rows, err) < 0)
        return -1;
    int result = fill_some(page, &rows, mask, limit, err);
    ol_rows_end(&rows);
    if (result == 0)
        page->next_after = page->count == limit ? page->events[page->count - 1].event_id : settled;
    return result;
}

int ol_read_follow_short(outlog *log, const struct outlog_filter *filter, int64_t after,
                         size_t limit, size_t most_bytes, int timeout_ms, struct outlog_page *page,
                         outlog_err *err)
{
    int64_t deadline = ol_clock_boot_us() + (int64_t)timeout_ms * 1000;
    int pause_ms = POLL_FIRST_MS;

    if (!log->is_waiting)
        log->is_waiting = ol_waiter_open(&log->waiter, log->conn->wake_key) == 0;
    for (;;) {
        if (ol_read_short(log, filter, after, limit, most_bytes, page, err) < 0)
            return -1;
        int64_t left_ms = (deadline - ol_clock_boot_us()) / 1000;
        if (page->count > 0 || left_ms <= 0)
            return 0;
        if (page->next_after > after)
            pause_ms = POLL_FIRST_MS; // rows come, only not ours
        after = page->next_after;
        ol_store_await(log->conn, &log->waiter, pause_ms < left_ms ? pause_ms : (int)left_ms);
        pause_ms = pause_ms * 2 < POLL_LAST_MS ? pause_ms * 2 : POLL_LAST_MS;
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

/* --- filters as JSON --- */

void ol_filter_write(const struct outlog_filter *filter, struct ol_buf *out)
{
    const char *comma = "";
    ol_buf_char(out, '{');
    if (filter->is_infrastructure) {
        ol_buf_text(out, "\"org_id\":null");
        comma = ",";
    }
    for (int i = 0; i < FILTER_FIELDS; i++) {
        const char *text = filter_text(filter, i);
        if (!text)
            continue;
        ol_buf_print(out, "%s\"%s\":", comma, filter_fields[i].name);
        ol_buf_json_text(out, text);
        comma = ",";
    }
    ol_buf_char(out, '}');
}

int ol_filter_read(const char *json, struct ol_arena *arena, struct outlog_filter *out,
                   outlog_err *err)
{
    struct ol_json whole;
    struct ol_json_iter it = {0};
    *out = (struct outlog_filter){0};
    if (ol_json_parse(json, strlen(json), &whole, err) < 0)
        return -1;
    if (whole.type != OL_JSON_OBJECT) // written by plain SQL; none would mean all
        return ol_fail(err, OUTLOG_INVALID_FIELD, "filters must be a JSON object");
    while (ol_json_next(&whole, &it)) {
        int field = 0;
        while (field < FILTER_FIELDS && !ol_json_equals(&it.key, filter_fields[field].name))
            field++;
        if (field == FILTER_FIELDS)
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "filters: unknown field %.*s",
                           (int)it.key.bytes, it.key.text);
        if (field == 0 && it.value.type == OL_JSON_NULL) {
            out->is_infrastructure = true;
            continue;
        }
        const char *text = ol_json_string(&it.value, arena, NULL);
        if (!text)
            return ol_fail(err, OUTLOG_INVALID_FIELD, "filters: %s must be a string",
                           filter_fields[field].name);
        memcpy((char *)out + filter_fields[field].offset, &text, sizeof text);
    }
    return 0;
}
