/* ticket.c: creates tickets and checks them. */
#include "server/http/ticket.h"

#include "server/http/auth.h"
#include "server/server.h"
#include "sessions/session.h"

#include <string.h>

enum { TICKET_LIFE_US = 60 * 1000000, TICKET_ORG_MAX = 100 };

int ol_ticket_org(struct ol_request *request, const char **out)
{
    if (ol_request_org(request, ol_request_param(request, "org_id"), out) < 0)
        return -1;
    if (!*out)
        *out = "default";
    if (**out && strlen(*out) <= TICKET_ORG_MAX)
        return 0;
    ol_problem_say(request, 400, "invalid_field", "org_id has 1 to %d bytes", TICKET_ORG_MAX);
    return -1;
}

enum ol_handler_result ol_ticket_answer(struct ol_request *request, const char *name)
{
    char secret[OL_SESSION_TICKET_TEXT];
    const char *org_id;
    int64_t expires_at = 0;
    outlog_err err;

    if (ol_ticket_org(request, &org_id) < 0)
        return OL_HANDLER_ANSWERED;
    if (ol_session_ticket_make(request->log, org_id, name, TICKET_LIFE_US, secret, &expires_at,
                               &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 201);
    ol_buf_print(out, "{\"ticket\":\"%s\",\"expires_at\":", secret);
    ol_buf_json_time(out, expires_at);
    ol_buf_char(out, '}');
    return OL_HANDLER_ANSWERED;
}

static bool use_ticket(struct ol_request *request, const char *ticket, const char *name,
                       const char *whose, const char **org_id)
{
    outlog_err err;
    int used = ol_session_ticket_use(request->log, ticket, name, &request->arena, org_id, &err);
    if (used < 0)
        ol_problem(request, &err);
    else if (used == 0)
        ol_problem_say(request, 401, "unauthorized",
                       "this ticket is unknown, used, expired, or of another %s", whose);
    return used > 0;
}

bool ol_ticket_admit(struct ol_request *request, const char *name, const char *whose,
                     const char **org_id)
{
    const char *ticket = ol_request_param(request, "ticket");
    if (ticket)
        return use_ticket(request, ticket, name, whose, org_id);
    if (!ol_auth_admit(request->server->auth, request))
        return false;
    if (request->who.scope != OL_SCOPE_APPEND && request->who.scope != OL_SCOPE_ADMIN) {
        ol_problem_say(request, 403, "forbidden", "a socket needs a token of scope append");
        return false;
    }
    return ol_ticket_org(request, org_id) == 0;
}
