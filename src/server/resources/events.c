/* events.c: /v1/events: appending, reading, following. */
#include "server/http/idempotency_key.h"
#include "server/http/router.h"
#include "server/resources/append_request.h"
#include "server/resources/events.h"
#include "server/server.h"

#include "base/clock.h"
#include "base/err.h"
#include "log/event.h"
#include "log/position.h"
#include "log/read.h"
#include "store/event_fields.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_WAIT_MAX_S = 60 };

/* --- appending --- */

static void on_append_done(struct ol_append_request *append)
{
    struct ol_request *request = append->request;
    struct ol_buf *out = ol_request_reply(request, append->status);
    *out = append->answer;
    if (append->status >= 400)
        ol_problem_head(request, append->status);
    if (append->is_replayed)
        ol_request_add(request, "idempotency-replayed", "true");
    request->answer = OL_HANDLER_ANSWERED;
    ol_request_finish(request);
}

static enum ol_handler_result append_command(struct ol_request *request)
{
    struct ol_append_request *append = ol_arena_alloc(&request->arena, sizeof *append);
    const char *key;

    if (!append)
        return ol_problem_say(request, 503, "no_memory", "out of memory");
    if (ol_idempotency_key_read(request, &key) < 0)
        return OL_HANDLER_ANSWERED;
    int result = ol_append_request_parse(request, request->body.data ? request->body.data : "",
                                         request->body.bytes, key, append);
    append->done = on_append_done;
    if (result < 0)
        on_append_done(append);
    else
        ol_append_request_submit(request->server->batcher, append);
    return OL_HANDLER_LATER;
}

/* One command per line, each with its own outcome. */
struct append_lines {
    struct ol_request *request;
    struct ol_append_request *appends;
    size_t count;
    atomic_size_t open; /* the last one to end answers */
};

static void answer_lines(struct append_lines *lines)
{
    struct ol_request *request = lines->request;
    struct ol_buf *out = ol_request_reply(request, 200);

    request->content_type = "application/x-ndjson";
    for (size_t i = 0; i < lines->count; i++) {
        ol_buf_add(out, lines->appends[i].answer.data, lines->appends[i].answer.bytes);
        ol_buf_char(out, '\n');
        ol_buf_clear(&lines->appends[i].answer);
    }
    request->answer = OL_HANDLER_ANSWERED;
    ol_request_finish(request);
}

static void on_line_done(struct ol_append_request *append)
{
    struct append_lines *lines = append->request->owner;
    if (atomic_fetch_sub(&lines->open, 1) == 1)
        answer_lines(lines);
}

/* The next line that is not empty; false at the end. */
static bool next_line(const char **at, const char *end, const char **line, size_t *bytes)
{
    while (*at < end) {
        const char *stop = memchr(*at, '\n', (size_t)(end - *at));
        *line = *at;
        *bytes = (size_t)((stop ? stop : end) - *at);
        *at = stop ? stop + 1 : end;
        if (*bytes && (*line)[*bytes - 1] == '\r')
            --*bytes;
        if (*bytes)
            return true;
    }
    return false;
}

static enum ol_handler_result append_lines(struct ol_request *request)
{
    const char *at = request->body.data, *end = at + request->body.bytes, *line;
    struct append_lines *lines = ol_arena_alloc(&request->arena, sizeof *lines);
    size_t bytes, count = 0;

    while (next_line(&at, end, &line, &bytes))
        count++;
    if (!lines ||
        !(lines->appends = ol_arena_array(&request->arena, count + 1, sizeof *lines->appends)))
        return ol_problem_say(request, 503, "no_memory", "out of memory");
    lines->request = request;
    lines->count = count;
    atomic_init(&lines->open, count + 1); // one more, until all are submitted
    request->owner = lines;
    at = request->body.data;
    for (size_t i = 0; next_line(&at, end, &line, &bytes); i++) {
        struct ol_append_request *append = &lines->appends[i];
        int result = ol_append_request_parse(request, line, bytes, NULL, append);
        append->done = on_line_done;
        if (result < 0)
            on_line_done(append);
        else
            ol_append_request_submit(request->server->batcher, append);
    }
    if (atomic_fetch_sub(&lines->open, 1) == 1)
        answer_lines(lines);
    return OL_HANDLER_LATER;
}

static enum ol_handler_result append_events(struct ol_request *request)
{
    const char *type = ol_request_header(request, "content-type");
    bool has_lines = type && strncasecmp(type, "application/x-ndjson", 20) == 0;
    return has_lines && request->body.bytes ? append_lines(request) : append_command(request);
}

/* --- reading --- */

static int read_filter(struct ol_request *request, struct outlog_filter *out)
{
    *out = (struct outlog_filter){0};
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const struct ol_field *field = &ol_event_fields[i];
        if (field->filter != OL_FIELD_NONE)
            ol_field_set_text(out, field->filter, ol_request_param(request, field->name));
    }
    out->log_id = ol_request_param(request, "log_id");
    return ol_request_org(request, ol_request_param(request, "org_id"), &out->org_id) < 0 ||
                   ol_request_time(request, "since", &out->since) < 0 ||
                   ol_request_time(request, "until", &out->until) < 0
               ? -1
               : 0;
}

void ol_events_json(const struct outlog_page *page, struct ol_buf *out)
{
    enum { EVENT_JSON_BYTES = 700 }; // of an event without its payload, typically
    size_t bytes = 0;
    for (size_t i = 0; i < page->count; i++)
        bytes += page->events[i].payload_bytes + EVENT_JSON_BYTES;
    ol_buf_reserve(out, bytes); // growing step by step would copy it several times
    ol_buf_text(out, "\"events\":[");
    for (size_t i = 0; i < page->count; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_event_write_json(&page->events[i], out);
    }
    ol_buf_char(out, ']');
}

