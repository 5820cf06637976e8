/* idempotency_key.c: reads the key of a request, and stores and replays the answers under it. */
#include "server/http/idempotency_key.h"

#include "base/err.h"
#include "base/fault.h"
#include "log/log.h"
#include "server/http/router.h"

#include <string.h>

enum { IDEMPOTENCY_KEY_MAX = 512 };

int ol_idempotency_key_read(struct ol_request *request, const char **out)
{
    const char *given = ol_request_header(request, "idempotency-key");
    size_t bytes = given ? strlen(given) : 0;

    *out = NULL;
    if (!given)
        return 0;
    if (bytes >= 2 && given[0] == '"' && given[bytes - 1] == '"') { // the form of the IETF draft
        given++;
        bytes -= 2;
    }
    if (bytes == 0 || bytes > IDEMPOTENCY_KEY_MAX) {
        ol_problem_say(request, 400, "invalid_field", "Idempotency-Key has 1 to %d bytes",
                       IDEMPOTENCY_KEY_MAX);
        return -1;
    }
    *out = ol_arena_copy(&request->arena, given, bytes);
    return 0;
}

/* --- the call --- */

/* A key belongs to one path and one body: another call with the same key is refused. */
static int describe_call(struct ol_request *request, const char *key,
                         struct outlog_idempotency *out)
{
    struct ol_json body;
    struct ol_buf text = {0};

    if (ol_request_object(request, NULL, &body) < 0)
        return -1;
    struct ol_json org = ol_json_get(&body, "org_id");
    const char *given = ol_json_string(&org, &request->arena, NULL);
    ol_buf_text(&text, "{\"path\":");
    ol_buf_json_text(&text, request->path);
    ol_buf_text(&text, ",\"body\":");
    ol_buf_add(&text, body.text, body.bytes);
    ol_buf_char(&text, '}');
    *out = (struct outlog_idempotency){
        .org_id = request->who.org_id ? request->who.org_id : given,
        .actor_id = request->who.token_id[0] ? request->who.token_id : "system",
        .endpoint = request->route->name,
        .key = key,
        .request = text.failed ? NULL : ol_arena_copy(&request->arena, text.data, text.bytes),
    };
    ol_buf_clear(&text);
    if (!out->request)
        ol_problem_say(request, 503, "no_memory", "out of memory");
    return out->request ? 0 : -1;
}

/* --- the answer, stored as {"status":201,"body":…} --- */

static int store_answer(struct ol_request *request, outlog_tx *tx,
                        const struct outlog_idempotency *call, outlog_err *err)
{
    struct ol_buf text = {0};
    ol_buf_print(&text, "{\"status\":%d,\"body\":", request->status);
    if (request->kept.bytes)
        ol_buf_add(&text, request->kept.data, request->kept.bytes);
    else if (request->reply.bytes)
        ol_buf_add(&text, request->reply.data, request->reply.bytes);
    else
        ol_buf_text(&text, "null");
    ol_buf_char(&text, '}');
    int result = text.failed ? ol_no_memory(err) : outlog_idempotent_end(tx, call, text.data, err);
    ol_buf_clear(&text);
    return result;
}

static enum ol_handler_result replay_answer(struct ol_request *request, const char *stored)
{
    struct ol_json answer;
    int64_t status = 200;

    if (ol_json_parse_wrapped(stored, strlen(stored), &answer, NULL) < 0)
        return ol_problem_say(request, 500, "store_error", "the stored answer cannot be read");
    struct ol_json code = ol_json_get(&answer, "status"), body = ol_json_get(&answer, "body");
    ol_json_int(&code, &status);
    struct ol_buf *out = ol_request_reply(request, (int)status);
    if (body.type > OL_JSON_NULL)
        ol_buf_add(out, body.text, body.bytes);
    ol_request_add(request, "idempotency-replayed", "true");
    return OL_HANDLER_ANSWERED;
}

/* --- in one transaction --- */

static bool has_failed(const struct ol_request *request)
{
    return request->status >= 400;
}

/* A transaction in which the key is claimed. NULL after having answered: the call was executed
 * before, or it failed. */
