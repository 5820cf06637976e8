/* turn.c: builds what a turn will write: ranges and JSON. Nothing here uses the store;
 * ol_turn_write() in lane.c does. */
#include "outbox/lane/side_cursor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void ol_range_add(struct ol_range *ranges, size_t *count, int64_t from, int64_t to)
{
    if (*count && ranges[*count - 1].to + 1 == from) {
        ranges[*count - 1].to = to;
        return;
    }
    assert(*count < OL_LANE_GAPS);
    ranges[(*count)++] = (struct ol_range){from, to};
}

static void drop_opening(struct ol_turn *turn)
{
    while (turn->opening) {
        struct ol_side_cursor *next = turn->opening->next;
        free(turn->opening);
        turn->opening = next;
    }
}

void ol_turn_begin(struct ol_turn *turn, const struct ol_lane *lane)
{
    drop_opening(turn);
    turn->stretch.is_known = turn->is_broken = turn->is_closing = false;
    turn->side = NULL;
    for (struct ol_side_cursor *side = lane->sides; side; side = side->next)
        side->is_closing = false;
    turn->head = lane->head;
    turn->claim_count = turn->gap_count = turn->sent_count = 0;
    turn->parked_count = turn->planned_count = turn->finished_count = 0;
    turn->attempt_count = turn->plain_attempt_count = 0;
    turn->prefetch = 0;
    turn->capacity = NULL;
    turn->reap = false;
    ol_buf_reset(&turn->held);
    turn->write_also = NULL;
    ol_turn_gaps(turn, lane);
    ol_buf_reset(&turn->parked);
    ol_buf_reset(&turn->planned);
    ol_buf_reset(&turn->finished);
    ol_buf_reset(&turn->attempts);
    ol_buf_reset(&turn->plain_attempts);
}

void ol_turn_gaps(struct ol_turn *turn, const struct ol_lane *lane)
{
    memcpy(turn->gaps, lane->gaps, lane->gap_count * sizeof *lane->gaps);
    turn->gap_count = lane->gap_count;
}

void ol_turn_clear(struct ol_turn *turn)
{
    ol_buf_clear(&turn->held);
    drop_opening(turn);
    ol_buf_clear(&turn->planned);
    ol_buf_clear(&turn->parked);
    ol_buf_clear(&turn->finished);
    ol_buf_clear(&turn->attempts);
    ol_buf_clear(&turn->plain_attempts);
}

bool ol_turn_can_cover(const struct ol_turn *turn, int64_t seq)
{
    bool opens_gap = seq > turn->head + 1;
    return turn->claim_count < OL_LANE_GAPS - 1 &&
           turn->gap_count < OL_LANE_GAPS - (opens_gap ? 2 : 1);
}

/* Take one number out of the gaps, which may split a range. */
static void close_gap(struct ol_turn *turn, int64_t seq)
{
    for (size_t i = 0; i < turn->gap_count; i++) {
        struct ol_range *gap = &turn->gaps[i];
        if (seq < gap->from || seq > gap->to)
            continue;
        if (gap->from == gap->to) {
            memmove(gap, gap + 1, (turn->gap_count - i - 1) * sizeof *gap);
            turn->gap_count--;
        } else if (seq == gap->from) {
            gap->from++;
        } else if (seq == gap->to) {
            gap->to--;
        } else {
            memmove(gap + 1, gap, (turn->gap_count - i) * sizeof *gap);
            turn->gap_count++;
            gap[0].to = seq - 1;
            gap[1].from = seq + 1;
        }
        return;
    }
}

void ol_turn_cover(struct ol_turn *turn, const struct ol_lane *lane, int64_t seq, bool is_sent)
{
    int64_t from = seq;
    if (seq <= lane->head)
        close_gap(turn, seq);
    else if (!lane->has_gaps) // a hole is a number that was rolled back: nothing will fill it
        from = turn->claim_count ? turn->claim[turn->claim_count - 1].to + 1 : seq;
    else if (seq > turn->head + 1)
        ol_range_add(turn->gaps, &turn->gap_count, turn->head + 1, seq - 1);
    else if (!turn->is_broken && turn->claim_count &&
             turn->claim[turn->claim_count - 1].to > lane->head)
        from = turn->claim[turn->claim_count - 1].to + 1; // over what was passed
    turn->is_broken = false;
    if (seq > turn->head)
        turn->head = seq;
    ol_range_add(turn->claim, &turn->claim_count, from, seq);
    turn->sent_count += is_sent;
}

bool ol_turn_pass(struct ol_turn *turn, const struct ol_lane *lane, int64_t upto, int64_t old_to)
{
    const struct ol_stretch *stretch = &turn->stretch;
    for (size_t i = 0; i < stretch->hole_count && lane->has_gaps; i++) {
        int64_t from = stretch->holes[i].from, to = stretch->holes[i].to;
        from = from > turn->head ? from : turn->head + 1;
        to = to < upto ? to : upto;
        if (from > to)
            continue;
        if (from > old_to || turn->gap_count >= OL_LANE_GAPS - 2) {
            turn->head = from - 1;
            return false;
        }
        ol_range_add(turn->gaps, &turn->gap_count, from, to);
        turn->head = to;
        turn->is_broken = true;
    }
    if (upto > turn->head)
        turn->head = upto;
    return true;
}

