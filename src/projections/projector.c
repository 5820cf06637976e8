/* projector.c: the loop of a worker that fills projections. See internal.h for its parts. */
#include "projections/projector.h"

#include "base/clock.h"
#include "projections/internal.h"
#include "store/migrate.h"
#include "telemetry/report.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_US = 100000, TELL_US = 1000000, RETRY_US = 200000, NOTHING_US = 300000 };

struct ol_projector_options ol_projector_defaults(const char *store)
{
    return (struct ol_projector_options){.store = store,
                                         .name = "projector",
                                         .lease_us = 30 * INT64_C(1000000),
                                         .poll_us = 50000};
}

/* --- what there is --- */

int ol_projection_task_definitions(struct ol_projection_task *view, struct ol_arena *arena,
                                   const char **live, const char **declared, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    *live = *declared = NULL;
    if (ol_store_query(view->projector->conn, OL_Q_CHECKPOINT_DEFINITIONS,
                       OL_PARAMS(ol_value_text(view->row.shown.name)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        *live = ol_rows_copy(&rows, 0, arena, &failed);
        *declared = ol_rows_copy(&rows, 1, arena, &failed);
    }
    ol_rows_end(&rows);
    if (got >= 0 && !failed && !*live && !*declared) // removed since
        return ol_fail(err, OUTLOG_UNAVAILABLE, "projection %s is gone", view->row.shown.name);
    return failed ? ol_no_memory(err) : got < 0 ? -1 : 0;
}

void ol_projection_task_lose(struct ol_projection_task *view)
{
    ol_live_close(view);
    ol_rebuild_close(view);
    view->is_owned = false;
    view->projector->looks_again = true;
}

static struct ol_projection_task *find_view(struct ol_projector *projector, const char *name)
{
    for (struct ol_projection_task *view = projector->views; view; view = view->next)
        if (strcmp(view->row.shown.name, name) == 0)
            return view;
    return NULL;
}

/* What a person did since we last looked: take it over into what we know. */
static void notice(struct ol_projection_task *view, const struct ol_checkpoint *row)
{
    const struct outlog_projection *was = &view->row.shown, *is = &row->shown;
    bool was_built = strcmp(was->rebuild, "aside") == 0,
         is_built = strcmp(is->rebuild, "aside") == 0;
    if (*was->error && !*is->error) // a retry or a skip
        ol_live_close(view);
    if (*was->rebuild_error && !*is->rebuild_error)
        ol_rebuild_close(view);
    if (view->is_owned && was_built && !is_built && *view->build_id) { // given up
        outlog_err ignored;
        ol_rebuild_close(view);
        view->projector->conn->store->user_sql->shadow_drop(view->projector->conn, is->name,
                                                            &ignored);
    }
    if (view->live.is_open && view->live.position != is->last_applied_event_id)
        ol_live_close(view);
    if (view->is_owned &&
        (row->epoch != view->epoch || strcmp(row->owner, view->projector->run) != 0))
        ol_projection_task_lose(view);
    view->row = *row;
}

static int look(struct ol_projector *projector, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_checkpoint *rows;
    size_t count;
    int result = ol_checkpoint_list(projector->conn, &arena, &rows, &count, err);

    for (struct ol_projection_task *view = projector->views; result == 0 && view; view = view->next)
        view->is_seen = false;
    for (size_t i = 0; result == 0 && i < count; i++) {
        const char *only = projector->options->only;
        if (rows[i].shown.is_in_c || (only && strcmp(only, rows[i].shown.name) != 0))
            continue;
        struct ol_projection_task *view = find_view(projector, rows[i].shown.name);
        if (!view) {
            if (!(view = calloc(1, sizeof *view))) {
                result = ol_no_memory(err);
                break;
            }
            view->projector = projector;
            view->row = rows[i];
            view->next = projector->views;
            projector->views = view;
        }
        notice(view, &rows[i]);
        view->is_seen = true;
    }
    for (struct ol_projection_task *view = projector->views; result == 0 && view; view = view->next)
        if (!view->is_seen && view->is_owned) // deleted
            ol_projection_task_lose(view);
    ol_arena_clear(&arena);
    projector->looked_at = projector->now;
    projector->looks_again = false;
    return result;
}

/* --- ownership --- */

static int take(struct ol_projection_task *view, outlog_err *err)
{
    struct ol_projector *projector = view->projector;
    int64_t changed;
    if (ol_store_exec(projector->conn, OL_Q_CHECKPOINT_TAKE,
                      OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_text(projector->run),
                                ol_value_text(projector->options->name),
                                ol_value_int(projector->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    if (!changed)
        return 0;
    struct ol_checkpoint row;
    if (ol_checkpoint_get(projector->conn, view->row.shown.name, &row, err) < 0)
        return -1;
    if (strcmp(row.owner, projector->run) != 0)
        return 0;
    view->row = row;
    view->epoch = row.epoch;
    view->is_owned = true;
    view->renewed_at = projector->now;
    return 0;
}

static int renew(struct ol_projection_task *view, outlog_err *err)
{
    struct ol_projector *projector = view->projector;
    int64_t changed;
    if (projector->now - view->renewed_at < projector->options->lease_us / 3)
        return 0;
    view->renewed_at = projector->now;
    if (ol_store_exec(projector->conn, OL_Q_CHECKPOINT_RENEW,
                      OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_int(view->epoch),
                                ol_value_int(projector->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    if (!changed) {
        projector->stats->fenced++;
        ol_projection_task_lose(view);
    }
    return 0;
}

/* --- the loop --- */

static int turn_view(struct ol_projection_task *view, bool *moved, outlog_err *err)
{
    if (!view->is_seen)
        return 0;
    bool is_ours = strcmp(view->row.owner, view->projector->run) == 0; // we lost track of it
    if (!view->is_owned && (view->row.is_free || is_ours) && take(view, err) < 0)
        return -1;
    if (!view->is_owned)
        return 0;
    if (renew(view, err) < 0 || !view->is_owned || ol_live_turn(view, moved, err) < 0)
        return view->is_owned ? -1 : 0;
    return view->is_owned ? ol_rebuild_turn(view, moved, err) : 0;
}

/* Trouble with one does not hold up the others. The connection may be another one afterwards, so
 * what was prepared on it is let go. */
static void trouble(struct ol_projector *projector, struct ol_projection_task *view,
                    const outlog_err *why)
{
    outlog_err again;
    if (projector->now - projector->told_at > TELL_US) {
        ol_report_store_error(why);
        projector->told_at = projector->now;
    }
    for (struct ol_projection_task *each = projector->views; each; each = each->next)
        ol_live_close(each);
    if (view) {
        ol_rebuild_close(view);
        view->retry_at = projector->now + RETRY_US;
    }
    projector->looks_again = true;
    if (projector->conn->in_transaction)
        projector->conn->store->rollback(projector->conn);
    if (projector->conn->store->revive(projector->conn, &again) == 0)
        ol_store_limit_hang(projector->conn, OL_Q_PROJECTOR_SESSION,
                            projector->options->lease_us / 3000, &again);
}

static bool is_done(const struct ol_projector *projector)
{
    for (const struct ol_projection_task *view = projector->views; view; view = view->next) {
        const struct outlog_projection *shown = &view->row.shown;
        bool is_built = strcmp(shown->rebuild, "aside") == 0 && !*shown->rebuild_error;
        if (!view->is_seen || (*shown->error && !is_built))
            continue;
        if (is_built || strcmp(shown->rebuild, "in_place") == 0)
            return false;
        if (view->is_owned ? !view->live.is_open || view->live.position < projector->settled
                           : shown->last_applied_event_id < projector->settled)
            return false;
    }
    return true;
}

static int turn_all(struct ol_projector *projector, bool *moved, outlog_err *err)
{
    outlog_err why;
    if ((projector->looks_again || projector->now - projector->looked_at >= LOOK_US) &&
        look(projector, err) < 0)
        return -1;
    if (projector->views && outlog_settled(projector->reader, &projector->settled, err) < 0)
        return -1;
    for (struct ol_projection_task *view = projector->views; view; view = view->next)
        if (projector->now >= view->retry_at && turn_view(view, moved, &why) < 0)
            trouble(projector, view, &why);
    return 0;
}

static void rest(struct ol_projector *projector, bool moved)
{
    int64_t most_us = projector->views ? projector->options->poll_us : NOTHING_US;
    if (moved) {
        projector->pause_us = 1000;
        return;
    }
    int pause_ms = (int)((projector->pause_us + 999) / 1000);
    if (projector->views)
        ol_store_await(projector->conn, &projector->waiter, pause_ms);
    else
        ol_clock_sleep_us(projector->pause_us); // no commit concerns us
    projector->pause_us *= 2;
    if (projector->pause_us > most_us)
        projector->pause_us = most_us;
}

static int start(struct ol_projector *projector, outlog_err *err)
{
    if (outlog_open(projector->options->store, &projector->reader, err) < 0 ||
        ol_store_open(projector->options->store, &projector->conn, err) < 0 ||
        ol_migrate_check(projector->conn, err) < 0 ||
        ol_store_limit_hang(projector->conn, OL_Q_PROJECTOR_SESSION,
                            projector->options->lease_us / 3000, err) < 0)
        return -1;
    if (projector->conn->is_pooled) // its statements and the place aside belong to a session
        return ol_fail(
            err, OUTLOG_MISUSE,
            "%s: projections need a session of their own, and this is a pooler; give them "
            "the server itself by OUTLOG_STORE_DIRECT, or by --store of `outlog "
            "projections run`",
            projector->conn->name);
    return ol_waiter_open(&projector->waiter, projector->conn->wake_key) == 0
               ? 0
               : ol_fail(err, OUTLOG_NO_MEMORY, "no file descriptor left");
}

static void finish(struct ol_projector *projector)
{
    while (projector->views) {
        struct ol_projection_task *next = projector->views->next;
        struct ol_projection_task *view = projector->views;
        outlog_err ignored; // a lease that is not given back ends by itself
        if (view->is_owned)
            ol_store_exec(projector->conn, OL_Q_CHECKPOINT_RELEASE,
                          OL_PARAMS(ol_value_text(view->row.shown.name), ol_value_int(view->epoch)),
                          NULL, &ignored);
        ol_live_close(view);
        ol_rebuild_close(view);
        free(view);
        projector->views = next;
    }
    ol_waiter_close(&projector->waiter);
    ol_store_close(projector->conn);
    outlog_close(projector->reader);
}

int ol_projector_run(const struct ol_projector_options *options, atomic_int *stop,
                     struct ol_projector_stats *stats, outlog_err *err)
{
    struct ol_projector projector = {.options = options,
                                     .stats = stats,
                                     .pause_us = 1000,
                                     .waiter = {.fd = -1}};
    int result = -1, idle_rounds = 0;
    outlog_err why;

    ol_uuid_make(projector.run);
    if (start(&projector, err) < 0)
        goto out;
    result = 0;
    projector.looks_again = true;
    while (atomic_load(stop) == 0) {
        bool moved = false;
        projector.now = ol_clock_boot_us();
        if (turn_all(&projector, &moved, &why) < 0) {
            trouble(&projector, NULL, &why);
            moved = false;
            projector.pause_us = options->poll_us;
        } else {
            idle_rounds = moved || projector.looks_again || !is_done(&projector) ? 0
                                                                                 : idle_rounds + 1;
        }
        if (options->until_idle && idle_rounds > 1)
            break;
        rest(&projector, moved);
    }
out:
    finish(&projector);
    return result;
}
