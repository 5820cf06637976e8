/* snapshot.c: runs as the tables hold them, and the JSON that every interface shows of them. */
#include "runs/snapshot.h"

#include "log/event.h"
#include "log/read.h"

#include <string.h>

enum { RESUME_PAGE_EVENTS = 64, RUN_LIST_MAX = 10000, TIMELINE_EVENTS_MAX = 10000 };

/* --- memory --- */

static void reset_lists(struct ol_run_snapshot *snapshot)
{
    snapshot->signals = snapshot->runs = snapshot->steps = snapshot->effects =
        snapshot->checkpoints = (struct ol_row_list){0};
}

void ol_run_snapshot_reset(struct ol_run_snapshot *snapshot)
{
    ol_arena_reset(&snapshot->arena);
    reset_lists(snapshot);
}

void ol_run_snapshot_clear(struct ol_run_snapshot *snapshot)
{
    ol_arena_clear(&snapshot->arena);
    reset_lists(snapshot);
}

/* --- rows from the tables --- */

int ol_run_snapshot_load_signal(struct ol_conn *conn, const char *signal_id,
                                struct ol_run_snapshot *snapshot, outlog_err *err)
{
    return ol_row_list_load(conn, OL_Q_SIGNAL_GET, OL_PARAMS(ol_value_text(signal_id)),
                            &ol_table_signal, &snapshot->arena, &snapshot->signals, err);
}

int ol_run_snapshot_load_effect(struct ol_conn *conn, const char *effect_id,
                                struct ol_run_snapshot *snapshot, outlog_err *err)
{
    return ol_row_list_load(conn, OL_Q_EFFECT_GET, OL_PARAMS(ol_value_text(effect_id)),
                            &ol_table_effect, &snapshot->arena, &snapshot->effects, err);
}

