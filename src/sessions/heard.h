/* heard.h: which requests a session has heard, so that a repeat is no second event (S-2).
 *
 * Where a session speaks, its first OL_HEARD_MOST messages are known by heart, and the next one is appended
 * where that knowledge ends (expected_seq). When somebody else was quicker the store refuses it, what was
 * said meanwhile is read, and it is decided anew. So events get ids in the order of time. One made of the
 * request would lie on a page of its own in the index of ids, to be written with every message; that is kept
 * for what comes after those (ol_session_message_id), where the store itself knows the second from the first. */
#ifndef OL_SESSIONS_HEARD_H
#define OL_SESSIONS_HEARD_H

#include "base/arena.h"
#include "base/map.h"
#include "outlog.h"

enum { OL_HEARD_MOST = 1024 };

/* Start from {0}. */
struct ol_heard {
    struct ol_map seqs; /* by requestId */
    int64_t upto;       /* every message up to this seq is in it, but none beyond OL_HEARD_MOST */
};

void ol_heard_clear(struct ol_heard *heard);

/* The seq of a request; 0: it was not said, up to there. */
int64_t ol_heard_seq(const struct ol_heard *heard, const char *request_id);

/* The message after `upto` had this requestId (NULL: none). false: no memory, nothing has changed. */
bool ol_heard_add(struct ol_heard *heard, const char *request_id, int64_t seq);

/* What the store has after a seq, in order. */
struct ol_heard_said {
    struct ol_heard_said *next;
    const char *request_id; /* NULL: none, or none that a socket could say */
    int64_t seq;
};

/* Read it into the arena, up to OL_HEARD_MOST. */
int ol_heard_read(outlog *log, const char *org_id, const char *key, int64_t after,
                  struct ol_arena *arena, struct ol_heard_said **out, outlog_err *err);

#endif
