/* effect.h: effects: a message with a life of its own in the log (U5). */
#ifndef OL_OUTBOX_EFFECT_H
#define OL_OUTBOX_EFFECT_H

#include "log/log.h"
#include "outbox/lane/claimed_message.h"

/* Is this message an effect's? Its aggregate says so. */
bool ol_effect_is_message(const struct ol_claimed_message *item);

enum ol_effect_step {
    OL_EFFECT_EXECUTING, /* with the claim */
    OL_EFFECT_COMPLETED,
    OL_EFFECT_RETRYING, /* writes FAILED, then RETRYING */
    OL_EFFECT_DEAD,     /* writes FAILED, then DEAD_LETTERED */
    OL_EFFECT_REQUEUED, /* by an operator: RETRYING */
    OL_EFFECT_KILLED,   /* by an operator: DEAD_LETTERED */
};

/* Write the events of a step and move the effect's row, inside the open transaction. `wait_us` is
 * how long until the next try. An effect that is not there (imported message) is left alone. */
int ol_effect_write(outlog_tx *tx, const struct ol_claimed_message *item, enum ol_effect_step step,
                    int64_t wait_us, outlog_err *err);

#endif
