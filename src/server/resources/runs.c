/* runs.c: signals, runs, steps, tools and effects of runs: one path per verb of runs/command.h. */
#include "server/http/idempotency_key.h"
#include "server/http/request_span.h"
#include "server/http/router.h"

#include "runs/command.h"
#include "runs/snapshot.h"

static enum ol_handler_result run_command(struct ol_request *request, outlog_tx *tx)
{
    struct outlog_operator by = ol_request_operator(request);
    struct ol_run_call call = {
        .verb = (enum ol_run_verb)request->route->tag,
        .id = request->args[0],
        .org_id = request->who.org_id,
        .actor_type = by.actor_type,
        .actor_id = by.actor_id,
        .request_id = by.request_id,
        .body = request->body.bytes ? request->body.data : "{}",
        .body_bytes = request->body.bytes ? request->body.bytes : 2,
    };
    bool is_replayed = false;
    const char *given, *org_id;
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, NULL, &body) < 0 ||
        (!call.id && (ol_request_text(request, &body, "org_id", &given) < 0 ||
                      ol_request_org(request, given, &org_id) < 0)))
        return OL_HANDLER_ANSWERED;
    if (ol_idempotency_key_read(request, &call.idempotency_key) < 0)
        return OL_HANDLER_ANSWERED;
    call.traceparent = ol_request_span_traceparent(request, NULL);
    struct ol_buf *out = ol_request_reply(request, request->route->status);
    if (ol_run_command(tx, &call, out, &is_replayed, &err) < 0)
        return ol_problem(request, &err);
    if (is_replayed)
        ol_request_add(request, "idempotency-replayed", "true");
    return OL_HANDLER_ANSWERED;
}

typedef int run_resource_reader(outlog *log, const char *run_id, const char *org_id,
                                struct ol_buf *out, outlog_err *err);

static enum ol_handler_result answer_json(struct ol_request *request, run_resource_reader *reader)
{
    outlog_err err;
    struct ol_buf *out = ol_request_reply(request, 200);
    return reader(request->log, request->args[0], request->who.org_id, out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

static enum ol_handler_result get_signal(struct ol_request *request)
{
    return answer_json(request, ol_run_get_signal);
}

static enum ol_handler_result get_run(struct ol_request *request)
{
    return answer_json(request, ol_run_get);
}

static enum ol_handler_result resume_run(struct ol_request *request)
{
    return answer_json(request, ol_run_resume);
}

static enum ol_handler_result replay_run(struct ol_request *request)
{
    return answer_json(request, ol_run_replay);
}

static enum ol_handler_result verify_run(struct ol_request *request)
{
    return answer_json(request, ol_run_verify_json);
}

static enum ol_handler_result list_runs(struct ol_request *request)
{
    int64_t limit;
    outlog_err err;
    const char *org_id;

    if (ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0 ||
        ol_request_org(request, ol_request_param(request, "org_id"), &org_id) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_buf *out = ol_request_reply(request, 200);
    return ol_run_list(request->log, ol_request_param(request, "status"), org_id,
                       ol_request_param(request, "after"), (size_t)limit, out, &err) < 0
               ? ol_problem(request, &err)
               : OL_HANDLER_ANSWERED;
}

#define COMMAND(path_, verb, name_, summary_, body_, reply_, status_)                     \
    {                                                                                     \
        "POST", (path_), OL_SCOPE_APPEND, NULL, (name_), (summary_),                      \
            .body = (body_), .reply = (reply_), .status = (status_), .has_own_key = true, \
            .takes_org = true, .change = run_command, .tag = (verb)                       \
    }

const struct ol_route ol_run_routes[] = {
    COMMAND("/v1/signals", OL_RECEIVE_SIGNAL, "receiveSignal", "Receive a signal", "SignalDraft",
            "Signal", 201),
    {"GET", "/v1/signals/{id}", OL_SCOPE_READ, get_signal, "getSignal", "A signal and its status",
     .reply = "Signal", .takes_org = true},
    COMMAND("/v1/runs", OL_START_RUN, "startRun", "Start a run", "RunDraft", "Run", 201),
    {"GET", "/v1/runs", OL_SCOPE_READ, list_runs, "listRuns", "Runs, newest first",
     .query = "status org_id after limit", .reply = "RunList", .takes_org = true},
    {"GET", "/v1/runs/{id}", OL_SCOPE_READ, get_run, "getRun",
     "A run with its steps, effects and checkpoints", .reply = "RunStory", .takes_org = true},
    {"GET", "/v1/runs/{id}/replay", OL_SCOPE_READ, replay_run, "replayRun",
     "The run rebuilt from its events alone", .reply = "RunReplay", .takes_org = true},
    {"GET", "/v1/runs/{id}/verify", OL_SCOPE_READ, verify_run, "verifyRun",
     "Compare the stored run with its events", .reply = "RunVerdict", .takes_org = true},
    {"POST", "/v1/runs/{id}/resume", OL_SCOPE_APPEND, resume_run, "resumeRun",
     "The latest checkpoint and the events after it", .reply = "RunResume", .has_own_key = true,
     .takes_org = true},
    COMMAND("/v1/runs/{id}/checkpoint", OL_CHECKPOINT_RUN, "checkpointRun", "Store a checkpoint",
            "CheckpointDraft", "Checkpoint", 201),
    COMMAND("/v1/runs/{id}/complete", OL_COMPLETE_RUN, "completeRun", "Complete a run", "Empty",
            "Run", 200),
    COMMAND("/v1/runs/{id}/fail", OL_FAIL_RUN, "failRun", "Fail a run", "Failure", "Run", 200),
    COMMAND("/v1/runs/{id}/cancel", OL_CANCEL_RUN, "cancelRun", "Cancel a run", "Reason", "Run",
            200),
    COMMAND("/v1/runs/{id}/steps", OL_START_STEP, "startStep", "Start a step of a run", "StepDraft",
            "Step", 201),
    COMMAND("/v1/runs/{id}/effects", OL_REQUEST_EFFECT, "requestEffect", "Request an effect",
            "EffectDraft", "EffectRequested", 201),
    COMMAND("/v1/steps/{id}/complete", OL_COMPLETE_STEP, "completeStep", "Complete a step",
            "StepResult", "Step", 200),
    COMMAND("/v1/steps/{id}/fail", OL_FAIL_STEP, "failStep", "Fail a step", "Failure", "Step", 200),
    COMMAND("/v1/steps/{id}/skip", OL_SKIP_STEP, "skipStep", "Skip a step", "Reason", "Step", 200),
    COMMAND("/v1/steps/{id}/retry", OL_RETRY_STEP, "retryStep", "Run a failed step again", "Empty",
            "Step", 200),
    COMMAND("/v1/steps/{id}/correct", OL_CORRECT_STEP, "correctStep", "Correct a step's result",
            "StepCorrection", "Step", 200),
    COMMAND("/v1/steps/{id}/tools", OL_CALL_TOOL, "callTool", "Call a tool in a step", "ToolDraft",
            "ToolCall", 201),
    COMMAND("/v1/tools/{id}/complete", OL_COMPLETE_TOOL, "completeTool", "A tool's result",
            "ToolResult", "ToolCall", 200),
    COMMAND("/v1/tools/{id}/fail", OL_FAIL_TOOL, "failTool", "A tool has failed", "Failure",
            "ToolCall", 200),
    {0},
};
