/* group_commit.h: appends of several threads of one process that cross in one transaction.
 *
 * A commit costs the same for one event as for thirty. While one crossing is under way, the appends
 * that arrive wait at the pier; the next crossing takes all of them, on the connection of whoever
 * stands first. Nobody waits for company: a thread that is alone goes at once.
 *
 * F1  Each append has its own outcome: when a shared crossing is refused, nothing of it is stored,
 *     and each of its appends is sent again alone.
 * F2  Nobody stands still because somebody's long transaction holds a neighbour's aggregate: a
 * shared crossing waits OL_GROUP_COMMIT_LOCK_MS for a lock, and one that is long under way frees
 * its place. F3  When a crossing's outcome is unknown, it is unknown for all that were aboard. */
#ifndef OL_STORE_POSTGRES_GROUP_COMMIT_H
#define OL_STORE_POSTGRES_GROUP_COMMIT_H

#include "store/append_batch.h"
#include "store/store.h"

struct ol_group_commit;

enum { OL_GROUP_COMMIT_LOCK_MS = 50 };

enum ol_commit_status {
    OL_COMMIT_ALONE,   /* nothing was stored by others: send it yourself */
    OL_COMMIT_DONE,    /* stored; the results are filled in */
    OL_COMMIT_FAILED,  /* not stored; `err` says why */
    OL_COMMIT_UNKNOWN, /* stored or not */
};

/* The server's end of a connection; a process id alone can be another's later. */
struct ol_backend {
    int pid; /* 0: none */
    char started_at[64];
};

struct ol_commit_result {
    enum ol_commit_status fate;
    struct ol_backend in_doubt; /* UNKNOWN: it may still commit; pid 0 when it is over */
};

/* Write `all` as one transaction on the captain's own connection. When it `is_shared` it waits
 * OL_GROUP_COMMIT_LOCK_MS for locks, and what fails is ALONE, not FAILED. */
typedef struct ol_commit_result ol_group_commit_writer(struct ol_conn *captain,
                                                       struct ol_append_batch *all, bool is_shared,
                                                       outlog_err *err);

/* The ferry of this process for connections that are equal in all that matters; `key` says what.
 * NULL: out of memory. */
struct ol_group_commit *ol_group_commit_join(const char *key);
void ol_group_commit_leave(struct ol_group_commit *ferry); /* NULL: nothing */

/* Bring a write over, alone or in company; returns when its end is known. ALONE: it is the caller's
 * to send. */
struct ol_commit_result ol_group_commit_write(struct ol_group_commit *ferry, struct ol_conn *conn,
                                              struct ol_append_batch *write,
                                              ol_group_commit_writer *cross, outlog_err *err);

#endif
