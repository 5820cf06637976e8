/* rebuild.c: the same tables a second time, beside the live ones, until they can take their place
 * (P3).
 *
 * B1  What is built belongs to one request, by its rebuild_id; what another one left is thrown
 * away. B2  The position stands beside the tables and moves with them, so a build survives its
 * worker. B3  The swap happens only when the new tables are at least as far as the old ones, so
 * nobody who has seen an event in the view can miss it afterwards. B4  And only when every
 * transaction has ended that was open when the build caught up: its snapshot would show the new
 * tables half filled. Until then both go on. */
#include "base/fault.h"
#include "projections/internal.h"
#include "telemetry/report.h"

#include <stdlib.h>
#include <string.h>

enum { TELL_US = 300000 };

/* --- the position stands beside the tables --- */

static int begin(struct ol_applier *track, outlog_err *err)
{
    return track->conn->store->user_sql->shadow_begin(track->conn, err);
}

static int move(struct ol_applier *track, int64_t from, int64_t to, bool *moved, outlog_err *err)
{
    int64_t changed;
    if (ol_store_exec(track->conn, OL_Q_BUILD_MOVE, OL_PARAMS(ol_value_int(from), ol_value_int(to)),
                      &changed, err) < 0)
        return -1;
    *moved = changed > 0;
    return 0;
}

static const struct ol_position_store keeper = {.begin = begin, .move = move};

/* --- life --- */

void ol_rebuild_close(struct ol_projection_task *view)
{
    ol_applier_close(&view->build);
    view->build = (struct ol_applier){0};
    ol_store_close(view->aside);
    view->aside = NULL;
    view->build_id[0] = '\0';
    free(view->older);
    view->older = NULL;
    ol_arena_clear(&view->build_arena);
}

/* The live tables go on; this build does not. */
static int stop(struct ol_projection_task *view, const struct ol_buf *error, outlog_err *err)
{
    int64_t changed;
    if (error->failed)
        return ol_no_memory(err);
    if (ol_store_exec(view->projector->conn, OL_Q_CHECKPOINT_STOP_REBUILD,
                      OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_int(view->epoch),
                                ol_value_text(view->row.rebuild_id), ol_value_text(error->data)),
                      &changed, err) < 0)
        return -1;
    if (changed) {
        view->projector->stats->stops++;
        ol_report_projection(view->row.shown.name, "rebuild stopped", error->data);
    }
    ol_rebuild_close(view);
    view->projector->looks_again = true;
    return 0;
}

static int stop_for(struct ol_projection_task *view, const char *statement, const outlog_err *why,
                    outlog_err *err)
{
    struct ol_buf error = {0};
    if (outlog_code_is_retryable(why->code)) {
        *err = *why;
        return -1;
    }
    ol_checkpoint_error(NULL, statement, why->message, &error);
    int result = stop(view, &error, err);
    ol_buf_clear(&error);
    return result;
}

