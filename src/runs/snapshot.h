/* snapshot.h: everything there is of one run: as the tables hold it, or as its events come to. */
#ifndef OL_RUNS_SNAPSHOT_H
#define OL_RUNS_SNAPSHOT_H

#include "runs/row.h"

struct ol_run_snapshot {
    struct ol_arena arena; /* all of it */
    struct ol_row_list signals, runs, steps, effects, checkpoints;
};

/* Forget everything, keep the memory for the next one. */
void ol_run_snapshot_reset(struct ol_run_snapshot *story);
void ol_run_snapshot_clear(struct ol_run_snapshot *story);

/* What the tables hold of a run, of a signal. Nothing there is no error: the lists stay empty. */
int ol_run_snapshot_load_run(struct ol_conn *conn, const char *run_id,
                             struct ol_run_snapshot *story, outlog_err *err);
int ol_run_snapshot_load_signal(struct ol_conn *conn, const char *signal_id,
                                struct ol_run_snapshot *story, outlog_err *err);

/* Whose run it is: its first event says, or the row where the log knows nothing of it.
 * OUTLOG_NOT_FOUND when there is neither, or when it is not of `org_id` (NULL: every org). */
int ol_run_snapshot_owner(outlog *log, const char *run_id, const char *org_id,
                          struct ol_arena *arena, const char **owner, outlog_err *err);

/* What the events come to (U3), for a run and for a signal of this org ("" for none). */
int ol_replay_run(outlog *log, const char *run_id, const char *org_key,
                  struct ol_run_snapshot *story, outlog_err *err);
int ol_replay_signal(outlog *log, const char *signal_id, const char *org_key,
                     struct ol_run_snapshot *story, outlog_err *err);

/* --- as JSON, for every door; each in one consistent read --- */

/* GET /v1/runs/{id}: the run with its steps, effects and checkpoints. `org_id` as in ol_run_call.
 * OUTLOG_NOT_FOUND when there is none. */
int ol_run_get(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
               outlog_err *err);

/* GET /v1/signals/{id}; the rest as above. */
int ol_run_get_signal(outlog *log, const char *signal_id, const char *org_id, struct ol_buf *out,
                      outlog_err *err);

/* A run as objects, with its signal and, in `page`, its first events (10000 at most). */
int ol_run_read_json(outlog *log, const char *run_id, struct ol_run_snapshot *story,
                     struct outlog_page *page, outlog_err *err);

/* GET /v1/runs: {runs, next_after}, the newest first. `status`, `org_id` and `after` may be NULL.
 */
int ol_run_list(outlog *log, const char *status, const char *org_id, const char *after,
                size_t limit, struct ol_buf *out, outlog_err *err);

/* {run, checkpoint, events}: the latest checkpoint, or null, and the events after it (U4). */
int ol_run_resume(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                  outlog_err *err);

/* {run, steps, effects, checkpoints} from events alone. OUTLOG_NOT_FOUND: no event names the run.
 */
int ol_run_replay(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                  outlog_err *err);

/* --- verify --- */

/* Called for each difference; id and the JSON texts are only lent. `field` is "row" where one side
 * has the row and the other has not. */
typedef void ol_difference_function(void *user, const char *table, const char *id,
                                    const char *field, const char *stored, const char *replayed);

/* Compare a run (or, for a signal, that signal) as stored with its events. *differences tells how
 * many there are. */
int ol_run_verify(outlog *log, const char *run_id, const char *org_id, ol_difference_function *tell,
                  void *user, int64_t *differences, outlog_err *err);

/* The same as JSON: {matches, differences: [{table, id, field, stored, replayed}]}. */
int ol_run_verify_json(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                       outlog_err *err);

struct ol_verify {
    int64_t
        after;    /* start behind this event_id; moves on, so that the work can be taken up again */
    int64_t upto; /* filled in at the start: what was settled then */
    int64_t runs, signals, differences;
    ol_difference_function *tell;
    void *user;
};

/* Compare the next `limit` signals and runs, in the order in which they began. Returns how many, 0
 * when all are done. Rows that the log knows nothing of are told at the end. */
int ol_verify_next(outlog *log, struct ol_verify *verify, int limit, outlog_err *err);
int ol_verify_strays(outlog *log, struct ol_verify *verify, outlog_err *err);

#endif
