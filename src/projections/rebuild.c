/* rebuild.c: fills shadow tables beside the live ones, and swaps them in when they caught up (P3).
 *
 * B1  Shadow tables belong to one request, by its rebuild_id; those of another one are dropped.
 * B2  Their position is stored beside them and moves with them, so a rebuild survives its worker.
 * B3  The swap happens only when the shadow tables are at least as far as the live ones: a reader
 *     who has seen an event in the live tables cannot miss it afterwards.
 * B4  And only when every transaction has ended that was open when the rebuild caught up: its
 *     snapshot would show the new tables half filled. Until then both are filled. */
#include "base/fault.h"
#include "projections/internal.h"
#include "telemetry/report.h"

#include <stdlib.h>
#include <string.h>

enum { REBUILD_PROGRESS_US = 300000 };

/* --- the position is stored beside the shadow tables --- */

static int begin_shadow(struct ol_applier *applier, outlog_err *err)
{
    return applier->conn->store->user_sql->shadow_begin(applier->conn, err);
}

static int move_shadow(struct ol_applier *applier, int64_t from, int64_t to, bool *moved,
                       outlog_err *err)
{
    int64_t changed;
    if (ol_store_exec(applier->conn, OL_Q_SHADOW_MOVE,
                      OL_PARAMS(ol_value_int(from), ol_value_int(to)), &changed, err) < 0)
        return -1;
    *moved = changed > 0;
    return 0;
}

static const struct ol_position_store shadow_positions = {.begin = begin_shadow,
                                                          .move = move_shadow};

/* --- life --- */

void ol_rebuild_close(struct ol_projection_task *task)
{
    ol_applier_close(&task->shadow);
    task->shadow = (struct ol_applier){0};
    ol_store_close(task->shadow_conn);
    task->shadow_conn = NULL;
    task->shadow_rebuild_id[0] = '\0';
    free(task->older_transactions);
    task->older_transactions = NULL;
    ol_arena_clear(&task->shadow_arena);
}

/* Stop the rebuild; the live tables continue. */
static int stop_rebuild(struct ol_projection_task *task, const struct ol_buf *error,
                        outlog_err *err)
{
    int64_t changed;
    if (error->failed)
        return ol_no_memory(err);
    if (ol_store_exec(task->projector->conn, OL_Q_CHECKPOINT_STOP_REBUILD,
                      OL_PARAMS(ol_value_text(task->row.shown.name), ol_value_int(task->epoch),
                                ol_value_text(task->row.rebuild_id), ol_value_text(error->data)),
                      &changed, err) < 0)
        return -1;
    if (changed) {
        task->projector->stats->stops++;
        ol_report_projection(task->row.shown.name, "rebuild stopped", error->data);
    }
    ol_rebuild_close(task);
    task->projector->needs_poll = true;
    return 0;
}

static int stop_for_error(struct ol_projection_task *task, const char *statement,
                          const outlog_err *why, outlog_err *err)
{
    struct ol_buf error = {0};
    if (outlog_code_is_retryable(why->code)) {
        *err = *why;
        return -1;
    }
    ol_checkpoint_error(NULL, statement, why->message, &error);
    int result = stop_rebuild(task, &error, err);
    ol_buf_clear(&error);
    return result;
}

