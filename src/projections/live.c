/* live.c: applies events to the live tables, and starts a rebuild in place. */
#include "base/fault.h"
#include "log/position.h"
#include "projections/internal.h"
#include "telemetry/report.h"

#include <string.h>

/* --- the checkpoint is the position of the live tables --- */

static int begin_live(struct ol_applier *applier, outlog_err *err)
{
    return applier->conn->store->begin(applier->conn, err);
}

static int move_checkpoint(struct ol_applier *applier, int64_t from, int64_t to, bool *moved,
                           outlog_err *err)
{
    struct ol_projection_task *task = applier->context;
    int64_t changed;
    if (ol_store_exec(applier->conn, OL_Q_CHECKPOINT_MOVE,
                      OL_PARAMS(ol_value_text(task->row.shown.name), ol_value_int(task->epoch),
                                ol_value_int(from), ol_value_int(to),
                                ol_value_int(task->projector->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    *moved = changed > 0;
    return 0;
}

static const struct ol_position_store checkpoint_positions = {.begin = begin_live,
                                                              .move = move_checkpoint};

/* --- stopping --- */

static int stop_live(struct ol_projection_task *task, const struct ol_buf *error, outlog_err *err)
{
    int64_t changed;
    if (error->failed)
        return ol_no_memory(err);
    if (ol_store_exec(task->projector->conn, OL_Q_CHECKPOINT_STOP,
                      OL_PARAMS(ol_value_text(task->row.shown.name), ol_value_int(task->epoch),
                                ol_value_text(error->data)),
                      &changed, err) < 0)
        return -1;
    if (changed) {
        task->projector->stats->stops++;
        ol_report_projection(task->row.shown.name, "stopped", error->data);
    }
    task->projector->needs_poll = true;
    ol_live_close(task);
    return 0;
}

/* --- a rebuild in place --- */

static int check_tables(struct ol_conn *conn, const struct ol_projection *definition,
                        outlog_err *err)
{
    for (size_t i = 0; i < definition->table_count; i++) {
        bool is_there;
        if (conn->store->user_sql->has_table(conn, definition->tables[i], &is_there, err) < 0)
            return -1;
        if (!is_there)
            return ol_fail(err, OUTLOG_STORE_ERROR,
                           "`create` did not create the table %s in the worker's own schema",
                           definition->tables[i]);
    }
    return 0;
}

/* Inside a transaction: check the epoch, create and empty the tables. */
static int make_tables(struct ol_projection_task *task, const struct ol_projection *definition,
                       const char *source, bool *is_ours, outlog_err *err)
{
    struct ol_conn *conn = task->projector->conn;
    const struct ol_user_sql *user = conn->store->user_sql;
    const struct ol_user_swap tables = {.name = definition->name,
                                        .tables = definition->tables,
                                        .table_count = definition->table_count,
                                        .tables_json = definition->tables_json};
    int64_t changed;
    if (ol_store_exec(conn, OL_Q_CHECKPOINT_BEGIN,
                      OL_PARAMS(ol_value_text(task->row.shown.name), ol_value_int(task->epoch),
                                ol_value_text(task->row.rebuild_id),
                                ol_value_int(definition->version), ol_value_text(source),
                                ol_value_int(task->projector->settled)),
                      &changed, err) < 0)
        return -1;
    *is_ours = changed > 0;
    if (!*is_ours)
        return 0;
    if (task->row.shown.version == 0 && user->refuse_filled(conn, &tables, err) < 0)
        return -1;
    if (*definition->create && user->script(conn, definition->create, err) < 0)
        return -1;
    if (check_tables(conn, definition, err) < 0)
        return -1;
    return task->row.shown.version == 0 ? 0 : user->clear(conn, &tables, err);
}

static int restart_live(struct ol_projection_task *task, outlog_err *err)
{
    struct ol_conn *conn = task->projector->conn;
    struct ol_arena arena = {0};
    struct ol_buf error = {0};
    struct ol_projection definition = {0};
    struct ol_json value;
    const char *live, *declared;
    bool is_ours = false;
    outlog_err why;
    int result = -1;

    ol_live_close(task);
    if (ol_projection_task_definitions(task, &arena, &live, &declared, err) < 0)
        goto out;
    const char *source = declared ? declared : live;
    if (!source || ol_json_parse(source, strlen(source), &value, err) < 0 ||
        ol_projection_read(task->row.shown.name, &value, &arena, &definition, err) < 0 ||
        conn->store->begin(conn, err) < 0)
        goto out;
    if (make_tables(task, &definition, source, &is_ours, &why) < 0) {
        conn->store->rollback(conn);
        if (outlog_code_is_retryable(why.code)) {
            *err = why;
            goto out;
        }
        ol_checkpoint_error(NULL, definition.create, why.message, &error);
        result = stop_live(task, &error, err);
        goto out;
    }
    if (!is_ours) {
        conn->store->rollback(conn);
        ol_projection_task_lose(task);
        result = 0;
        goto out;
    }
    ol_fault("projection.begun");
    result = conn->store->commit(conn, err);
    task->projector->needs_poll = true;
out:
    ol_buf_clear(&error);
    ol_arena_clear(&arena);
    return result;
}

/* --- applying --- */

void ol_live_close(struct ol_projection_task *task)
{
    ol_applier_close(&task->live);
    task->live_version = 0;
}

static int open_live(struct ol_projection_task *task, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_buf stopped = {0};
    const char *live, *declared;
    int result = -1;

    task->live = (struct ol_applier){.conn = task->projector->conn,
                                     .positions = &checkpoint_positions,
                                     .context = task,
                                     .position = task->row.shown.last_applied_event_id};
    if (ol_projection_task_definitions(task, &arena, &live, &declared, err) < 0 || !live)
        goto out;
    result = ol_applier_open(&task->live, task->row.shown.name, live, &stopped, err);
    if (result == 0 && stopped.bytes)
        result = stop_live(task, &stopped, err);
    task->live_version = task->row.shown.version;
out:
    ol_buf_clear(&stopped);
    ol_arena_clear(&arena);
    return live ? result : 0;
}

/* R3: a position that this log never had would wait in silence until the log is as long. */
static int check_position(struct ol_projection_task *task, outlog_err *err)
{
    struct ol_buf error = {0};
    if (ol_position_check(task->projector->reader, NULL, task->live.position, err) == 0)
        return 0;
    if (err->code != OUTLOG_BEYOND_LOG)
        return -1;
    ol_checkpoint_error(NULL, NULL, err->message, &error);
    int result = stop_live(task, &error, err);
    ol_buf_clear(&error);
    return result;
}

int ol_live_advance(struct ol_projection_task *task, bool *moved, outlog_err *err)
{
    const struct outlog_projection *shown = &task->row.shown;
    struct ol_applier_step step;

    if (*shown->error)
        return 0;
    if (strcmp(shown->rebuild, "in_place") == 0 && !shown->rebuild_started_at) {
        *moved = true;
        return restart_live(task, err);
    }
    if (shown->version == 0)
        return 0;
    if ((!task->live.is_open || task->live_version != shown->version) && open_live(task, err) < 0)
        return -1;
    if (!task->live.is_open || task->live.position == task->projector->settled)
        return 0;
    if (task->live.position > task->projector->settled)
        return check_position(task, err);
    if (ol_applier_step(&task->live, task->projector->reader, &step, err) < 0)
        return -1;
    task->projector->stats->applied += (int64_t)step.applied;
    task->renewed_at = task->projector->now;
    *moved |= step.applied > 0;
    if (strcmp(shown->rebuild, "in_place") == 0)
        task->projector->needs_poll = true; // this step may have ended the rebuild
    if (step.is_lost) {
        task->projector->stats->fenced++;
        ol_projection_task_lose(task);
    }
    int result = step.is_stopped ? stop_live(task, &step.error, err) : 0;
    ol_buf_clear(&step.error);
    return result;
}
