/* side_effects.c: effects and alerts, in the transaction that moves their message. */
#include "relay/side_effects.h"

#include "notify/render.h"
#include "sessions/outbox_push.h"
#include "telemetry/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ol_side_effects_move {
    const struct ol_claimed_message *claimed;
    enum ol_effect_step step; /* if is_effect */
    int64_t wait_us;
    bool is_effect, is_dead, is_push;
    const struct ol_notification *notification; /* to write into a feed, or to suppress if dead */
};

void ol_side_effects_clear(struct ol_side_effects *effects)
{
    ol_registry_clear(&effects->registry);
    free(effects->moves);
    *effects = (struct ol_side_effects){0};
}

void ol_side_effects_reset(struct ol_side_effects *effects)
{
    effects->count = 0;
    effects->failed = false;
}

static void add_move(struct ol_side_effects *effects, struct ol_side_effects_move move)
{
    if (effects->count == effects->capacity) {
        size_t capacity = effects->capacity ? effects->capacity * 2 : 64;
        struct ol_side_effects_move *moves = realloc(effects->moves, capacity * sizeof *moves);
        if (!moves) {
            effects->failed = true;
            return;
        }
        effects->moves = moves;
        effects->capacity = capacity;
    }
    effects->moves[effects->count++] = move;
}

void ol_side_effects_claim(struct ol_side_effects *effects,
                           const struct ol_claimed_message *claimed)
{
    if (ol_effect_is_message(claimed))
        add_move(effects, (struct ol_side_effects_move){.claimed = claimed,
                                                        .step = OL_EFFECT_EXECUTING,
                                                        .is_effect = true});
}

/* The server has refused the mail's only recipient permanently. */
static bool is_bounce(const struct ol_relay_item *item)
{
    const struct outlog_outcome *outcome = &item->claimed->outcome;
    return item->notification->address && outcome->kind == OUTLOG_PUBLISH_FAILED &&
           outcome->is_permanent && outcome->status >= 550 && outcome->status <= 553;
}

void ol_side_effects_end(struct ol_side_effects *effects, const struct ol_relay_item *item,
                         const struct ol_park_entry *entry, bool is_published)
{
    struct ol_side_effects_move move = {.claimed = item->claimed, .wait_us = entry->wait_us};
    move.is_dead = !is_published && strcmp(entry->state, "DEAD") == 0;
    move.is_effect = ol_effect_is_message(item->claimed);
    move.is_push = item->is_push && is_published;
    if (item->notification && (is_published ? item->notification->is_feed : is_bounce(item)))
        move.notification = item->notification;
    if (!move.is_effect && !move.is_dead && !move.notification && !move.is_push)
        return;
    move.step = is_published    ? OL_EFFECT_COMPLETED
                : move.is_dead  ? OL_EFFECT_DEAD
                : entry->unsent ? OL_EFFECT_REQUEUED // nothing failed
                                : OL_EFFECT_RETRYING;
    add_move(effects, move);
}

