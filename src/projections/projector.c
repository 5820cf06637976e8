/* projector.c: the loop of a projector: read the checkpoints, take those that are free, and
 * advance each projection that is ours. */
#include "projections/projector.h"

#include "base/clock.h"
#include "projections/internal.h"
#include "store/migrate.h"
#include "telemetry/report.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHECKPOINT_POLL_US = 100000,
    ERROR_LOG_US = 1000000, // at most one store error is logged in this time
    TASK_RETRY_US = 200000,
    NO_TASK_PAUSE_US = 300000
};

struct ol_projector_options ol_projector_defaults(const char *store)
{
    return (struct ol_projector_options){.store = store,
                                         .name = "projector",
                                         .lease_us = 30 * INT64_C(1000000),
                                         .poll_us = 50000};
}

/* --- checkpoints --- */

int ol_projection_task_definitions(struct ol_projection_task *task, struct ol_arena *arena,
                                   const char **live, const char **declared, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    *live = *declared = NULL;
    if (ol_store_query(task->projector->conn, OL_Q_CHECKPOINT_DEFINITIONS,
                       OL_PARAMS(ol_value_text(task->row.shown.name)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        *live = ol_rows_copy(&rows, 0, arena, &failed);
        *declared = ol_rows_copy(&rows, 1, arena, &failed);
    }
    ol_rows_end(&rows);
    if (got >= 0 && !failed && !*live && !*declared) // deleted meanwhile
        return ol_fail(err, OUTLOG_UNAVAILABLE, "projection %s is gone", task->row.shown.name);
    return failed ? ol_no_memory(err) : got < 0 ? -1 : 0;
}

void ol_projection_task_lose(struct ol_projection_task *task)
{
    ol_live_close(task);
    ol_rebuild_close(task);
    task->is_owned = false;
    task->projector->needs_poll = true;
}

static struct ol_projection_task *find_task(struct ol_projector *projector, const char *name)
{
    for (struct ol_projection_task *task = projector->tasks; task; task = task->next)
        if (strcmp(task->row.shown.name, name) == 0)
            return task;
    return NULL;
}

/* Follow what an operator changed since the checkpoint was last read. */
static void follow_changes(struct ol_projection_task *task, const struct ol_checkpoint *row)
{
    const struct outlog_projection *was = &task->row.shown, *is = &row->shown;
    bool was_aside = strcmp(was->rebuild, "aside") == 0,
         is_aside = strcmp(is->rebuild, "aside") == 0;
    if (*was->error && !*is->error) // a retry or a skip
        ol_live_close(task);
    if (*was->rebuild_error && !*is->rebuild_error)
        ol_rebuild_close(task);
    if (task->is_owned && was_aside && !is_aside && *task->shadow_rebuild_id) { // cancelled
        outlog_err ignored;
        ol_rebuild_close(task);
        task->projector->conn->store->user_sql->shadow_drop(task->projector->conn, is->name,
                                                            &ignored);
    }
    if (task->live.is_open && task->live.position != is->last_applied_event_id)
        ol_live_close(task);
    if (task->is_owned &&
        (row->epoch != task->epoch || strcmp(row->owner, task->projector->owner.run) != 0))
        ol_projection_task_lose(task);
    task->row = *row;
}

static int poll_checkpoints(struct ol_projector *projector, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_checkpoint *rows;
    size_t count;
    int result = ol_checkpoint_list(projector->conn, &arena, &rows, &count, err);

    for (struct ol_projection_task *task = projector->tasks; result == 0 && task; task = task->next)
        task->is_seen = false;
    for (size_t i = 0; result == 0 && i < count; i++) {
        const char *only = projector->options->only;
        if (rows[i].shown.is_in_c || (only && strcmp(only, rows[i].shown.name) != 0))
            continue;
        struct ol_projection_task *task = find_task(projector, rows[i].shown.name);
        if (!task) {
            if (!(task = calloc(1, sizeof *task))) {
                result = ol_no_memory(err);
                break;
            }
            task->projector = projector;
            task->row = rows[i];
            task->next = projector->tasks;
            projector->tasks = task;
        }
        follow_changes(task, &rows[i]);
        task->is_seen = true;
    }
    for (struct ol_projection_task *task = projector->tasks; result == 0 && task; task = task->next)
        if (!task->is_seen && task->is_owned) // deleted
            ol_projection_task_lose(task);
    ol_arena_clear(&arena);
    projector->polled_at = projector->now;
    projector->needs_poll = false;
    return result;
}

/* --- ownership --- */

static int acquire_task(struct ol_projection_task *task, outlog_err *err)
{
    struct ol_projector *projector = task->projector;
    int64_t changed;
    if (ol_store_exec(projector->conn, OL_Q_CHECKPOINT_ACQUIRE,
                      OL_PARAMS(ol_value_text(task->row.shown.name),
                                ol_value_text(projector->owner.run),
                                ol_value_text(projector->options->name),
                                ol_value_int(projector->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    if (!changed)
        return 0;
    struct ol_checkpoint row;
    if (ol_checkpoint_get(projector->conn, task->row.shown.name, &row, err) < 0)
        return -1;
    if (strcmp(row.owner, projector->owner.run) != 0)
        return 0;
    task->row = row;
    task->epoch = row.epoch;
    task->is_owned = true;
    task->renewed_at = projector->now;
    return 0;
}

static int renew_lease(struct ol_projection_task *task, outlog_err *err)
{
    struct ol_projector *projector = task->projector;
    int64_t changed;
    if (projector->now - task->renewed_at < projector->options->lease_us / 3)
        return 0;
    task->renewed_at = projector->now;
    if (ol_store_exec(projector->conn, OL_Q_CHECKPOINT_RENEW,
                      OL_PARAMS(ol_value_text(task->row.shown.name), ol_value_int(task->epoch),
                                ol_value_int(projector->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    if (!changed) {
        projector->stats->fenced++;
        ol_projection_task_lose(task);
    }
    return 0;
}

/* --- the loop --- */

static int advance_task(struct ol_projection_task *task, bool *moved, outlog_err *err)
{
    if (!task->is_seen)
        return 0;
    bool is_ours = strcmp(task->row.owner, task->projector->owner.run) ==
                   0; // we gave it up ourselves
    if (!task->is_owned && (task->row.is_free || is_ours) && acquire_task(task, err) < 0)
        return -1;
    if (!task->is_owned)
        return 0;
    if (renew_lease(task, err) < 0 || !task->is_owned || ol_live_advance(task, moved, err) < 0)
        return task->is_owned ? -1 : 0;
    return task->is_owned ? ol_rebuild_advance(task, moved, err) : 0;
}

/* An error of one projection does not delay the others. The store may have reconnected, so prepared
 * statements are closed. */
static void handle_error(struct ol_projector *projector, struct ol_projection_task *task,
                         const outlog_err *why)
{
    outlog_err again;
    if (projector->now - projector->reported_at > ERROR_LOG_US) {
        ol_report_store_error(why);
        projector->reported_at = projector->now;
    }
    for (struct ol_projection_task *each = projector->tasks; each; each = each->next)
        ol_live_close(each);
    if (task) {
        ol_rebuild_close(task);
        task->retry_at = projector->now + TASK_RETRY_US;
    }
    projector->needs_poll = true;
    if (projector->conn->in_transaction)
        projector->conn->store->rollback(projector->conn);
    if (projector->conn->store->reconnect(projector->conn, &again) == 0)
        ol_store_limit_hang(projector->conn, OL_Q_PROJECTOR_SESSION,
                            projector->options->lease_us / 3000, &again);
}

static bool is_done(const struct ol_projector *projector)
{
    for (const struct ol_projection_task *task = projector->tasks; task; task = task->next) {
        const struct outlog_projection *shown = &task->row.shown;
        bool is_aside = strcmp(shown->rebuild, "aside") == 0 && !*shown->rebuild_error;
        if (!task->is_seen || (*shown->error && !is_aside))
            continue;
        if (is_aside || strcmp(shown->rebuild, "in_place") == 0)
            return false;
        if (task->is_owned ? !task->live.is_open || task->live.position < projector->settled
                           : shown->last_applied_event_id < projector->settled)
            return false;
    }
    return true;
}

static int advance_tasks(struct ol_projector *projector, bool *moved, outlog_err *err)
{
    outlog_err why;
    if (ol_owner_look(&projector->owner, projector->conn, &projector->needs_poll, err) < 0)
        return -1;
    if ((projector->needs_poll || projector->now - projector->polled_at >= CHECKPOINT_POLL_US) &&
        poll_checkpoints(projector, err) < 0)
        return -1;
    if (projector->tasks && outlog_settled(projector->reader, &projector->settled, err) < 0)
        return -1;
    for (struct ol_projection_task *task = projector->tasks; task; task = task->next)
        if (projector->now >= task->retry_at && advance_task(task, moved, &why) < 0)
            handle_error(projector, task, &why);
    return 0;
}

static void pause_worker(struct ol_projector *projector, bool moved)
{
    int64_t max_us = projector->tasks ? projector->options->poll_us : NO_TASK_PAUSE_US;
    if (moved) {
        projector->pause_us = 1000;
        return;
    }
    int pause_ms = (int)((projector->pause_us + 999) / 1000);
    if (projector->tasks)
        ol_store_await(projector->conn, &projector->waiter, pause_ms);
    else
        ol_clock_sleep_us(projector->pause_us); // no commit needs to wake us
    projector->pause_us *= 2;
    if (projector->pause_us > max_us)
        projector->pause_us = max_us;
}

static int open_projector(struct ol_projector *projector, outlog_err *err)
{
    if (outlog_open(projector->options->store, &projector->reader, err) < 0 ||
        ol_store_open(projector->options->store, &projector->conn, err) < 0 ||
        ol_migrate_check(projector->conn, err) < 0 ||
        ol_store_limit_hang(projector->conn, OL_Q_PROJECTOR_SESSION,
                            projector->options->lease_us / 3000, err) < 0 ||
        ol_owner_open(&projector->owner, projector->conn, err) < 0)
        return -1;
    if (projector->conn->is_pooled) // prepared statements and the shadow schema need a session
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

static void close_projector(struct ol_projector *projector)
{
    bool is_released = projector->conn != NULL;
    while (projector->tasks) {
        struct ol_projection_task *next = projector->tasks->next;
        struct ol_projection_task *task = projector->tasks;
        outlog_err ignored; // others see that we have ended
        if (task->is_owned &&
            ol_store_exec(projector->conn, OL_Q_CHECKPOINT_RELEASE,
                          OL_PARAMS(ol_value_text(task->row.shown.name), ol_value_int(task->epoch)),
                          NULL, &ignored) < 0)
            is_released = false;
        ol_live_close(task);
        ol_rebuild_close(task);
        free(task);
        projector->tasks = next;
    }
    if (is_released)
        ol_owner_remove(&projector->owner, projector->conn);
    ol_waiter_close(&projector->waiter);
    ol_store_close(projector->conn);
    ol_owner_close(&projector->owner);
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

    ol_owner_init(&projector.owner, "projector", options->name, options->lease_us, 0);
    if (open_projector(&projector, err) < 0)
        goto out;
    result = 0;
    projector.needs_poll = true;
    while (atomic_load(stop) == 0) {
        bool moved = false;
        projector.now = ol_clock_boot_us();
        if (advance_tasks(&projector, &moved, &why) < 0) {
            handle_error(&projector, NULL, &why);
            moved = false;
            projector.pause_us = options->poll_us;
        } else {
            idle_rounds = moved || projector.needs_poll || !is_done(&projector) ? 0
                                                                                : idle_rounds + 1;
        }
        if (options->until_idle && idle_rounds > 1)
            break;
        pause_worker(&projector, moved);
    }
out:
    close_projector(&projector);
    return result;
}
