/* sessions.c: /v1/sessions: the socket, events, effects, tickets and delivery of sessions. */
#include "server/http/router.h"
#include "server/http/ticket.h"
#include "server/http/websocket.h"
#include "server/live/session_sockets.h"
#include "server/resources/events.h"
#include "server/server.h"

#include "log/read.h"
#include "sessions/session.h"

#include <string.h>

/* The session's key, checked; NULL after having answered. */
static const char *read_session_key(struct ol_request *request)
{
    if (ol_session_key_is_valid(request->args[0]))
        return request->args[0];
    ol_problem_say(request, 400, "bad_session_key", OL_SESSION_KEY_RULE);
    return NULL;
}

/* --- the socket --- */

static enum ol_handler_result open_socket(struct ol_request *request)
{
    struct ol_session_upgrade *upgrade = ol_arena_alloc(&request->arena, sizeof *upgrade);
    const char *key = read_session_key(request);

    if (!key || !upgrade || !ol_websocket_is_asked(request) ||
        !ol_ticket_admit(request, key, "session", &upgrade->org_id))
        return OL_HANDLER_ANSWERED;
    upgrade->session_key = key;
    request->owner = upgrade;
    request->upgrade = ol_session_sockets_subscribe;
    return OL_HANDLER_UPGRADING;
}

/* --- reading --- */

static enum ol_handler_result list_sessions(struct ol_request *request)
{
    const char *org_id;
    int64_t limit;
    outlog_err err;

