/* health.c: does it live, can it work, and who am I. */
#include "api/route.h"
#include "api/server.h"

#include "base/clock.h"
#include "outbox/look.h"

static enum ol_answer alive(struct ol_request *request)
{
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_print(out, "{\"status\":\"ok\",\"version\":\"%s\"}", OUTLOG_VERSION);
    return OL_ANSWERED;
}

/* Ready: the store answers and can be read. */
static enum ol_answer ready(struct ol_request *request)
{
    int64_t settled;
    outlog_err err;
    if (outlog_settled(request->log, &settled, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_print(out, "{\"status\":\"ready\",\"settled\":%lld}", (long long)settled);
    return OL_ANSWERED;
}

static enum ol_answer whoami(struct ol_request *request)
{
    static const char *const scopes[] = {"none", "read", "append", "admin"};
    const struct ol_identity *who = &request->who;
    struct ol_buf *out = ol_request_reply(request, 200);

    ol_buf_print(out, "{\"dev\":%s,\"token_id\":", who->is_dev ? "true" : "false");
    ol_buf_json_text(out, who->token_id[0] ? who->token_id : NULL);
    ol_buf_print(out, ",\"scope\":\"%s\",\"org_id\":", scopes[who->scope]);
    ol_buf_json_text(out, who->org_id);
    ol_buf_print(out, ",\"version\":\"%s\"}", OUTLOG_VERSION);
    return OL_ANSWERED;
}

const struct ol_route ol_health_routes[] = {
    {"GET", "/healthz", OL_SCOPE_NONE, alive, "getHealth", "Whether the process lives",
     .reply = "Health", .is_instant = true},
    {"GET", "/readyz", OL_SCOPE_NONE, ready, "getReadiness",
     "Whether the store answers and no lane stands still", .reply = "Readiness"},
    {"GET", "/v1/whoami", OL_SCOPE_NONE, whoami, "whoAmI", "What this token may do",
     .reply = "Identity", .takes_org = true},
    {0},
};
