/* tokens.c: /v1/tokens: list, create and revoke tokens. */
#include "server/http/router.h"

#include "auth/token.h"

#include <stdlib.h>

struct token_reply {
    struct ol_buf *out;
    size_t count;
};

static void on_token(void *user, const struct ol_token *token)
{
    struct token_reply *listing = user;
    ol_buf_text(listing->out, listing->count++ ? "," : "");
    ol_token_json(token, NULL, listing->out);
}

static enum ol_handler_result list_tokens(struct ol_request *request)
{
    struct token_reply listing = {.out = ol_request_reply(request, 200)};
    outlog_err err;

    ol_buf_text(listing.out, "{\"tokens\":[");
    if (ol_token_each(request->log, false, on_token, &listing, &err) < 0)
        return ol_problem(request, &err);
    ol_buf_text(listing.out, "],\"next_after\":null}");
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result create_token(struct ol_request *request)
{
    static const char *const allowed[] = {"scope", "org_id", "rate", NULL};
    struct outlog_operator by = ol_request_operator(request);
    const char *scope, *org_id;
    char secret[OL_TOKEN_TEXT];
    struct ol_token token;
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0 ||
        ol_request_text(request, &body, "scope", &scope) < 0 ||
        ol_request_text(request, &body, "org_id", &org_id) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_json rate = ol_json_get(&body, "rate");
    double value = rate.type == OL_JSON_NUMBER ? strtod(rate.text, NULL) : 0;
    if (rate.type > OL_JSON_NULL && (rate.type != OL_JSON_NUMBER || value <= 0 || value > 1e9))
        return ol_problem_say(request, 400, "invalid_field",
                              "rate is a number of requests per second");
    if (ol_token_create(request->log, scope ? scope : "", org_id, value, &by, &token, secret,
                        &err) < 0)
        return ol_problem(request, &err);
    ol_token_json(&token, secret, ol_request_reply(request, 201));
    ol_token_json(&token, NULL, &request->kept); // the stored answer must not hold the secret
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result revoke_token(struct ol_request *request)
{
    struct outlog_operator by = ol_request_operator(request);
    outlog_err err;
    if (ol_token_revoke(request->log, request->args[0], &by, &err) < 0)
        return ol_problem(request, &err);
    ol_request_reply(request, 204);
    request->content_type = NULL;
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_token_routes[] = {
    {"GET", "/v1/tokens", OL_SCOPE_ADMIN, list_tokens, "listTokens",
     "All tokens; never their secrets", .reply = "TokenList"},
    {"POST", "/v1/tokens", OL_SCOPE_ADMIN, create_token, "createToken",
     "Create a token; its secret is shown only here", .body = "TokenDraft", .reply = "Token",
     .status = 201},
    {"DELETE", "/v1/tokens/{id}", OL_SCOPE_ADMIN, revoke_token, "revokeToken",
     "Revoke a token; it stops working within seconds", .status = 204},
    {0},
};
