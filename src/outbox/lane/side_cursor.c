/* side_cursor.c: reading, moving, opening and closing side cursors. */
#include "outbox/lane/side_cursor.h"

#include "base/fault.h"
#include "outbox/lane/cursor.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ol_side_cursor *ol_side_cursor_find(const struct ol_lane *lane, const char *destination,
                                           const char *org_key)
{
    for (struct ol_side_cursor *side = lane->sides; side; side = side->next)
        if (strcmp(side->destination, destination) == 0 && strcmp(side->org_key, org_key) == 0)
            return side;
    return NULL;
}

const char *ol_side_cursor_org_key(const struct ol_claimed_message *message, char *out)
{
    snprintf(out, 102, ":%s", message->message.org_id ? message->message.org_id : "");
    return out;
}

int64_t ol_side_cursor_limit(const struct ol_lane *lane, const struct ol_side_cursor *side)
{
    const struct ol_side_cursor *parent =
        *side->org_key ? ol_side_cursor_find(lane, side->destination, "") : NULL;
    return parent ? parent->head : lane->head;
}

static bool has_inner(const struct ol_lane *lane, const struct ol_side_cursor *outer)
{
    for (const struct ol_side_cursor *side = lane->sides; side && !*outer->org_key;
         side = side->next)
        if (side != outer && strcmp(side->destination, outer->destination) == 0)
            return true;
    return false;
}

bool ol_side_cursor_is_done(const struct ol_lane *lane, const struct ol_side_cursor *side)
{
    return !side->open && side->place >= ol_side_cursor_limit(lane, side) && !has_inner(lane, side);
}

void ol_side_cursor_clear_all(struct ol_lane *lane)
{
    while (lane->sides) {
        struct ol_side_cursor *next = lane->sides->next;
        free(lane->sides);
        lane->sides = next;
    }
}

int ol_side_cursor_take_all(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err)
{
    struct ol_rows rows;
    int more;

    ol_side_cursor_clear_all(lane);
    if (ol_store_query(conn, OL_Q_SIDE_TAKE, OL_PARAMS(ol_value_int(lane->number)), &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        struct ol_side_cursor *side = calloc(1, sizeof *side);
        if (!side) {
            more = ol_no_memory(err);
            break;
        }
        snprintf(side->destination, sizeof side->destination, "%s", ol_rows_text(&rows, 0, NULL));
        snprintf(side->org_key, sizeof side->org_key, "%s", ol_rows_text(&rows, 1, NULL));
        side->since = ol_rows_int(&rows, 2);
        side->head = side->place = ol_rows_int(&rows, 3);
        side->claim_no = ol_rows_int(&rows, 4);
        side->next = lane->sides;
        lane->sides = side;
    }
    ol_rows_end(&rows);
    return more;
}

/* --- reading --- */

/* The orgs that an outer cursor passes, as a JSON array; "" when there are none. */
static void write_passed_orgs(const struct ol_lane *lane, const struct ol_side_cursor *outer,
                              struct ol_buf *out)
{
    for (const struct ol_side_cursor *side = lane->sides; side; side = side->next)
        if (!*outer->org_key && *side->org_key &&
            strcmp(side->destination, outer->destination) == 0) {
            ol_buf_char(out, out->bytes ? ',' : '[');
            ol_buf_json_text(out, side->org_key);
        }
    if (out->bytes)
        ol_buf_char(out, ']');
}

int ol_side_cursor_read(struct ol_conn *conn, const struct ol_lane *lane,
                        const struct ol_side_cursor *side, int64_t upto, size_t limit,
                        struct ol_arena *arena, struct ol_claimed_message **messages, size_t *count,
                        outlog_err *err)
{
    struct ol_buf passed = {0};
    struct ol_rows rows;

    write_passed_orgs(lane, side, &passed);
    if (passed.failed)
        return ol_no_memory(err);
    int result =
        ol_store_query(conn, OL_Q_SIDE_READ,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_text(side->destination),
                                 ol_value_int(side->place), ol_value_int(upto),
                                 ol_value_int((int64_t)limit),
                                 ol_value_optional(*side->org_key ? side->org_key : NULL),
                                 ol_value_optional(passed.data)),
                       &rows, err);
    if (result == 0)
        result = ol_claimed_message_read_all(&rows, arena, messages, count, err);
    ol_buf_clear(&passed);
    return result;
}

/* Find where a stretch of new messages ends, and which of its numbers are missing. */
static int measure_stretch(struct ol_conn *conn, const struct ol_lane *lane,
                           struct ol_stretch *stretch, outlog_err *err)
{
    struct ol_rows rows;
    int64_t seen = 0;
    int more;

