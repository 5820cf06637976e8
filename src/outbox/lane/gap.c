/* gap.c: numbers that were handed out and that no read has seen: when is such a gap dead?
 *
 * Rule 20: a gap is dead when a read missed it, after that all transactions were listed that could
 * still fill it, all of those have ended, and one more read misses it again. */
#include "base/clock.h"
#include "outbox/lane/lane.h"

#include <stdlib.h>
#include <string.h>

enum { GAP_LIST_EVERY_US = 5000 };

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

int ol_lane_holders(struct ol_conn *conn, uint64_t **out, size_t *count, outlog_err *err)
{
    struct ol_rows rows;
    size_t capacity = 0;
    int more;

    *out = NULL;
    *count = 0;
    if (ol_store_query(conn, OL_Q_OUTBOX_HOLDERS, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (*count == capacity) {
            capacity = capacity ? capacity * 2 : 16;
            uint64_t *wider = realloc(*out, capacity * sizeof *wider);
            if (!wider) {
                more = ol_no_memory(err);
                break;
            }
            *out = wider;
        }
        (*out)[(*count)++] = hash_text(ol_rows_text(&rows, 0, NULL));
    }
    ol_rows_end(&rows);
    return more;
}

bool ol_lane_holds(const uint64_t *before, size_t before_count, const uint64_t *now, size_t count)
{
    for (size_t i = 0; i < before_count; i++)
        for (size_t j = 0; j < count; j++)
            if (before[i] == now[j])
                return true;
    return false;
}

int ol_gap_prove(struct ol_conn *conn, struct ol_lane *lane, outlog_err *err)
{
    int64_t now = ol_clock_boot_us();
    uint64_t *holders;
    size_t count;

    if (lane->gap_count == 0 || lane->proof.is_over ||
        (lane->proof.is_listed && now - lane->proof.listed_at < GAP_LIST_EVERY_US))
        return 0;
    if (ol_lane_holders(conn, &holders, &count, err) < 0) {
        free(holders);
        return -1;
    }
    lane->proof.listed_at = now;
    if (!lane->proof.is_listed) {
        free(lane->proof.holders);
        lane->proof.holders = holders;
        lane->proof.holder_count = count;
        memcpy(lane->proof.gaps, lane->gaps, lane->gap_count * sizeof *lane->gaps);
        lane->proof.gap_count = lane->gap_count;
        lane->proof.is_listed = true;
        lane->proof.is_over = count == 0;
        return 0;
    }
    lane->proof.is_over =
        !ol_lane_holds(lane->proof.holders, lane->proof.holder_count, holders, count);
    free(holders);
    return 0;
}

static bool contains_seq(const struct ol_range *ranges, size_t count, int64_t seq)
{
    for (size_t i = 0; i < count; i++)
        if (seq >= ranges[i].from && seq <= ranges[i].to)
            return true;
    return false;
}

bool ol_lane_is_gap(const struct ol_lane *lane, int64_t seq)
{
    return contains_seq(lane->gaps, lane->gap_count, seq);
}

void ol_gap_close(struct ol_lane *lane, const struct ol_claimed_message *messages, size_t count)
{
    struct ol_range left[OL_LANE_GAPS];
    size_t left_count = 0;

    for (size_t i = 0; i < lane->gap_count; i++)
        for (int64_t seq = lane->gaps[i].from; seq <= lane->gaps[i].to; seq++) {
            bool is_seen = false;
            for (size_t j = 0; j < count && messages[j].seq <= seq; j++)
                is_seen |= messages[j].seq == seq;
            if (!is_seen && contains_seq(lane->proof.gaps, lane->proof.gap_count, seq)) {
                // a whole dead range at a time: a rollback of a bulk insert leaves millions of
                // numbers
                for (size_t k = 0; k < lane->proof.gap_count; k++)
                    if (seq >= lane->proof.gaps[k].from && seq <= lane->proof.gaps[k].to) {
                        int64_t end = lane->proof.gaps[k].to;
                        for (size_t j = 0; j < count; j++)
                            if (messages[j].seq > seq && messages[j].seq <= end)
                                end = messages[j].seq - 1;
                        if (end > lane->gaps[i].to)
                            end = lane->gaps[i].to;
                        seq = end;
                        break;
                    }
                continue;
            }
            ol_range_add(left, &left_count, seq, seq);
        }
    if (left_count)
        memcpy(lane->gaps, left, left_count * sizeof *left);
    lane->gap_count = left_count;
    lane->proof.is_listed = lane->proof.is_over = false;
}