static bool has_gap_between(const struct ol_lane *lane, int64_t after, int64_t before)
{
    for (size_t i = 0; i < lane->gap_count && lane->gaps[i].from < before; i++)
        if (lane->gaps[i].to > after)
            return true;
    return false;
}

/* The claim holds no number of a gap: a message that appears there is the lane's. */
bool ol_turn_cover_side(struct ol_turn *turn, const struct ol_lane *lane, int64_t seq)
{
    struct ol_range *last = turn->claim_count ? &turn->claim[turn->claim_count - 1] : NULL;
    if (last && !has_gap_between(lane, last->to, seq))
        last->to = seq;
    else if (turn->claim_count == OL_LANE_GAPS)
        return false;
    else
        turn->claim[turn->claim_count++] = (struct ol_range){seq, seq};
    turn->sent_count++;
    return true;
}

static void open_object(struct ol_buf *out, size_t *count)
{
    ol_buf_text(out, (*count)++ ? ",{" : "[{");
}

void ol_turn_park(struct ol_turn *turn, const struct ol_claimed_message *message,
                  const struct ol_park_entry *entry, bool is_planned)
{
    struct ol_buf *out = is_planned ? &turn->planned : &turn->parked;
    open_object(out, is_planned ? &turn->planned_count : &turn->parked_count);
    ol_buf_print(out,
                 "\"seq\":%lld,\"state\":\"%s\",\"held\":%s,\"attempts\":%d,\"unsent\":%d,"
                 "\"wait_us\":%lld,\"lease_us\":%lld,\"destination\":",
                 (long long)message->seq, entry->state, entry->held ? "true" : "false",
                 entry->attempts, entry->unsent, (long long)entry->wait_us,
                 (long long)entry->lease_us);
    ol_buf_json_text(out, message->message.destination);
    ol_buf_text(out, ",\"ordering_key\":");
    ol_buf_json_text(out, message->message.ordering_key);
    ol_buf_text(out, ",\"available_at\":");
    ol_buf_json_time(out, entry->available_at);
    ol_buf_text(out, ",\"last_error\":");
    ol_buf_json_text(out, entry->last_error);
    ol_buf_char(out, '}');
}

/* The row of an orphan counts as unsent, because its relay may have died before it sent anything.
 * Here we know better. */
void ol_turn_finish(struct ol_turn *turn, const struct ol_claimed_message *message,
                    const struct ol_park_entry *entry)
{
    struct ol_buf *out = &turn->finished;
    open_object(out, &turn->finished_count);
    ol_buf_print(out,
                 "\"seq\":%lld,\"attempts\":%d,\"state\":\"%s\",\"held\":%s,\"unsent\":%d,"
                 "\"wait_us\":%lld,\"last_error\":",
                 (long long)message->seq, message->attempts, entry->state,
                 entry->held ? "true" : "false", entry->unsent - message->is_orphan,
                 (long long)entry->wait_us);
    ol_buf_json_text(out, entry->last_error);
    ol_buf_char(out, '}');
}

static const char *name_outcome(enum outlog_outcome_kind kind)
{
    switch (kind) {
    case OUTLOG_PUBLISH_OK:
        return "ok";
    case OUTLOG_PUBLISH_FAILED:
        return "failed";
    case OUTLOG_PUBLISH_RELEASED:
        return "released";
    default:
        return "unknown";
    }
}

/* Most successes have no response and no error: these are stored as numbers alone. */
static void add_plain_attempt(struct ol_turn *turn, const struct ol_claimed_message *message)
{
    const int64_t numbers[] = {message->seq, message->message.attempt, message->outcome.status,
                               message->started_at, message->outcome.duration_us / 1000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ol_buf_text(&turn->plain_attempts, i ? "," : turn->plain_attempt_count ? ",[" : "[[");
        ol_buf_int(&turn->plain_attempts, numbers[i]);
    }
    ol_buf_char(&turn->plain_attempts, ']');
    turn->plain_attempt_count++;
}

void ol_turn_attempt(struct ol_turn *turn, const struct ol_claimed_message *message)
{
    struct ol_buf *out = &turn->attempts;
    const struct outlog_outcome *outcome = &message->outcome;

    if (outcome->kind == OUTLOG_PUBLISH_OK && !message->response && !message->error) {
        add_plain_attempt(turn, message);
        return;
    }
    open_object(out, &turn->attempt_count);
    ol_buf_print(
        out, "\"seq\":%lld,\"attempt\":%d,\"duration_ms\":%lld,\"outcome\":\"%s\",\"started_at\":",
        (long long)message->seq, message->message.attempt, (long long)(outcome->duration_us / 1000),
        name_outcome(outcome->kind));
    ol_buf_json_time(out, message->started_at);
    if (outcome->status)
        ol_buf_print(out, ",\"status\":%d", outcome->status);
    if (outcome->is_permanent)
        ol_buf_text(out, ",\"permanent\":true");
    if (message->response) {
        ol_buf_text(out, ",\"response\":");
        ol_buf_json_text(out, message->response);
    }
    if (message->error) {
        ol_buf_text(out, ",\"error\":");
        ol_buf_json_text(out, message->error);
    }
    ol_buf_char(out, '}');
}
