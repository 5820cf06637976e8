/* session.h: conversations: what was said is on the log, what is owed are effects (S-1 … S-6).
 *
 * I1  A user_message is stored before it is processed; its seq is its aggregate_seq.          (S-2)
 * I2  One message of a session is answered at a time, in order, by the daemon that has its lease;
 * an owner whose lease ran out cannot record an answer any more.                              (S-3)
 * I3  A message has at most one answer: the effect with checkpoint_id `<session_key>#<seq>`. (S-4)
 * I4  An effect is PENDING until a client acknowledges it, and COMPLETED ever after. (S-5) */
#ifndef OL_SESSIONS_SESSION_H
#define OL_SESSIONS_SESSION_H

#include "base/arena.h"
#include "base/buf.h"
#include "outlog.h"

enum { OL_SESSION_KEY_BYTES = 256 }; /* what an aggregate_id holds, and its end */
enum { OL_SESSION_REQUEST_BYTES = 255 };

#define OL_SESSION_KEY_RULE \
    "a session key is userId:agentId:threadId, each of 1 to 128 of A-Z a-z 0-9 . _ ~ @ -, 255 in all"
bool ol_session_key_is_valid(const char *key);

/* The agent's part of a valid key, in the arena. */
const char *ol_session_agent(const char *key, struct ol_arena *arena);

/* An id for the event that a message becomes: the same for the same request of the same session
 * (dedupe.h). */
void ol_session_message_id(const char *org_id, const char *key, const char *request_id,
                           char out[37]);

/* A user_message as an event, in the arena, without an id of its own; the names are only lent to
 * it. */
int ol_session_message(const char *org_id, const char *key, const char *request_id,
                       const char *text, struct ol_arena *arena, struct outlog_new_event *out,
                       outlog_err *err);

/* --- noting --- */

/* How far somebody has looked; {0} at first. */
struct ol_session_filter {
    int64_t checked; /* nothing was said from the cursor up to here */
    int64_t seen;    /* of what is not settled */
};

/* Go through what was said since the last time, by whatever door, and note for each session how far
 * it goes. The cursor of all moves with it, up to what is settled. What lies beyond, where a
 * transaction may be open in between, is noted too, so that nobody waits for it, and once more when
 * it is settled. */
int ol_session_note(outlog *log, struct ol_session_filter *look, outlog_err *err);

/* --- answering --- */

struct ol_session_work {
    const char *org_id, *session_key;
    int64_t seq, epoch;
    int tries;
    const char *checkpoint; /* JSON, or NULL */
    /* the message */
    bool is_message; /* else an event of another type: nothing to answer */
    char event_id[37];
    const char *request_id, *text, *correlation_id;
};

/* Sessions that wait; `each` gets the names, which are only lent. */
int ol_session_waiting(outlog *log, int limit,
                       void (*each)(void *user, const char *org_id, const char *key), void *user,
                       outlog_err *err);

/* Take a session and read its next message. 1, or 0 when there is nothing to do or another has it.
 */
int ol_session_take(outlog *log, const char *owner, int64_t lease_us, const char *org_id,
                    const char *key, struct ol_arena *arena, struct ol_session_work *out,
                    outlog_err *err);

/* Still ours for `lease_us` from now: 1, or 0 when it is not ours any more. */
int ol_session_renew(outlog *log, const struct ol_session_work *work, int64_t lease_us,
                     outlog_err *err);

/* Store the answer: the effect and EFFECT_REQUESTED, the checkpoint (JSON, or NULL), and the
 * session's progress, in one transaction. 1, or 0 when it is not ours any more: nothing was stored.
 */
int ol_session_answer(outlog *log, const struct ol_session_work *work, const char *content,
                      size_t bytes, const char *checkpoint, outlog_err *err);

/* Something a session is owed (S-7). */
struct ol_session_effect {
    const char *org_id, *session_key;
    const char *checkpoint_id; /* of an answer; else NULL */
    const char *effect_type, *spec;
    size_t spec_bytes;
    const char *idempotency_key;
    const char *correlation_id, *causation_id; /* either may be NULL */
};

/* Owe it: the effect and EFFECT_REQUESTED, in the caller's transaction. */
int ol_session_effect_add(outlog_tx *tx, const struct ol_session_effect *debt, outlog_err *err);

/* The message has no answer (another type of event; an agent that failed for good, then `error`
 * says how): the session goes on. 1 or 0 as above. */
int ol_session_pass(outlog *log, const struct ol_session_work *work, const char *error,
                    outlog_err *err);

/* The agent failed: try again after `wait_us`. */
int ol_session_fail(outlog *log, const struct ol_session_work *work, const char *error,
                    int64_t wait_us, outlog_err *err);

/* Hand it back as it was. */
int ol_session_release(outlog *log, const struct ol_session_work *work, outlog_err *err);

/* --- delivering --- */

struct ol_pending_effect {
    char effect_id[37];
    const char *effect_type, *spec; /* send_message: {"content":…,"requestId":…,"isFinal":…} */
};

/* What is owed to a session after *after, 0 at first, in the order in which it was owed, whatever a
 * clock said: at most 200, and some MiB. *after moves to the last of them; *is_all: there is no
 * more. */
int ol_session_effect_pending(outlog *log, const char *org_id, const char *key, int64_t *after,
                              struct ol_arena *arena, struct ol_pending_effect **out, size_t *count,
                              bool *is_all, outlog_err *err);

/* Sessions that effects were stored for after that in the log, whatever a clock says, and those
 * whose effects were asked for again within the last `since_us`: asked_at says when, and is 0 for
 * the others. */
int ol_session_effect_changed(outlog *log, int64_t after, int64_t since_us,
                              void (*each)(void *user, const char *org_id, const char *key,
                                           int64_t asked_at),
                              void *user, outlog_err *err);

/* A message that got no answer. */
struct ol_session_failure {
    const char *org_id, *session_key, *request_id, *why;
    int64_t seq;
};

/* The newest of each session that was given up within the last `since_us`. */
int ol_session_effect_failed(outlog *log, int64_t since_us,
                             void (*each)(void *user, const struct ol_session_failure *failure),
                             void *user, outlog_err *err);

/* The effect was sent to its sockets. */
int ol_session_effect_attempted(outlog_tx *tx, const char *effect_id, outlog_err *err);

/* A client has it (I4). *first (may be NULL): it was not known before. */
int ol_session_effect_ack(outlog *log, const char *org_id, const char *key, const char *effect_id,
                          bool *first, outlog_err *err);

/* --- looking --- */

/* {sessions:[…], next_after}; org_id and after may be NULL. */
int ol_session_list(outlog *log, const char *org_id, const char *after, int limit,
                    struct ol_buf *out, outlog_err *err);

/* {effects:[…], next_after}, the oldest first; status and after may be NULL. */
int ol_session_effects(outlog *log, const char *org_id, const char *key, const char *status,
                       const char *after, int limit, struct ol_buf *out, outlog_err *err);

/* --- tickets --- */

enum { OL_SESSION_TICKET_TEXT = 64 };

int ol_session_ticket_make(outlog *log, const char *org_id, const char *key, int64_t life_us,
                           char secret[OL_SESSION_TICKET_TEXT], int64_t *expires_at,
                           outlog_err *err);

/* Use it up: 1 and the org, or 0 when it is none, used, over or of another session. */
int ol_session_ticket_use(outlog *log, const char *secret, const char *key, struct ol_arena *arena,
                          const char **org_id, outlog_err *err);

#endif
