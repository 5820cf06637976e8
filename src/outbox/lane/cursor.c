/* cursor.c: the update of a lane's row, by its location or by its key. */
#include "outbox/lane/cursor.h"

#include "base/fault.h"
#include "outbox/lane/side_cursor.h"

#include <stdio.h>
#include <string.h>

void ol_lane_ranges_write(const struct ol_range *ranges, size_t count, struct ol_buf *out)
{
    ol_buf_char(out, '{');
    for (size_t i = 0; i < count; i++)
        ol_buf_print(out, "%s[%lld,%lld)", i ? "," : "", (long long)ranges[i].from,
                     (long long)ranges[i].to + 1);
    ol_buf_char(out, '}');
}

int ol_cursor_update_begin(struct ol_cursor_update *update, struct ol_lane *lane,
                           const struct ol_turn *turn, outlog_err *err)
{
    enum { TURNS_MAX = 50 };
    ol_lane_ranges_write(turn->gaps, turn->gap_count, &update->gaps);
    ol_lane_ranges_write(turn->claim, turn->sent_count ? turn->claim_count : 0, &update->claim);
    if (update->gaps.failed || update->claim.failed)
        return ol_no_memory(err);
    memcpy(update->location, lane->location, sizeof update->location);
    bool has_location = *update->location && lane->turns++ < TURNS_MAX;
    update->query = has_location ? OL_Q_LANE_ADVANCE_AT : OL_Q_LANE_ADVANCE;
    if (!has_location)
        lane->turns = 0;
    memcpy(update->params,
           OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->epoch),
                     ol_value_int(lane->parked_gen), ol_value_int(lane->claim_no),
                     ol_value_int(turn->head), ol_value_text(update->gaps.data),
                     ol_value_text(update->claim.data), ol_value_int(lane->lease_us),
                     ol_value_text(update->location)),
           sizeof update->params);
    return 0;
}

void ol_cursor_update_clear(struct ol_cursor_update *update)
{
    ol_buf_clear(&update->gaps);
    ol_buf_clear(&update->claim);
}

/* A row that matches returns its new location. */
int ol_cursor_update_end(struct ol_lane *lane, struct ol_rows *rows, bool *is_ours, outlog_err *err)
{
    int got = ol_rows_next(rows, err);
    *is_ours = got > 0;
    lane->location[0] = '\0';
    if (got > 0)
        snprintf(lane->location, sizeof lane->location, "%s", ol_rows_text(rows, 0, NULL));
    ol_rows_end(rows);
    return got < 0 ? -1 : 0;
}

static int run_update(struct ol_conn *conn, struct ol_lane *lane,
                      const struct ol_cursor_update *update, bool *is_ours, outlog_err *err)
{
    struct ol_rows rows;
    return ol_store_query(conn, update->query, update->params, &rows, err) < 0
               ? -1
               : ol_cursor_update_end(lane, &rows, is_ours, err);
}

int ol_lane_advance(struct ol_conn *conn, struct ol_lane *lane, const struct ol_turn *turn,
                    bool *is_ours, outlog_err *err)
{
    struct ol_cursor_update update = {0};
    int result = -1;

    *is_ours = false;
    if (ol_cursor_update_begin(&update, lane, turn, err) < 0)
        goto out;
    ol_fault("claim.sent");
    result = run_update(conn, lane, &update, is_ours, err);
    if (result == 0 && !*is_ours && update.query != OL_Q_LANE_ADVANCE) {
        update.query = OL_Q_LANE_ADVANCE;
        lane->turns = 0;
        result = run_update(conn, lane, &update, is_ours, err);
    }
out:
    ol_cursor_update_clear(&update);
    return result;
}

void ol_lane_move(struct ol_lane *lane, struct ol_turn *turn, int64_t before)
{
    ol_side_cursor_move(lane, turn);
    lane->head = turn->head;
    memcpy(lane->gaps, turn->gaps, turn->gap_count * sizeof *turn->gaps);
    lane->gap_count = turn->gap_count;
    lane->claim_no++;
    lane->lease_end = before + lane->lease_us;
}

/* --- when it is not clear what happened --- */

int ol_lane_read_row(struct ol_conn *conn, const struct ol_lane *lane, int64_t *epoch,
                     int64_t *claim_no, int64_t *parked_gen, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_LANE_ROW, OL_PARAMS(ol_value_int(lane->number)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        *epoch = ol_rows_int(&rows, 0);
        *claim_no = ol_rows_int(&rows, 1);
        *parked_gen = ol_rows_int(&rows, 2);
    }
    ol_rows_end(&rows);
    return got > 0   ? 0
           : got < 0 ? -1
                     : ol_fail(err, OUTLOG_STORE_ERROR, "lane %d does not exist", lane->number);
}

int ol_lane_explain_refusal(struct ol_conn *conn, const struct ol_lane *lane,
                            enum ol_turn_result *result, outlog_err *err)
{
    int64_t epoch, claim_no, parked_gen;
    if (ol_lane_read_row(conn, lane, &epoch, &claim_no, &parked_gen, err) < 0)
        return -1;
    // Our epoch with another claim_no: a turn that we took for lost was stored later. We do not
    // know any more what it claimed, so we continue as after a crash (rule 6).
    bool is_ours = epoch == lane->epoch && claim_no == lane->claim_no;
    *result = is_ours ? OL_TURN_STALE : OL_TURN_FENCED;
    return 0;
}

/* Our epoch and our claim_no prove that it was stored. */
int ol_lane_resolve(struct ol_conn *conn, struct ol_lane *lane, struct ol_turn *turn,
                    int64_t before, enum ol_turn_result *result, const outlog_err *err)
{
    int64_t epoch, claim_no, parked_gen;
    outlog_err ignored;

    if (err->code != OUTLOG_OUTCOME_UNKNOWN && err->code != OUTLOG_UNAVAILABLE)
        return -1;
    if (conn->store->reconnect(conn, &ignored) < 0 ||
        ol_lane_set_timeouts(conn, lane->lease_us, &ignored) < 0 ||
        ol_lane_read_row(conn, lane, &epoch, &claim_no, &parked_gen, &ignored) < 0) {
        *result = OL_TURN_FENCED;
        return 0;
    }
    if (epoch != lane->epoch || claim_no != lane->claim_no + 1)
        return -1;
    ol_lane_move(lane, turn, before);
    return 0;
}
