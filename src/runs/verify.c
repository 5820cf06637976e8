/* verify.c: compares the rows of the tables with the rows that their events replay to (U3).
 *
 * V1  Both are read in one snapshot: a run that changes meanwhile shows no difference.
 * V2  Memory holds one run at a time: the next one reuses it.
 * V3  Both directions are compared: a row that was deleted is found as well as one that was
 *     changed or invented. */
#include "runs/snapshot.h"

#include "base/sha256.h"

#include <string.h>

struct comparison {
    struct ol_run_snapshot stored, replayed;
    ol_difference_function *on_difference;
    void *user;
    int64_t differences;
    struct ol_verify *verify; /* counts what was compared; or NULL */
};

static void clear_comparison(struct comparison *c)
{
    ol_run_snapshot_clear(&c->stored);
    ol_run_snapshot_clear(&c->replayed);
}

/* --- comparing --- */

static void report_difference(struct comparison *c, const struct ol_row *row, const char *column,
                              const char *stored, const char *replayed)
{
    const char *id = ol_row_text(row, 0, &c->stored.arena);
    c->differences++;
    if (c->on_difference)
        c->on_difference(c->user, row->table->name, id ? id : "", column, stored ? stored : "null",
                         replayed ? replayed : "null");
}

static void report_row(struct comparison *c, const struct ol_row *row, bool is_stored)
{
    struct ol_buf json = {0};
    ol_row_json(row, &json);
    const char *text = json.failed ? "{}" : json.data;
    report_difference(c, row, "row", is_stored ? text : NULL, is_stored ? NULL : text);
    ol_buf_clear(&json);
}

static bool texts_equal(const char *one, const char *two)
{
    return one == two || (one && two && strcmp(one, two) == 0);
}

/* Whether both are the same JSON value, however they are written. */
static bool json_equals(const char *one, const char *two)
{
    struct ol_buf a = {0}, b = {0};
    struct ol_json x, y;
    bool is_same = ol_json_parse(one, strlen(one), &x, NULL) == 0 &&
                   ol_json_parse(two, strlen(two), &y, NULL) == 0 &&
                   ol_json_canonical(&x, &a) == 0 && ol_json_canonical(&y, &b) == 0 &&
                   a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
    ol_buf_clear(&a);
    ol_buf_clear(&b);
    return is_same;
}

/* A spec is never in an event (E13), its hash is. */
static void compare_spec(struct comparison *c, const struct ol_row *stored,
                         const struct ol_row *replayed)
{
    char hash[OL_SHA256_TEXT] = "";
    const char *spec = stored->values[OL_IN_EFFECT_SPEC];
    if (!replayed->values[OL_IN_EFFECT_SPEC_HASH])
        return;
    if (!spec || outlog_request_hash(spec, hash, NULL) < 0 ||
        !ol_row_is(replayed, OL_IN_EFFECT_SPEC_HASH, hash))
        report_difference(c, stored, "effect_spec", ol_row_value_text(&c->stored.arena, hash),
                          replayed->values[OL_IN_EFFECT_SPEC_HASH]);
}

/* Deliveries to a session's clients are counted in the row; the log has them when the effect ends.
 */
static bool is_counted_later(const struct ol_row *stored, int column)
{
    return stored->table == &ol_table_effect &&
           (column == OL_IN_EFFECT_ATTEMPTS || column == OL_IN_EFFECT_LAST_ATTEMPT_AT ||
            column == OL_IN_EFFECT_UPDATED_AT) &&
           ol_row_is(stored, OL_IN_EFFECT_DESTINATION, "session") &&
           (ol_row_is(stored, OL_IN_EFFECT_STATUS, "PENDING") ||
            ol_row_is(stored, OL_IN_EFFECT_STATUS, "EXECUTING"));
}

static void compare_rows(struct comparison *c, const struct ol_row *stored,
                         const struct ol_row *replayed)
{
    for (int i = 0; i < stored->table->count; i++) {
        if (stored->table->columns[i].type == OL_COLUMN_SPEC) {
            compare_spec(c, stored, replayed);
            continue;
        }
        if (is_counted_later(stored, i))
            continue;
        const char *one = stored->values[i], *two = replayed->values[i];
        if (!texts_equal(one, two) && !(one && two && json_equals(one, two)))
            report_difference(c, stored, stored->table->columns[i].name, one, two);
    }
}

