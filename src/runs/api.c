/* api.c: the public outlog_run_*() functions. */
#include "runs/command.h"
#include "runs/snapshot.h"

#include <stdlib.h>
#include <string.h>

void outlog_json_clear(struct outlog_json *json)
{
    if (json->memory)
        ol_buf_clear(json->memory);
    free(json->memory);
    *json = (struct outlog_json){0};
}

/* The emptied buffer of a result; NULL when memory is out. */
static struct ol_buf *reset_result(struct outlog_json *json, outlog_err *err)
{
    if (!json->memory)
        json->memory = calloc(1, sizeof(struct ol_buf));
    else
        ol_buf_reset(json->memory);
    json->text = NULL;
    json->bytes = 0;
    json->is_replay = false;
    if (!json->memory)
        ol_no_memory(err);
    return json->memory;
}

static int finish_result(struct outlog_json *json, int result)
{
    const struct ol_buf *buf = json->memory;
    if (result == 0) {
        json->text = buf->data;
        json->bytes = buf->bytes;
    }
    return result;
}

int outlog_run_command(outlog_tx *tx, const struct outlog_run_call *call,
                       struct outlog_json *answer, outlog_err *err)
{
    struct ol_buf *buf = reset_result(answer, err);
    int verb = call->verb ? ol_run_verb(call->verb) : -1;
    if (!buf)
        return -1;
    if (verb < 0)
        return ol_fail(err, OUTLOG_MISUSE, "there is no command %.60s",
                       call->verb ? call->verb : "NULL");
    struct ol_run_call inner = {.verb = (enum ol_run_verb)verb,
                                .id = call->id,
                                .org_id = call->org_id,
                                .actor_type = call->actor_type,
                                .actor_id = call->actor_id,
                                .request_id = call->request_id,
                                .idempotency_key = call->idempotency_key,
                                .body = call->body,
                                .body_bytes = call->body ? strlen(call->body) : 0};
    return finish_result(answer, ol_run_command(tx, &inner, buf, &answer->is_replay, err));
}

int outlog_run_get(outlog *log, const char *run_id, struct outlog_json *out, outlog_err *err)
{
    struct ol_buf *buf = reset_result(out, err);
    return buf ? finish_result(out, ol_run_get(log, run_id, NULL, buf, err)) : -1;
}

int outlog_run_list(outlog *log, const char *status, const char *after, size_t limit,
                    struct outlog_json *out, outlog_err *err)
{
    struct ol_buf *buf = reset_result(out, err);
    return buf ? finish_result(out, ol_run_list(log, status, NULL, after, limit, buf, err)) : -1;
}

int outlog_run_resume(outlog *log, const char *run_id, struct outlog_json *out, outlog_err *err)
{
    struct ol_buf *buf = reset_result(out, err);
    return buf ? finish_result(out, ol_run_resume(log, run_id, NULL, buf, err)) : -1;
}

int outlog_run_replay(outlog *log, const char *run_id, struct outlog_json *out, outlog_err *err)
{
    struct ol_buf *buf = reset_result(out, err);
    return buf ? finish_result(out, ol_run_replay(log, run_id, NULL, buf, err)) : -1;
}

int outlog_run_verify(outlog *log, const char *run_id, struct outlog_json *out, outlog_err *err)
{
    struct ol_buf *buf = reset_result(out, err);
    return buf ? finish_result(out, ol_run_verify_json(log, run_id, NULL, buf, err)) : -1;
}
