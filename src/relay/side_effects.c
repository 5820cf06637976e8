/* side_effects.c: effects and alerts, in the transaction that moves their message. */
#include "relay/side_effects.h"

#include "notify/render.h"
#include "sessions/outbox_push.h"

#include <stdlib.h>
#include <string.h>

struct ol_side_effects_move {
    const struct ol_claimed_message *item;
    enum ol_effect_step step;
    int64_t wait_us;
    bool is_effect, is_dead, is_notice, is_push;
};

void ol_side_effects_clear(struct ol_side_effects *record)
{
    ol_registry_clear(&record->registry);
    free(record->moves);
    *record = (struct ol_side_effects){0};
}

void ol_side_effects_reset(struct ol_side_effects *record)
{
    record->count = 0;
    record->failed = false;
}

static void add(struct ol_side_effects *record, struct ol_side_effects_move move)
{
    if (record->count == record->room) {
        size_t room = record->room ? record->room * 2 : 64;
        struct ol_side_effects_move *moves = realloc(record->moves, room * sizeof *moves);
        if (!moves) {
            record->failed = true;
            return;
        }
        record->moves = moves;
        record->room = room;
    }
    record->moves[record->count++] = move;
}

void ol_side_effects_claim(struct ol_side_effects *record, const struct ol_claimed_message *item)
{
    if (ol_effect_is_message(item))
        add(record, (struct ol_side_effects_move){.item = item,
                                                  .step = OL_EFFECT_EXECUTING,
                                                  .is_effect = true});
}

/* The server of a mail has refused its one recipient for good. */
static bool is_bounce(const struct ol_claimed_message *item)
{
    return item->notice->address && item->outcome.kind == OUTLOG_PUBLISH_FAILED &&
           item->outcome.is_permanent && item->outcome.status >= 550 && item->outcome.status <= 553;
}

void ol_side_effects_end(struct ol_side_effects *record, const struct ol_claimed_message *item,
                         const struct ol_park_entry *how, bool is_published)
{
    bool is_dead = !is_published && strcmp(how->state, "DEAD") == 0;
    bool is_effect = ol_effect_is_message(item);
    bool is_notice = item->notice && (is_published ? item->notice->is_feed : is_bounce(item));
    bool is_push = item->is_push && is_published;
    if (!is_effect && !is_dead && !is_notice && !is_push)
        return;
    add(record,
        (struct ol_side_effects_move){.item = item,
                                      .step = is_published  ? OL_EFFECT_COMPLETED
                                              : is_dead     ? OL_EFFECT_DEAD
                                              : how->unsent ? OL_EFFECT_REQUEUED // nothing failed
                                                            : OL_EFFECT_RETRYING,
                                      .wait_us = how->wait_us,
                                      .is_effect = is_effect,
                                      .is_dead = is_dead,
                                      .is_notice = is_notice,
                                      .is_push = is_push});
}

/* A dead letter is told to the alert destinations; a dead alert is not. */
static int write_alert(struct ol_conn *conn, const struct ol_claimed_message *item, outlog_err *err)
{
    const struct outlog_delivery *message = &item->message;
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
    ol_buf_json_text(&payload, item->error);
    ol_buf_char(&payload, '}');
    ol_buf_print(&key, "dead:%s:%d", message->event_id, message->attempt);
    if (payload.failed || key.failed)
        ol_no_memory(err);
    else
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

static int write_moves(struct ol_conn *conn, void *context, struct ol_claimed_message *items,
                       size_t count, outlog_err *err)
{
    struct ol_side_effects *record = context;
    struct outlog log = {.conn = conn};
    struct outlog_tx tx = {.log = &log, .conn = conn, .registry = &record->registry};

    for (size_t i = 0; i < count; i++) // parked messages that this very transaction has claimed
        ol_side_effects_claim(record, &items[i]);
    if (record->failed)
        return ol_no_memory(err);
    if (record->count && ol_registry_refresh(&record->registry, conn, err) < 0)
        return -1;
    for (size_t i = 0; i < record->count; i++) {
        const struct ol_side_effects_move *move = &record->moves[i];
        if (move->is_effect && ol_effect_write(&tx, move->item, move->step, move->wait_us, err) < 0)
            return -1;
        if (move->is_dead && write_alert(conn, move->item, err) < 0)
            return -1;
        if (move->is_notice && (move->is_dead ? ol_render_suppress(conn, move->item, err)
                                              : ol_render_write(conn, move->item, err)) < 0)
            return -1;
        if (move->is_push && ol_outbox_push_write(&tx, &move->item->message, err) < 0)
            return -1;
    }
    return 0;
}

int ol_side_effects_abandoned(struct ol_conn *conn, void *context, struct ol_claimed_message *items,
                              size_t count, bool is_dead, outlog_err *err)
{
    struct ol_side_effects *record = context;
    struct outlog log = {.conn = conn};
    struct outlog_tx tx = {.log = &log, .conn = conn, .registry = &record->registry};
    static char unknown[] = "outcome unknown: the relay went away or fell silent";
    int result = 0;

    if (ol_registry_refresh(&record->registry, conn, err) < 0)
        return -1;
    for (size_t i = 0; i < count && result == 0; i++) {
        items[i].outcome.kind = OUTLOG_PUBLISH_UNKNOWN;
        items[i].error = unknown;
        if (ol_effect_is_message(&items[i]))
            result = ol_effect_write(&tx, &items[i], is_dead ? OL_EFFECT_DEAD : OL_EFFECT_RETRYING,
                                     0, err);
        if (result == 0 && is_dead)
            result = write_alert(conn, &items[i], err);
        items[i].error = NULL;
    }
    return result;
}

void ol_side_effects_attach(struct ol_side_effects *record, struct ol_turn *turn)
{
    if (record->count == 0 && !record->failed && !turn->rooms)
        return;
    turn->also = write_moves;
    turn->context = record;
}
