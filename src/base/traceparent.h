/* traceparent.h: W3C trace context: 00-<trace id>-<span id>-<flags> (T4). */
#ifndef OL_BASE_TRACEPARENT_H
#define OL_BASE_TRACEPARENT_H

#include "base/arena.h"

#include <stdbool.h>

enum { OL_TRACEPARENT_TEXT = 56, OL_TRACEPARENT_TRACE_TEXT = 33, OL_TRACEPARENT_SPAN_TEXT = 17 };

bool ol_traceparent_is_valid(const char *text);

/* The sampled flag of a valid traceparent. */
bool ol_traceparent_is_sampled(const char *text);

/* The span id of attempt `number` at `id`. It is derived from these, so any process can compute it:
 * a receiver's span is a child of ours, whichever process exports our span. */
void ol_traceparent_make_span_id(const char *what, const char *id, int number,
                                 char out[OL_TRACEPARENT_SPAN_TEXT]);

/* The trace of a correlation id that came without trace context. */
void ol_traceparent_make_trace_id(const char *correlation_id, char out[OL_TRACEPARENT_TRACE_TEXT]);

/* The trace context of a message (T1): what came with it, if that is valid; else one that is made
 * of its correlation id and its own id, so it is the same on every attempt. The result points to
 * `given` or `made`. */
const char *ol_traceparent_of(const char *given, const char *correlation_id, const char *message_id,
                              char made[OL_TRACEPARENT_TEXT]);

/* metadata.traceparent of an event or message, in the arena; NULL: there is none. */
const char *ol_traceparent_find(const char *metadata, struct ol_arena *arena);

/* The header for one delivery: the trace id and flags of `from` with the span id of this attempt,
 * so that the receiver's span becomes its child. False when `from` is NULL or not a valid
 * traceparent. */
bool ol_traceparent_next(const char *from, const char *message_id, int attempt,
                         char out[OL_TRACEPARENT_TEXT]);

/* The metadata of an event or message, with the traceparent added. Metadata that already has one is
 * unchanged, and so is what is not a JSON object: storing it fails. NULL: no memory. */
const char *ol_traceparent_store(const char *traceparent, const char *metadata,
                                 struct ol_arena *arena);

#endif
