/* notifications.c: /v1/users/{user_id}/… and /v1/notifications: the feed, preferences, tickets and
 * sockets, suppressed addresses (N3). */
#include "server/http/router.h"
#include "server/http/ticket.h"
#include "server/http/websocket.h"
#include "server/live/notification_sockets.h"
#include "server/server.h"

#include "notify/inbox.h"

#include <string.h>

/* --- the feed --- */

/* The notifications of one user, or of all (NULL). */
static enum ol_handler_result answer_list(struct ol_request *request, const char *org_id,
                                          const char *user_id)
{
    const char *given = ol_request_param(request, "unread");
    int64_t limit;
    outlog_err err;

    if (ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0)
        return OL_HANDLER_ANSWERED;
    if (given && *given && strcmp(given, "true") != 0 && strcmp(given, "false") != 0)
        return ol_problem_say(request, 400, "invalid_field", "unread must be true or false");
    int unread = !given || !*given ? -1 : given[0] == 't';
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_inbox_list(request->log, org_id, user_id, unread, ol_request_param(request, "after"),
                         (int)limit, out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result list_notifications(struct ol_request *request)
{
    const char *org_id;
    return ol_ticket_org(request, &org_id) < 0 ? OL_HANDLER_ANSWERED
                                               : answer_list(request, org_id, request->args[0]);
}

static enum ol_handler_result list_all_notifications(struct ol_request *request)
{
    const char *org_id, *user_id = ol_request_param(request, "user_id");
    return ol_request_org(request, ol_request_param(request, "org_id"), &org_id) < 0
               ? OL_HANDLER_ANSWERED
               : answer_list(request, org_id, user_id && *user_id ? user_id : NULL);
}

static enum ol_handler_result mark_read(struct ol_request *request, outlog_tx *tx)
{
    static const char *const none[] = {NULL};
    struct ol_json body;
    outlog_err err;
    if (ol_request_object(request, none, &body) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_inbox_mark_read(tx, request->who.org_id, NULL, request->args[0], out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

/* --- preferences --- */

static enum ol_handler_result get_preferences(struct ol_request *request)
{
    const char *org_id;
    outlog_err err;
    if (ol_ticket_org(request, &org_id) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_inbox_preferences(request->log, org_id, request->args[0], out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result put_preferences(struct ol_request *request, outlog_tx *tx)
{
    static const char *const allowed[] = {"email", "channels", NULL};
    const char *org_id;
    struct ol_json body;
    outlog_err err;
    if (ol_request_object(request, allowed, &body) < 0 || ol_ticket_org(request, &org_id) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_inbox_prefer(tx, org_id, request->args[0], &body, out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

/* --- the socket --- */

/* Tickets of users and of sessions share a table: no session's key begins with a slash. NULL after
 * having answered. */
static const char *make_ticket_key(struct ol_request *request)
{
    outlog_err err;
    if (ol_inbox_check_user(request->args[0], &err) < 0) {
        ol_problem(request, &err);
        return NULL;
    }
    const char *key = ol_arena_print(&request->arena, "/users/%s", request->args[0]);
    if (!key)
        ol_problem_say(request, 503, "no_memory", "out of memory");
    return key;
}

static enum ol_handler_result create_ticket(struct ol_request *request)
{
    const char *key = make_ticket_key(request);
    return key ? ol_ticket_answer(request, key) : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result open_socket(struct ol_request *request)
{
    struct ol_notification_upgrade *upgrade = ol_arena_alloc(&request->arena, sizeof *upgrade);
    if (!upgrade)
        return ol_problem_say(request, 503, "no_memory", "out of memory");
    const char *key = make_ticket_key(request);
    if (!key || !ol_websocket_is_asked(request) ||
        !ol_ticket_admit(request, key, "user", &upgrade->org_id))
        return OL_HANDLER_ANSWERED;
    upgrade->user_id = request->args[0];
    request->owner = upgrade;
    request->upgrade = ol_notification_sockets_subscribe;
    return OL_HANDLER_UPGRADING;
}

/* --- suppressed addresses --- */

static enum ol_handler_result list_suppressions(struct ol_request *request)
{
    int64_t limit;
    outlog_err err;
    if (ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_inbox_suppressions(request->log, ol_request_param(request, "after"), (int)limit, out,
                                 &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result remove_suppression(struct ol_request *request, outlog_tx *tx)
{
    const struct outlog_operator by = ol_request_operator(request);
    outlog_err err;
    if (ol_inbox_unsuppress(tx, request->args[0], &by, &err) < 0)
        return ol_problem(request, &err);
    ol_request_reply(request, 204);
    request->content_type = NULL;
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_notification_routes[] = {
    {"GET", "/v1/users/{user_id}/notifications", OL_SCOPE_READ, list_notifications,
     "listNotifications", "A user's notifications in the app, newest first",
     .query = "org_id unread after limit", .reply = "NotificationList", .takes_org = true},
    {"GET", "/v1/notifications", OL_SCOPE_READ, list_all_notifications, "listAllNotifications",
     "Notifications in the app of every user, newest first",
     .query = "org_id user_id unread after limit", .reply = "NotificationList", .takes_org = true},
    {"POST", "/v1/notifications/{id}/read", OL_SCOPE_APPEND, NULL, "readNotification",
     "Mark it as read; a repeat changes nothing", .body = "Empty", .reply = "Notification",
     .takes_org = true, .change = mark_read},
    {"GET", "/v1/users/{user_id}/preferences", OL_SCOPE_READ, get_preferences, "getPreferences",
     "A user's channels by category, and address", .query = "org_id", .reply = "Preferences",
     .takes_org = true},
    {"PUT", "/v1/users/{user_id}/preferences", OL_SCOPE_APPEND, NULL, "putPreferences",
     "Set the address, the channels by category, or both", .query = "org_id",
     .body = "PreferencesDraft", .reply = "Preferences", .takes_org = true,
     .change = put_preferences},
    {"GET", "/v1/users/{user_id}/socket", OL_SCOPE_NONE, open_socket, "openUserSocket",
     "A WebSocket with a user's new notifications", .query = "ticket org_id", .status = 101,
     .is_open = true, .takes_org = true},
    {"POST", "/v1/users/{user_id}/ticket", OL_SCOPE_APPEND, create_ticket, "makeUserTicket",
     "A ticket for one socket of this user: short-lived, used once", .query = "org_id",
     .body = "Empty", .reply = "Ticket", .status = 201, .takes_org = true, .goes_in_parts = true},
    {"GET", "/v1/notifications/suppressions", OL_SCOPE_ADMIN, list_suppressions, "listSuppressions",
     "Addresses that a mail server rejected for good: no mail is sent to them",
     .query = "after limit", .reply = "SuppressionList"},
    {"DELETE", "/v1/notifications/suppressions/{address}", OL_SCOPE_ADMIN, NULL,
     "removeSuppression", "Send mail to an address again", .status = 204,
     .change = remove_suppression},
    {0},
};
