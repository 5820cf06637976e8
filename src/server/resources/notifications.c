/* notifications.c: /v1/users/{user_id}/…, /v1/notifications (N3). */
#include "server/http/router.h"
#include "server/http/ticket.h"
#include "server/http/websocket.h"
#include "server/live/notification_sockets.h"
#include "server/server.h"

#include "notify/inbox.h"

#include <string.h>

/* --- the feed --- */

/* Of one user, or of all (NULL). */
static enum ol_handler_result list_of(struct ol_request *request, const char *org_id,
                                      const char *user_id)
{
    const char *asked = ol_request_param(request, "unread");
    int64_t limit;
    outlog_err err;

    if (ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0)
        return OL_HANDLER_ANSWERED;
    if (asked && *asked && strcmp(asked, "true") != 0 && strcmp(asked, "false") != 0)
        return ol_problem_say(request, 400, "invalid_field", "unread is true or false");
    int unread = !asked || !*asked ? -1 : asked[0] == 't';
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_inbox_list(request->log, org_id, user_id, unread, ol_request_param(request, "after"),
                         (int)limit, out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result list(struct ol_request *request)
{
    const char *org_id;
    return ol_ticket_org(request, &org_id) < 0 ? OL_HANDLER_ANSWERED
                                               : list_of(request, org_id, request->args[0]);
}

static enum ol_handler_result list_all(struct ol_request *request)
{
    const char *org_id, *user_id = ol_request_param(request, "user_id");
    return ol_request_org(request, ol_request_param(request, "org_id"), &org_id) < 0
               ? OL_HANDLER_ANSWERED
               : list_of(request, org_id, user_id && *user_id ? user_id : NULL);
}

static enum ol_handler_result mark(struct ol_request *request, outlog_tx *tx)
{
    static const char *const none[] = {NULL};
    struct ol_json body;
    outlog_err err;
    if (ol_request_object(request, none, &body) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_inbox_read(tx, request->who.org_id, NULL, request->args[0], out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

/* --- preferences --- */

static enum ol_handler_result show(struct ol_request *request)
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

static enum ol_handler_result prefer(struct ol_request *request, outlog_tx *tx)
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
static const char *ticket_key(struct ol_request *request)
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

static enum ol_handler_result ticket(struct ol_request *request)
{
    const char *key = ticket_key(request);
    return key ? ol_ticket_answer(request, key) : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result open_socket(struct ol_request *request)
{
    struct ol_notification_upgrade *entrance = ol_arena_alloc(&request->arena, sizeof *entrance);
    if (!entrance)
        return ol_problem_say(request, 503, "no_memory", "out of memory");
    const char *key = ticket_key(request);
    if (!key || !ol_websocket_is_asked(request) ||
        !ol_ticket_admit(request, key, "user", &entrance->org_id))
        return OL_HANDLER_ANSWERED;
    entrance->user_id = request->args[0];
    request->owner = entrance;
    request->upgrade = ol_notification_sockets_subscribe;
    return OL_HANDLER_UPGRADING;
}

/* --- addresses that are not written to --- */

static enum ol_handler_result suppressions(struct ol_request *request)
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

static enum ol_handler_result unsuppress(struct ol_request *request, outlog_tx *tx)
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
    {"GET", "/v1/users/{user_id}/notifications", OL_SCOPE_READ, list, "listNotifications",
     "A user's notifications in the app, the newest first", .query = "org_id unread after limit",
     .reply = "NotificationList", .takes_org = true},
    {"GET", "/v1/notifications", OL_SCOPE_READ, list_all, "listAllNotifications",
     "Notifications in the app of every user, the newest first",
     .query = "org_id user_id unread after limit", .reply = "NotificationList", .takes_org = true},
    {"POST", "/v1/notifications/{id}/read", OL_SCOPE_APPEND, NULL, "readNotification",
     "Mark it as read; the first time counts", .body = "Empty", .reply = "Notification",
     .takes_org = true, .change = mark},
    {"GET", "/v1/users/{user_id}/preferences", OL_SCOPE_READ, show, "getPreferences",
     "What a user wants to be told of, and where", .query = "org_id", .reply = "Preferences",
     .takes_org = true},
    {"PUT", "/v1/users/{user_id}/preferences", OL_SCOPE_APPEND, NULL, "putPreferences",
     "Set the address, the channels by category, or both", .query = "org_id",
     .body = "PreferencesDraft", .reply = "Preferences", .takes_org = true, .change = prefer},
    {"GET", "/v1/users/{user_id}/socket", OL_SCOPE_NONE, open_socket, "openUserSocket",
     "A WebSocket with a user's notifications as they come", .query = "ticket org_id",
     .status = 101, .is_open = true, .takes_org = true},
    {"POST", "/v1/users/{user_id}/ticket", OL_SCOPE_APPEND, ticket, "makeUserTicket",
     "A ticket for one socket of this user: short-lived, used once", .query = "org_id",
     .body = "Empty", .reply = "Ticket", .status = 201, .takes_org = true, .goes_in_parts = true},
    {"GET", "/v1/notifications/suppressions", OL_SCOPE_ADMIN, suppressions, "listSuppressions",
     "Addresses that were refused for good: no mail goes there", .query = "after limit",
     .reply = "SuppressionList"},
    {"DELETE", "/v1/notifications/suppressions/{address}", OL_SCOPE_ADMIN, NULL,
     "removeSuppression", "Write to an address again", .status = 204, .change = unsuppress},
    {0},
};
