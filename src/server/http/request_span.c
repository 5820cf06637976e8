/* request_span.c: makes the span of a request that appends, and exports it. */
#include "server/http/request_span.h"

#include "base/clock.h"
#include "base/random.h"
#include "base/uuid.h"
#include "server/http/router.h"
#include "server/server.h"
#include "telemetry/span_exporter.h"

#include <stdio.h>

/* Start the span: as a child of the caller's, in the trace of the correlation id, or in a new one.
 */
static void begin_span(struct ol_request *request, const char *parent)
{
    char trace_id[OL_TRACEPARENT_TRACE_TEXT];
    uint64_t id[3] = {0};

    while (!id[0] || !id[1] || !id[2])
        ol_random_bytes(id, sizeof id);
    if (parent)
        snprintf(trace_id, sizeof trace_id, "%.32s", parent + 3);
    else if (request->span.correlation_id)
        ol_traceparent_make_trace_id(request->span.correlation_id, trace_id);
    else
        snprintf(trace_id, sizeof trace_id, "%016llx%016llx", (unsigned long long)id[0],
                 (unsigned long long)id[1]);
    snprintf(request->span.traceparent, sizeof request->span.traceparent, "00-%s-%016llx-%.2s",
             trace_id, (unsigned long long)id[2], parent ? parent + 53 : "01");
    snprintf(request->span.parent_id, sizeof request->span.parent_id, "%.16s",
             parent ? parent + 36 : "");
    request->span.is_exported = true;
}

const char *ol_request_span_traceparent(struct ol_request *request, const char *correlation_id)
{
    const char *parent = ol_request_header(request, "traceparent");

    if (request->span.traceparent[0])
        return request->span.traceparent;
    if (parent && !ol_traceparent_is_valid(parent))
        parent = NULL;
    request->span.correlation_id = correlation_id;
    if (request->server->options.tracer && (!parent || ol_traceparent_is_sampled(parent)))
        begin_span(request, parent);
    else if (parent)
        snprintf(request->span.traceparent, sizeof request->span.traceparent, "00-%.52s",
                 parent + 3);
    return request->span.traceparent[0] ? request->span.traceparent : NULL;
}

void ol_request_span_end(const struct ol_request *request)
{
    struct ol_span span = {.name = "append", .kind = OL_SPAN_SERVER, .status = request->status};

    if (!request->span.is_exported)
        return;
    span.end_us = ol_clock_wall_us();
    span.start_us = span.end_us - (ol_clock_boot_us() - request->began_at);
    span.is_error = request->status >= 500; // a 4xx is the client's mistake
    snprintf(span.trace_id, sizeof span.trace_id, "%.32s", request->span.traceparent + 3);
    snprintf(span.span_id, sizeof span.span_id, "%.16s", request->span.traceparent + 36);
    OL_SPAN_TEXT(span.parent_id, request->span.parent_id);
    OL_SPAN_TEXT(span.operation, request->route ? request->route->name : NULL);
    OL_SPAN_TEXT(span.org_id, request->who.org_id);
    OL_SPAN_TEXT(span.request_id, request->request_id);
    OL_SPAN_TEXT(span.correlation_id, request->span.correlation_id);
    ol_span_exporter_add(request->server->options.tracer, &span);
}
