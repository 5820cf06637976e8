/* events.c: /v1/events: appending, reading, following. */
#include "api/command.h"
#include "api/events.h"
#include "api/once.h"
#include "api/route.h"

#include "base/clock.h"
#include "base/err.h"
#include "log/event.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WAIT_S = 60 };

/* --- appending --- */

static enum ol_answer refuse(struct ol_request *request, const outlog_err *err)
{
    return err->code == OUTLOG_OK ? ol_problem_say(request, 403, "forbidden", "%s", err->message)
                                  : ol_problem(request, err);
}

static enum ol_answer append_one(struct ol_request *request)
{
    struct ol_command_draft command;
    const char *key;
    outlog_err err;

    if (ol_once_key(request, &key) < 0)
        return OL_ANSWERED;
    if (ol_command_parse(request, request->body.data ? request->body.data : "", request->body.bytes,
                         key, &request->arena, &command, &err) < 0 ||
        ol_command_run(request->log, &command, &err) < 0)
        return refuse(request, &err);
    ol_command_json(&command, ol_request_reply(request, 201));
    if (command.is_replayed)
        ol_request_add(request, "idempotency-replayed", "true");
    return OL_ANSWERED;
}

/* A command a line, each with an outcome of its own. */
static enum ol_answer append_lines(struct ol_request *request)
{
    struct ol_buf *out = ol_request_reply(request, 200);
    struct ol_arena arena = {0};
    struct ol_command_draft command;
    outlog_err err;
    const char *at = request->body.data, *end = at + request->body.bytes;

    request->content_type = "application/x-ndjson";
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((stop ? stop : end) - at);
        if (bytes && at[bytes - 1] == '\r')
            bytes--;
        if (bytes) {
            if (ol_command_parse(request, at, bytes, NULL, &arena, &command, &err) < 0 ||
                ol_command_run(request->log, &command, &err) < 0)
                ol_problem_json(request, &err, out);
            else
                ol_command_json(&command, out);
            ol_buf_char(out, '\n');
        }
        ol_arena_reset(&arena);
        at = stop ? stop + 1 : end;
    }
    ol_arena_clear(&arena);
    return OL_ANSWERED;
}

static enum ol_answer append(struct ol_request *request)
{
    const char *type = ol_request_header(request, "content-type");
    bool has_lines = type && strncasecmp(type, "application/x-ndjson", 20) == 0;
    return has_lines && request->body.bytes ? append_lines(request) : append_one(request);
}

/* --- reading --- */

static int read_filter(struct ol_request *request, struct outlog_filter *out)
{
    *out = (struct outlog_filter){
        .event_type = ol_request_param(request, "event_type"),
        .aggregate_type = ol_request_param(request, "aggregate_type"),
        .aggregate_id = ol_request_param(request, "aggregate_id"),
        .correlation_id = ol_request_param(request, "correlation_id"),
        .app_id = ol_request_param(request, "app_id"),
        .env_id = ol_request_param(request, "env_id"),
    };
    return ol_request_org(request, ol_request_param(request, "org_id"), &out->org_id) < 0 ||
                   ol_request_time(request, "since", &out->since) < 0 ||
                   ol_request_time(request, "until", &out->until) < 0
               ? -1
               : 0;
}

void ol_events_json(const struct outlog_page *page, struct ol_buf *out)
{
    ol_buf_text(out, "\"events\":[");
    for (size_t i = 0; i < page->count; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_record_json(&page->events[i], out);
    }
    ol_buf_char(out, ']');
}

static enum ol_answer list(struct ol_request *request)
{
    struct outlog_page page = {0};
    int64_t after, limit, wait;
    outlog_err err;

    if (read_filter(request, &request->filter) < 0 ||
        ol_request_number(request, "after", 0, INT64_MAX, 0, &after) < 0 ||
        ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0 ||
        ol_request_number(request, "wait", 0, MOST_WAIT_S, 0, &wait) < 0)
        return OL_ANSWERED;
    if (outlog_read(request->log, &request->filter, after, (size_t)limit, &page, &err) < 0) {
        outlog_page_clear(&page);
        return ol_problem(request, &err);
    }
    if (!request->wait_until)
        request->wait_until = request->began_at + wait * 1000000;
    if (!page.count && ol_clock_boot_us() < request->wait_until) {
        request->after = page.next_after;
        outlog_page_clear(&page);
        return OL_WAITING;
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_char(out, '{');
    ol_events_json(&page, out);
    ol_buf_print(out, ",\"next_after\":%lld,\"settled\":%lld}", (long long)page.next_after,
                 (long long)page.settled);
    outlog_page_clear(&page);
    return OL_ANSWERED;
}

/* Last-Event-ID before `after`; neither: from the end. */
static enum ol_answer stream(struct ol_request *request)
{
    const char *last = ol_request_header(request, "last-event-id");
    outlog_err err;
    char *end;

    if (read_filter(request, &request->filter) < 0 ||
        ol_request_number(request, "after", 0, INT64_MAX, -1, &request->after) < 0)
        return OL_ANSWERED;
    if (last && *last) {
        request->after = strtoll(last, &end, 10);
        if (*end || *last < '0' || *last > '9' || strlen(last) > 18)
            return ol_problem_say(request, 400, "invalid_field", "Last-Event-ID is an event_id");
    }
    if (request->after < 0 && outlog_settled(request->log, &request->after, &err) < 0)
        return ol_problem(request, &err);
    return OL_STREAMING;
}

static enum ol_answer get(struct ol_request *request)
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
        ol_record_json(&page.events[0], ol_request_reply(request, 200));
    outlog_page_clear(&page);
    return OL_ANSWERED;
}

#define FILTERS \
    "org_id event_type aggregate_type aggregate_id correlation_id app_id env_id since until"

const struct ol_route ol_event_routes[] = {
    {"POST", "/v1/events", OL_SCOPE_APPEND, append, "appendEvents",
     "Append events and messages in one transaction", .body = "Command", .has_own_key = true,
     .reply = "CommandResult", .status = 201, .takes_org = true},
    {"GET", "/v1/events", OL_SCOPE_READ, list, "listEvents",
     "Read settled events in order; wait is a long poll in seconds",
     .query = "after limit wait " FILTERS, .reply = "EventPage", .takes_org = true},
    {"GET", "/v1/events/stream", OL_SCOPE_READ, stream, "streamEvents",
     "Follow the log as server-sent events", .query = "after " FILTERS, .takes_org = true},
    {"GET", "/v1/events/{id}", OL_SCOPE_READ, get, "getEvent", "One event, by id or event_id",
     .reply = "Event", .takes_org = true},
    {0},
};
