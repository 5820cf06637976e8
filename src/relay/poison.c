/* poison.c: a turn that the store refuses is written again, message by message (L8).
 *
 * A store that is away refuses every turn, and the lane waits for it. Any other refusal is about
 * what the turn holds: a rule, a trigger, a limit. Then the lane takes two careful turns, one that
 * records and one that claims, in which each message has savepoints of its own.
 *
 * P1  An outcome is stored as it is, or without its attempt, or the message is condemned: DEAD,
 *     with the store's reason. The others are not affected.
 * P2  A message whose claim is refused (its effect's event) is condemned before it is sent.
 * P3  A message that cannot even be condemned fails the turn: the lane waits, and says why.
 * P4  Nothing here changes memory for good: a careful turn that fails is taken again from the
 *     outcomes as they came. */
#include "relay/internal.h"

#include "publish/mask.h"
#include "publish/publisher.h"

#include <stdlib.h>
#include <string.h>

bool ol_poison_is_suspected(const outlog_err *err)
{
    return !outlog_code_is_retryable(err->code);
}

static void acquit_message(struct ol_claimed_message *claimed)
{
    free(claimed->condemned);
    claimed->condemned = NULL;
}

/* The store's reason may quote the text that it refuses. */
static int condemn_message(struct ol_claimed_message *claimed, const char *what,
                           const outlog_err *why, outlog_err *err)
{
    struct ol_buf text = {0};
    ol_buf_print(&text, "%s could not be stored: %s: ", what, outlog_code_name(why->code));
    ol_mask_line(&text, why->message, strlen(why->message), NULL, OL_ERROR_KEPT - text.bytes);
    claimed->condemned = text.failed ? NULL : text.data;
    if (text.failed)
        ol_buf_clear(&text);
    return claimed->condemned ? 0 : ol_no_memory(err);
}

/* End a savepoint: `result` is what became of it. 0: stored. 1: refused, undone, and *err has the
 * reason. -1: the store failed. */
static int end_savepoint(struct ol_conn *conn, int result, outlog_err *err)
{
    if (result < 0 && !ol_poison_is_suspected(err))
        return -1;
    if (result == 0)
        return conn->store->release(conn, true, err);
    outlog_err why = *err;
    if (conn->store->release(conn, false, err) < 0)
        return -1;
    *err = why;
    return 1;
}

static struct ol_turn *begin_part(struct ol_relay_lane *lane)
{
    ol_turn_begin(&lane->worker->part, &lane->outbox);
    ol_side_effects_reset(&lane->worker->effects);
    return &lane->worker->part;
}

static int write_attempt(struct ol_relay_lane *lane, const struct ol_claimed_message *claimed,
                         outlog_err *err)
{
    struct ol_conn *conn = lane->worker->conn;
    struct ol_turn *part = begin_part(lane);
    int64_t finished;
    if (conn->store->mark(conn, err) < 0)
        return -1;
    ol_turn_attempt(part, claimed);
    return end_savepoint(conn, ol_turn_write_rows(conn, &lane->outbox, part, &finished, err), err);
}

/* P1: an attempt is stored without its texts, or not at all. */
static int record_attempt(struct ol_relay_lane *lane, const struct ol_claimed_message *claimed,
                          outlog_err *err)
{
    static char left_out[] = "left out: the store refuses the text";
    struct ol_claimed_message bare = *claimed;
    int result = write_attempt(lane, claimed, err);
    bare.response = NULL;
    bare.error = claimed->error ? left_out : NULL;
    if (result > 0)
        result = write_attempt(lane, &bare, err);
    if (result > 0)
        ol_side_effects_omit(&lane->worker->effects, claimed, "attempt", err);
    return result < 0 ? -1 : 0;
}

/* Store what the message becomes, with its effects. 1: refused. */
static int write_outcome(struct ol_relay_lane *lane, const struct ol_relay_item *item,
                         outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    struct ol_turn *part = begin_part(lane);
    int64_t finished;
    if (worker->conn->store->mark(worker->conn, err) < 0)
        return -1;
    ol_outcomes_record(worker, part, item);
    int result = ol_turn_write_rows(worker->conn, &lane->outbox, part, &finished, err);
    if (result == 0 && finished != (int64_t)part->finished_count)
        ol_lane_invalidate(&lane->outbox); // the row was not ours any more
    if (result == 0 && !item->claimed->condemned)
        result = ol_side_effects_write(&worker->effects, worker->conn, err);
    return end_savepoint(worker->conn, result, err);
}

