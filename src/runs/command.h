/* command.h: the commands of signals, runs, steps and tools (U1), for every interface: a verb, the
 * id of its target, the actor, and the contract's body.
 *
 * Verbs: receive_signal, start_run, checkpoint_run, complete_run, fail_run, cancel_run, start_step,
 * complete_step, fail_step, skip_step, retry_step, correct_step, call_tool, complete_tool,
 * fail_tool, request_effect. */
#ifndef OL_RUNS_COMMAND_H
#define OL_RUNS_COMMAND_H

#include "base/json/json.h"
#include "log/log.h"

enum ol_run_verb {
    OL_RECEIVE_SIGNAL,
    OL_START_RUN,
    OL_CHECKPOINT_RUN,
    OL_COMPLETE_RUN,
    OL_FAIL_RUN,
    OL_CANCEL_RUN,
    OL_START_STEP,
    OL_COMPLETE_STEP,
    OL_FAIL_STEP,
    OL_SKIP_STEP,
    OL_RETRY_STEP,
    OL_CORRECT_STEP,
    OL_CALL_TOOL,
    OL_COMPLETE_TOOL,
    OL_FAIL_TOOL,
    OL_REQUEST_EFFECT,
    OL_RUN_VERB_COUNT
};

/* The verb of this name, or -1. */
int ol_run_verb(const char *name);

/* The member that names the verb's target ("run_id", "step_id", "tool_call_id"), or NULL. */
const char *ol_run_verb_target(enum ol_run_verb verb);

struct ol_run_call {
    enum ol_run_verb verb;
    const char *id;     /* of the target run, step or tool call; NULL for a verb that creates one */
    const char *org_id; /* the only org the caller may use; NULL: every org */
    const char *actor_type, *actor_id, *request_id; /* NULL: the defaults of outlog_append() */
    const char *idempotency_key;                    /* of the command; NULL: it may be repeated */
    const char *traceparent;                        /* of its events and messages, or NULL */
    const char *body;                               /* a JSON object; NULL: {} */
    size_t body_bytes;
};

/* Execute the call inside the open transaction. `answer` gets the changed row as JSON. *replayed
 * (may be NULL) is set when the key was used before and the answer is that of the first call.
 * outlog_run_command() documents each error, and in which state it leaves the transaction. */
int ol_run_command(outlog_tx *tx, const struct ol_run_call *call, struct ol_buf *answer,
                   bool *replayed, outlog_err *err);

/* Read a call from one flat JSON object, the argument of the SQLite functions: {step_id,
 * output_result, actor_id, idempotency_key, …}. `name` may also be end_run or end_tool, which take
 * a status. The call lives in `arena`. */
int ol_run_call_read(const char *name, const char *text, size_t bytes, struct ol_arena *arena,
                     struct ol_run_call *out, outlog_err *err);

#endif
