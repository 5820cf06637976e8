/* batcher.h: commands of many callers in few transactions.
 *
 * A thread of its own takes what waits, does it in one transaction, and answers after the commit:
 * while one commit is under way, the next commands gather. So a daemon's rate is not its disk's.
 *
 * What must not be looked up first goes out as one statement, and most groups are that alone. When
 * one of them is refused, nothing of it was stored, and a transaction with marks finds out who it
 * was.
 *
 * G1  A command is done whole or not at all, and answered exactly once.
 * G2  Its outcome is its own: what is refused leaves no trace and does not touch its neighbours.
 * G3  Nobody is told that something is stored before it is; what cannot be known is unknown for
 *     every command of that transaction that was not refused before.
 * G4  A command whose aggregate is held by somebody's transaction lets the others go on, and is
 *     tried again a few seconds long.
 * G5  What waits is bounded; one more is refused at once. */
#ifndef OL_OUTBOX_BATCHER_H
#define OL_OUTBOX_BATCHER_H

#include "base/buf.h"
#include "outlog.h"

struct ol_batcher;
struct ol_batcher_command;

/* Called once for every submitted command, on the group's thread: be brief, and submit from here if
 * you like. result: 0, or -1 and command->err says why. */
typedef void ol_batcher_done(struct ol_batcher_command *command, int result);

/* What the caller wants. It and all it points to must live until `done`; start from a zeroed
 * struct. */
struct ol_batcher_command {
    const struct outlog_new_event *events;
    size_t event_count;
    const struct outlog_new_message *messages;
    size_t message_count;
    const struct outlog_idempotency *idempotency; /* NULL: may be repeated; else the command's key,
                                                     and events carry none of their own */
    ol_batcher_done *done;
    void *user;

    /* The answer. With an error, `err.index` is that of the event, or of the message when
     * `is_message` says so. */
    outlog_err err;
    bool is_message;
    bool is_replayed; /* the key was there: `response` is what the first call was answered */
    struct ol_buf
        response; /* of a command with a key, as ol_batcher_json() writes it; freed after `done` */

    /* the group's own */
    struct outlog_appended *appended;
    struct outlog_enqueued *enqueued;
    enum { OL_BATCHER_OPEN, OL_BATCHER_DONE, OL_BATCHER_REFUSED, OL_BATCHER_PUT_OFF } state;
    int tries;
    int64_t due; /* boot clock: not before */
    struct ol_batcher_command *next;
};

/* Connect, and start the thread. At most `most_waiting` commands wait (0: 10,000). */
int ol_batcher_open(const char *url, size_t most_waiting, struct ol_batcher **out, outlog_err *err);

/* Hand over a command from any thread. Returns at once.
 * OUTLOG_UNAVAILABLE: too many wait; OUTLOG_MISUSE: there is nothing in it. `done` is not called.
 */
int ol_batcher_submit(struct ol_batcher *group, struct ol_batcher_command *command,
                      outlog_err *err);

/* What was stored, in `done`: {"events":[…],"messages":[…]}. */
void ol_batcher_json(const struct ol_batcher_command *command, struct ol_buf *out);

/* Answer all that waits, and end. Nothing may be submitted any more. NULL: nothing. */
void ol_batcher_close(struct ol_batcher *group);

#endif
