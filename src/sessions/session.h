/* session.h: conversations. Messages are events of the log, answers are effects (S-1 … S-7).
 *
 * I1  A user_message is stored before it is processed; its seq is its aggregate_seq.         (S-2)
 * I2  One message of a session is answered at a time, in order, by the daemon that has the
 *     session's lease. An owner whose lease expired cannot record an answer.                 (S-3)
 * I3  A message has at most one answer: the effect with checkpoint_id `<session_key>#<seq>`. (S-4)
 * I4  An effect is PENDING until a client acknowledges it, then COMPLETED for good.       (S-5) */
#ifndef OL_SESSIONS_SESSION_H
#define OL_SESSIONS_SESSION_H

#include "base/arena.h"
#include "base/buf.h"
#include "outlog.h"

enum { OL_SESSION_KEY_BYTES = 256 }; /* the longest aggregate_id and its final NUL */
enum { OL_SESSION_REQUEST_BYTES = 255 };

#define OL_SESSION_KEY_RULE \
    "a session key is userId:agentId:threadId, each of 1 to 128 of A-Z a-z 0-9 . _ ~ @ -, 255 in all"
bool ol_session_key_is_valid(const char *key);

/* The agent's part of a valid key, in the arena. */
const char *ol_session_agent(const char *key, struct ol_arena *arena);

/* An event id computed from the request: equal for equal requests of a session (dedupe.h). */
void ol_session_message_id(const char *org_id, const char *key, const char *request_id,
                           char out[37]);

/* Make the event of a user_message, without an id. Its payload and actor are in the arena; org_id,
 * key and request_id are borrowed. */
int ol_session_message(const char *org_id, const char *key, const char *request_id,
                       const char *text, struct ol_arena *arena, struct outlog_new_event *out,
                       outlog_err *err);

/* --- finding messages --- */

/* How far one caller of ol_session_note() has scanned the log; {0} at first. */
struct ol_session_scan {
    int64_t checked; /* there is no message from the shared cursor up to here */
    int64_t seen;    /* the end of what was scanned beyond the settled horizon */
};

/* Scan the log for messages since the last time, no matter which interface appended them, and
 * record each session's last seq. The shared cursor moves up to the settled horizon. Events beyond
 * it, where another transaction may still be open, are recorded too, so that they need not wait for
 * it, and once more when they are settled. */
int ol_session_note(outlog *log, struct ol_session_scan *scan, outlog_err *err);

/* --- answering --- */

struct ol_session_work {
    const char *org_id, *session_key;
    int64_t seq, epoch;
    int tries;
    const char *checkpoint; /* JSON, or NULL */
    /* the message */
    bool is_message; /* false: an event of another type, with nothing to answer */
    char event_id[37];
    const char *request_id, *text, *correlation_id;
};

/* Sessions with unanswered messages; `each` borrows the names. */
int ol_session_waiting(outlog *log, int limit,
                       void (*each)(void *user, const char *org_id, const char *key), void *user,
                       outlog_err *err);

/* Take a session's lease and read its next message. 1, or 0: nothing to do, or it has an owner. */
int ol_session_take(outlog *log, const char *owner, int64_t lease_us, const char *org_id,
                    const char *key, struct ol_arena *arena, struct ol_session_work *out,
                    outlog_err *err);

/* Extend the lease to `lease_us` from now. 1, or 0: the lease was lost. */
int ol_session_renew(outlog *log, const struct ol_session_work *work, int64_t lease_us,
                     outlog_err *err);

/* Store the answer: the effect and EFFECT_REQUESTED, the checkpoint (JSON, or NULL), and the
 * session's progress, in one transaction. 1, or 0: the lease was lost and nothing was stored. */
int ol_session_answer(outlog *log, const struct ol_session_work *work, const char *content,
                      size_t bytes, const char *checkpoint, outlog_err *err);

/* A new effect for a session's clients (S-7). */
struct ol_session_effect {
    const char *org_id, *session_key;
    const char *checkpoint_id; /* NULL: it is no answer */
    const char *effect_type, *spec;
    size_t spec_bytes;
    const char *idempotency_key;
    const char *correlation_id, *causation_id; /* either may be NULL */
    const char *error; /* it failed before it could be sent: FAILED at once; NULL: it is owed */
};

/* The type of an effect that tells that an agent gave no answer. It is never sent. */
#define OL_AGENT_FAILED "agent_failed"

/* Store the effect and EFFECT_REQUESTED in the caller's transaction. */
int ol_session_effect_add(outlog_tx *tx, const struct ol_session_effect *effect, outlog_err *err);

