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

/* How long an owner may send after the last proof that its session lives (rule 28), and how long
 * others wait after they have seen its lock free (rule 26). */
static inline int64_t ol_owner_confidence_us(int64_t lease_us)
{
    return lease_us / 3 < 3000000 ? lease_us / 3 : 3000000;
}

static inline int64_t ol_owner_grace_us(int64_t confidence_us)
{
    return confidence_us + confidence_us / 10;
}

/* Another run whose session has ended. */
struct ol_owner_suspect {
    char run[OL_UUID_TEXT];
    int64_t lock_key, confidence_us, free_at; /* free_at: boot clock, after it was seen */
};

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

    bool sends;                    /* it may hold a session's lock, and must be confident to send */
    uint64_t session;              /* of the connection: the one that holds the lock */
    int64_t lock_key, backend_pid; /* 0: it has no lock, and only the lease counts */
    int64_t beat_at, confident_until, clock_offset;
    struct ol_owner_suspect *suspects;
    size_t suspect_count;
    int64_t suspected_at;
};

/* Give it an id. Always succeeds; ol_owner_close() may be called from here on. */
void ol_owner_init(struct ol_owner *owner, const char *kind, const char *name, int64_t lease_us,
                   int64_t margin_us);

/* Make its run file, if there is a place for it, and its row. */
int ol_owner_open(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err);

/* After a reconnect: lock a new key and write it (rule 27). *is_new: now everything that it owns
 * must be renewed by its epoch; then ol_owner_beat() gives confidence again. If that fails,
 * ol_owner_forget_session() begins anew. */
int ol_owner_join_session(struct ol_owner *owner, struct ol_conn *conn, bool *is_new,
                          outlog_err *err);
void ol_owner_forget_session(struct ol_owner *owner);

/* Prove that the session lives, if it is time for it. */
int ol_owner_beat(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err);

/* May it send? Rule 28: others may take what it owns soon after it has lost its session. */
bool ol_owner_is_confident(const struct ol_owner *owner, int64_t now);

/* Note the death of others, a few times per second. *found: somebody has died. */
int ol_owner_look(struct ol_owner *owner, struct ol_conn *conn, bool *found, outlog_err *err);

/* When ol_owner_look() should be called next. */
int64_t ol_owner_next_look(const struct ol_owner *owner);

/* It owns nothing any more: remove its row and its file. */
void ol_owner_remove(struct ol_owner *owner, struct ol_conn *conn);

/* Let go of everything. If it was not removed, others see that it has ended. */
void ol_owner_close(struct ol_owner *owner);

#endif
