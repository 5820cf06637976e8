/* dedupe.h: which requests a session has heard, so that a repeat is no second event (S-2).
 *
 * Where a session speaks, its first OL_DEDUPE_MAX messages are known by heart, and the next one is
 * appended where that knowledge ends (expected_seq). When somebody else was quicker the store
 * refuses it, what was said meanwhile is read, and it is decided anew. So events get ids in the
 * order of time. One made of the request would lie on a page of its own in the index of ids, to be
 * written with every message; that is kept for what comes after those (ol_session_message_id),
 * where the store itself knows the second from the first. */
#ifndef OL_SESSIONS_DEDUPE_H
#define OL_SESSIONS_DEDUPE_H

#include "base/arena.h"
#include "base/map.h"
#include "outlog.h"

enum { OL_DEDUPE_MAX = 1024 };

/* Start from {0}. */
struct ol_dedupe {
    struct ol_map seqs; /* by requestId */
    int64_t upto;       /* every message up to this seq is in it, but none beyond OL_DEDUPE_MAX */
};

void ol_dedupe_clear(struct ol_dedupe *heard);

/* The seq of a request; 0: it was not said, up to there. */
int64_t ol_dedupe_seq(const struct ol_dedupe *heard, const char *request_id);

/* The message after `upto` had this requestId (NULL: none). false: no memory, nothing has changed.
 */
bool ol_dedupe_add(struct ol_dedupe *heard, const char *request_id, int64_t seq);

/* What the store has after a seq, in order. */
struct ol_dedupe_entry {
    struct ol_dedupe_entry *next;
    const char *request_id; /* NULL: none, or none that a socket could say */
    int64_t seq;
};

/* Read it into the arena, up to OL_DEDUPE_MAX. */
int ol_dedupe_read(outlog *log, const char *org_id, const char *key, int64_t after,
                   struct ol_arena *arena, struct ol_dedupe_entry **out, outlog_err *err);

#endif
