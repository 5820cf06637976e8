/* lane.c: the lane protocol. lane.h has its invariants; gap.c decides when a gap is dead, turn.c
 * builds what ol_turn_write() writes, cursor.c updates the lane's row. */
#include "outbox/lane/cursor.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/timestamp.h"
#include "outbox/lane/side_cursor.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ol_lane_clear(struct ol_lane *lane)
{
    ol_counter_map_clear(&lane->keys);
    ol_counter_map_clear(&lane->older_keys);
    ol_counter_map_clear(&lane->waiting);
    ol_counter_map_clear(&lane->older_sides);
    ol_side_cursor_clear_all(lane);
    free(lane->proof.holders);
    free(lane->parked_above);
    lane->proof.holders = NULL;
    lane->parked_above = NULL;
}

/* --- ranges --- */

/* '{[1,4),[7,8)}' into ranges. */
static size_t parse_ranges(const char *text, struct ol_range *out, size_t out_max)
{
    size_t count = 0;
    for (const char *at = text; (at = strchr(at, '[')) && count < out_max; count++) {
        char *end;
        out[count].from = strtoll(at + 1, &end, 10);
        out[count].to = strtoll(end + 1, NULL, 10) - 1;
        at = end;
    }
    return count;
}

/* --- ownership --- */

int ol_lane_set_timeouts(struct ol_conn *conn, int64_t lease_us, outlog_err *err)
{
    return ol_store_limit_hang(conn, OL_Q_RELAY_SESSION, lease_us / 3000, err);
}

/* Load counts by name into a map: the columns before the last one make the name. */
static int load_map(struct ol_conn *conn, const struct ol_lane *lane, enum ol_query_id query,
                    int name_columns, struct ol_counter_map *map, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_counter_map fresh = {0};
    struct ol_buf name = {0};
    int more = -1;

    if (ol_store_query(conn, query, OL_PARAMS(ol_value_int(lane->number)), &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        ol_buf_reset(&name);
        for (int i = 0; i < name_columns; i++)
            ol_buf_print(&name, "%s%s", i ? "\x1f" : "", ol_rows_text(&rows, i, NULL));
        if (name.failed ||
            !ol_counter_map_add(&fresh, name.data, ol_rows_int(&rows, name_columns))) {
            more = ol_no_memory(err);
            break;
        }
    }
    ol_rows_end(&rows);
    ol_buf_clear(&name);
    ol_counter_map_clear(more < 0 ? &fresh : map);
    if (more == 0)
        *map = fresh;
    return more;
}

/* First the side cursors: what one of them has parked was stored before it was closed. */
static int load_older(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err)
{
    return load_map(conn, lane, OL_Q_OLDER_SIDES, 1, &lane->older_sides, err) < 0
               ? -1
               : load_map(conn, lane, OL_Q_OLDER_KEYS, 2, &lane->older_keys, err);
}

static int load_keys(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err)
{
    return load_map(conn, lane, OL_Q_PARKED_KEYS, 2, &lane->keys, err) < 0 ||
                   load_older(conn, lane, err) < 0 ||
                   load_map(conn, lane, OL_Q_PARKED_COUNTS, 1, &lane->waiting, err) < 0
               ? -1
               : 0;
}

bool ol_lane_is_blocked(const struct ol_lane *lane, const char *key)
{
    return ol_counter_map_get(&lane->keys, key) || ol_counter_map_get(&lane->older_keys, key);
}

int ol_lane_reload_older(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err)
{
    return lane->older_keys.used || lane->older_sides.used ? load_older(conn, lane, err) : 0;
}

int ol_lane_check(struct ol_conn *conn, const struct ol_lane *lane, outlog_err *err)
{
    int64_t is_sane;
    if (ol_store_number(conn, OL_Q_LANE_IS_SANE, OL_PARAMS(ol_value_int(lane->number)), &is_sane,
                        err) < 0)
        return -1;
    return is_sane
               ? 0
               : ol_fail(err, OUTLOG_STORE_ERROR,
                         "lane %d: its sequence is behind its messages (a careless restore?), so "
                         "new ones would never be seen; set it to the highest number, see "
                         "`outlog doctor`",
                         lane->number);
}

/* What operators have parked above the head: few messages, if any. */
static int load_parked_above(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err)
{
    struct ol_rows rows;
    size_t capacity = 0;
    int more;

    free(lane->parked_above);
    lane->parked_above = NULL;
    lane->parked_above_count = 0;
    if (ol_store_query(conn, OL_Q_PARKED_ABOVE,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->head)), &rows,
                       err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (lane->parked_above_count == capacity) {
            capacity = capacity ? capacity * 2 : 16;
            int64_t *wider = realloc(lane->parked_above, capacity * sizeof *wider);
            if (!wider) {
                more = ol_no_memory(err);
                break;
            }
            lane->parked_above = wider;
        }
        lane->parked_above[lane->parked_above_count++] = ol_rows_int(&rows, 0);
    }
    ol_rows_end(&rows);
    return more;
}