    if (ol_request_org(request, ol_request_param(request, "org_id"), &org_id) < 0 ||
        ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0)
        return OL_HANDLER_ANSWERED;
    if (!request->who.org_id) // an org's token may not; the runner does it soon
        ol_session_note(request->log, &(struct ol_session_scan){0}, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_session_list(request->log, org_id, ol_request_param(request, "after"), (int)limit,
                           out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result list_session_events(struct ol_request *request)
{
    struct outlog_filter filter = {.aggregate_type = "session"};
    struct outlog_page page = {0};
    int64_t after, limit;
    outlog_err err;

    if (!(filter.aggregate_id = read_session_key(request)) ||
        ol_ticket_org(request, &filter.org_id) < 0 ||
        ol_request_number(request, "after", 0, INT64_MAX, 0, &after) < 0 ||
        ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0)
        return OL_HANDLER_ANSWERED;
    if (ol_read_short(request->log, &filter, after, (size_t)limit, OL_READ_PAGE_BYTES, &page,
                      &err) < 0) {
        outlog_page_clear(&page);
        return ol_problem(request, &err);
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_char(out, '{');
    ol_events_json(&page, out);
    ol_buf_print(out, ",\"next_after\":%lld}", (long long)page.next_after);
    outlog_page_clear(&page);
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result list_session_effects(struct ol_request *request)
{
    const char *key = read_session_key(request), *org_id;
    int64_t limit;
    outlog_err err;

    if (!key || ol_ticket_org(request, &org_id) < 0 ||
        ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_session_effects(request->log, org_id, key, ol_request_param(request, "status"),
                              ol_request_param(request, "after"), (int)limit, out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

/* --- effects, whatever their session --- */

static enum ol_handler_result list_all_effects(struct ol_request *request)
{
    const char *org_id;
    int64_t limit;
    outlog_err err;

    if (ol_request_org(request, ol_request_param(request, "org_id"), &org_id) < 0 ||
        ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_session_effects(request->log, org_id, ol_request_param(request, "session_key"),
                              ol_request_param(request, "status"),
                              ol_request_param(request, "after"), (int)limit, out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

typedef int effect_operation(outlog *log, const struct ol_session_effect_call *call,
                             outlog_err *err);

static enum ol_handler_result change_effect(struct ol_request *request, effect_operation *change,
                                            const char *status)
{
    struct ol_session_effect_call call = {.effect_id = request->args[0],
                                          .reason = ol_request_param(request, "reason"),
                                          .by = ol_request_operator(request)};
    outlog_err err;

    if (ol_request_org(request, ol_request_param(request, "org_id"), &call.org_id) < 0)
        return OL_HANDLER_ANSWERED;
    if (change(request->log, &call, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"effect_id\":");
    ol_buf_json_text(out, call.effect_id);
    ol_buf_print(out, ",\"status\":\"%s\"}", status);
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result end_effect(struct ol_request *request)
{
    return change_effect(request, ol_session_effect_end, "FAILED");
}

static enum ol_handler_result resend_effect(struct ol_request *request)
{
    return change_effect(request, ol_session_effect_resend, "PENDING");
}

/* --- tickets, and delivery on demand --- */

static enum ol_handler_result create_ticket(struct ol_request *request)
{
    const char *key = read_session_key(request);
    return key ? ol_ticket_answer(request, key) : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result deliver_session(struct ol_request *request)
{
    const char *key = read_session_key(request), *org_id;
    struct outlog_operator by = ol_request_operator(request);
    int64_t hurried;
    outlog_err err;

    if (!key || ol_ticket_org(request, &org_id) < 0)
        return OL_HANDLER_ANSWERED;
    if (outlog_deliver_session(request->log, org_id, key, &by, &hurried, &err) < 0)
        return ol_problem(request, &err);
    ol_buf_print(ol_request_reply(request, 202), "{\"hurried\":%lld}", (long long)hurried);
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_session_routes[] = {
    {"GET", "/v1/sessions", OL_SCOPE_READ, list_sessions, "listSessions", "Sessions, newest first",
     .query = "org_id after limit", .reply = "SessionList", .takes_org = true},
    {"GET", "/v1/sessions/{session_key}/socket", OL_SCOPE_NONE, open_socket, "openSessionSocket",
     "The session's WebSocket", .query = "ticket org_id", .status = 101, .is_open = true,
     .takes_org = true},
    {"GET", "/v1/sessions/{session_key}/events", OL_SCOPE_READ, list_session_events,
     "listSessionEvents", "The session's events, oldest first", .query = "org_id after limit",
     .reply = "SessionEvents", .takes_org = true},
    {"GET", "/v1/sessions/{session_key}/effects", OL_SCOPE_READ, list_session_effects,
     "listSessionEffects", "The session's effects, oldest first",
     .query = "org_id status after limit", .reply = "SessionEffects", .takes_org = true},
    {"GET", "/v1/effects", OL_SCOPE_READ, list_all_effects, "listEffects",
     "Effects of all sessions, oldest first", .query = "org_id session_key status after limit",
     .reply = "SessionEffects", .takes_org = true},
    {"POST", "/v1/effects/{effect_id}/end", OL_SCOPE_ADMIN, end_effect, "endEffect",
     "End an effect of a session that is owed: it is not sent again", .query = "org_id reason",
     .body = "Empty", .reply = "EffectChanged", .takes_org = true},
    {"POST", "/v1/effects/{effect_id}/resend", OL_SCOPE_ADMIN, resend_effect, "resendEffect",
     "Send an effect of a session again now, also one that was ended", .query = "org_id reason",
     .body = "Empty", .reply = "EffectChanged", .takes_org = true},
    {"POST", "/v1/sessions/{session_key}/ticket", OL_SCOPE_APPEND, create_ticket, "makeTicket",
     "A ticket for one socket of this session: short-lived, used once", .query = "org_id",
     .body = "Empty", .reply = "Ticket", .status = 201, .takes_org = true, .goes_in_parts = true},
    {"POST", "/v1/sessions/{session_key}/deliver", OL_SCOPE_ADMIN, deliver_session,
     "deliverSession", "Send pending effects now, also those sent a moment ago", .query = "org_id",
     .body = "Empty", .reply = "Hurried", .status = 202, .takes_org = true},
    {0},
};