    *stretch = (struct ol_stretch){.is_known = true, .end = lane->head};
    if (ol_store_query(conn, OL_Q_LANE_STRETCH,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->head),
                                 ol_value_int(OL_SIDE_STRETCH)),
                       &rows, err) < 0)
        return -1;
    if ((more = ol_rows_next(&rows, err)) > 0) {
        stretch->end = ol_rows_int(&rows, 0);
        seen = ol_rows_int(&rows, 1);
        stretch->is_cut = seen >= OL_SIDE_STRETCH;
    }
    ol_rows_end(&rows);
    if (more < 0 || !lane->has_gaps || seen == stretch->end - lane->head)
        return more < 0 ? -1 : 0;
    if (ol_store_query(conn, OL_Q_LANE_HOLES,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->head),
                                 ol_value_int(stretch->end), ol_value_int(OL_LANE_GAPS)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0 && stretch->hole_count < OL_LANE_GAPS)
        stretch->holes[stretch->hole_count++] =
            (struct ol_range){ol_rows_int(&rows, 0), ol_rows_int(&rows, 1)};
    ol_rows_end(&rows);
    if (stretch->hole_count == OL_LANE_GAPS) { // there may be more of them
        stretch->end = stretch->holes[--stretch->hole_count].from - 1;
        stretch->is_cut = true;
    }
    return more < 0 ? -1 : 0;
}

/* The holes come from an older snapshot than the messages. That is safe: a message that appeared in
 * one in between is a fill of a gap, and younger ones of its key were there before it. */
int ol_lane_read_passing(struct ol_conn *conn, struct ol_lane *lane, size_t limit,
                         struct ol_stretch *stretch, struct ol_arena *arena,
                         struct ol_claimed_message **messages, size_t *count, outlog_err *err)
{
    struct ol_buf gaps = {0};
    struct ol_rows rows;
    bool is_decisive = lane->proof.is_over;

    *messages = NULL;
    *count = 0;
    if (measure_stretch(conn, lane, stretch, err) < 0)
        return -1;
    ol_lane_ranges_write(lane->gaps, lane->gap_count, &gaps);
    if (gaps.failed)
        return ol_no_memory(err);
    int result = ol_store_query(conn, OL_Q_OUTBOX_READ_PASSING,
                                OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->head),
                                          ol_value_int(stretch->end), ol_value_int((int64_t)limit),
                                          ol_value_text(gaps.data)),
                                &rows, err);
    if (result == 0)
        result = ol_claimed_message_read_all(&rows, arena, messages, count, err);
    ol_buf_clear(&gaps);
    if (result < 0)
        return -1;
    if (*count >= limit && (*messages)[*count - 1].seq < stretch->end) {
        stretch->end = (*messages)[*count - 1].seq;
        stretch->is_cut = true;
    }
    if (is_decisive)
        ol_gap_close(lane, *messages, *count);
    return ol_gap_prove(conn, lane, err);
}