static void compare_lists(struct comparison *c, const struct ol_row_list *stored,
                          const struct ol_row_list *replayed)
{
    for (const struct ol_row *one = stored->first; one; one = one->next) {
        const struct ol_row *other = ol_row_find(replayed, ol_row_key(one));
        if (other)
            compare_rows(c, one, other);
        else
            report_row(c, one, true);
    }
    for (const struct ol_row *one = replayed->first; one; one = one->next)
        if (!ol_row_find(stored, ol_row_key(one)))
            report_row(c, one, false);
}

static int64_t count_rows(const struct ol_row_list *list)
{
    int64_t count = 0;
    for (const struct ol_row *row = list->first; row; row = row->next)
        count++;
    return count;
}

static void compare_snapshots(struct comparison *c)
{
    if (c->verify) {
        c->verify->signals += count_rows(&c->replayed.signals);
        c->verify->runs += count_rows(&c->replayed.runs);
        c->verify->steps += count_rows(&c->replayed.steps);
        c->verify->effects += count_rows(&c->replayed.effects);
        c->verify->checkpoints += count_rows(&c->replayed.checkpoints);
    }
    compare_lists(c, &c->stored.signals, &c->replayed.signals);
    compare_lists(c, &c->stored.runs, &c->replayed.runs);
    compare_lists(c, &c->stored.steps, &c->replayed.steps);
    compare_lists(c, &c->stored.effects, &c->replayed.effects);
    compare_lists(c, &c->stored.checkpoints, &c->replayed.checkpoints);
}

static int check_signal(outlog *log, const char *signal_id, const char *org_key,
                        struct comparison *c, outlog_err *err)
{
    ol_run_snapshot_reset(&c->stored);
    ol_run_snapshot_reset(&c->replayed);
    if (ol_run_snapshot_load_signal(log->conn, signal_id, &c->stored, err) < 0 ||
        ol_replay_signal(log, signal_id, org_key, &c->replayed, err) < 0)
        return -1;
    compare_snapshots(c);
    return 0;
}

static int check_effect(outlog *log, const char *effect_id, const char *org_key,
                        struct comparison *c, outlog_err *err)
{
    ol_run_snapshot_reset(&c->stored);
    ol_run_snapshot_reset(&c->replayed);
    if (ol_run_snapshot_load_effect(log->conn, effect_id, &c->stored, err) < 0 ||
        ol_replay_effect(log, effect_id, org_key, &c->replayed, err) < 0)
        return -1;
    compare_snapshots(c);
    return 0;
}

static int check_run(outlog *log, const char *run_id, const char *org_key, struct comparison *c,
                     outlog_err *err)
{
    ol_run_snapshot_reset(&c->stored);
    ol_run_snapshot_reset(&c->replayed);
    if (ol_run_snapshot_load_run(log->conn, run_id, &c->stored, err) < 0 ||
        ol_replay_run(log, run_id, org_key, &c->replayed, err) < 0)
        return -1;
    compare_snapshots(c);
    return 0;
}

static int begin_read(outlog *log, outlog_err *err)
{
    if (log->tx)
        return ol_fail(err, OUTLOG_MISUSE, "this handle has an open transaction");
    if (ol_log_ready(log, err) < 0 || ol_registry_refresh(&log->registry, log->conn, err) < 0)
        return -1;
    return log->conn->store->snapshot(log->conn, err);
}

/* --- one run --- */

static int verify_run(outlog *log, const char *run_id, const char *org_id, struct comparison *c,
                      struct ol_arena *arena, outlog_err *err)
{
    const char *org, *signal_id = NULL;
    if (ol_run_read_org(log, run_id, org_id, arena, &org, err) < 0)
        return -1;
    const char *org_key = org ? org : "";
    if (check_run(log, run_id, org_key, c, err) < 0)
        return -1;
    if (c->replayed.runs.first)
        signal_id = ol_row_text(c->replayed.runs.first, OL_IN_RUN_SIGNAL, arena);
    return signal_id ? check_signal(log, signal_id, org_key, c, err) : 0;
}

int ol_run_verify(outlog *log, const char *run_id, const char *org_id,
                  ol_difference_function *on_difference, void *user, int64_t *differences,
                  outlog_err *err)
{
    struct comparison c = {.on_difference = on_difference, .user = user};
    struct ol_arena arena = {0};
    char id[OL_UUID_TEXT];

    if (ol_uuid_parse(run_id, id))
        run_id = id;
    if (begin_read(log, err) < 0)
        return -1;
    int result = verify_run(log, run_id, org_id, &c, &arena, err);
    log->conn->store->rollback(log->conn);
    *differences = c.differences;
    clear_comparison(&c);
    ol_arena_clear(&arena);
    return result;
}