bool ol_lane_is_parked_above(const struct ol_lane *lane, int64_t seq)
{
    for (size_t i = 0; i < lane->parked_above_count && lane->parked_above[i] <= seq; i++)
        if (lane->parked_above[i] == seq)
            return true;
    return false;
}

/* Rule 29: the owner may have come back before we had the lock. */
static int check_gone(struct ol_conn *conn, const struct ol_lane *lane, bool *is_gone,
                      outlog_err *err)
{
    int64_t one;
    outlog_err why;
    *is_gone = ol_store_number(conn, OL_Q_LANE_IS_GONE, OL_PARAMS(ol_value_int(lane->number)), &one,
                               &why) == 0;
    if (*is_gone || why.code == OUTLOG_NOT_FOUND)
        return 0;
    *err = why;
    return -1;
}

/* *is_over: there is no former owner whose messages may still be on their way. */
static int lock_row(struct ol_conn *conn, const struct ol_lane *lane,
                    const struct ol_lane_taker *taker, bool *is_ours, bool *is_over,
                    outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_LANE_LOCK,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_int(taker->knows_server)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *is_ours = got > 0;
    *is_over = got > 0 && ol_rows_int(&rows, 0) != 0;
    ol_rows_end(&rows);
    ol_fault("lane.locked");
    return got < 0 ? -1 : *is_ours && !*is_over ? check_gone(conn, lane, is_ours, err) : 0;
}

