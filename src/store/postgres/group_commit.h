/* group_commit.h: group commit: appends of several threads of one process share a transaction.
 *
 * A commit costs the same for one event as for thirty. While one batch is being committed, new
 * appends wait in a queue. The next batch takes all of them. The thread of the first append leads:
 * it writes the batch on a connection of one of the threads in it, while the others wait. No append
 * waits for others to arrive: a lone append is written at once.
 *
 * F1  Each append has its own outcome. When a shared batch is refused, none of it is stored, and
 *     each of its appends is sent again alone.
 * F2  A long transaction that locks one aggregate does not block appends to others: a shared batch
 *     waits OL_GROUP_COMMIT_LOCK_MS for a lock, and a batch that takes long no longer counts
 *     against the limit of concurrent batches.
 * F3  When the outcome of a batch is unknown, it is unknown for every append in it. */
#ifndef OL_STORE_POSTGRES_GROUP_COMMIT_H
#define OL_STORE_POSTGRES_GROUP_COMMIT_H

#include "store/append_batch.h"
#include "store/store.h"

struct ol_group_commit;

enum { OL_GROUP_COMMIT_LOCK_MS = 50 };

enum ol_commit_status {
    OL_COMMIT_ALONE,   /* nothing was stored by others: send it yourself */
    OL_COMMIT_DONE,    /* stored; the results are filled in */
    OL_COMMIT_FAILED,  /* not stored; `err` has the reason */
    OL_COMMIT_UNKNOWN, /* stored or not */
};

/* The server process of a connection. Process ids are reused, so the start time is part of it. */
struct ol_backend {
    int pid; /* 0: none */
    char started_at[64];
};

struct ol_commit_result {
    enum ol_commit_status status;
    struct ol_backend in_doubt; /* UNKNOWN: it may still commit; pid 0 when it has ended */
};

/* Write `batch` as one transaction on `conn`. When it `is_shared` it waits OL_GROUP_COMMIT_LOCK_MS
 * for locks, and a failure is ALONE, not FAILED. */
typedef struct ol_commit_result ol_group_commit_writer(struct ol_conn *conn,
                                                       struct ol_append_batch *batch,
                                                       bool is_shared, outlog_err *err);

/* The group of this process for interchangeable connections: those with the same server, database,
 * user and settings, which `key` spells out. NULL: out of memory. */
struct ol_group_commit *ol_group_commit_join(const char *key);
void ol_group_commit_leave(struct ol_group_commit *group); /* NULL: nothing */

/* Write a batch, alone or together with those of other threads. Returns when its outcome is known.
 * ALONE: the caller has to send it. */
struct ol_commit_result ol_group_commit_write(struct ol_group_commit *group, struct ol_conn *conn,
                                              struct ol_append_batch *batch,
                                              ol_group_commit_writer *writer, outlog_err *err);

#endif
