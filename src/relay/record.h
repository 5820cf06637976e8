/* record.h: what else is written when messages move: effects with their events, and alerts. All of it
 * in the transaction that moves them (L2, R3). */
#ifndef OL_RELAY_RECORD_H
#define OL_RELAY_RECORD_H

#include "outbox/effect.h"
#include "outbox/lane.h"

/* The moves of one turn. Start from {0}; reset for each turn. */
struct ol_record {
    struct ol_registry registry; /* of the log, for the events */
    struct ol_record_move *moves;
    size_t count, room;
    bool failed; /* out of memory: the turn must not be written */
};

void ol_record_clear(struct ol_record *record);
void ol_record_reset(struct ol_record *record);

/* A message was claimed and will be sent. */
void ol_record_claim(struct ol_record *record, const struct ol_item *item);

/* An attempt ended: `state` is what the message becomes. */
void ol_record_end(struct ol_record *record, const struct ol_item *item,
                   const struct ol_parking *how, bool is_published);

/* Messages whose relay went away or fell silent: for struct ol_lane's `fallen`; the context is the
 * record. */
int ol_record_fallen(struct ol_conn *conn, void *record, struct ol_item *items, size_t count,
                     bool is_dead, outlog_err *err);

/* Hang the moves onto a turn, if there are any, or if it may claim parked messages that are
 * effects. */
void ol_record_attach(struct ol_record *record, struct ol_turn *turn);

#endif
