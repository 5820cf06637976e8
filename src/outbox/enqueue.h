/* enqueue.h: new messages and effects, as JSON. */
#ifndef OL_OUTBOX_ENQUEUE_H
#define OL_OUTBOX_ENQUEUE_H

#include "base/json/json.h"
#include "log/log.h"

/* Read a message from a JSON object: {destination, event_type, payload | payload_base64, …}. The
 * payload is any JSON value, kept byte for byte. Strings live in `arena`.
 * OUTLOG_UNKNOWN_FIELD, OUTLOG_INVALID_FIELD: err names the member. */
int ol_message_json_read(const char *text, size_t bytes, struct ol_arena *arena,
                         struct outlog_new_message *out, outlog_err *err);

/* Read an effect: {effect_type, destination, effect_spec, …}. */
int ol_message_json_read_effect(const char *text, size_t bytes, struct ol_arena *arena,
                                struct outlog_new_effect *out, outlog_err *err);

#endif
