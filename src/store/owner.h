/* owner.h: a run (a thread of a relay, the sinks, a projector, a daemon's agents) that owns
 * something by lease and epoch, and how others find out that it has ended (docs/lanes.md, rule 23).
 *
 * O1  A run has a random id that never comes back. So what is noted of its death stays true.
 * O2  Its row in `owners` names its run file, written only after the file was locked.
 * O3  Who finds the file's lock free notes died_at. What the run owned may be taken from then on,
 * by everybody and in the transaction that reads the note. */
#ifndef OL_STORE_OWNER_H
#define OL_STORE_OWNER_H

#include "base/run_file.h"
#include "store/store.h"

/* The end of a lease, in which nothing is sent any more. */
static inline int64_t ol_owner_margin_us(int64_t lease_us)
{
    return lease_us / 15;
}

/* Another run on this machine. */
struct ol_owner_peer {
    char run[OL_UUID_TEXT];
    int64_t device, inode;
};

struct ol_owner {
    char run[OL_UUID_TEXT];
    const char *kind, *name; /* name: for people */
    int64_t lease_us, margin_us;
    bool is_by_lease; /* `relay: {takeover: lease}`: nobody is taken from before his lease ends */
    char folder[OL_RUN_FOLDER_BYTES]; /* "": there is none */
    struct ol_run_file file;
    struct ol_owner_peer *peers;
    size_t peer_count;
    int64_t written_at, listed_at, looked_at; /* boot clock */
};

/* Give it an id. Always succeeds; ol_owner_close() may be called from here on. */
void ol_owner_init(struct ol_owner *owner, const char *kind, const char *name, int64_t lease_us,
                   int64_t margin_us);

/* Make its run file, if there is a place for it, and its row. */
int ol_owner_open(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err);

/* Note the death of others, a few times per second. *found: somebody has died. */
int ol_owner_look(struct ol_owner *owner, struct ol_conn *conn, bool *found, outlog_err *err);

/* When ol_owner_look() should be called next. */
int64_t ol_owner_next_look(const struct ol_owner *owner);

/* It owns nothing any more: remove its row and its file. */
void ol_owner_remove(struct ol_owner *owner, struct ol_conn *conn);

/* Let go of everything. If it was not removed, others see that it has ended. */
void ol_owner_close(struct ol_owner *owner);

#endif
