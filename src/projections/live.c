/* live.c: filling the tables that people read. */
#include "base/fault.h"
#include "projections/internal.h"
#include "telemetry/report.h"

#include <string.h>

/* --- the position of the live tables is the checkpoint --- */

static int begin(struct ol_applier *track, outlog_err *err)
{
    return track->conn->store->begin(track->conn, err);
}

static int move(struct ol_applier *track, int64_t from, int64_t to, bool *moved, outlog_err *err)
{
    struct ol_projection_task *view = track->context;
    int64_t changed;
    if (ol_store_exec(track->conn, OL_Q_CHECKPOINT_MOVE,
                      OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_int(view->epoch),
                                ol_value_int(from), ol_value_int(to),
                                ol_value_int(view->projector->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    *moved = changed > 0;
    return 0;
}

static const struct ol_position_store keeper = {.begin = begin, .move = move};

/* --- stopping --- */

static int stop(struct ol_projection_task *view, const struct ol_buf *error, outlog_err *err)
{
    int64_t changed;
    if (error->failed)
        return ol_no_memory(err);
    if (ol_store_exec(view->projector->conn, OL_Q_CHECKPOINT_STOP,
                      OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_int(view->epoch),
                                ol_value_text(error->data)),
                      &changed, err) < 0)
        return -1;
    if (changed) {
        view->projector->stats->stops++;
        ol_report_projection(view->row.shown.name, "stopped", error->data);
    }
    view->projector->looks_again = true;
    ol_live_close(view);
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
                           "`create` did not make the table %s in the schema where the worker's "
                           "tables are made",
                           definition->tables[i]);
    }
    return 0;
}

/* Inside a transaction: fence, make and empty the tables. */
static int make_tables(struct ol_projection_task *view, const struct ol_projection *definition,
                       const char *source, bool *is_ours, outlog_err *err)
{
    struct ol_conn *conn = view->projector->conn;
    const struct ol_user_sql *user = conn->store->user_sql;
    const struct ol_user_swap tables = {.name = definition->name,
                                        .tables = definition->tables,
                                        .table_count = definition->table_count,
                                        .tables_json = definition->tables_json};
    int64_t changed;
    if (ol_store_exec(conn, OL_Q_CHECKPOINT_BEGIN,
                      OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_int(view->epoch),
                                ol_value_text(view->row.rebuild_id),
                                ol_value_int(definition->version), ol_value_text(source),
                                ol_value_int(view->projector->settled)),
                      &changed, err) < 0)
        return -1;
    *is_ours = changed > 0;
    if (!*is_ours)
        return 0;
    if (view->row.shown.version == 0 && user->refuse_filled(conn, &tables, err) < 0)
        return -1;
    if (*definition->create && user->script(conn, definition->create, err) < 0)
        return -1;
    if (check_tables(conn, definition, err) < 0)
        return -1;
    return view->row.shown.version == 0 ? 0 : user->clear(conn, &tables, err);
}

static int begin_anew(struct ol_projection_task *view, outlog_err *err)
{
    struct ol_conn *conn = view->projector->conn;
    struct ol_arena arena = {0};
    struct ol_buf error = {0};
    struct ol_projection definition = {0};
    struct ol_json value;
    const char *live, *declared;
    bool is_ours = false;
    outlog_err why;
    int result = -1;

    ol_live_close(view);
    if (ol_projection_task_definitions(view, &arena, &live, &declared, err) < 0)
        goto out;
    const char *source = declared ? declared : live;
    if (!source || ol_json_parse(source, strlen(source), &value, err) < 0 ||
        ol_projection_read(view->row.shown.name, &value, &arena, &definition, err) < 0 ||
        conn->store->begin(conn, err) < 0)
        goto out;
    if (make_tables(view, &definition, source, &is_ours, &why) < 0) {
        conn->store->rollback(conn);
        if (outlog_code_is_retryable(why.code)) {
            *err = why;
            goto out;
        }
        ol_checkpoint_error(NULL, definition.create, why.message, &error);
        result = stop(view, &error, err);
        goto out;
    }
    if (!is_ours) {
        conn->store->rollback(conn);
        ol_projection_task_lose(view);
        result = 0;
        goto out;
    }
    ol_fault("projection.begun");
    result = conn->store->commit(conn, err);
    view->projector->looks_again = true;
out:
    ol_buf_clear(&error);
    ol_arena_clear(&arena);
    return result;
}

/* --- a turn --- */

void ol_live_close(struct ol_projection_task *view)
{
    ol_applier_close(&view->live);
    view->live_version = 0;
}

static int open_live(struct ol_projection_task *view, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_buf stopped = {0};
    const char *live, *declared;
    int result = -1;

    view->live = (struct ol_applier){.conn = view->projector->conn,
                                     .keeper = &keeper,
                                     .context = view,
                                     .position = view->row.shown.last_applied_event_id};
    if (ol_projection_task_definitions(view, &arena, &live, &declared, err) < 0 || !live)
        goto out;
    result = ol_applier_open(&view->live, view->row.shown.name, live, &stopped, err);
    if (result == 0 && stopped.bytes)
        result = stop(view, &stopped, err);
    view->live_version = view->row.shown.version;
out:
    ol_buf_clear(&stopped);
    ol_arena_clear(&arena);
    return live ? result : 0;
}

int ol_live_turn(struct ol_projection_task *view, bool *moved, outlog_err *err)
{
    const struct outlog_projection *shown = &view->row.shown;
    struct ol_applier_step step;

    if (*shown->error)
        return 0;
    if (strcmp(shown->rebuild, "in_place") == 0 && !shown->rebuild_started_at) {
        *moved = true;
        return begin_anew(view, err);
    }
    if (shown->version == 0)
        return 0;
    if ((!view->live.is_open || view->live_version != shown->version) && open_live(view, err) < 0)
        return -1;
    if (!view->live.is_open || view->live.position >= view->projector->settled)
        return 0;
    if (ol_applier_step(&view->live, view->projector->reader, &step, err) < 0)
        return -1;
    view->projector->stats->applied += (int64_t)step.applied;
    view->renewed_at = view->projector->now;
    *moved |= step.applied > 0;
    if (strcmp(shown->rebuild, "in_place") == 0)
        view->projector->looks_again = true; // it may just have ended
    if (step.is_lost) {
        view->projector->stats->fenced++;
        ol_projection_task_lose(view);
    }
    int result = step.is_stopped ? stop(view, &step.error, err) : 0;
    ol_buf_clear(&step.error);
    return result;
}
