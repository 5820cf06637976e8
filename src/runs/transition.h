/* transition.h: executes the commands of runs, for stores that have no functions for it. */
#ifndef OL_RUNS_TRANSITION_H
#define OL_RUNS_TRANSITION_H

#include "runs/command.h"
#include "runs/row.h"

/* A command that is being executed. Everything it allocates is in `arena`. */
struct ol_transition {
    enum ol_run_verb verb;
    const char *verb_name, *id;
    const char *actor_type, *actor_id, *request_id, *traceparent;
    struct ol_json body;
    struct ol_arena *arena;
    /* set by ol_transition_find() */
    const char *org_id;
    struct ol_row_list list; /* the run, then the step where the target is one */
    struct ol_row *run, *step;
    char started_event_id[OL_UUID_TEXT];  /* RUN_STARTED */
    char last_event_id[OL_UUID_TEXT];     /* of the run */
    char step_event_id[OL_UUID_TEXT];     /* the step's newest event */
    const char *tool_step_id, *tool_name; /* from the event TOOL_CALLED */
};

/* Load the target of the command. OUTLOG_NOT_FOUND: it does not exist, or not in `org_id`. */
int ol_transition_find(outlog_tx *tx, struct ol_transition *transition, const char *org_id,
                       outlog_err *err);

/* Check that the transition is legal, append its events, update the rows, and write the changed row
 * to `answer`. OUTLOG_ILLEGAL_TRANSITION: the target is in another state; nothing was written. */
int ol_transition_apply(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *answer,
                        outlog_err *err);

#endif