/* `before`, an id or "end": read backwards, the newest first. */
static enum ol_handler_result list_events_back(struct ol_request *request, const char *given)
{
    struct outlog_page *page = ol_worker_pool_page(&request->job);
    int64_t before = INT64_MAX, limit, next;
    outlog_err err;

    if (ol_request_param(request, "after") || ol_request_param(request, "wait"))
        return ol_problem_say(request, 400, "invalid_field",
                              "before reads backwards: it goes with neither after nor wait");
    if (read_filter(request, &request->filter) < 0 ||
        (strcmp(given, "end") != 0 &&
         ol_request_number(request, "before", 1, INT64_MAX, 0, &before) < 0) ||
        ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0)
        return OL_HANDLER_ANSWERED;
    if (ol_read_back_short(request->log, &request->filter, before, (size_t)limit,
                           OL_READ_PAGE_BYTES, page, &next, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_char(out, '{');
    ol_events_json(page, out);
    ol_buf_text(out, ",\"next_before\":");
    if (next)
        ol_buf_int(out, next);
    else
        ol_buf_text(out, "null");
    ol_buf_print(out, ",\"settled\":%lld,\"log_id\":\"%s\"}", (long long)page->settled,
                 page->log_id);
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result list_events(struct ol_request *request)
{
    const char *before = ol_request_param(request, "before");
    struct outlog_page *page = ol_worker_pool_page(&request->job);
    int64_t after, limit, wait_us;
    outlog_err err;

    if (before)
        return list_events_back(request, before);
    if (read_filter(request, &request->filter) < 0 ||
        ol_request_number(request, "after", 0, INT64_MAX, 0, &after) < 0 ||
        ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0 ||
        ol_request_wait(request, "wait", EVENTS_WAIT_MAX_S, 0, &wait_us) < 0)
        return OL_HANDLER_ANSWERED;
    if (ol_read_short(request->log, &request->filter, after, (size_t)limit, OL_READ_PAGE_BYTES,
                      page, &err) < 0)
        return ol_problem(request, &err);
    if (!request->wait_until)
        request->wait_until = request->began_at + wait_us;
    if (!page->count && ol_clock_boot_us() < request->wait_until) {
        request->after = page->next_after;
        ol_request_keep_log(request, page);
        return OL_HANDLER_WAITING;
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_char(out, '{');
    ol_events_json(page, out);
    ol_buf_print(out, ",\"next_after\":%lld,\"settled\":%lld,\"log_id\":\"%s\"}",
                 (long long)page->next_after, (long long)page->settled, page->log_id);
    return OL_HANDLER_ANSWERED;
}

/* Last-Event-ID wins over `after`; without either the stream starts at the end. */
static enum ol_handler_result stream_events(struct ol_request *request)
{
    const char *last = ol_request_header(request, "last-event-id");
    outlog_err err;
    char *end;

    if (read_filter(request, &request->filter) < 0 ||
        ol_request_number(request, "after", 0, INT64_MAX, -1, &request->after) < 0)
        return OL_HANDLER_ANSWERED;
    if (last && *last) {
        request->after = strtoll(last, &end, 10);
        if (*end || *last < '0' || *last > '9' || strlen(last) > 18)
            return ol_problem_say(request, 400, "invalid_field", "Last-Event-ID is an event_id");
    }
    int64_t settled;
    bool is_from_end = request->after < 0;
    if (outlog_settled(request->log, &settled, &err) < 0 ||
        ol_position_check(request->log, request->filter.log_id, is_from_end ? 0 : request->after,
                          &err) < 0)
        return ol_problem(request, &err);
    if (is_from_end)
        request->after = settled;
    memcpy(request->log_id, request->log->log_id, sizeof request->log_id);
    request->filter.log_id = request->log_id;
    return OL_HANDLER_STREAMING;
}

static enum ol_handler_result get_event(struct ol_request *request)
{
    struct outlog_page page = {0};
    outlog_err err;
    const char *own = request->who.org_id;

    if (outlog_get(request->log, request->args[0], &page, &err) < 0) {
        outlog_page_clear(&page);
        return ol_problem(request, &err);
    }
    bool is_hidden = own && (!page.events[0].org_id || strcmp(page.events[0].org_id, own) != 0);
    if (is_hidden)
        ol_problem_say(request, 404, "not_found", "there is no event %.80s", request->args[0]);
    else
        ol_event_write_json(&page.events[0], ol_request_reply(request, 200));
    outlog_page_clear(&page);
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_event_routes[] = {
    {"POST", "/v1/events", OL_SCOPE_APPEND, append_events, "appendEvents",
     "Append events and messages in one transaction", .body = "Command", .has_own_key = true,
     .takes_lines = true, .runs_in_loop = true, .reply = "CommandResult", .status = 201,
     .other_status = 200, .takes_org = true},
    {"GET", "/v1/events", OL_SCOPE_READ, list_events, "listEvents",
     "Read settled events in order, or backwards before one; wait is a long poll in seconds",
     .query = "after before limit wait since until log_id " OL_EVENT_FILTER_NAMES,
     .reply = "EventPage", .takes_org = true, .is_confined = true},
    {"GET", "/v1/events/stream", OL_SCOPE_READ, stream_events, "streamEvents",
     "Follow the log as server-sent events",
     .query = "after since until log_id " OL_EVENT_FILTER_NAMES, .reply = "text/event-stream",
     .takes_org = true, .is_confined = true},
    {"GET", "/v1/events/{id}", OL_SCOPE_READ, get_event, "getEvent", "One event, by id or event_id",
     .reply = "Event", .takes_org = true, .is_confined = true},
    {0},
};
