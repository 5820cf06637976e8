/* batcher.h: commands of many callers in few transactions.
 *
 * One thread takes the commands that wait, writes them in one transaction, and answers after the
 * commit. While one commit is under way, the next commands gather. So the rate of a daemon is not
 * limited by the number of commits that its disk can do.
 *
 * Commands that need no lookup are written as one statement, and most batches are only that. When
 * the store refuses such a statement nothing of it was stored, and a transaction with savepoints
 * finds the command that caused it.
 *
 * G1  A command is done completely or not at all, and answered exactly once.
 * G2  Its outcome is its own: a refused command leaves no trace and does not affect the others.
 * G3  No caller gets an answer before its data is stored. An outcome that cannot be known is
 *     unknown for every command of that transaction that was not refused before.
 * G4  A command whose aggregate is locked by another transaction does not delay the others, and
 *     is tried again for a few seconds.
 * G5  The number of waiting commands is limited; one more is refused at once. */
#ifndef OL_OUTBOX_BATCHER_H
#define OL_OUTBOX_BATCHER_H

#include "base/buf.h"
#include "outlog.h"

struct ol_batcher;
struct ol_batcher_command;

/* Called once for every submitted command, on the batcher's thread. It must be brief and may submit
 * commands. result: 0, or -1 with command->err filled. */
typedef void ol_batcher_done(struct ol_batcher_command *command, int result);

/* The command of a caller. It and all it points to must live until `done`; start from a zeroed
 * struct. */
struct ol_batcher_command {
    const struct outlog_new_event *events;
    size_t event_count;
    const struct outlog_new_message *messages;
    size_t message_count;
    const struct outlog_idempotency
        *idempotency; /* NULL: no key; else the command's key, and events carry none of their own */
    ol_batcher_done *done;
    void *user;

    /* The answer. With an error, `err.index` is the index of the event, or of the message if
     * `is_message`. */
    outlog_err err;
    bool is_message;
    bool is_replayed; /* the key is known: `response` is the answer of the first call */
    struct ol_buf
        response; /* of a command with a key, as ol_batcher_json() writes it; freed after `done` */

    /* Used by the batcher. */
    struct outlog_appended *appended;
    struct outlog_enqueued *enqueued;
    enum { OL_BATCHER_OPEN, OL_BATCHER_DONE, OL_BATCHER_REFUSED, OL_BATCHER_DEFERRED } state;
    int tries;
    int64_t due; /* boot clock: not to be tried before */
    struct ol_batcher_command *next;
};

/* Connect, and start the thread. At most `waiting_max` commands wait (0: 10,000). */
int ol_batcher_open(const char *url, size_t waiting_max, struct ol_batcher **out, outlog_err *err);

/* Submit a command from any thread. Returns at once. OUTLOG_UNAVAILABLE: too many wait;
 * OUTLOG_MISUSE: the command is empty. Then `done` is not called. */
int ol_batcher_submit(struct ol_batcher *batcher, struct ol_batcher_command *command,
                      outlog_err *err);

/* What was stored, in `done`: {"events":[…],"messages":[…]}. */
void ol_batcher_json(const struct ol_batcher_command *command, struct ol_buf *out);

/* Answer all waiting commands, and end. Nothing may be submitted any more. NULL: does nothing. */
void ol_batcher_close(struct ol_batcher *batcher);

#endif