int ol_lane_find_other(struct ol_conn *conn, const struct ol_lane *lane, int64_t after,
                       const char *stuck, int64_t *other, int64_t *end, outlog_err *err)
{
    struct ol_rows rows;
    *other = 0;
    *end = after;
    if (ol_store_query(conn, OL_Q_LANE_FIND_OTHER,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_int(after),
                                 ol_value_int(OL_SIDE_STRETCH), ol_value_text(stuck)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0 && !ol_rows_is_null(&rows, 0))
        *end = ol_rows_int(&rows, 0);
    if (got > 0 && !ol_rows_is_null(&rows, 1))
        *other = ol_rows_int(&rows, 1);
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

int ol_side_cursor_find_other(struct ol_conn *conn, const struct ol_lane *lane,
                              const struct ol_side_cursor *side, int64_t after, int64_t upto,
                              const char *org_key, int64_t *other, outlog_err *err)
{
    struct ol_rows rows;
    *other = 0;
    if (ol_store_query(conn, OL_Q_SIDE_FIND_OTHER,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_text(side->destination),
                                 ol_value_int(after), ol_value_int(upto), ol_value_text(org_key)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0 && !ol_rows_is_null(&rows, 0))
        *other = ol_rows_int(&rows, 0);
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* --- in a turn --- */

bool ol_side_cursor_is_within(const struct ol_side_cursor *side,
                              const struct ol_side_cursor *parent)
{
    return parent ? *side->org_key && strcmp(side->destination, parent->destination) == 0
                  : !*side->org_key;
}

int ol_side_cursor_close_all(struct ol_conn *conn, struct ol_lane *lane, const struct ol_turn *turn,
                             bool *is_ours, outlog_err *err)
{
    *is_ours = true;
    for (struct ol_side_cursor *side = lane->sides; side && *is_ours; side = side->next) {
        int64_t closed;
        if (!side->is_closing || !ol_side_cursor_is_within(side, turn->side))
            continue;
        ol_fault("side.close");
        // What it passed over in memory alone is written first: the statement looks above its head.
        if (ol_store_exec(conn, OL_Q_SIDE_CLOSE,
                          OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->epoch),
                                    ol_value_int(lane->parked_gen),
                                    ol_value_text(side->destination), ol_value_text(side->org_key)),
                          &closed, err) < 0)
            return -1;
        *is_ours = closed == 1;
        if (!*is_ours)
            side->place = side->head; // somebody else changed what we know: read it again
    }
    return 0;
}

int ol_side_cursor_open_all(struct ol_conn *conn, const struct ol_lane *lane,
                            const struct ol_turn *turn, outlog_err *err)
{
    for (const struct ol_side_cursor *side = turn->opening; side; side = side->next) {
        ol_fault("side.open");
        if (ol_store_exec(conn, OL_Q_SIDE_OPEN,
                          OL_PARAMS(ol_value_int(lane->number), ol_value_text(side->destination),
                                    ol_value_text(side->org_key), ol_value_int(side->since)),
                          NULL, err) < 0)
            return -1;
    }
    return 0;
}

int ol_side_cursor_advance(struct ol_conn *conn, const struct ol_lane *lane,
                           const struct ol_turn *turn, bool *is_ours, outlog_err *err)
{
    const struct ol_side_cursor *side = turn->side;
    struct ol_buf claim = {0};
    struct ol_rows rows;

    *is_ours = false;
    ol_lane_ranges_write(turn->claim, turn->sent_count ? turn->claim_count : 0, &claim);
    if (claim.failed)
        return ol_no_memory(err);
    ol_fault("side.sent");
    int result =
        ol_store_query(conn, OL_Q_SIDE_ADVANCE,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->epoch),
                                 ol_value_int(lane->parked_gen), ol_value_text(side->destination),
                                 ol_value_text(side->org_key), ol_value_int(side->claim_no),
                                 ol_value_int(turn->side_head), ol_value_text(claim.data)),
                       &rows, err);
    if (result == 0) {
        result = ol_rows_next(&rows, err);
        ol_rows_end(&rows);
    }
    ol_buf_clear(&claim);
    *is_ours = result > 0;
    return result < 0 ? -1 : 0;
}

void ol_side_cursor_move(struct ol_lane *lane, struct ol_turn *turn)
{
    if (turn->side) {
        turn->side->head = turn->side->place = turn->side_head;
        turn->side->claim_no++;
    }
    for (struct ol_side_cursor **at = &lane->sides; *at;) {
        struct ol_side_cursor *side = *at;
        if (!side->is_closing || !ol_side_cursor_is_within(side, turn->side)) {
            at = &side->next;
            continue;
        }
        assert(!side->open);
        *at = side->next;
        free(side);
    }
    while (turn->opening) {
        struct ol_side_cursor *side = turn->opening;
        turn->opening = side->next;
        side->next = lane->sides;
        lane->sides = side;
    }
}

/* --- when it is not clear what happened --- */

static int read_row(struct ol_conn *conn, const struct ol_lane *lane,
                    const struct ol_side_cursor *side, int64_t *epoch, int64_t *claim_no,
                    outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_SIDE_ROW,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_text(side->destination),
                                 ol_value_text(side->org_key)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *epoch = got > 0 ? ol_rows_int(&rows, 0) : -1;
    *claim_no = got > 0 && !ol_rows_is_null(&rows, 1) ? ol_rows_int(&rows, 1) : -1;
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

int ol_side_cursor_explain_refusal(struct ol_conn *conn, const struct ol_lane *lane,
                                   const struct ol_side_cursor *side, enum ol_turn_result *result,
                                   outlog_err *err)
{
    int64_t epoch, claim_no;
    if (read_row(conn, lane, side, &epoch, &claim_no, err) < 0)
        return -1;
    bool is_ours = epoch == lane->epoch && claim_no == side->claim_no;
    *result = is_ours ? OL_TURN_STALE : OL_TURN_FENCED;
    return 0;
}

int ol_side_cursor_resolve(struct ol_conn *conn, struct ol_lane *lane, struct ol_turn *turn,
                           enum ol_turn_result *result, const outlog_err *err)
{
    int64_t epoch, claim_no;
    outlog_err ignored;

    if (err->code != OUTLOG_OUTCOME_UNKNOWN && err->code != OUTLOG_UNAVAILABLE)
        return -1;
    if (conn->store->reconnect(conn, &ignored) < 0 ||
        ol_lane_set_timeouts(conn, lane->lease_us, &ignored) < 0 ||
        read_row(conn, lane, turn->side, &epoch, &claim_no, &ignored) < 0) {
        *result = OL_TURN_FENCED;
        return 0;
    }
    if (epoch != lane->epoch || claim_no != turn->side->claim_no + 1)
        return -1;
    ol_side_cursor_move(lane, turn);
    return 0;
}