/* The effect and the run of a message, for its alert; null where there is none. */
static int write_alert_ids(struct ol_conn *conn, const struct ol_claimed_message *claimed,
                           struct ol_buf *out, outlog_err *err)
{
    struct ol_rows rows = {0};
    int got = 0;
    if (ol_effect_is_message(claimed)) {
        if (ol_store_query(conn, OL_Q_EFFECT_OF_MESSAGE,
                           OL_PARAMS(ol_value_text(claimed->message.event_id)), &rows, err) < 0)
            return -1;
        got = ol_rows_next(&rows, err);
    }
    char effect_id[OL_UUID_TEXT] = "";
    if (got > 0)
        ol_rows_uuid(&rows, 0, effect_id);
    ol_buf_text(out, ",\"effect_id\":");
    ol_buf_json_text(out, got > 0 ? effect_id : NULL);
    ol_buf_text(out, ",\"run_id\":");
    ol_buf_json_text(out, got > 0 ? ol_rows_text(&rows, 2, NULL) : NULL);
    ol_buf_text(out, ",\"correlation_id\":");
    ol_buf_json_text(out, claimed->message.correlation_id);
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* A dead letter is sent to the alert destinations; a dead alert is not. */
static int write_alert(struct ol_conn *conn, const struct ol_claimed_message *claimed,
                       outlog_err *err)
{
    const struct outlog_delivery *message = &claimed->message;
    struct ol_buf payload = {0}, key = {0};
    int result = -1;

    if (strcmp(message->event_type, "outlog.dead_letter") == 0)
        return 0;
    ol_buf_print(&payload, "{\"event_id\":\"%s\",\"destination\":", message->event_id);
    ol_buf_json_text(&payload, message->destination);
    ol_buf_text(&payload, ",\"event_type\":");
    ol_buf_json_text(&payload, message->event_type);
    ol_buf_text(&payload, ",\"org_id\":");
    ol_buf_json_text(&payload, message->org_id);
    ol_buf_print(&payload, ",\"attempts\":%d,\"last_error\":", message->attempt);
    ol_buf_json_text(&payload, claimed->condemned ? claimed->condemned : claimed->error);
    bool has_ids = write_alert_ids(conn, claimed, &payload, err) == 0;
    ol_buf_char(&payload, '}');
    ol_buf_print(&key, "dead:%s:%d", message->event_id, message->attempt);
    if (payload.failed || key.failed)
        ol_no_memory(err);
    else if (has_ids)
        result =
            ol_store_exec(conn, OL_Q_ALERT_ADD,
                          OL_PARAMS(ol_value_text(payload.data),
                                    ol_value_text(message->correlation_id),
                                    ol_value_text(message->causation_id), ol_value_text(key.data),
                                    ol_value_text(message->destination)),
                          NULL, err);
    ol_buf_clear(&payload);
    ol_buf_clear(&key);
    return result;
}

static int write_move(outlog_tx *tx, const struct ol_side_effects_move *move, outlog_err *err)
{
    const struct ol_claimed_message *claimed = move->claimed;
    const struct ol_notification *notification = move->notification;
    if (move->is_effect && ol_effect_write(tx, claimed, move->step, move->wait_us, err) < 0)
        return -1;
    if (move->is_dead && write_alert(tx->conn, claimed, err) < 0)
        return -1;
    if (notification && move->is_dead &&
        ol_render_suppress(tx->conn, notification, claimed->error, err) < 0)
        return -1;
    if (notification && !move->is_dead &&
        ol_render_write(tx->conn, &claimed->message, notification, err) < 0)
        return -1;
    return move->is_push ? ol_outbox_push_write(tx, &claimed->message, err) : 0;
}

static struct outlog_tx begin_writing(struct ol_side_effects *effects, struct outlog *log)
{
    return (struct outlog_tx){.log = log, .conn = log->conn, .registry = &effects->registry};
}

static int write_moves(struct ol_conn *conn, void *context, struct ol_claimed_message *messages,
                       size_t count, outlog_err *err)
{
    struct ol_side_effects *effects = context;
    struct outlog log = {.conn = conn};
    struct outlog_tx tx = begin_writing(effects, &log);

    for (size_t i = 0; i < count; i++) // parked messages that this transaction has claimed
        ol_side_effects_claim(effects, &messages[i]);
    if (effects->failed)
        return ol_no_memory(err);
    if (effects->count && ol_registry_refresh(&effects->registry, conn, err) < 0)
        return -1;
    for (size_t i = 0; i < effects->count; i++)
        if (write_move(&tx, &effects->moves[i], err) < 0)
            return -1;
    return 0;
}

int ol_side_effects_write(struct ol_side_effects *effects, struct ol_conn *conn, outlog_err *err)
{
    return write_moves(conn, effects, NULL, 0, err);
}

void ol_side_effects_omit(struct ol_side_effects *effects, const struct ol_claimed_message *claimed,
                          const char *what, const outlog_err *why)
{
    if (strcmp(effects->omitted, why->message) == 0)
        return;
    snprintf(effects->omitted, sizeof effects->omitted, "%s", why->message);
    ol_report_omitted(&claimed->message, what, why);
}

/* An alert that the store refuses is left out. */
static int try_alert(struct ol_side_effects *effects, struct ol_conn *conn,
                     const struct ol_claimed_message *claimed, outlog_err *err)
{
    if (conn->store->mark(conn, err) < 0)
        return -1;
    bool is_written = write_alert(conn, claimed, err) == 0;
    if (!is_written && outlog_code_is_retryable(err->code))
        return -1;
    if (!is_written)
        ol_side_effects_omit(effects, claimed, "alert", err);
    return conn->store->release(conn, is_written, is_written ? err : NULL);
}

static int try_effect(struct ol_side_effects *effects, outlog_tx *tx,
                      const struct ol_claimed_message *claimed, enum ol_effect_step step,
                      outlog_err *err)
{
    bool is_written = true;
    if (!ol_effect_is_message(claimed))
        return 0;
    if (ol_effect_try(tx, claimed, step, 0, &is_written, err) < 0)
        return -1;
    if (!is_written)
        ol_side_effects_omit(effects, claimed, "effect", err);
    return 0;
}

int ol_side_effects_condemn(struct ol_side_effects *effects, struct ol_conn *conn,
                            const struct ol_claimed_message *claimed, outlog_err *err)
{
    struct outlog log = {.conn = conn};
    struct outlog_tx tx = begin_writing(effects, &log);
    struct ol_claimed_message ended = *claimed;
    ended.outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED};
    ended.error = claimed->condemned;
    return try_effect(effects, &tx, &ended, OL_EFFECT_DEAD, err) < 0
               ? -1
               : try_alert(effects, conn, &ended, err);
}

int ol_side_effects_abandoned(struct ol_conn *conn, void *context,
                              struct ol_claimed_message *messages, size_t count, bool is_dead,
                              outlog_err *err)
{
    struct ol_side_effects *effects = context;
    struct outlog log = {.conn = conn};
    struct outlog_tx tx = begin_writing(effects, &log);
    static char unknown[] = "outcome unknown: the relay went away or did not answer";
    int result = 0;

    if (ol_registry_refresh(&effects->registry, conn, err) < 0)
        return -1;
    for (size_t i = 0; i < count && result == 0; i++) {
        messages[i].outcome.kind = OUTLOG_PUBLISH_UNKNOWN;
        messages[i].error = unknown;
        result = try_effect(effects, &tx, &messages[i],
                            is_dead ? OL_EFFECT_DEAD : OL_EFFECT_RETRYING, err);
        if (result == 0 && is_dead)
            result = try_alert(effects, conn, &messages[i], err);
        messages[i].error = NULL;
    }
    return result;
}

void ol_side_effects_attach(struct ol_side_effects *effects, struct ol_turn *turn)
{
    if (effects->count == 0 && !effects->failed && !turn->capacity)
        return;
    turn->write_also = write_moves;
    turn->context = effects;
}