/* How far is what stands there, if it is of this request? */
static bool is_ours(struct ol_projection_task *view, int64_t *event_id)
{
    struct ol_rows rows;
    outlog_err ignored; // there is nothing there yet
    bool found = false;
    if (ol_store_query(view->aside, OL_Q_BUILD_GET, OL_NO_PARAMS, &rows, &ignored) < 0)
        return false;
    if (ol_rows_next(&rows, &ignored) > 0) {
        found = strcmp(ol_rows_text(&rows, 0, NULL), view->row.rebuild_id) == 0;
        if (found)
            *event_id = ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
    return found;
}

/* Something that the tables need but could not take along. */
static int refuse_stranger(struct ol_conn *aside, const struct ol_projection *definition,
                           outlog_err *err)
{
    struct ol_rows rows;
    int result = 0;
    if (ol_store_query(aside, OL_Q_SHADOW_UNLISTED,
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

static int make_tables(struct ol_projection_task *view, const struct ol_projection *definition,
                       outlog_err *err)
{
    struct ol_conn *aside = view->aside;
    const struct ol_user_sql *user = aside->store->user_sql;
    if (ol_store_exec(aside, OL_Q_BUILD_CREATE, OL_NO_PARAMS, NULL, err) < 0 ||
        ol_store_exec(aside, OL_Q_BUILD_BEGIN, OL_PARAMS(ol_value_text(view->row.rebuild_id)), NULL,
                      err) < 0 ||
        (*definition->create && user->script(aside, definition->create, err) < 0))
        return -1;
    for (size_t i = 0; i < definition->table_count; i++) {
        bool is_there;
        if (user->has_table(aside, definition->tables[i], &is_there, err) < 0)
            return -1;
        if (!is_there)
            return ol_fail(err, OUTLOG_STORE_ERROR,
                           "`create` did not make the table %s beside the live one; write its name "
                           "without a schema",
                           definition->tables[i]);
    }
    return refuse_stranger(aside, definition, err);
}

/* An empty place, with the tables in it. */
static int begin_build(struct ol_projection_task *view, const struct ol_projection *definition,
                       outlog_err *err)
{
    struct ol_projector *projector = view->projector;
    const struct ol_user_sql *user = projector->conn->store->user_sql;
    ol_store_close(view->aside);
    view->aside = NULL;
    if (user->shadow_drop(projector->conn, definition->name, err) < 0 ||
        user->shadow_open(projector->options->store, definition->name, &view->aside, err) < 0 ||
        user->shadow_begin(view->aside, err) < 0)
        return -1;
    if (make_tables(view, definition, err) < 0) {
        view->aside->store->rollback(view->aside);
        return -1;
    }
    return view->aside->store->commit(view->aside, err);
}

static int open_build(struct ol_projection_task *view, outlog_err *err)
{
    struct ol_projector *projector = view->projector;
    struct ol_buf stopped = {0};
    struct ol_projection definition = {0};
    struct ol_json value;
    const char *live;
    int64_t event_id = 0;
    outlog_err why;
    int result = -1;

    ol_rebuild_close(view);
    if (ol_projection_task_definitions(view, &view->build_arena, &live, &view->declared, err) < 0)
        return -1;
    if (!view->declared)
        view->declared = live;
    if (ol_json_parse(view->declared, strlen(view->declared), &value, err) < 0 ||
        ol_projection_read(view->row.shown.name, &value, &view->build_arena, &definition, err) < 0)
        return -1;
    if (projector->conn->store->user_sql->shadow_open(projector->options->store, definition.name,
                                                      &view->aside, &why) < 0)
        return stop_for(view, NULL, &why, err);
    if (!is_ours(view, &event_id) && begin_build(view, &definition, &why) < 0)
        return stop_for(view, definition.create, &why, err);
    if (ol_store_limit_hang(view->aside, OL_Q_PROJECTOR_SESSION,
                            projector->options->lease_us / 3000, err) < 0)
        return -1;
    view->build = (struct ol_applier){.conn = view->aside,
                                      .keeper = &keeper,
                                      .context = view,
                                      .position = event_id};
    result = ol_applier_open(&view->build, definition.name, view->declared, &stopped, err);
    if (result == 0 && stopped.bytes)
        result = stop(view, &stopped, err);
    else if (result == 0)
        memcpy(view->build_id, view->row.rebuild_id, sizeof view->build_id);
    ol_buf_clear(&stopped);
    return result;
}

/* --- the swap --- */

static int record_swap(void *context, struct ol_conn *conn, outlog_err *err)
{
    struct ol_projection_task *view = context;
    int64_t changed;
    if (ol_store_exec(conn, OL_Q_CHECKPOINT_SWAP,
                      OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_int(view->epoch),
                                ol_value_text(view->build_id),
                                ol_value_int(view->build.definition.version),
                                ol_value_text(view->declared), ol_value_int(view->build.position)),
                      &changed, err) < 0)
        return -1;
    return changed ? 0
                   : ol_fail(err, OUTLOG_UNAVAILABLE,
                             "the projection was moved, or is not ours any more");
}

static int swap(struct ol_projection_task *view, outlog_err *err)
{
    struct ol_projector *projector = view->projector;
    const struct ol_projection *definition = &view->build.definition;
    const struct ol_user_swap swap = {.name = definition->name,
                                      .tables = definition->tables,
                                      .table_count = definition->table_count,
                                      .tables_json = definition->tables_json,
                                      .create = definition->create,
                                      .event_id = view->build.position,
                                      .record = record_swap,
                                      .context = view};
    outlog_err why;

    ol_fault("projection.swap");
    ol_live_close(view); // its statements hold the old tables
    projector->looks_again = true;
    if (projector->conn->store->user_sql->shadow_swap(projector->conn, &swap, &why) < 0)
        return stop_for(view, NULL, &why, err);
    ol_fault("projection.swapped");
    projector->stats->swaps++;
    ol_report_projection(definition->name, "swapped", NULL);
    ol_rebuild_close(view);
    return 0;
}

/* B4. */
static int may_swap(struct ol_projection_task *view, bool *out, outlog_err *err)
{
    struct ol_conn *conn = view->projector->conn;
    struct ol_rows rows;
    int64_t left;
    *out = false;
    if (view->build.position < view->row.shown.last_applied_event_id ||
        view->build.position < view->live.position)
        return 0; // B3
    if (!view->older) {
        if (ol_store_query(conn, OL_Q_TRANSACTIONS_OPEN, OL_NO_PARAMS, &rows, err) < 0)
            return -1;
        if (ol_rows_next(&rows, err) > 0)
            view->older = strdup(ol_rows_text(&rows, 0, NULL));
        ol_rows_end(&rows);
        if (!view->older)
            return ol_no_memory(err);
    }
    if (ol_store_number(conn, OL_Q_TRANSACTIONS_LEFT, OL_PARAMS(ol_value_text(view->older)), &left,
                        err) < 0)
        return -1;
    *out = left == 0;
    return 0;
}

/* --- a turn --- */

static int tell(struct ol_projection_task *view, outlog_err *err)
{
    struct ol_projector *projector = view->projector;
    int64_t changed;
    if (view->told_at && projector->now - view->told_at < TELL_US)
        return 0;
    view->told_at = projector->now;
    if (ol_store_exec(projector->conn, OL_Q_CHECKPOINT_PROGRESS,
                      OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_int(view->epoch),
                                ol_value_text(view->build_id), ol_value_int(view->build.position),
                                ol_value_int(projector->settled),
                                ol_value_int(projector->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    if (!changed)
        ol_projection_task_lose(view);
    return 0;
}

int ol_rebuild_turn(struct ol_projection_task *view, bool *moved, outlog_err *err)
{
    const struct outlog_projection *shown = &view->row.shown;
    struct ol_applier_step step;
    bool is_ready;

    if (strcmp(shown->rebuild, "aside") != 0 || *shown->rebuild_error)
        return 0;
    if (strcmp(view->build_id, view->row.rebuild_id) != 0) {
        *moved = true;
        view->told_at = 0;
        if (open_build(view, err) < 0)
            return -1;
    }
    if (!view->build.is_open)
        return 0;
    if (ol_applier_step(&view->build, view->projector->reader, &step, err) < 0)
        return -1;
    *moved |= step.applied > 0;
    view->projector->stats->applied += (int64_t)step.applied;
    if (step.is_lost) // another worker goes on with it
        ol_projection_task_lose(view);
    int result = step.is_stopped ? stop(view, &step.error, err) : 0;
    ol_buf_clear(&step.error);
    if (result < 0 || !view->build.is_open || tell(view, err) < 0 || !view->build.is_open)
        return result;
    if (!step.is_at_end)
        return 0;
    if (may_swap(view, &is_ready, err) < 0)
        return -1;
    if (!is_ready)
        return 0;
    *moved = true;
    return swap(view, err);
}
