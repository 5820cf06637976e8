/* span.h: one span of a trace, and its OTLP form (M4). Pure. */
#ifndef OL_TELEMETRY_SPAN_H
#define OL_TELEMETRY_SPAN_H

#include "base/buf.h"
#include "base/traceparent.h"

#include <stdint.h>

enum ol_span_kind { OL_SPAN_INTERNAL = 1, OL_SPAN_SERVER = 2, OL_SPAN_PRODUCER = 4 };

/* Of fixed size, so that recording a span never allocates; longer texts are cut. */
struct ol_span {
    char trace_id[OL_TRACEPARENT_TRACE_TEXT], span_id[OL_TRACEPARENT_SPAN_TEXT];
    char parent_id[OL_TRACEPARENT_SPAN_TEXT]; /* "": the trace begins here */
    const char *name;                         /* static: append, claim, publish */
    enum ol_span_kind kind;
    int64_t start_us, end_us; /* wall clock */
    bool is_error;
    char error[160];
    /* attributes; "" and 0 are left out */
    char org_id[101], operation[48], request_id[80], correlation_id[128];
    char message_id[37], event_type[101], destination[101];
    int attempt, status;
};

/* Copy a text into a field of a span, cut to its size at a character; NULL counts as "". */
void ol_span_text(char *field, size_t room, const char *text);
#define OL_SPAN_TEXT(field, text) ol_span_text(field, sizeof(field), text)

/* The body of an OTLP/HTTP export request, in its JSON encoding. */
void ol_span_json(const struct ol_span *spans, size_t count, struct ol_buf *out);

#endif
