/* request_span.h: the trace context of a request (T4), and the span that is exported of it (M4). */
#ifndef OL_SERVER_HTTP_REQUEST_SPAN_H
#define OL_SERVER_HTTP_REQUEST_SPAN_H

#include "server/http/request.h"

/* The traceparent for the request's events and messages: the caller's or, when spans are exported,
 * that of the request's own span, a child of the caller's. Without a caller's the span is in the
 * trace of the correlation id (may be NULL), or starts a trace. NULL: there is no caller's and
 * spans are not exported. */
const char *ol_request_span_traceparent(struct ol_request *request, const char *correlation_id);

/* Export the span of an answered request. */
void ol_request_span_end(const struct ol_request *request);

#endif
