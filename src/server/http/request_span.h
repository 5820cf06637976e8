/* request_span.h: where a request came from (T4), and what a collector is told of it (M4). */
#ifndef OL_SERVER_HTTP_REQUEST_SPAN_H
#define OL_SERVER_HTTP_REQUEST_SPAN_H

#include "server/http/request.h"

/* What the request's events and messages keep as traceparent: the caller's or, when spans are
 * exported, that of the request's own span, which hangs below it. Without either it is in the trace
 * of its correlation id (may be NULL), or begins one. NULL: nothing is known and nobody asks. */
const char *ol_request_span_traceparent(struct ol_request *request, const char *correlation_id);

/* It was answered. */
void ol_request_span_end(const struct ol_request *request);

#endif