int ol_run_snapshot_load_run(struct ol_conn *conn, const char *run_id,
                             struct ol_run_snapshot *snapshot, outlog_err *err)
{
    const struct {
        enum ol_query_id query;
        const struct ol_table *table;
        struct ol_row_list *list;
    } parts[] = {{OL_Q_RUN_GET, &ol_table_run, &snapshot->runs},
                 {OL_Q_RUN_STEPS, &ol_table_step, &snapshot->steps},
                 {OL_Q_RUN_EFFECTS, &ol_table_effect, &snapshot->effects},
                 {OL_Q_RUN_CHECKPOINTS, &ol_table_checkpoint, &snapshot->checkpoints}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (ol_row_list_load(conn, parts[i].query, OL_PARAMS(ol_value_text(run_id)), parts[i].table,
                             &snapshot->arena, parts[i].list, err) < 0)
            return -1;
    return 0;
}

/* --- one consistent read --- */

static int begin_read(outlog *log, outlog_err *err)
{
    if (log->tx)
        return ol_fail(err, OUTLOG_MISUSE, "this handle has an open transaction");
    if (ol_log_ready(log, err) < 0 || ol_registry_refresh(&log->registry, log->conn, err) < 0)
        return -1;
    return log->conn->store->snapshot(log->conn, err);
}

static void end_read(outlog *log)
{
    log->conn->store->rollback(log->conn);
}

static bool may_see(const struct ol_row *run, const char *org_id)
{
    return run && (!org_id || ol_row_is(run, OL_IN_RUN_ORG, org_id));
}

static int report_no_run(const char *run_id, outlog_err *err)
{
    return ol_fail(err, OUTLOG_NOT_FOUND, "no run %.100s; `outlog runs` lists them", run_id);
}

static int load_visible(outlog *log, const char *run_id, const char *org_id,
                        struct ol_run_snapshot *snapshot, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    if (ol_uuid_parse(run_id, id))
        run_id = id;
    if (ol_run_snapshot_load_run(log->conn, run_id, snapshot, err) < 0)
        return -1;
    return may_see(snapshot->runs.first, org_id) ? 0 : report_no_run(run_id, err);
}

static int check_buffer(struct ol_buf *out, outlog_err *err)
{
    return out->failed ? ol_no_memory(err) : 0;
}

/* --- get and list --- */

static void put_run(const struct ol_run_snapshot *snapshot, struct ol_buf *out)
{
    ol_buf_char(out, '{');
    ol_row_members(snapshot->runs.first, out);
    ol_buf_text(out, ",\"steps\":");
    ol_row_list_json(&snapshot->steps, out);
    ol_buf_text(out, ",\"effects\":");
    ol_row_list_json(&snapshot->effects, out);
    ol_buf_text(out, ",\"checkpoints\":");
    ol_row_list_json(&snapshot->checkpoints, out);
    ol_buf_char(out, '}');
}

int ol_run_get(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
               outlog_err *err)
{
    struct ol_run_snapshot snapshot = {0};
    if (begin_read(log, err) < 0)
        return -1;
    int result = load_visible(log, run_id, org_id, &snapshot, err);
    end_read(log);
    if (result == 0) {
        put_run(&snapshot, out);
        result = check_buffer(out, err);
    }
    ol_run_snapshot_clear(&snapshot);
    return result;
}

int ol_run_get_signal(outlog *log, const char *signal_id, const char *org_id, struct ol_buf *out,
                      outlog_err *err)
{
    struct ol_run_snapshot snapshot = {0};
    char id[OL_UUID_TEXT];
    if (begin_read(log, err) < 0)
        return -1;
    int result = ol_run_snapshot_load_signal(log->conn,
                                             ol_uuid_parse(signal_id, id) ? id : signal_id,
                                             &snapshot, err);
    end_read(log);
    const struct ol_row *signal = snapshot.signals.first;
    if (result == 0 && (!signal || (org_id && !ol_row_is(signal, OL_IN_SIGNAL_ORG, org_id)))) {
        result = ol_fail(err, OUTLOG_NOT_FOUND, "no signal %.100s; check the id", signal_id);
    } else if (result == 0) {
        ol_row_json(signal, out);
        result = check_buffer(out, err);
    }
    ol_run_snapshot_clear(&snapshot);
    return result;
}

int ol_run_snapshot_load_all(outlog *log, const char *run_id, struct ol_run_snapshot *snapshot,
                             struct outlog_page *page, outlog_err *err)
{
    struct ol_rows rows = {0};
    int result = -1;
    if (begin_read(log, err) < 0)
        return -1;
    if (load_visible(log, run_id, NULL, snapshot, err) < 0)
        goto out;
    const struct ol_row *run = snapshot->runs.first;
    const char *signal_id = ol_row_text(run, OL_IN_RUN_SIGNAL, &snapshot->arena);
    const char *org = ol_row_text(run, OL_IN_RUN_ORG, &snapshot->arena);
    if (signal_id && ol_run_snapshot_load_signal(log->conn, signal_id, snapshot, err) < 0)
        goto out;
    if (!ol_read_page_reset(page)) {
        ol_no_memory(err);
        goto out;
    }
    if (ol_store_query(log->conn, OL_Q_RUN_EVENTS,
                       OL_PARAMS(ol_value_text(ol_row_text(run, OL_IN_RUN_ID, &snapshot->arena)),
                                 ol_value_text(org ? org : ""), ol_value_int(0),
                                 ol_value_int(TIMELINE_EVENTS_MAX)),
                       &rows, err) == 0)
        result = ol_read_page_fill(log, page, &rows, false, false, err) < 0 ? -1 : 0;
    ol_rows_end(&rows);
out:
    end_read(log);
    return result;
}

int ol_run_list(outlog *log, const char *status, const char *org_id, const char *after,
                size_t limit, struct ol_buf *out, outlog_err *err)
{
    static const char *const known[] = {"RUNNING", "COMPLETED", "FAILED", "CANCELLED"};
    struct ol_run_snapshot snapshot = {0};
    char id[OL_UUID_TEXT];
    bool is_known = !status;
    size_t count = 0;
    int result = -1;

    for (size_t i = 0; status && i < sizeof known / sizeof *known; i++)
        is_known |= strcmp(status, known[i]) == 0;
    if (!is_known)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/status",
                          "status must be RUNNING, COMPLETED, FAILED or CANCELLED");
    if (limit < 1 || limit > RUN_LIST_MAX)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/limit", "limit must be 1 to %d",
                          RUN_LIST_MAX);
    if (after && !ol_uuid_parse(after, id))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/after", "after is the next_after of a page");
    if (ol_log_ready(log, err) < 0 ||
        ol_row_list_load(log->conn, OL_Q_RUN_LIST,
                         OL_PARAMS(ol_value_int((int64_t)limit + 1),
                                   ol_value_optional(after ? id : NULL), ol_value_optional(status),
                                   ol_value_optional(org_id)),
                         &ol_table_run, &snapshot.arena, &snapshot.runs, err) < 0)
        goto out;
    const char *next_after = NULL, *last = NULL;
    ol_buf_text(out, "{\"runs\":[");
    for (struct ol_row *run = snapshot.runs.first; run; run = run->next) {
        if (count++ == limit) { // the query reads one more, to know whether there is a next page
            next_after = last;
            break;
        }
        if (count > 1)
            ol_buf_char(out, ',');
        ol_row_json(run, out);
        last = run->values[OL_IN_RUN_ID];
    }
    ol_buf_print(out, "],\"next_after\":%s}", next_after ? next_after : "null");
    result = check_buffer(out, err);