static int record_item(struct ol_relay_lane *lane, const struct ol_relay_item *item,
                       outlog_err *err)
{
    struct ol_claimed_message *claimed = item->claimed;
    bool is_ok = claimed->outcome.kind == OUTLOG_PUBLISH_OK;
    outlog_err why;

    acquit_message(claimed);
    if (item->is_kept && record_attempt(lane, claimed, err) < 0)
        return -1;
    int result = write_outcome(lane, item, err);
    if (result <= 0)
        return result;
    why = *err;
    if (condemn_message(claimed, is_ok ? "it was delivered, but that" : "its outcome", &why, err) <
        0)
        return -1;
    if (write_outcome(lane, item, err) != 0) { // P3
        *err = why;
        acquit_message(claimed);
        return -1;
    }
    return ol_side_effects_condemn(&lane->worker->effects, lane->worker->conn, claimed, err);
}

/* Write what became of the lane's messages: `write_also` of a careful turn. */
static int write_outcomes(struct ol_conn *conn, void *context, struct ol_claimed_message *messages,
                          size_t count, outlog_err *err)
{
    struct ol_relay_lane *lane = context;
    (void)messages;
    (void)count;
    if (ol_registry_refresh(&lane->worker->effects.registry, conn, err) < 0)
        return -1;
    const struct ol_batch *open = lane->recording;
    for (size_t i = 0; open && i < open->count; i++)
        if (record_item(lane, &open->items[i], err) < 0)
            return -1;
    for (struct ol_batch *batch = lane->worker->turn.side ? NULL : lane->loose; batch;
         batch = batch->next)
        for (size_t i = 0; i < batch->count; i++)
            if (ol_outcomes_is_due(&batch->items[i]) &&
                record_item(lane, &batch->items[i], err) < 0)
                return -1;
    return 0;
}

/* P2. A new message is parked as DEAD, a parked one ends so. */
static int condemn_claim(struct ol_relay_lane *lane, struct ol_claimed_message *claimed,
                         const outlog_err *why, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    struct ol_turn *part = begin_part(lane);
    int64_t finished;
    if (condemn_message(claimed, "its claim", why, err) < 0)
        return -1;
    struct ol_park_entry entry = ol_outcomes_condemned(worker, claimed);
    entry.unsent = 1;
    if (claimed->is_parked)
        ol_turn_finish(part, claimed, &entry);
    else
        ol_turn_park(part, claimed, &entry, false);
    if (ol_turn_write_rows(worker->conn, &lane->outbox, part, &finished, err) < 0)
        return -1;
    ol_lane_invalidate(&lane->outbox); // its key and its destination wait for one message less
    return ol_side_effects_condemn(&worker->effects, worker->conn, claimed, err);
}

static int claim_message(struct ol_relay_lane *lane, struct ol_claimed_message *claimed,
                         outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    acquit_message(claimed);
    if (!ol_effect_is_message(claimed))
        return 0;
    ol_side_effects_reset(&worker->effects);
    ol_side_effects_claim(&worker->effects, claimed);
    if (worker->conn->store->mark(worker->conn, err) < 0)
        return -1;
    int result = end_savepoint(worker->conn,
                               ol_side_effects_write(&worker->effects, worker->conn, err), err);
    if (result <= 0)
        return result;
    outlog_err why = *err;
    return condemn_claim(lane, claimed, &why, err);
}

/* Write what the claim of a careful turn brings with it: its `write_also`. */
static int write_claims(struct ol_conn *conn, void *context, struct ol_claimed_message *messages,
                        size_t count, outlog_err *err)
{
    struct ol_relay_lane *lane = context;
    const struct ol_batch *fresh = lane->claiming;
    if (ol_registry_refresh(&lane->worker->effects.registry, conn, err) < 0)
        return -1;
    for (size_t i = 0; fresh && i < fresh->count; i++)
        if (claim_message(lane, &fresh->messages[i], err) < 0)
            return -1;
    for (size_t i = 0; i < count; i++)
        if (claim_message(lane, &messages[i], err) < 0)
            return -1;
    return 0;
}

bool ol_poison_must_record(const struct ol_relay_lane *lane, const struct ol_side_cursor *side)
{
    return side ? side->open != NULL : lane->open || lane->has_finished;
}

void ol_poison_attach(struct ol_relay_lane *lane, const struct ol_side_cursor *side,
                      struct ol_batch *fresh, struct ol_turn *turn)
{
    lane->claiming = fresh;
    lane->recording = side ? side->open : lane->open;
    turn->write_also = ol_poison_must_record(lane, side) ? write_outcomes : write_claims;
    turn->context = lane;
}

void ol_poison_drop_condemned(struct ol_batch *batch)
{
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->messages[i].condemned) {
            batch->lane->worker->stats->dead++;
            ol_claimed_message_clear(&batch->messages[i]);
            continue;
        }
        batch->messages[kept++] = batch->messages[i];
    }
    batch->count = kept;
}
