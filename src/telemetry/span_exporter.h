/* span_exporter.h: sends spans to an OpenTelemetry collector, over OTLP/HTTP (M4).
 *
 * A thread of its own sends the queued spans. Adding a span never waits: when the collector is slow
 * or down, the queue fills up, and further spans are dropped and counted. */
#ifndef OL_TELEMETRY_SPAN_EXPORTER_H
#define OL_TELEMETRY_SPAN_EXPORTER_H

#include "base/err.h"
#include "telemetry/span.h"

struct ol_span_exporter;

struct ol_span_exporter_counts {
    int64_t exported; /* spans the collector took */
    int64_t dropped;  /* the queue was full */
    int64_t failed;   /* the collector refused them, or could not be reached in time */
};

/* endpoint: http(s)://HOST:PORT, to which /v1/traces is added, or a whole URL. headers: a JSON
 * object or NULL; ${NAME} is read from the environment. OUTLOG_INVALID_FIELD: either is wrong. */
int ol_span_exporter_open(const char *endpoint, const char *headers, struct ol_span_exporter **out,
                          outlog_err *err);

/* From any thread; never blocks. NULL: nothing happens. */
void ol_span_exporter_add(struct ol_span_exporter *exporter, const struct ol_span *span);

struct ol_span_exporter_counts ol_span_exporter_counts(struct ol_span_exporter *exporter);

/* Send the queued spans, within two seconds, and free the exporter. NULL: nothing. */
void ol_span_exporter_close(struct ol_span_exporter *exporter);

/* NULL when this can be an endpoint, else what is wrong. */
const char *ol_span_exporter_check(const char *endpoint);

#endif
