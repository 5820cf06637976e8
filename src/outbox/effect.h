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

/* Write the events of a step and update the effect's row, inside the open transaction. `wait_us` is
 * the time until the next attempt. A message without an effect's row (imported) is left alone. */
int ol_effect_write(outlog_tx *tx, const struct ol_claimed_message *claimed,
                    enum ol_effect_step step, int64_t wait_us, outlog_err *err);

#endif
