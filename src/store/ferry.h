/* ferry.h: appends of several threads of one process that cross in one transaction.
 *
 * A commit costs the same for one event as for thirty. While one crossing is under way, the appends
 * that arrive wait at the pier; the next crossing takes all of them, on the connection of whoever
 * stands first. Nobody waits for company: a thread that is alone goes at once.
 *
 * F1  Each append has its own outcome: when a shared crossing is refused, nothing of it is stored,
 *     and each of its appends is sent again alone.
 * F2  Nobody stands still because somebody's long transaction holds a neighbour's aggregate: a shared
 *     crossing waits OL_FERRY_LOCK_MS for a lock, and one that is long under way frees its place.
 * F3  When a crossing's outcome is unknown, it is unknown for all that were aboard. */
#ifndef OL_STORE_FERRY_H
#define OL_STORE_FERRY_H

#include "store/store.h"
#include "store/write.h"

struct ol_ferry;

enum { OL_FERRY_LOCK_MS = 50 };

enum ol_ferry_fate {
    OL_FERRY_ALONE,   /* nothing was stored by others: send it yourself */
    OL_FERRY_DONE,    /* stored; the results are filled in */
    OL_FERRY_FAILED,  /* not stored; `err` says why */
    OL_FERRY_UNKNOWN, /* stored or not */
};

/* The server's end of a connection; a process id alone can be another's later. */
struct ol_session {
    int pid; /* 0: none */
    char started_at[64];
};

struct ol_ferry_end {
    enum ol_ferry_fate fate;
    struct ol_session in_doubt; /* UNKNOWN: it may still commit; pid 0 when it is over */
};

/* Write `all` as one transaction on the captain's own connection. When it `is_shared` it waits
 * OL_FERRY_LOCK_MS for locks, and what fails is ALONE, not FAILED. */
typedef struct ol_ferry_end ol_ferry_cross(struct ol_conn *captain, struct ol_write *all,
                                           bool is_shared, outlog_err *err);

/* The ferry of this process for connections that are equal in all that matters; `key` says what.
 * NULL: out of memory. */
struct ol_ferry *ol_ferry_join(const char *key);
void ol_ferry_leave(struct ol_ferry *ferry); /* NULL: nothing */

/* Bring a write over, alone or in company; returns when its end is known. ALONE: it is the caller's
 * to send. */
struct ol_ferry_end ol_ferry_carry(struct ol_ferry *ferry, struct ol_conn *conn,
                                   struct ol_write *write, ol_ferry_cross *cross, outlog_err *err);

#endif