/* Take a lane whose row is locked: it is ours from here on. */
static int take_row(struct ol_conn *conn, struct ol_lane *lane, const char *name, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_LANE_TAKE,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_text(lane->run),
                                 ol_value_text(name), ol_value_int(lane->lease_us)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        lane->epoch = ol_rows_int(&rows, 0);
        lane->head = ol_rows_int(&rows, 1);
        lane->gap_count = parse_ranges(ol_rows_text(&rows, 2, NULL), lane->gaps, OL_LANE_GAPS);
        lane->parked_gen = ol_rows_int(&rows, 3);
        lane->claim_no = ol_rows_int(&rows, 4);
        lane->location[0] = '\0';
        lane->proof.is_listed = lane->proof.is_over = false; // start the evidence again
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* The messages with these seqs (a JSON array) as the parked rows have them now. */
static int load_parked(struct ol_conn *conn, const struct ol_lane *lane, const char *seqs,
                       size_t capacity, struct ol_arena *arena,
                       struct ol_claimed_message **messages, size_t *count, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    *count = 0;
    if (!(*messages = ol_arena_array(arena, capacity, sizeof **messages)))
        return ol_no_memory(err);
    if (ol_store_query(conn, OL_Q_PARKED_MARKED,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_text(seqs)), &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0 && *count < capacity)
        if (ol_claimed_message_read(&rows, true, arena, &(*messages)[(*count)++], err) < 0) {
            more = -1;
            break;
        }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

/* Run a statement that ends claims (returning seq, state), and report the messages: first those
 * that are due again, then those that are dead. */
static int abandon_claims(struct ol_conn *conn, const struct ol_lane *lane, enum ol_query_id query,
                          const struct ol_value *params, int64_t *abandoned, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_buf seqs[2] = {{0}};
    size_t counts[2] = {0}, count;
    struct ol_rows rows;
    struct ol_claimed_message *messages;
    int result;

    if (ol_store_query(conn, query, params, &rows, err) < 0)
        return -1;
    while ((result = ol_rows_next(&rows, err)) > 0) {
        bool is_dead = strcmp(ol_rows_text(&rows, 1, NULL), "DEAD") == 0;
        ol_buf_print(&seqs[is_dead], "%s%lld", counts[is_dead]++ ? "," : "[",
                     (long long)ol_rows_int(&rows, 0));
    }
    ol_rows_end(&rows);
    *abandoned = (int64_t)(counts[false] + counts[true]);
    for (int is_dead = 0; is_dead < 2; is_dead++) {
        if (result == 0 && counts[is_dead] && lane->abandoned) {
            ol_buf_char(&seqs[is_dead], ']');
            result = load_parked(conn, lane, seqs[is_dead].data ? seqs[is_dead].data : "[]",
                                 counts[is_dead], &arena, &messages, &count, err);
            if (result == 0)
                result = lane->abandoned(conn, lane->context, messages, count, is_dead, err);
        }
        ol_buf_clear(&seqs[is_dead]);
    }
    ol_arena_clear(&arena);
    return result;
}

/* Rules 24 and 25. What becomes of these messages is decided when their claims end: by the former
 * owner, if he lives and learns it, or by parked_reap. */
static int quarantine_claims(struct ol_conn *conn, const struct ol_lane *lane, const char *timeouts,
                             int64_t *parked, outlog_err *err)
{
    const struct ol_value number = ol_value_int(lane->number);
    return ol_store_exec(conn, OL_Q_LANE_QUARANTINE,
                         OL_PARAMS(number, ol_value_int(lane->lease_us)), parked, err) < 0
               ? -1
               : ol_store_exec(conn, OL_Q_PARKED_HASTEN, OL_PARAMS(number, ol_value_text(timeouts)),
                               NULL, err);
}

/* The lane's row is locked. */
static int take_locked(struct ol_conn *conn, struct ol_lane *lane,
                       const struct ol_lane_taker *taker, bool is_over, int64_t *parked,
                       outlog_err *err)
{
    const struct ol_value number[] = {ol_value_int(lane->number)};
    if (ol_store_exec(conn, OL_Q_PARKED_REBASE, number, NULL, err) < 0)
        return -1;
    int result = is_over ? abandon_claims(conn, lane, OL_Q_LANE_PARK_CLAIM, number, parked, err)
                         : quarantine_claims(conn, lane, taker->timeouts, parked, err);
    return result < 0 || take_row(conn, lane, taker->name, err) < 0 ||
                   ol_side_cursor_take_all(conn, lane, err) < 0 || load_keys(conn, lane, err) < 0 ||
                   load_parked_above(conn, lane, err) < 0
               ? -1
               : 0;
}

int ol_lane_take(struct ol_conn *conn, struct ol_lane *lane, const struct ol_lane_taker *taker,
                 bool *taken, int64_t *parked, outlog_err *err)
{
    int64_t before = ol_clock_boot_us();
    bool is_over;

    *taken = false;
    *parked = 0;
    if (conn->store->begin(conn, err) < 0)
        return -1;
    if (lock_row(conn, lane, taker, taken, &is_over, err) < 0 ||
        (*taken && take_locked(conn, lane, taker, is_over, parked, err) < 0) ||
        conn->store->commit(conn, err) < 0) {
        if (conn->in_transaction)
            conn->store->rollback(conn);
        *taken = false;
        return -1;
    }
    lane->lease_end = before + lane->lease_us;
    return 0;
}

int ol_lane_rebase(struct ol_conn *conn, const struct ol_lane *lane, outlog_err *err)
{
    const struct ol_value number = ol_value_int(lane->number);
    if (conn->store->begin(conn, err) < 0)
        return -1;
    if (ol_store_exec(conn, OL_Q_LANE_TOUCH, OL_PARAMS(number), NULL, err) == 0 &&
        ol_store_exec(conn, OL_Q_PARKED_REBASE, OL_PARAMS(number), NULL, err) == 0)
        return conn->store->commit(conn, err);
    conn->store->rollback(conn);
    return -1;
}

int ol_lane_release(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err)
{
    return ol_store_exec(conn, OL_Q_LANE_RELEASE,
                         OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->epoch)), NULL,
                         err);
}