/* What an operator does to one effect of a session. */
struct ol_session_effect_call {
    const char *effect_id;
    const char *org_id; /* NULL: of any org */
    const char *reason; /* or NULL */
    struct outlog_operator by;
};

/* End an effect that is owed: FAILED, never sent again by itself. Or send one again now, also one
 * that was ended. Each leaves an audit event. OUTLOG_NOT_FOUND: there is none, or it is the
 * relay's. OUTLOG_ILLEGAL_TRANSITION: it is acknowledged, or has ended already. */
int ol_session_effect_end(outlog *log, const struct ol_session_effect_call *call, outlog_err *err);
int ol_session_effect_resend(outlog *log, const struct ol_session_effect_call *call,
                             outlog_err *err);

/* The session continues without an answer: to an event of another type (`error` NULL), or because
 * the agent failed for good with `error`, which is then an effect that FAILED. 1 or 0 as above. */
int ol_session_pass(outlog *log, const struct ol_session_work *work, const char *error,
                    outlog_err *err);

/* The agent failed: try again after `wait_us`. */
int ol_session_fail(outlog *log, const struct ol_session_work *work, const char *error,
                    int64_t wait_us, outlog_err *err);

/* Give the lease back and change nothing else. */
int ol_session_release(outlog *log, const struct ol_session_work *work, outlog_err *err);

/* --- delivering --- */

struct ol_pending_effect {
    char effect_id[37];
    const char *effect_type, *spec; /* send_message: {"content":…,"requestId":…,"isFinal":…} */
};

/* Some effects that no client has acknowledged. */
struct ol_effect_page {
    int64_t after; /* the log position to read from; 0 at first. Moves to the last effect read. */
    struct ol_pending_effect *effects;
    size_t count;
    bool is_last; /* there are no more */
};

/* Read the next page into the arena: at most 200 effects and some MiB, in the order of the log,
 * which no clock changes. */
int ol_session_effect_pending(outlog *log, const char *org_id, const char *key,
                              struct ol_arena *arena, struct ol_effect_page *page, outlog_err *err);

/* Sessions that got effects after log position `after`, no matter what a clock says, and those
 * whose effects were requested again within the last `since_us`. asked_at is the time of that
 * request, and 0 for the others. */
int ol_session_effect_changed(outlog *log, int64_t after, int64_t since_us,
                              void (*each)(void *user, const char *org_id, const char *key,
                                           int64_t asked_at),
                              void *user, outlog_err *err);

/* A message that got no answer. */
struct ol_session_failure {
    const char *org_id, *session_key, *request_id, *why;
    int64_t seq;
};

/* For each session the newest message that was given up within the last `since_us`. */
int ol_session_list_failures(outlog *log, int64_t since_us,
                             void (*each)(void *user, const struct ol_session_failure *failure),
                             void *user, outlog_err *err);

/* The effect was sent to its sockets `count` times. */
int ol_session_effect_attempted(outlog_tx *tx, const char *effect_id, int count, outlog_err *err);

/* An acknowledgement by a client. */
struct ol_session_ack {
    const char *org_id, *session_key, *effect_id;
    int attempts;  /* how often it was sent and not yet counted: counted in the same transaction */
    bool is_first; /* out: the effect was pending until now */
};

/* Complete the effect (I4). An effect of another session or org, or one that is completed already,
 * stays as it is. */
int ol_session_effect_ack(outlog *log, struct ol_session_ack *ack, outlog_err *err);

/* --- listing --- */

/* {sessions:[…], next_after}; org_id and after may be NULL. */
int ol_session_list(outlog *log, const char *org_id, const char *after, int limit,
                    struct ol_buf *out, outlog_err *err);

/* {effects:[…], next_after}, the oldest first, of sessions only; org_id, key (NULL: all), status
 * and after may be NULL. */
int ol_session_effects(outlog *log, const char *org_id, const char *key, const char *status,
                       const char *after, int limit, struct ol_buf *out, outlog_err *err);

/* --- tickets --- */

enum { OL_SESSION_TICKET_TEXT = 64 };

int ol_session_ticket_make(outlog *log, const char *org_id, const char *key, int64_t life_us,
                           char secret[OL_SESSION_TICKET_TEXT], int64_t *expires_at,
                           outlog_err *err);

/* Use a ticket up. 1 and its org, or 0: unknown, used, expired, or of another session. */
int ol_session_ticket_use(outlog *log, const char *secret, const char *key, struct ol_arena *arena,
                          const char **org_id, outlog_err *err);

#endif
