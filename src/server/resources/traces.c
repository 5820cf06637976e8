/* traces.c: /v1/traces, and the causes and effects of one event. */
#include "server/http/router.h"
#include "server/resources/events.h"

#include "log/event.h"
#include "outbox/message_list.h"
#include "outbox/message_view.h"

#include <string.h>

static bool is_hidden(const struct ol_request *request, const struct outlog_event *event)
{
    const char *own = request->who.org_id;
    return own && (!event->org_id || strcmp(event->org_id, own) != 0);
}

/* Remove the events that the token may not see. */
static void hide_events(const struct ol_request *request, struct outlog_page *page)
{
    size_t kept = 0;
    for (size_t i = 0; i < page->count; i++)
        if (!is_hidden(request, &page->events[i]))
            page->events[kept++] = page->events[i];
    page->count = kept;
}

static enum ol_handler_result get_causality(struct ol_request *request)
{
    const char *direction = ol_request_param(request, "direction");
    struct outlog_page page = {0};
    outlog_err err;

    if (direction && strcmp(direction, "up") != 0 && strcmp(direction, "down") != 0)
        return ol_problem_say(request, 400, "invalid_field", "direction is up or down");
    bool is_down = direction && strcmp(direction, "down") == 0;
    if (outlog_causality(request->log, request->args[0], is_down ? OUTLOG_DOWN : OUTLOG_UP, &page,
                         &err) < 0) {
        outlog_page_clear(&page);
        return ol_problem(request, &err);
    }
    if (!page.count || is_hidden(request, &page.events[0])) {
        outlog_page_clear(&page);
        return ol_problem_say(request, 404, "not_found", "there is no event %.80s",
                              request->args[0]);
    }
    hide_events(request, &page);
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"events\":[");
    for (size_t i = 0; i < page.count; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_event_write_json(&page.events[i], out);
        out->bytes--; // the closing brace
        ol_buf_print(out, ",\"depth\":%d}", page.events[i].depth);
    }
    ol_buf_text(out, "]}");
    outlog_page_clear(&page);
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result get_trace(struct ol_request *request)
{
    struct outlog_filter filter = {.org_id = request->who.org_id};
    struct outlog_page page = {0};
    struct outlog_message_page messages = {0};
    outlog_err err;

    // Messages are for admin tokens that see every org (X5).
    bool sees_messages = request->who.scope == OL_SCOPE_ADMIN && !request->who.org_id;
    if (outlog_trace(request->log, &filter, request->args[0], &page, &err) < 0 ||
        (sees_messages &&
         ol_message_list_trace(request->log, request->args[0], &messages, &err) < 0)) {
        outlog_page_clear(&page);
        outlog_message_page_clear(&messages);
        return ol_problem(request, &err);
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"correlation_id\":");
    ol_buf_json_text(out, request->args[0]);
    ol_buf_char(out, ',');
    ol_events_json(&page, out);
    ol_buf_char(out, ',');
    ol_message_view_list_json(&messages, out);
    ol_buf_char(out, '}');
    outlog_page_clear(&page);
    outlog_message_page_clear(&messages);
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_trace_routes[] = {
    {"GET", "/v1/events/{id}/causality", OL_SCOPE_READ, get_causality, "getCausality",
     "The chain of causes of an event (up), or the tree of what it caused (down)",
     .query = "direction", .reply = "Causality", .takes_org = true, .is_confined = true},
    {"GET", "/v1/traces/{correlation_id}", OL_SCOPE_READ, get_trace, "getTrace",
     "Everything of one execution", .reply = "Trace", .takes_org = true, .is_confined = true},
    {0},
};