int ol_lane_renew(struct ol_conn *conn, struct ol_lane *lane, bool *held, outlog_err *err)
{
    int64_t changed, before = ol_clock_boot_us();
    ol_fault("lease.renew");
    if (ol_store_exec(conn, OL_Q_LANE_RENEW,
                      OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->epoch),
                                ol_value_int(lane->lease_us)),
                      &changed, err) < 0)
        return -1;
    *held = changed > 0;
    if (*held)
        lane->lease_end = before + lane->lease_us;
    return 0;
}

int ol_lane_reload(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err)
{
    int64_t epoch, claim_no, parked_gen;
    // Read the generation first: a change after it makes the next claim STALE, which comes back
    // here.
    if (ol_lane_read_row(conn, lane, &epoch, &claim_no, &parked_gen, err) < 0 ||
        load_keys(conn, lane, err) < 0 || load_parked_above(conn, lane, err) < 0)
        return -1;
    lane->parked_gen = parked_gen;
    return 0;
}

void ol_lane_invalidate(struct ol_lane *lane)
{
    lane->parked_gen = -1;
}

/* --- reading --- */

int ol_lane_read(struct ol_conn *conn, struct ol_lane *lane, size_t limit, struct ol_arena *arena,
                 struct ol_claimed_message **messages, size_t *count, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_buf gaps = {0};
    bool is_decisive = lane->proof.is_over;
    int result;

    *messages = NULL;
    *count = 0;
    if (lane->gap_count) {
        ol_lane_ranges_write(lane->gaps, lane->gap_count, &gaps);
        result = ol_store_query(conn, OL_Q_OUTBOX_READ_GAPS,
                                OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->head),
                                          ol_value_int((int64_t)limit), ol_value_text(gaps.data)),
                                &rows, err);
    } else {
        result = ol_store_query(conn, OL_Q_OUTBOX_READ,
                                OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->head),
                                          ol_value_int((int64_t)limit)),
                                &rows, err);
    }
    if (result == 0)
        result = ol_claimed_message_read_all(&rows, arena, messages, count, err);
    ol_buf_clear(&gaps);
    if (result < 0)
        return -1;
    if (is_decisive)
        ol_gap_close(lane, *messages, *count);
    return ol_gap_prove(conn, lane, err);
}

/* --- writing a turn --- */

static int write_rows(struct ol_conn *conn, const struct ol_lane *lane, enum ol_query_id query,
                      struct ol_buf *rows, size_t count, int64_t *changed, outlog_err *err)
{
    if (changed)
        *changed = 0;
    if (count == 0)
        return 0;
    ol_buf_char(rows, ']');
    if (rows->failed)
        return ol_no_memory(err);
    return ol_store_exec(conn, query,
                         OL_PARAMS(ol_value_int(lane->number), ol_value_text(lane->run),
                                   ol_value_text(rows->data)),
                         changed, err);
}

static int write_attempts(struct ol_conn *conn, const struct ol_lane *lane, struct ol_turn *turn,
                          outlog_err *err)
{
    return write_rows(conn, lane, OL_Q_ATTEMPTS_ADD_PLAIN, &turn->plain_attempts,
                      turn->plain_attempt_count, NULL, err) < 0
               ? -1
               : write_rows(conn, lane, OL_Q_ATTEMPTS_ADD, &turn->attempts, turn->attempt_count,
                            NULL, err);
}

/* The seqs of parked messages that are due, as a JSON array; "" when there are none. */
static int find_due(struct ol_conn *conn, const struct ol_lane *lane, const char *capacity,
                    struct ol_buf *seqs, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_PARKED_DUE,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_text(capacity)), &rows,
                       err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        ol_buf_print(seqs, "%s%lld", seqs->bytes ? "," : "[", (long long)ol_rows_int(&rows, 0));
    ol_rows_end(&rows);
    if (seqs->bytes)
        ol_buf_char(seqs, ']');
    return more;
}

