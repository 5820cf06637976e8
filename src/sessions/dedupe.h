/* dedupe.h: the request ids that a session already has, so that a repeat is no second event (S-2).
 *
 * A daemon caches the request ids of a session's first OL_DEDUPE_MAX events and appends the next
 * message with expected_seq set to the last seq it knows. If another process appended first, the
 * store rejects the write; the daemon reads what was appended and decides again.
 *
 * So the ids of events stay in the order of time. An id computed from the request would go to a
 * random page of the index of ids, which then had to be written with every message. Such ids are
 * used only beyond the cache (ol_session_message_id), where the store finds the repeat. */
#ifndef OL_SESSIONS_DEDUPE_H
#define OL_SESSIONS_DEDUPE_H

#include "base/arena.h"
#include "base/counter_map.h"
#include "outlog.h"

enum { OL_DEDUPE_MAX = 1024 };

/* Start from {0}. */
struct ol_dedupe {
    struct ol_counter_map seqs; /* by requestId */
    int64_t upto;               /* every event up to this seq is included; at most OL_DEDUPE_MAX */
};

void ol_dedupe_clear(struct ol_dedupe *dedupe);

/* The seq of a request; 0: it is not among the events up to `upto`. */
int64_t ol_dedupe_seq(const struct ol_dedupe *dedupe, const char *request_id);

/* Event `seq`, which follows `upto`, has this requestId (NULL: none). false: no memory. */
bool ol_dedupe_add(struct ol_dedupe *dedupe, const char *request_id, int64_t seq);

/* Add the session's events after `upto` from the store, up to OL_DEDUPE_MAX. -1: what was read
 * before the error is added. */
int ol_dedupe_load(struct ol_dedupe *dedupe, outlog *log, const char *org_id, const char *key,
                   outlog_err *err);

#endif
