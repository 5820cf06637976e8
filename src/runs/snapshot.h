/* snapshot.h: all rows of one run, read from the tables or replayed from its events. */
#ifndef OL_RUNS_SNAPSHOT_H
#define OL_RUNS_SNAPSHOT_H

#include "runs/row.h"

struct ol_run_snapshot {
    struct ol_arena arena; /* holds every row below */
    struct ol_row_list signals, runs, steps, effects, checkpoints;
};

/* Empty it: reset keeps the memory for the next one, clear frees it. */
void ol_run_snapshot_reset(struct ol_run_snapshot *snapshot);
void ol_run_snapshot_clear(struct ol_run_snapshot *snapshot);

/* Load a run, a signal, or an effect that is of no run, from the tables. No row is no error: the
 * lists stay empty. */
int ol_run_snapshot_load_run(struct ol_conn *conn, const char *run_id,
                             struct ol_run_snapshot *snapshot, outlog_err *err);
int ol_run_snapshot_load_signal(struct ol_conn *conn, const char *signal_id,
                                struct ol_run_snapshot *snapshot, outlog_err *err);
int ol_run_snapshot_load_effect(struct ol_conn *conn, const char *effect_id,
                                struct ol_run_snapshot *snapshot, outlog_err *err);

/* The org that a run belongs to: from its first event, or from its row when it has no event.
 * OUTLOG_NOT_FOUND when there is neither, or when it is not of `org_id` (NULL: every org). */
int ol_run_read_org(outlog *log, const char *run_id, const char *org_id, struct ol_arena *arena,
                    const char **org, outlog_err *err);

/* Replay the events (U3) of a run, of a signal, of an effect, of this org ("" for none) into the
 * snapshot. */
int ol_replay_run(outlog *log, const char *run_id, const char *org_key,
                  struct ol_run_snapshot *snapshot, outlog_err *err);
int ol_replay_signal(outlog *log, const char *signal_id, const char *org_key,
                     struct ol_run_snapshot *snapshot, outlog_err *err);
int ol_replay_effect(outlog *log, const char *effect_id, const char *org_key,
                     struct ol_run_snapshot *snapshot, outlog_err *err);

/* --- as JSON, for every interface; each in one consistent read --- */

/* GET /v1/runs/{id}: the run with its steps, effects and checkpoints. `org_id` as in ol_run_call.
 * OUTLOG_NOT_FOUND when there is none. */
int ol_run_get(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
               outlog_err *err);

/* GET /v1/signals/{id}; the rest as above. */
int ol_run_get_signal(outlog *log, const char *signal_id, const char *org_id, struct ol_buf *out,
                      outlog_err *err);

/* A run as rows, with its signal and, in `page`, its first events (10000 at most). */
int ol_run_snapshot_load_all(outlog *log, const char *run_id, struct ol_run_snapshot *snapshot,
                             struct outlog_page *page, outlog_err *err);

/* GET /v1/runs: {runs, next_after}, newest first. `status`, `org_id` and `after` may be NULL. */
int ol_run_list(outlog *log, const char *status, const char *org_id, const char *after,
                size_t limit, struct ol_buf *out, outlog_err *err);

/* {run, checkpoint, events}: the latest checkpoint, or null, and the events after it (U4). */
int ol_run_resume(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                  outlog_err *err);

/* {run, steps, effects, checkpoints} from events alone. OUTLOG_NOT_FOUND: the run has no event. */
int ol_run_replay(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                  outlog_err *err);

/* --- verify --- */

/* Called for each difference; the texts are valid during the call. `column` is "row" where only one
 * side has the row. */
typedef void ol_difference_function(void *user, const char *table, const char *id,
                                    const char *column, const char *stored, const char *replayed);

/* Compare a run and its signal as stored with their events. *differences is set to the number of
 * differences. */
int ol_run_verify(outlog *log, const char *run_id, const char *org_id,
                  ol_difference_function *on_difference, void *user, int64_t *differences,
                  outlog_err *err);

/* The same as JSON: {matches, differences: [{table, id, column, stored, replayed}]}. */
int ol_run_verify_json(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                       outlog_err *err);

struct ol_verify {
    int64_t after; /* start behind this event_id; advances, so that verify can be resumed */
    int64_t upto;  /* filled in at the start: what was settled then */
    int64_t runs, signals, steps, effects, checkpoints; /* rows that were compared */
    int64_t differences;
    ol_difference_function *on_difference;
    void *user;
};

/* Compare the next `limit` signals, runs and effects of no run, in the order of their first events.
 * Returns how many, 0 when all are done. */
int ol_verify_next(outlog *log, struct ol_verify *verify, int limit, outlog_err *err);

/* Report each row whose run or signal has no event. */
int ol_verify_orphans(outlog *log, struct ol_verify *verify, outlog_err *err);

#endif