static int claim_due(struct ol_conn *conn, const struct ol_lane *lane, const struct ol_turn *turn,
                     struct ol_arena *arena, struct ol_claimed_message **messages, size_t *count,
                     outlog_err *err)
{
    struct ol_buf seqs = {0};
    int64_t marked;
    int more = -1;

    if (find_due(conn, lane, turn->capacity, &seqs, err) < 0)
        goto out;
    if (!seqs.bytes) {
        more = 0;
        goto out;
    }
    if (ol_store_exec(conn, OL_Q_PARKED_MARK,
                      OL_PARAMS(ol_value_int(lane->number), ol_value_text(seqs.data),
                                ol_value_text(lane->run), ol_value_int(turn->row_lease_us)),
                      &marked, err) < 0)
        goto out;
    more = marked ? load_parked(conn, lane, seqs.data, (size_t)marked, arena, messages, count, err)
                  : 0;
out:
    ol_buf_clear(&seqs);
    return more < 0 ? -1 : 0;
}

int ol_turn_write_rows(struct ol_conn *conn, const struct ol_lane *lane, struct ol_turn *turn,
                       int64_t *finished, outlog_err *err)
{
    *finished = 0;
    return write_rows(conn, lane, OL_Q_PARKED_ADD, &turn->parked, turn->parked_count, NULL, err) <
                       0 ||
                   write_rows(conn, lane, OL_Q_PARKED_FINISH, &turn->finished, turn->finished_count,
                              finished, err) < 0
               ? -1
               : write_attempts(conn, lane, turn, err);
}

/* Move the cursor of the turn. Side cursors within it are closed before, and opened after. */
static int move_cursor(struct ol_conn *conn, struct ol_lane *lane, const struct ol_turn *turn,
                       bool *is_ours, outlog_err *err)
{
    *is_ours = true;
    if (turn->is_closing && ol_side_cursor_close_all(conn, lane, turn, is_ours, err) < 0)
        return -1;
    if (!*is_ours)
        return 0;
    if ((turn->side ? ol_side_cursor_advance(conn, lane, turn, is_ours, err)
                    : ol_lane_advance(conn, lane, turn, is_ours, err)) < 0)
        return -1;
    return *is_ours ? ol_side_cursor_open_all(conn, lane, turn, err) : 0;
}

static int reap_claims(struct ol_conn *conn, const struct ol_lane *lane, const struct ol_turn *turn,
                       int64_t *reaped, outlog_err *err)
{
    char as_of[OL_TIMESTAMP_TEXT];
    const struct ol_value params[] = {ol_value_int(lane->number),
                                      ol_value_text(ol_timestamp_format(turn->as_of, as_of)),
                                      ol_value_text(turn->held.data)};
    return turn->held.failed ? ol_no_memory(err)
                             : abandon_claims(conn, lane, OL_Q_PARKED_REAP, params, reaped, err);
}

/* Everything after the lane row is locked. *is_reaped: the counts of parked messages in memory may
 * be wrong now: claims were reaped, or a row that we finish was not ours any more. */
static int write_rest(struct ol_conn *conn, struct ol_lane *lane, struct ol_turn *turn,
                      struct ol_arena *arena, struct ol_claimed_message **messages, size_t *count,
                      bool *is_reaped, outlog_err *err)
{
    int64_t finished, reaped = 0;
    if (ol_turn_write_rows(conn, lane, turn, &finished, err) < 0)
        return -1;
    if (turn->reap && reap_claims(conn, lane, turn, &reaped, err) < 0)
        return -1;
    *is_reaped = reaped > 0 || finished != (int64_t)turn->finished_count;
    if (turn->capacity && claim_due(conn, lane, turn, arena, messages, count, err) < 0)
        return -1;
    if (write_rows(conn, lane, OL_Q_PARKED_ADD, &turn->planned, turn->planned_count, NULL, err) < 0)
        return -1;
    return turn->write_also ? turn->write_also(conn, turn->context, *messages, *count, err) : 0;
}

int ol_turn_write(struct ol_conn *conn, struct ol_lane *lane, struct ol_turn *turn,
                  struct ol_arena *arena, struct ol_claimed_message **messages, size_t *count,
                  enum ol_turn_result *result, outlog_err *err)
{
    bool is_plain = !turn->parked_count && !turn->planned_count && !turn->finished_count &&
                    !turn->attempt_count && !turn->plain_attempt_count && !turn->capacity &&
                    !turn->reap && !turn->write_also && !turn->opening && !turn->is_closing;
    int64_t before = ol_clock_boot_us();
    bool is_ours = false, is_reaped = false;

