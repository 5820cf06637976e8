/* upcast.h: converts old payloads to the current version when they are read (E11). The log is never
 * rewritten.
 *
 * Upcasters are data: lists of steps, by the version they start from:
 *
 *     {"1": [{"rename": ["/sum", "/total"]}, {"default": ["/currency", "EUR"]}],
 *      "2": [{"move": ["/street", "/address/street"]}]}
 *
 *   rename [from, to]       another key, same parent, same place among its siblings
 *   move [from, to]         another parent, made of objects where it is missing
 *   default [to, value]     any JSON value, only where there is none
 *
 * Every step is total: when `from` is missing, when `to` exists already, or when a value on the
 * path is neither object nor array, the payload is unchanged. An old event never stops a reader,
 * and no value is ever lost. */
#ifndef OL_LOG_UPCAST_H
#define OL_LOG_UPCAST_H

#include "base/json/json.h"

/* Check the upcasters of a type whose current version is `current_version`.
 *
 * OUTLOG_INVALID_FIELD: the message names version and step, err->pointer the place. */
int ol_upcast_check(const struct ol_json *upcasters, int current_version, outlog_err *err);

/* Append `payload`, brought from from_version to to_version, to `out`. Members that no step
 * touches keep their bytes and their order; a version without steps changes nothing.
 *
 * OUTLOG_INVALID_FIELD: the upcasters are wrong; the errors of ol_upcast_check().
 * OUTLOG_INVALID_JSON:  the result would be nested too deep.
 * OUTLOG_NO_MEMORY:     also when `out` could not grow. */
int ol_upcast_apply(const struct ol_json *upcasters, int from_version, int to_version,
                    const struct ol_json *payload, struct ol_buf *out, outlog_err *err);

#endif