out:
    ol_run_snapshot_clear(&snapshot);
    return result;
}

/* --- resume --- */

static int put_events(outlog *log, const struct ol_row *run, int64_t after, struct ol_arena *arena,
                      struct ol_buf *out, outlog_err *err)
{
    struct outlog_page page = {0};
    const char *org = ol_row_text(run, OL_IN_RUN_ORG, arena);
    bool is_first = true;
    int result = -1;

    ol_buf_char(out, '[');
    do {
        struct ol_rows rows;
        if (!ol_read_page_reset(&page)) {
            ol_no_memory(err);
            goto out;
        }
        if (ol_store_query(log->conn, OL_Q_RUN_EVENTS,
                           OL_PARAMS(ol_value_text(ol_row_text(run, OL_IN_RUN_ID, arena)),
                                     ol_value_text(org ? org : ""), ol_value_int(after),
                                     ol_value_int(RESUME_PAGE_EVENTS)),
                           &rows, err) < 0)
            goto out;
        int filled = ol_read_page_fill(log, &page, &rows, false, false, err);
        ol_rows_end(&rows);
        if (filled < 0)
            goto out;
        for (size_t i = 0; i < page.count; i++) {
            if (!is_first)
                ol_buf_char(out, ',');
            is_first = false;
            ol_event_write_json(&page.events[i], out);
            after = page.events[i].event_id;
        }
    } while (page.count == RESUME_PAGE_EVENTS);
    ol_buf_char(out, ']');
    result = 0;
out:
    outlog_page_clear(&page);
    return result;
}

int ol_run_resume(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                  outlog_err *err)
{
    struct ol_run_snapshot snapshot = {0};
    if (begin_read(log, err) < 0)
        return -1;
    int result = load_visible(log, run_id, org_id, &snapshot, err);
    if (result == 0) {
        const struct ol_row *latest = snapshot.checkpoints.last;
        ol_buf_text(out, "{\"run\":");
        put_run(&snapshot, out);
        ol_buf_text(out, ",\"checkpoint\":");
        ol_row_json(latest, out);
        ol_buf_text(out, ",\"events\":");
        result = put_events(log, snapshot.runs.first,
                            latest ? ol_row_int(latest, OL_IN_CHECKPOINT_EVENT) : 0,
                            &snapshot.arena, out, err);
        ol_buf_char(out, '}');
    }
    end_read(log);
    ol_run_snapshot_clear(&snapshot);
    return result < 0 ? -1 : check_buffer(out, err);
}

/* --- replay --- */

int ol_run_read_org(outlog *log, const char *run_id, const char *org_id, struct ol_arena *arena,
                    const char **org, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    if (ol_store_query(log->conn, OL_Q_RUN_ORG, OL_PARAMS(ol_value_text(run_id)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *org = got > 0 ? ol_rows_copy(&rows, 0, arena, &failed) : NULL;
    ol_rows_end(&rows);
    if (failed)
        return ol_no_memory(err);
    if (got == 0 || (got > 0 && org_id && (!*org || strcmp(org_id, *org) != 0)))
        return report_no_run(run_id, err);
    return got < 0 ? -1 : 0;
}

int ol_run_replay(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                  outlog_err *err)
{
    struct ol_run_snapshot snapshot = {0};
    const char *org;
    char id[OL_UUID_TEXT];
    int result = -1;

    if (ol_uuid_parse(run_id, id))
        run_id = id;
    if (begin_read(log, err) < 0)
        return -1;
    if (ol_run_read_org(log, run_id, org_id, &snapshot.arena, &org, err) < 0 ||
        ol_replay_run(log, run_id, org ? org : "", &snapshot, err) < 0)
        goto out;
    if (!snapshot.runs.first) {
        report_no_run(run_id, err);
        goto out;
    }
    ol_buf_text(out, "{\"run\":");
    ol_row_json(snapshot.runs.first, out);
    ol_buf_text(out, ",\"steps\":");
    ol_row_list_json(&snapshot.steps, out);
    ol_buf_text(out, ",\"effects\":");
    ol_row_list_json(&snapshot.effects, out);
    ol_buf_text(out, ",\"checkpoints\":");
    ol_row_list_json(&snapshot.checkpoints, out);
    ol_buf_char(out, '}');
    result = check_buffer(out, err);
out:
    end_read(log);
    ol_run_snapshot_clear(&snapshot);
    return result;
}
