/* effect.h: effects: messages whose delivery is recorded in the log (U5). */
#ifndef OL_OUTBOX_EFFECT_H
#define OL_OUTBOX_EFFECT_H

#include "log/log.h"
#include "outbox/lane/claimed_message.h"

/* Does this message belong to an effect, by its aggregate? */
bool ol_effect_is_message(const struct ol_claimed_message *claimed);

enum ol_effect_step {
    OL_EFFECT_EXECUTING, /* with the claim */
    OL_EFFECT_COMPLETED,
    OL_EFFECT_RETRYING, /* writes FAILED, then RETRYING */
    OL_EFFECT_DEAD,     /* writes FAILED, then DEAD_LETTERED */
    OL_EFFECT_REQUEUED, /* by an operator: RETRYING */
    OL_EFFECT_KILLED,   /* by an operator: DEAD_LETTERED */
};

enum { OL_OMITTED_TEXT = 256 };

/* Write the events of a step and update the effect's row, inside the open transaction. `wait_us` is
 * the time until the next attempt. A message without an effect's row (imported) is left alone.
 *
 * What a receiver said and the log refuses (a secret, its size) is left out, and `result_omitted`
 * or `error_omitted` of the event has the reason. A shape of a strict org is passed over:
 * `shape_error` says what it misses (L8). */
int ol_effect_write(outlog_tx *tx, const struct ol_claimed_message *claimed,
                    enum ol_effect_step step, int64_t wait_us, outlog_err *err);

/* The same, and the transaction goes on if the log refuses it: then *is_written is false, and `err`
 * has the reason. -1: the store failed. */
int ol_effect_try(outlog_tx *tx, const struct ol_claimed_message *claimed, enum ol_effect_step step,
                  int64_t wait_us, bool *is_written, outlog_err *err);

#endif
