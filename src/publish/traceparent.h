/* traceparent.h: W3C trace context on the way out (T4). */
#ifndef OL_PUBLISH_TRACEPARENT_H
#define OL_PUBLISH_TRACEPARENT_H

#include <stdbool.h>

enum { OL_TRACEPARENT_TEXT = 56 };

/* The header for one delivery: the trace id and flags of `from` with a new span id, so that the
 * receiver's span hangs below this attempt. False when `from` is NULL or no valid traceparent:
 * then none is sent, for an invented trace would connect nothing. */
bool ol_traceparent_next(const char *from, char out[OL_TRACEPARENT_TEXT]);

#endif
