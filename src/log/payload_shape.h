/* payload_shape.h: the members that the payload of a registered event type must have (E10).
 *
 *     {"run_id": "string", "step_index": "number", "output_result": "any", "signal_id": "string?"}
 *
 * Types are string, number, boolean, object, array and any (null too). A question mark makes the
 * member optional: it may be absent or null. Members that the shape does not name are allowed. */
#ifndef OL_LOG_PAYLOAD_SHAPE_H
#define OL_LOG_PAYLOAD_SHAPE_H

#include "base/json/json.h"

/* Check the shape itself. OUTLOG_INVALID_FIELD names the member that is not a type. */
int ol_payload_shape_valid(const struct ol_json *shape, outlog_err *err);

/* Check that `payload` has the shape. OUTLOG_INVALID_FIELD: a member is missing or has another
 * type; err->pointer names it. ol_payload_shape_valid() checks the shape first. */
int ol_payload_shape_check(const struct ol_json *shape, const struct ol_json *payload,
                           outlog_err *err);

#endif
