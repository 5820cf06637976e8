/* payload_shape.h: what a payload of a known event type has in it (E10).
 *
 *     {"run_id": "string", "step_index": "number", "output_result": "any", "signal_id": "string?"}
 *
 * Types are string, number, boolean, object, array and any (null too). A question mark makes the
 * member optional: it may be absent or null. Members that the shape does not name are fine. */
#ifndef OL_LOG_PAYLOAD_SHAPE_H
#define OL_LOG_PAYLOAD_SHAPE_H

#include "base/json/json.h"

/* Whether `shape` is a shape. OUTLOG_INVALID_FIELD names the member that is none. */
int ol_payload_shape_valid(const struct ol_json *shape, outlog_err *err);

/* Whether `payload` has the shape. OUTLOG_INVALID_FIELD: a member is missing or of another type;
 * err->pointer names it. A member of the shape that is no type is an error like in
 * ol_payload_shape_valid, found before the payload is looked at. */
int ol_payload_shape_check(const struct ol_json *shape, const struct ol_json *payload,
                           outlog_err *err);

#endif
