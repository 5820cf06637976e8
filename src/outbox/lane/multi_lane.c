/* multi_lane.c: one query reads all lanes; one pipeline updates all rows. */
#include "outbox/lane/multi_lane.h"

#include "base/clock.h"
#include "base/fault.h"
#include "outbox/lane/cursor.h"

#include <assert.h>

/* --- reading --- */

static bool write_lanes(const struct ol_multi_lane *lanes, size_t count, struct ol_buf *out)
{
    for (size_t i = 0; i < count; i++) {
        const struct ol_lane *lane = lanes[i].lane;
        assert(i == 0 || lanes[i - 1].lane->number < lane->number);
        ol_buf_print(out, "%s{\"lane\":%d,\"head\":%lld", i ? "," : "[", lane->number,
                     (long long)lane->head);
        if (lane->gap_count) {
            ol_buf_text(out, ",\"gaps\":\"");
            ol_lane_ranges_write(lane->gaps, lane->gap_count, out);
            ol_buf_char(out, '"');
        }
        ol_buf_char(out, '}');
    }
    ol_buf_char(out, ']');
    return !out->failed;
}

/* Rows come in the order of the lanes. */
static int read_rows(struct ol_rows *rows, struct ol_multi_lane *lanes, outlog_err *err)
{
    enum { MULTI_LANE_COLUMN = 21 }; // after the columns of a message
    size_t capacity = 0, at = 0;
    int more;
    while ((more = ol_rows_next(rows, err)) > 0) {
        for (int64_t number = ol_rows_int(rows, MULTI_LANE_COLUMN);
             lanes[at].lane->number != number; at++)
            capacity = 0;
        struct ol_multi_lane *to = &lanes[at];
        struct ol_claimed_message *item =
            ol_claimed_message_add(&to->messages, &to->count, &capacity, to->arena);
        if (!item)
            return ol_no_memory(err);
        if (ol_claimed_message_read(rows, false, to->arena, item, err) < 0)
            return -1;
    }
    return more;
}

int ol_multi_lane_read(struct ol_conn *conn, struct ol_multi_lane *lanes, size_t count,
                       size_t limit, outlog_err *err)
{
    struct ol_rows rows = {0};
    struct ol_buf json = {0};
    int result = -1;

    for (size_t i = 0; i < count; i++) {
        lanes[i].messages = NULL;
        lanes[i].count = 0;
    }
    if (!write_lanes(lanes, count, &json))
        ol_no_memory(err);
    else if (ol_store_query(conn, OL_Q_OUTBOX_READ_LANES,
                            OL_PARAMS(ol_value_text(json.data), ol_value_int((int64_t)limit)),
                            &rows, err) == 0)
        result = read_rows(&rows, lanes, err);
    ol_rows_end(&rows);
    ol_buf_clear(&json);
    for (size_t i = 0; result == 0 && i < count; i++) {
        if (lanes[i].lane->proof.is_over)
            ol_gap_close(lanes[i].lane, lanes[i].messages, lanes[i].count);
        result = ol_gap_prove(conn, lanes[i].lane, err);
    }
    return result;
}

/* --- writing --- */

/* Send all updates at once. */
static int run_updates(struct ol_conn *conn, struct ol_multi_lane *lanes, size_t count,
                       struct ol_rows *rows, outlog_err *err)
{
    struct ol_cursor_update updates[OL_MULTI_LANE_MAX] = {{.query = 0}};
    struct ol_pipelined_query queries[OL_MULTI_LANE_MAX];
    int result = 0;

    for (size_t i = 0; i < count && result == 0; i++) {
        result = ol_cursor_update_begin(&updates[i], lanes[i].lane, lanes[i].turn, err);
        queries[i] = (struct ol_pipelined_query){updates[i].query, updates[i].params};
    }
    ol_fault("multi_lane.sent");
    if (result == 0)
        result = ol_store_pipeline(conn, queries, count, rows, err);
    for (size_t i = 0; i < count; i++)
        ol_cursor_update_clear(&updates[i]);
    return result;
}

int ol_multi_lane_write(struct ol_conn *conn, struct ol_multi_lane *lanes, size_t count,
                        outlog_err *err)
{
    struct ol_rows rows[OL_MULTI_LANE_MAX];
    int64_t before = ol_clock_boot_us();
    int result = 0;

    assert(count <= OL_MULTI_LANE_MAX);
    for (size_t i = 0; i < count; i++)
        lanes[i].result = OL_TURN_STALE;
    if (run_updates(conn, lanes, count, rows, err) < 0) {
        for (size_t i = 0; i < count; i++) {
            enum ol_turn_result known = OL_TURN_DONE;
            if (ol_lane_resolve(conn, lanes[i].lane, lanes[i].turn, before, &known, err) == 0)
                lanes[i].result = known;
        }
        return -1;
    }
    ol_fault("multi_lane.done");
    for (size_t i = 0; i < count; i++) {
        bool is_ours;
        outlog_err ignored; // all rows have been received
        ol_cursor_update_end(lanes[i].lane, &rows[i], &is_ours, &ignored);
        if (is_ours) {
            lanes[i].result = OL_TURN_DONE;
            ol_lane_move(lanes[i].lane, lanes[i].turn, before);
        }
    }
    // A row that only changed its location is STALE too, and searched by its key the next time.
    for (size_t i = 0; i < count; i++)
        if (lanes[i].result == OL_TURN_STALE &&
            ol_lane_explain_refusal(conn, lanes[i].lane, &lanes[i].result, err) < 0)
            result = -1;
    return result;
}