static void on_difference_json(void *user, const char *table, const char *id, const char *column,
                               const char *stored, const char *replayed)
{
    struct ol_buf *out = user;
    ol_buf_print(out, "%s{\"table\":\"%s\",\"id\":", out->bytes ? "," : "", table);
    ol_buf_json_text(out, id);
    ol_buf_print(out, ",\"field\":\"%s\",\"stored\":", column);
    ol_buf_text(out, stored);
    ol_buf_text(out, ",\"replayed\":");
    ol_buf_text(out, replayed);
    ol_buf_char(out, '}');
}

int ol_run_verify_json(outlog *log, const char *run_id, const char *org_id, struct ol_buf *out,
                       outlog_err *err)
{
    struct ol_buf list = {0};
    int64_t count;
    int result = ol_run_verify(log, run_id, org_id, on_difference_json, &list, &count, err);
    if (result == 0) {
        ol_buf_print(out, "{\"matches\":%s,\"differences\":[", count ? "false" : "true");
        ol_buf_text(out, list.bytes ? list.data : "");
        ol_buf_text(out, "]}");
        if (out->failed || list.failed)
            result = ol_no_memory(err);
    }
    ol_buf_clear(&list);
    return result;
}

/* --- every signal and run --- */

enum { VERIFY_CHUNK_MAX = 1000 };

typedef int check_function(outlog *log, const char *id, const char *org_key, struct comparison *c,
                           outlog_err *err);

struct verify_start {
    int64_t event_id;
    check_function *check;
    const char *id, *org_key;
};

static check_function *find_check(const char *event_type)
{
    return strcmp(event_type, "RUN_STARTED") == 0        ? check_run
           : strcmp(event_type, "EFFECT_REQUESTED") == 0 ? check_effect
                                                         : check_signal;
}

static int read_starts(outlog *log, const struct ol_verify *verify, int limit,
                       struct ol_arena *arena, struct verify_start *out, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    int count = 0, more = 0;
    if (ol_store_query(log->conn, OL_Q_VERIFY_STARTS,
                       OL_PARAMS(ol_value_int(verify->after), ol_value_int(verify->upto),
                                 ol_value_int(limit)),
                       &rows, err) < 0)
        return -1;
    while (count < limit && (more = ol_rows_next(&rows, err)) > 0) {
        const char *org = ol_rows_copy(&rows, 3, arena, &failed);
        out[count++] = (struct verify_start){
            .event_id = ol_rows_int(&rows, 0),
            .check = find_check(ol_rows_text(&rows, 1, NULL)),
            .id = ol_rows_copy(&rows, 2, arena, &failed),
            .org_key = org ? org : "",
        };
    }
    ol_rows_end(&rows);
    if (failed)
        return ol_no_memory(err);
    return count < limit && more < 0 ? -1 : count;
}

int ol_verify_next(outlog *log, struct ol_verify *verify, int limit, outlog_err *err)
{
    struct verify_start starts[VERIFY_CHUNK_MAX];
    struct comparison c = {.on_difference = verify->on_difference,
                           .user = verify->user,
                           .verify = verify};
    struct ol_arena arena = {0};
    int result = -1;

    if (limit > VERIFY_CHUNK_MAX)
        limit = VERIFY_CHUNK_MAX;
    if (!verify->upto && outlog_settled(log, &verify->upto, err) < 0)
        return -1;
    if (begin_read(log, err) < 0)
        return -1;
    int count = read_starts(log, verify, limit, &arena, starts, err);
    for (int i = 0; i < count; i++) {
        const struct verify_start *start = &starts[i];
        if (start->check(log, start->id, start->org_key, &c, err) < 0)
            goto out;
        verify->differences += c.differences;
        c.differences = 0;
        verify->after = start->event_id;
    }
    if (count == 0)
        verify->after = verify->upto;
    result = count;
out:
    log->conn->store->rollback(log->conn);
    clear_comparison(&c);
    ol_arena_clear(&arena);
    return result;
}

int ol_verify_orphans(outlog *log, struct ol_verify *verify, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_VERIFY_ORPHANS, OL_PARAMS(ol_value_int(VERIFY_CHUNK_MAX)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        verify->differences++;
        if (verify->on_difference)
            verify->on_difference(verify->user, ol_rows_text(&rows, 0, NULL),
                                  ol_rows_text(&rows, 1, NULL), "row", "{}", "null");
    }
    ol_rows_end(&rows);
    return more;
}
