/* outbox_push.h: outbox messages that become effects of a session (D5).
 *
 *     {"session_key": "mia:helper:t-1", …}
 *
 * The message's event_type is the frame's type, its payload the frame's members (S-7). */
#ifndef OL_SESSIONS_OUTBOX_PUSH_H
#define OL_SESSIONS_OUTBOX_PUSH_H

#include "log/log.h"
#include "outbox/lane/claimed_message.h"

/* OUTLOG_INVALID_FIELD, OUTLOG_INVALID_JSON: the message can never become an effect. */
int ol_outbox_push_check(const struct outlog_delivery *message, outlog_err *err);

/* Store the effect, in the transaction that records the message as published. */
int ol_outbox_push_write(outlog_tx *tx, const struct outlog_delivery *message, outlog_err *err);

#endif
