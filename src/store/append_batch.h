/* append_batch.h: a batch of checked events that a store is about to write. */
#ifndef OL_STORE_APPEND_BATCH_H
#define OL_STORE_APPEND_BATCH_H

#include "outlog.h"

struct ol_arena;

/* One aggregate of the batch, and how many of its events. Sorted by key, so that two batches
 * take their locks in the same order. */
struct ol_append_batch_head {
    const char *org_key; /* "" for no org */
    const char *aggregate_type;
    const char *aggregate_id;
    int64_t count;
    int64_t base; /* filled by the store: the aggregate's last sequence before the batch */
};

/* One event, everything filled in and checked. */
struct ol_append_batch_event {
    int index;                           /* its place in the caller's call, for errors */
    int head;                            /* its aggregate */
    int64_t nth;                         /* 1 for the first event of its aggregate in this batch */
    const struct outlog_new_event *said; /* what the caller gave; never changed */
    int event_version;
    size_t payload_bytes;
    const char *id, *correlation_id, *request_id, *actor_type, *actor_id;
    const char *causation_id;    /* a UUID, or NULL */
    struct outlog_new_event row; /* `said` with all of the above: the values of the columns */
    struct outlog_appended *out;
};

struct ol_append_batch {
    struct ol_append_batch_head *heads;
    size_t head_count;
    struct ol_append_batch_event *events;
    size_t count;
    bool is_alone; /* a transaction of its own, in as few round trips as the store can */
    int wait_ms;   /* of one alone: how long it waits for a lock; 0: as long as the store does */
};

/* From `events` (count, said and what was filled in) make `heads`, and set each event's `head`,
 * `nth` and `row`. Events of one aggregate are numbered in the order of the batch. */
int ol_append_batch_number(struct ol_append_batch *write, struct ol_arena *arena, outlog_err *err);

#endif
