/* side_effects.h: what else is written when messages move: effects with their events, and alerts.
 * All of it in the transaction that moves them (L2, R3). */
#ifndef OL_RELAY_SIDE_EFFECTS_H
#define OL_RELAY_SIDE_EFFECTS_H

#include "outbox/effect.h"
#include "outbox/lane/lane.h"

/* The moves of one turn. Start from {0}; reset for each turn. */
struct ol_side_effects {
    struct ol_registry registry; /* of the log, for the events */
    struct ol_side_effects_move *moves;
    size_t count, room;
    bool failed; /* out of memory: the turn must not be written */
};

void ol_side_effects_clear(struct ol_side_effects *record);
void ol_side_effects_reset(struct ol_side_effects *record);

/* A message was claimed and will be sent. */
void ol_side_effects_claim(struct ol_side_effects *record, const struct ol_claimed_message *item);

/* An attempt ended: `state` is what the message becomes. */
void ol_side_effects_end(struct ol_side_effects *record, const struct ol_claimed_message *item,
                         const struct ol_park_entry *how, bool is_published);

/* Messages whose relay went away or fell silent: for struct ol_lane's `fallen`; the context is the
 * record. */
int ol_side_effects_abandoned(struct ol_conn *conn, void *record, struct ol_claimed_message *items,
                              size_t count, bool is_dead, outlog_err *err);

/* Hang the moves onto a turn, if there are any, or if it may claim parked messages that are
 * effects. */
void ol_side_effects_attach(struct ol_side_effects *record, struct ol_turn *turn);

#endif
