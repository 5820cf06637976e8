/* tracer.h: hands spans to an OpenTelemetry collector, over OTLP/HTTP (M4).
 *
 * A thread of its own sends what has gathered. Whoever tells of a span waits for nobody: when the
 * collector is slow or away, the queue fills up and further spans are dropped and counted. */
#ifndef OL_PUBLISH_TRACER_H
#define OL_PUBLISH_TRACER_H

#include "base/err.h"
#include "publish/span.h"

struct ol_tracer;

struct ol_tracer_counts {
    int64_t exported; /* spans the collector took */
    int64_t dropped;  /* the queue was full */
    int64_t failed;   /* the collector refused them, or could not be reached in time */
};

/* endpoint: http(s)://HOST:PORT, to which /v1/traces is added, or a whole URL. headers: a JSON object
 * or NULL; ${NAME} is read from the environment.
 * OUTLOG_INVALID_FIELD: one of them is wrong. */
int ol_tracer_open(const char *endpoint, const char *headers, struct ol_tracer **out,
                   outlog_err *err);

/* From any thread; never blocks. NULL: nothing happens. */
void ol_tracer_add(struct ol_tracer *tracer, const struct ol_span *span);

struct ol_tracer_counts ol_tracer_counts(struct ol_tracer *tracer);

/* Send what has gathered, within two seconds, and end. NULL: nothing. */
void ol_tracer_close(struct ol_tracer *tracer);

/* Whether this could be an endpoint; NULL, or what is wrong. */
const char *ol_tracer_check(const char *endpoint);

#endif