    *messages = NULL;
    *count = 0;
    *result = OL_TURN_DONE;
    if (!is_plain && conn->store->begin(conn, err) < 0)
        return -1;
    if (is_plain && turn->prefetch && turn->gap_count == 0 && !lane->sides)
        ol_store_prefetch(conn, OL_Q_OUTBOX_READ,
                          OL_PARAMS(ol_value_int(lane->number), ol_value_int(turn->head),
                                    ol_value_int((int64_t)turn->prefetch)));
    if (move_cursor(conn, lane, turn, &is_ours, err) < 0)
        goto failed;
    if (!is_ours) {
        if (!is_plain)
            conn->store->rollback(conn);
        return turn->side ? ol_side_cursor_explain_refusal(conn, lane, turn->side, result, err)
                          : ol_lane_explain_refusal(conn, lane, result, err);
    }
    if (!is_plain) {
        if (write_rest(conn, lane, turn, arena, messages, count, &is_reaped, err) < 0)
            goto failed;
        ol_fault("mark.sent");
        if (conn->store->commit(conn, err) < 0)
            goto failed;
    }
    ol_fault("mark.done");
    lane->is_reaped = is_reaped;
    if (turn->side)
        ol_side_cursor_move(lane, turn);
    else
        ol_lane_move(lane, turn, before);
    return 0;
failed:
    if (conn->in_transaction)
        conn->store->rollback(conn);
    if (!is_plain && err->code != OUTLOG_OUTCOME_UNKNOWN)
        return -1;
    return turn->side ? ol_side_cursor_resolve(conn, lane, turn, result, err)
                      : ol_lane_resolve(conn, lane, turn, before, result, err);
}

int ol_turn_finish_orphan(struct ol_conn *conn, const struct ol_lane *lane, struct ol_turn *turn,
                          bool *is_ours, outlog_err *err)
{
    int64_t ended;
    assert(turn->finished_count == 1);
    *is_ours = false;
    if (conn->store->begin(conn, err) < 0)
        return -1;
    ol_buf_char(&turn->finished, ']');
    if (turn->finished.failed) {
        ol_no_memory(err);
        goto failed;
    }
    if (ol_store_exec(conn, OL_Q_LANE_TOUCH, OL_PARAMS(ol_value_int(lane->number)), NULL, err) <
            0 ||
        ol_store_exec(conn, OL_Q_PARKED_FINISH,
                      OL_PARAMS(ol_value_int(lane->number), ol_value_text(lane->run),
                                ol_value_text(turn->finished.data)),
                      &ended, err) < 0)
        goto failed;
    if (ended == 0) {
        conn->store->rollback(conn);
        return 0;
    }
    if (write_attempts(conn, lane, turn, err) < 0 ||
        (turn->write_also && turn->write_also(conn, turn->context, NULL, 0, err) < 0))
        goto failed;
    *is_ours = true;
    return conn->store->commit(conn, err);
failed:
    conn->store->rollback(conn);
    return -1;
}

/* --- polling --- */

int ol_lane_has_due(struct ol_conn *conn, const struct ol_lane *lane, const char *capacity,
                    bool *has, outlog_err *err)
{
    struct ol_buf seqs = {0};
    int result = find_due(conn, lane, capacity, &seqs, err);
    *has = seqs.bytes > 0;
    ol_buf_clear(&seqs);
    return result;
}

int ol_lane_poll(struct ol_conn *conn, const char *numbers, struct ol_lane_status *out,
                 size_t out_max, size_t *count, outlog_err *err)
{
    struct ol_rows rows;
    int more;

    *count = 0;
    if (ol_store_query(conn, OL_Q_LANE_POLL, OL_PARAMS(ol_value_text(numbers)), &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0 && *count < out_max)
        out[(*count)++] = (struct ol_lane_status){
            .number = (int)ol_rows_int(&rows, 0),
            .newest = ol_rows_int(&rows, 1),
            .epoch = ol_rows_int(&rows, 2),
            .parked_gen = ol_rows_int(&rows, 3),
            .due_us = ol_rows_is_null(&rows, 4) ? INT64_MAX : ol_rows_int(&rows, 4),
            .expiry_us = ol_rows_is_null(&rows, 5) ? INT64_MAX : ol_rows_int(&rows, 5),
        };
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}
