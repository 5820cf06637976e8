/* embedded.c: outlog_project(): a projection written in C, filled by its own process.
 *
 * It needs no owner: the transaction moves the checkpoint from the position where the events were
 * read, so of two processes that apply the same batch one commits and the other changes nothing
 * (P1). */
#include "base/fault.h"
#include "projections/checkpoint.h"
#include "store/postgres/conn.h"
#include "store/sqlite/conn.h"

#include <string.h>

struct pg_conn *outlog_tx_postgres(outlog_tx *tx)
{
    return tx->conn->store == &ol_store_postgres ? ol_postgres_native(tx->conn) : NULL;
}

struct sqlite3 *outlog_tx_sqlite(outlog_tx *tx)
{
    return tx->conn->store == &ol_store_sqlite ? ol_sqlite_native(tx->conn) : NULL;
}

static int check_arguments(const struct outlog_project *projection, outlog_err *err)
{
    size_t bytes = projection && projection->name ? strlen(projection->name) : 0;
    if (bytes < 1 || bytes > 48)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/name",
                          "a projection's name must have 1 to 48 bytes");
    return projection->apply ? 0 : ol_fail(err, OUTLOG_MISUSE, "outlog_project: apply is NULL");
}

/* Start from the first event: it is new, has a new version, or a rebuild was requested. */
static int restart_projection(outlog *log, const struct outlog_project *projection, int version,
                              outlog_err *err)
{
    outlog_tx *tx;
    int64_t changed;
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (ol_store_exec(tx->conn, OL_Q_CHECKPOINT_OWN,
                      OL_PARAMS(ol_value_text(projection->name), ol_value_int(version)), NULL,
                      err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_CHECKPOINT_RESTART,
                      OL_PARAMS(ol_value_text(projection->name), ol_value_int(version)), &changed,
                      err) < 0)
        goto failed;
    if (!changed) {
        ol_fail(err, OUTLOG_ILLEGAL_TRANSITION, "projection %s is declared in outlog.yaml",
                projection->name);
        goto failed;
    }
    if (projection->begin && projection->begin(projection->user, tx, err) < 0)
        goto failed;
    return outlog_commit(tx, err);
failed:
    outlog_rollback(tx);
    return -1;
}

static int load_checkpoint(outlog *log, const struct outlog_project *projection, int version,
                           struct ol_checkpoint *row, outlog_err *err)
{
    outlog_err why;
    bool is_there = ol_checkpoint_get(log->conn, projection->name, row, &why) == 0;
    if (!is_there && why.code != OUTLOG_NOT_FOUND) {
        if (err)
            *err = why;
        return -1;
    }
    if (is_there && !row->shown.is_in_c)
        return ol_fail(err, OUTLOG_ILLEGAL_TRANSITION, "projection %s is declared in outlog.yaml",
                       projection->name);
    if (is_there && row->shown.version == version && !*row->shown.rebuild)
        return 0;
    if (restart_projection(log, projection, version, err) < 0)
        return -1;
    return ol_checkpoint_get(log->conn, projection->name, row, err);
}

/* Store the error for operators; the call itself returns it too. */
static void store_error(outlog *log, const struct outlog_project *projection,
                        const struct outlog_event *event, const outlog_err *why)
{
    struct ol_buf error = {0};
    outlog_err ignored;
    ol_checkpoint_error(event, NULL, why->message, &error);
    if (!error.failed)
        ol_store_exec(log->conn, OL_Q_CHECKPOINT_FAIL,
                      OL_PARAMS(ol_value_text(projection->name), ol_value_text(error.data)), NULL,
                      &ignored);
    ol_buf_clear(&error);
}

/* Remove the events that an operator skipped. */
static int drop_skipped(outlog *log, const struct outlog_project *projection, int version,
                        struct outlog_page *page, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(log->conn, OL_Q_SKIP_LIST,
                       OL_PARAMS(ol_value_text(projection->name), ol_value_int(version)), &rows,
                       err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        for (size_t i = 0; i < page->count; i++)
            if (page->events[i].event_id == ol_rows_int(&rows, 0)) {
                memmove(&page->events[i], &page->events[i + 1],
                        (page->count - i - 1) * sizeof *page->events);
                page->count--;
            }
    ol_rows_end(&rows);
    return more;
}

/* Apply a page. *moved = false: another process did. *failed_at: the event `apply` named, or 0. */
static int apply_page(outlog *log, const struct outlog_project *projection,
                      const struct outlog_page *page, int64_t from, bool *moved, size_t *failed_at,
                      outlog_err *err)
{
    outlog_tx *tx;
    int64_t changed;
    *failed_at = SIZE_MAX;
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (ol_store_exec(tx->conn, OL_Q_CHECKPOINT_ADVANCE,
                      OL_PARAMS(ol_value_text(projection->name), ol_value_int(from),
                                ol_value_int(page->next_after)),
                      &changed, err) < 0) {
        outlog_rollback(tx);
        return -1;
    }
    *moved = changed > 0;
    if (!*moved) {
        outlog_rollback(tx);
        return 0;
    }
    outlog_err why = {.index = -1};
    if (page->count &&
        projection->apply(projection->user, tx, page->events, page->count, &why) < 0) {
        outlog_rollback(tx);
        *failed_at = why.index >= 0 && (size_t)why.index < page->count ? (size_t)why.index : 0;
        if (err)
            *err = why;
        return -1;
    }
    ol_fault("projection.applied");
    return outlog_commit(tx, err);
}

/* Apply the events before the one that failed, so that skipping it skips nothing else. */
static void apply_before(outlog *log, const struct outlog_project *projection,
                         const struct outlog_page *page, int64_t from, size_t failed_at,
                         const outlog_err *why)
{
    struct outlog_page before = *page;
    bool moved;
    size_t ignored_at;
    outlog_err ignored;
    if (outlog_code_is_retryable(why->code))
        return;
    before.count = failed_at;
    if (failed_at > 0) {
        before.next_after = page->events[failed_at - 1].event_id;
        if (apply_page(log, projection, &before, from, &moved, &ignored_at, &ignored) < 0 || !moved)
            return; // the next call fails at the same event
    }
    store_error(log, projection, &page->events[failed_at], why);
}

int outlog_project(outlog *log, const struct outlog_project *projection, size_t limit,
                   int timeout_ms, size_t *count, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_checkpoint row;
    bool moved = true;
    size_t failed_at;
    outlog_err why;
    int result = -1;

    if (count)
        *count = 0;
    if (check_arguments(projection, err) < 0 || ol_log_ready(log, err) < 0 ||
        load_checkpoint(log, projection, projection->version ? projection->version : 1, &row, err) <
            0)
        return -1;
    int64_t from = row.shown.last_applied_event_id;
    if (outlog_follow(log, NULL, from, limit, timeout_ms, &page, err) < 0 ||
        drop_skipped(log, projection, row.shown.version, &page, err) < 0)
        goto out;
    if (page.next_after > from &&
        apply_page(log, projection, &page, from, &moved, &failed_at, &why) < 0) {
        if (failed_at != SIZE_MAX)
            apply_before(log, projection, &page, from, failed_at, &why);
        if (err)
            *err = why;
        goto out;
    }
    if (count && moved)
        *count = page.count;
    result = 0;
out:
    outlog_page_clear(&page);
    return result;
}
