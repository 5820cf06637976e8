/* delivery_span.h: the spans that the relay exports: each claim, and each attempt below it (M4). */
#ifndef OL_RELAY_DELIVERY_SPAN_H
#define OL_RELAY_DELIVERY_SPAN_H

#include "outbox/lane/claimed_message.h"
#include "telemetry/span_exporter.h"

/* When and how long a batch was claimed; wall clock. */
struct ol_delivery_span_claim {
    int64_t from, to;
};

/* From a moment of the boot clock until now. */
struct ol_delivery_span_claim ol_delivery_span_since(int64_t boot_us);

/* After an attempt: export the span of its claim and its own. */
void ol_delivery_span_attempt(struct ol_span_exporter *tracer,
                              const struct ol_delivery_span_claim *claim,
                              const struct ol_claimed_message *claimed);

#endif