/* Whether the shadow tables that exist are of this request, and their position. */
static bool is_our_shadow(struct ol_projection_task *task, int64_t *event_id)
{
    struct ol_rows rows;
    outlog_err ignored; // they do not exist yet
    bool found = false;
    if (ol_store_query(task->shadow_conn, OL_Q_SHADOW_GET, OL_NO_PARAMS, &rows, &ignored) < 0)
        return false;
    if (ol_rows_next(&rows, &ignored) > 0) {
        found = strcmp(ol_rows_text(&rows, 0, NULL), task->row.rebuild_id) == 0;
        if (found)
            *event_id = ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
    return found;
}

/* Fail when `create` made something that the swap cannot move. */
static int check_unlisted(struct ol_conn *conn, const struct ol_projection *definition,
                          outlog_err *err)
{
    struct ol_rows rows;
    int result = 0;
    if (ol_store_query(conn, OL_Q_SHADOW_UNLISTED,
                       OL_PARAMS(ol_value_text(definition->tables_json)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0 && !ol_rows_is_null(&rows, 0))
        result =
            ol_fail(err, OUTLOG_STORE_ERROR,
                    "`create` makes %.100s beside the tables, which cannot be built aside; list "
                    "it if it is a table, or rebuild in place",
                    ol_rows_text(&rows, 0, NULL));
    ol_rows_end(&rows);
    return got < 0 ? -1 : result;
}

static int make_tables(struct ol_projection_task *task, const struct ol_projection *definition,
                       outlog_err *err)
{
    struct ol_conn *conn = task->shadow_conn;
    const struct ol_user_sql *user = conn->store->user_sql;
    if (ol_store_exec(conn, OL_Q_SHADOW_CREATE, OL_NO_PARAMS, NULL, err) < 0 ||
        ol_store_exec(conn, OL_Q_SHADOW_BEGIN, OL_PARAMS(ol_value_text(task->row.rebuild_id)), NULL,
                      err) < 0 ||
        (*definition->create && user->script(conn, definition->create, err) < 0))
        return -1;
    for (size_t i = 0; i < definition->table_count; i++) {
        bool is_there;
        if (user->has_table(conn, definition->tables[i], &is_there, err) < 0)
            return -1;
        if (!is_there)
            return ol_fail(err, OUTLOG_STORE_ERROR,
                           "`create` did not make the table %s beside the live one; write its name "
                           "without a schema",
                           definition->tables[i]);
    }
    return check_unlisted(conn, definition, err);
}

/* Drop earlier shadow tables and create empty ones. */
static int create_shadow(struct ol_projection_task *task, const struct ol_projection *definition,
                         outlog_err *err)
{
    struct ol_projector *projector = task->projector;
    const struct ol_user_sql *user = projector->conn->store->user_sql;
    ol_store_close(task->shadow_conn);
    task->shadow_conn = NULL;
    if (user->shadow_drop(projector->conn, definition->name, err) < 0 ||
        user->shadow_open(projector->options->store, definition->name, &task->shadow_conn, err) <
            0 ||
        user->shadow_begin(task->shadow_conn, err) < 0)
        return -1;
    if (make_tables(task, definition, err) < 0) {
        task->shadow_conn->store->rollback(task->shadow_conn);
        return -1;
    }
    return task->shadow_conn->store->commit(task->shadow_conn, err);
}

static int open_shadow(struct ol_projection_task *task, outlog_err *err)
{
    struct ol_projector *projector = task->projector;
    struct ol_buf stopped = {0};
    struct ol_projection definition = {0};
    struct ol_json value;
    const char *live;
    int64_t event_id = 0;
    outlog_err why;
    int result = -1;

    ol_rebuild_close(task);
    if (ol_projection_task_definitions(task, &task->shadow_arena, &live, &task->shadow_definition,
                                       err) < 0)
        return -1;
    if (!task->shadow_definition)
        task->shadow_definition = live;
    if (ol_json_parse(task->shadow_definition, strlen(task->shadow_definition), &value, err) < 0 ||
        ol_projection_read(task->row.shown.name, &value, &task->shadow_arena, &definition, err) < 0)
        return -1;
    if (projector->conn->store->user_sql->shadow_open(projector->options->store, definition.name,
                                                      &task->shadow_conn, &why) < 0)
        return stop_for_error(task, NULL, &why, err);
    if (!is_our_shadow(task, &event_id) && create_shadow(task, &definition, &why) < 0)
        return stop_for_error(task, definition.create, &why, err);
    if (ol_store_limit_hang(task->shadow_conn, OL_Q_PROJECTOR_SESSION,
                            projector->options->lease_us / 3000, err) < 0)
        return -1;
    task->shadow = (struct ol_applier){.conn = task->shadow_conn,
                                       .positions = &shadow_positions,
                                       .context = task,
                                       .position = event_id};
    result =
        ol_applier_open(&task->shadow, definition.name, task->shadow_definition, &stopped, err);
    if (result == 0 && stopped.bytes)
        result = stop_rebuild(task, &stopped, err);
    else if (result == 0)
        memcpy(task->shadow_rebuild_id, task->row.rebuild_id, sizeof task->shadow_rebuild_id);
    ol_buf_clear(&stopped);
    return result;
}

/* --- the swap --- */

static int record_swap(void *context, struct ol_conn *conn, outlog_err *err)
{
    struct ol_projection_task *task = context;
    int64_t changed;
    if (ol_store_exec(conn, OL_Q_CHECKPOINT_SWAP,
                      OL_PARAMS(ol_value_text(task->row.shown.name), ol_value_int(task->epoch),
                                ol_value_text(task->shadow_rebuild_id),
                                ol_value_int(task->shadow.definition.version),
                                ol_value_text(task->shadow_definition),
                                ol_value_int(task->shadow.position)),
                      &changed, err) < 0)
        return -1;
    return changed ? 0
                   : ol_fail(err, OUTLOG_UNAVAILABLE,
                             "the projection was moved, or has another owner now");
}

static int swap_tables(struct ol_projection_task *task, outlog_err *err)
{
    struct ol_projector *projector = task->projector;
    const struct ol_projection *definition = &task->shadow.definition;
    const struct ol_user_swap tables = {.name = definition->name,
                                        .tables = definition->tables,
                                        .table_count = definition->table_count,
                                        .tables_json = definition->tables_json,
                                        .create = definition->create,
                                        .event_id = task->shadow.position,
                                        .record = record_swap,
                                        .context = task};
    outlog_err why;

    ol_fault("projection.swap");
    ol_live_close(task); // its prepared statements hold the old tables
    projector->needs_poll = true;
    if (projector->conn->store->user_sql->shadow_swap(projector->conn, &tables, &why) < 0)
        return stop_for_error(task, NULL, &why, err);
    ol_fault("projection.swapped");
    projector->stats->swaps++;
    ol_report_projection(definition->name, "swapped", NULL);
    ol_rebuild_close(task);
    return 0;
}

/* Whether B3 and B4 hold. */
static int may_swap(struct ol_projection_task *task, bool *out, outlog_err *err)
{
    struct ol_conn *conn = task->projector->conn;
    struct ol_rows rows;
    int64_t left;
    *out = false;
    if (task->shadow.position < task->row.shown.last_applied_event_id ||
        task->shadow.position < task->live.position)
        return 0; // B3
    if (!task->older_transactions) {
        if (ol_store_query(conn, OL_Q_TRANSACTIONS_OPEN, OL_NO_PARAMS, &rows, err) < 0)
            return -1;
        if (ol_rows_next(&rows, err) > 0)
            task->older_transactions = strdup(ol_rows_text(&rows, 0, NULL));
        ol_rows_end(&rows);
        if (!task->older_transactions)
            return ol_no_memory(err);
    }
    if (ol_store_number(conn, OL_Q_TRANSACTIONS_LEFT,
                        OL_PARAMS(ol_value_text(task->older_transactions)), &left, err) < 0)
        return -1;
    *out = left == 0;
    return 0;
}

/* --- applying --- */

static int write_progress(struct ol_projection_task *task, outlog_err *err)
{
    struct ol_projector *projector = task->projector;
    int64_t changed;
    if (task->progress_at && projector->now - task->progress_at < REBUILD_PROGRESS_US)
        return 0;
    task->progress_at = projector->now;
    if (ol_store_exec(projector->conn, OL_Q_CHECKPOINT_PROGRESS,
                      OL_PARAMS(ol_value_text(task->row.shown.name), ol_value_int(task->epoch),
                                ol_value_text(task->shadow_rebuild_id),
                                ol_value_int(task->shadow.position),
                                ol_value_int(projector->settled),
                                ol_value_int(projector->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    if (!changed)
        ol_projection_task_lose(task);
    return 0;
}

int ol_rebuild_advance(struct ol_projection_task *task, bool *moved, outlog_err *err)
{
    const struct outlog_projection *shown = &task->row.shown;
    struct ol_applier_step step;
    bool is_ready;

    if (strcmp(shown->rebuild, "aside") != 0 || *shown->rebuild_error)
        return 0;
    if (strcmp(task->shadow_rebuild_id, task->row.rebuild_id) != 0) {
        *moved = true;
        task->progress_at = 0;
        if (open_shadow(task, err) < 0)
            return -1;
    }
    if (!task->shadow.is_open)
        return 0;
    if (ol_applier_step(&task->shadow, task->projector->reader, &step, err) < 0)
        return -1;
    *moved |= step.applied > 0;
    task->projector->stats->applied += (int64_t)step.applied;
    if (step.is_lost) // another worker continues it
        ol_projection_task_lose(task);
    int result = step.is_stopped ? stop_rebuild(task, &step.error, err) : 0;
    ol_buf_clear(&step.error);
    if (result < 0 || !task->shadow.is_open || write_progress(task, err) < 0 ||
        !task->shadow.is_open)
        return result;
    if (!step.is_at_end)
        return 0;
    if (may_swap(task, &is_ready, err) < 0)
        return -1;
    if (!is_ready)
        return 0;
    *moved = true;
    return swap_tables(task, err);
}
