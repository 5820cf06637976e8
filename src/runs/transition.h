/* transition.h: a command's move, for stores that cannot do it themselves. */
#ifndef OL_RUNS_TRANSITION_H
#define OL_RUNS_TRANSITION_H

#include "runs/command.h"
#include "runs/row.h"

/* A command on its way. Everything it makes lives in `arena`. */
struct ol_transition {
    enum ol_run_verb verb;
    const char *verb_name, *id;
    const char *actor_type, *actor_id, *request_id, *traceparent;
    struct ol_json body;
    struct ol_arena *arena;
    /* found by ol_transition_find() */
    const char *org_id;
    struct ol_row_list list; /* the run, then the step, where the verb is about one */
    struct ol_row *run, *step;
    char started_event_id[OL_UUID_TEXT];  /* RUN_STARTED */
    char last_event_id[OL_UUID_TEXT];     /* of the run */
    char step_event_id[OL_UUID_TEXT];     /* the event that set the step */
    const char *tool_step_id, *tool_name; /* what TOOL_CALLED said */
};

/* Find what the command is about. OUTLOG_NOT_FOUND: it does not exist, or not in `org_id`. */
int ol_transition_find(outlog_tx *tx, struct ol_transition *move, const char *org_id,
                       outlog_err *err);

/* Check that the move is legal, append its events, move the rows, and answer with the object. */
int ol_transition_apply(outlog_tx *tx, struct ol_transition *move, struct ol_buf *answer,
                        outlog_err *err);

#endif
