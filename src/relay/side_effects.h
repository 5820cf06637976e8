/* side_effects.h: what else is written when messages move: effects with their events, alerts, feed
 * entries and pushes. All of it in the transaction that moves the messages (L2, R3). */
#ifndef OL_RELAY_SIDE_EFFECTS_H
#define OL_RELAY_SIDE_EFFECTS_H

#include "outbox/effect.h"
#include "outbox/lane/lane.h"
#include "relay/item.h"

/* The moves of one turn. Start from {0}; reset for each turn. */
struct ol_side_effects {
    struct ol_registry registry; /* event types of the log */
    struct ol_side_effects_move *moves;
    size_t count, capacity;
    bool failed; /* out of memory: the turn must not be written */
    char omitted[sizeof((outlog_err *)0)->message]; /* the last reason that was logged */
};

void ol_side_effects_clear(struct ol_side_effects *effects);
void ol_side_effects_reset(struct ol_side_effects *effects);

/* Note that a message was claimed and will be sent. */
void ol_side_effects_claim(struct ol_side_effects *effects,
                           const struct ol_claimed_message *claimed);

/* Note that an attempt ended: `entry` is what the message becomes unless it was published. */
void ol_side_effects_end(struct ol_side_effects *effects, const struct ol_relay_item *item,
                         const struct ol_park_entry *entry, bool is_published);

/* Write the moves now, in the open transaction, instead of with a turn. */
int ol_side_effects_write(struct ol_side_effects *effects, struct ol_conn *conn, outlog_err *err);

/* A message became DEAD because the store refuses its outcome or its claim: write its effect's
 * events and its alert, as far as the store takes them. */
int ol_side_effects_condemn(struct ol_side_effects *effects, struct ol_conn *conn,
                            const struct ol_claimed_message *claimed, outlog_err *err);

/* A part of what is known of a message is left out: log each reason once. */
void ol_side_effects_omit(struct ol_side_effects *effects, const struct ol_claimed_message *claimed,
                          const char *what, const outlog_err *why);

/* Messages whose relay went away or does not answer: `abandoned` of struct ol_lane, with the
 * effects as its context. */
int ol_side_effects_abandoned(struct ol_conn *conn, void *effects,
                              struct ol_claimed_message *messages, size_t count, bool is_dead,
                              outlog_err *err);

/* Make the turn write the moves, if there are any, or if it may claim parked messages that are
 * effects. */
void ol_side_effects_attach(struct ol_side_effects *effects, struct ol_turn *turn);

#endif
