/* tracing.h: what the relay tells a collector: each claim, and each attempt below it (M4). */
#ifndef OL_RELAY_TRACING_H
#define OL_RELAY_TRACING_H

#include "outbox/item.h"
#include "publish/tracer.h"

/* When and how long a batch was claimed; wall clock. */
struct ol_tracing_claim {
    int64_t from, to;
};

/* From a moment of the boot clock until now. */
struct ol_tracing_claim ol_tracing_since(int64_t boot_us);

/* Before an attempt: a message without trace context gets that of its correlation id, so that its
 * receiver can join. */
void ol_tracing_join(struct ol_item *item, struct ol_arena *arena);

/* After an attempt: its claim and itself. */
void ol_tracing_attempt(struct ol_tracer *tracer, const struct ol_tracing_claim *claim,
                        const struct ol_item *item);

#endif