static outlog_tx *begin_call(struct ol_request *request, const struct outlog_idempotency *call)
{
    const char *stored = NULL;
    outlog_tx *tx;
    outlog_err err;

    if (outlog_begin(request->log, &tx, &err) < 0) {
        ol_problem(request, &err);
        return NULL;
    }
    if (call && outlog_idempotent_begin(tx, call, &stored, &err) < 0)
        ol_problem(request, &err);
    else if (stored)
        replay_answer(request, stored);
    else
        return tx;
    outlog_rollback(tx);
    return NULL;
}

static enum ol_handler_result run_change(struct ol_request *request,
                                         const struct outlog_idempotency *call)
{
    outlog_tx *tx = begin_call(request, call);
    outlog_err err;

    if (!tx)
        return OL_HANDLER_ANSWERED;
    request->route->change(request, tx);
    if (has_failed(request) || (call && store_answer(request, tx, call, &err) < 0)) {
        outlog_rollback(tx);
        return has_failed(request) ? OL_HANDLER_ANSWERED : ol_problem(request, &err);
    }
    ol_fault("idempotency.done");
    return outlog_commit(tx, &err) < 0 ? ol_problem(request, &err) : OL_HANDLER_ANSWERED;
}

/* The handler's own transactions join ours, which also stores the answer. */
static enum ol_handler_result run_handler(struct ol_request *request,
                                          const struct outlog_idempotency *call)
{
    outlog_tx *tx = begin_call(request, call);
    outlog_err err;

    if (!tx)
        return OL_HANDLER_ANSWERED;
    tx->is_shared = true;
    enum ol_handler_result answer = request->route->handle(request);
    if (answer != OL_HANDLER_ANSWERED || has_failed(request) ||
        store_answer(request, tx, call, &err) < 0) {
        outlog_rollback(tx);
        return answer != OL_HANDLER_ANSWERED || has_failed(request) ? answer
                                                                    : ol_problem(request, &err);
    }
    ol_fault("idempotency.done");
    return outlog_commit(tx, &err) < 0 ? ol_problem(request, &err) : OL_HANDLER_ANSWERED;
}

/* --- in parts --- */

/* Claim the key in a transaction of its own. -1 after having answered. */
static int claim_key(struct ol_request *request, const struct outlog_idempotency *call)
{
    outlog_tx *tx = begin_call(request, call);
    outlog_err err;

    if (!tx)
        return -1;
    if (outlog_commit(tx, &err) == 0)
        return 0;
    ol_problem(request, &err);
    return -1;
}

/* The handler uses several transactions, or none. The key is claimed before it, so that a repeat
 * after a crash does not execute it again: the repeat gets an error that says so. */
static enum ol_handler_result run_in_parts(struct ol_request *request,
                                           const struct outlog_idempotency *call)
{
    outlog_tx *tx;
    outlog_err err;

    if (claim_key(request, call) < 0)
        return OL_HANDLER_ANSWERED;
    enum ol_handler_result answer = request->route->handle(request);
    ol_fault("idempotency.done");
    if (outlog_begin(request->log, &tx, &err) < 0)
        return answer; // executed, but the answer is not stored: a repeat gets an error
    int result = has_failed(request) ? ol_idempotency_forget(tx, call, &err)
                                     : store_answer(request, tx, call, &err);
    if (result < 0)
        outlog_rollback(tx);
    else
        outlog_commit(tx, &err);
    return answer;
}

enum ol_handler_result ol_idempotency_key_run(struct ol_request *request)
{
    const struct ol_route *route = request->route;
    struct outlog_idempotency call;
    const char *key = NULL;

    bool is_post = strcmp(request->method, "POST") == 0 && !route->has_own_key;
    if (is_post && ol_idempotency_key_read(request, &key) < 0)
        return OL_HANDLER_ANSWERED;
    if (key && describe_call(request, key, &call) < 0)
        return OL_HANDLER_ANSWERED;
    if (route->change)
        return run_change(request, key ? &call : NULL);
    if (!key)
        return route->handle(request);
    return route->goes_in_parts ? run_in_parts(request, &call) : run_handler(request, &call);
}
