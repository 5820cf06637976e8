/* outlog.h: the event log and the outbox, from C.
 *
 * Link with `pkg-config --cflags --libs outlog`. A handle (outlog, outlog_tx) belongs to one
 * thread at a time; open as many as you like. Every function that can fail returns 0 or -1 and
 * fills `err` exactly when it returns -1. The library never aborts, exits, logs or installs
 * signal handlers in its host.
 *
 * Strings are UTF-8 and NUL-terminated. What you pass in is only read, never kept; what you get
 * in a page belongs to the page. Times are microseconds since 1970-01-01T00:00:00Z. */
#ifndef OUTLOG_H
#define OUTLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OUTLOG_VERSION "0.1.0"
#define OUTLOG_API __attribute__((visibility("default")))

struct pg_conn; /* libpq's PGconn */
struct sqlite3; /* SQLite's handle */

typedef struct outlog outlog;
typedef struct outlog_tx outlog_tx;

/* --- errors ------------------------------------------------------------------------------- */

/* Stable codes. outlog_code_name() gives the public name ("sequence_conflict"), the same word
 * that SQL, the CLI and HTTP show. */
enum outlog_code {
    OUTLOG_OK = 0,
    /* the request is wrong: sending it again cannot help */
    OUTLOG_INVALID_JSON,
    OUTLOG_INVALID_FIELD,
    OUTLOG_UNKNOWN_FIELD,
    OUTLOG_ORG_REQUIRED,
    OUTLOG_UNKNOWN_CAUSATION,
    OUTLOG_TOO_LARGE,
    OUTLOG_NOT_FOUND,
    OUTLOG_SECRET_MATERIAL,
    OUTLOG_UNKNOWN_EVENT_TYPE,
    /* the request lost against what the store already holds */
    OUTLOG_SEQUENCE_CONFLICT, /* err->expected and err->actual are set */
    OUTLOG_ID_CONFLICT,
    OUTLOG_IDEMPOTENCY_KEY_REUSE,
    OUTLOG_IDEMPOTENCY_IN_PROGRESS,
    OUTLOG_ILLEGAL_TRANSITION,
    OUTLOG_BEYOND_SETTLED,
    OUTLOG_BEYOND_LOG, /* the cursor is of another log, or from before a restore: err->expected is
                          the cursor, err->actual the event_id to go on after, or -1: begin at 0 */
    OUTLOG_PROJECTION_BEHIND, /* not there in time */
    /* the store */
    OUTLOG_NO_SCHEMA,       /* run `outlog init` */
    OUTLOG_NEWER_SCHEMA,    /* the store was written by a newer outlog */
    OUTLOG_READ_ONLY,       /* nothing was stored */
    OUTLOG_UNAVAILABLE,     /* surely not stored; try again later */
    OUTLOG_OUTCOME_UNKNOWN, /* may be stored; look it up by id, or repeat it with the same id */
    OUTLOG_STORE_ERROR,     /* surely not stored; the message says why */
    /* this process */
    OUTLOG_NO_MEMORY,
    OUTLOG_MISUSE, /* the call itself is wrong; the message says how */
    OUTLOG_CODE_COUNT
};

typedef struct outlog_err {
    enum outlog_code code;
    char message[480];        /* one line: what is wrong, and what to do */
    char pointer[160];        /* JSON pointer of the field that was refused, or "" */
    int index;                /* which event of the call, from 0; -1 when none in particular */
    int64_t expected, actual; /* OUTLOG_SEQUENCE_CONFLICT: aggregate_seq asked for and found;
                                 OUTLOG_ID_CONFLICT: actual is that of the event which has the id,
                                 where it is one of the same aggregate, else 0 */
} outlog_err;

/* The public name of a code, for ever; never NULL. */
OUTLOG_API const char *outlog_code_name(enum outlog_code code);

/* Whether the same call can succeed later without being changed. */
OUTLOG_API bool outlog_code_is_retryable(enum outlog_code code);

/* --- a store ------------------------------------------------------------------------------ */

/* Open the store at `url`: "sqlite:PATH" or any libpq URL ("postgres://…").
 *
 * A SQLite file is created when it does not exist; the schema is not (see outlog_init).
 * OUTLOG_UNAVAILABLE:  the database cannot be reached; the message names it and the reason.
 * OUTLOG_NEWER_SCHEMA: a newer outlog wrote this store; nothing was touched. */
OUTLOG_API int outlog_open(const char *url, outlog **out, outlog_err *err);
OUTLOG_API void outlog_close(outlog *log);

/* Create the schema or bring it up to this library's version; safe to repeat and to run from
 * several processes at once. *from and *to (either may be NULL) tell the versions. */
OUTLOG_API int outlog_init(outlog *log, int *from, int *to, outlog_err *err);

/* --- transactions ------------------------------------------------------------------------- */

/* A transaction of the library's own connection; one at a time per handle. */
OUTLOG_API int outlog_begin(outlog *log, outlog_tx **out, outlog_err *err);

/* Commit, and free `tx` whatever happens.
 *
 * OUTLOG_OUTCOME_UNKNOWN: the connection was cut, or the disk failed, while the commit was on its
 * way. The events may be stored or not; outlog_resolve() tells. Never reported as failed. */
OUTLOG_API int outlog_commit(outlog_tx *tx, outlog_err *err);

/* Undo everything, and free `tx`. Does nothing for NULL. */
OUTLOG_API void outlog_rollback(outlog_tx *tx);

/* Take part in a transaction that the caller began on a connection of its own. The library
 * never commits or rolls it back; an error of ours leaves the caller's transaction usable (A2).
 * Free with outlog_leave() before the transaction ends. */
OUTLOG_API int outlog_join_postgres(struct pg_conn *conn, outlog_tx **out, outlog_err *err);
OUTLOG_API int outlog_join_sqlite(struct sqlite3 *db, outlog_tx **out, outlog_err *err);
OUTLOG_API void outlog_leave(outlog_tx *tx);

/* --- appending ---------------------------------------------------------------------------- */

/* A new event; start from a zeroed struct. The limits are those of sql/schema/event.json. */
struct outlog_new_event {
    const char *org_id;          /* required; NULL only together with is_infrastructure */
    bool is_infrastructure;      /* an event without org, which tenants never see */
    const char *aggregate_type;  /* required, 1-50 bytes */
    const char *aggregate_id;    /* required, 1-255 bytes */
    const char *event_type;      /* required, 1-100 bytes, past tense: "order.created" */
    int event_version;           /* 0 counts as 1 */
    const char *payload;         /* required, a JSON object of at most 256 KiB, kept as it is */
    const char *metadata;        /* a JSON object, or NULL */
    const char *id;              /* the caller's own UUID, or NULL for a new UUIDv7 */
    const char *actor_type;      /* user | service_principal | system; NULL: system */
    const char *actor_id;        /* NULL: "system" */
    const char *request_id;      /* NULL: made */
    const char *correlation_id;  /* NULL: that of the cause, else made */
    const char *causation_id;    /* id or event_id of the causing event, or NULL */
    const char *idempotency_key; /* NULL: the command may be repeated */
    const char *app_id;
    const char *env_id;
    const char *visibility;
    const int64_t *expected_seq; /* the aggregate's last aggregate_seq, 0 for none; NULL: any */
    /* W3C, kept as metadata.traceparent unless metadata has one; an invalid one is left out. A
     * repeat with the same key may have another. */
    const char *traceparent;
    /* Used where neither correlation_id nor a cause gives one. A repeat with the same key may have
     * another. */
    const char *correlation_default;
};

/* The stored event: what the log added. */
struct outlog_appended {
    int64_t event_id;      /* its position in the global order */
    char id[37];           /* its identity outside the database */
    int64_t aggregate_seq; /* 1, 2, 3 … without gaps in its aggregate */
    int64_t occurred_at;
    char correlation_id[256];
    bool duplicate; /* it was there already: the first result is repeated */
};

/* Append one event inside the open transaction.
 *
 * Readers see nothing before the commit; a rollback leaves no trace. With an idempotency_key the
 * command is done once: a repeat answers with the first result and duplicate = true.
 *
 * An event that is refused for what it says leaves the transaction as it was. After any other error
 * a transaction of outlog_begin() can only be rolled back; a caller's own one stays usable.
 *
 * OUTLOG_SEQUENCE_CONFLICT:     expected_seq lost the race; err names both values.
 * OUTLOG_ID_CONFLICT:           the id is taken by an event with other content.
 * OUTLOG_UNKNOWN_CAUSATION:     the cause does not exist in this org.
 * OUTLOG_SECRET_MATERIAL:       the payload carries a secret; err names rule and field, never
 *                               the value.
 * OUTLOG_IDEMPOTENCY_KEY_REUSE: the key was used for another request. */
OUTLOG_API int outlog_append(outlog_tx *tx, const struct outlog_new_event *event,
                             struct outlog_appended *out, outlog_err *err);

/* Append `count` events as one command: all of them or none. `out` has room for `count` results.
 * The idempotency key, if any, is that of events[0]. err->index tells which event was refused.
 * A later event may name an earlier one of the same call as its cause, by its own `id`. */
OUTLOG_API int outlog_append_many(outlog_tx *tx, const struct outlog_new_event *events,
                                  size_t count, struct outlog_appended *out, outlog_err *err);

/* The same as a transaction of its own, committed when it returns: the fastest way to append when
 * there is nothing else to write. On PostgreSQL, calls of several threads, each on its handle of
 * the same URL, may share a commit; one that is refused does not touch the others.
 * OUTLOG_OUTCOME_UNKNOWN as for outlog_commit(); `out` then holds the ids to resolve or to repeat
 * with. */
OUTLOG_API int outlog_append_now(outlog *log, const struct outlog_new_event *events, size_t count,
                                 struct outlog_appended *out, outlog_err *err);

/* After OUTLOG_OUTCOME_UNKNOWN: is the event with this id stored, and as what? Asks the current
 * primary on a new connection if need be. *stored = false is final: the transaction is over. */
OUTLOG_API int outlog_resolve(outlog *log, const char *id, bool *stored,
                              struct outlog_appended *out, outlog_err *err);

/* --- the outbox --------------------------------------------------------------------------- */

/* A message to be delivered; start from a zeroed struct. */
struct outlog_new_message {
    const char *destination; /* required, 1-100 bytes */
    const char *event_type;  /* required, 1-100 bytes */
    const void *payload;     /* required, any bytes, at most 256 KiB; delivered byte for byte */
    size_t payload_bytes;
    const char *content_type; /* NULL: application/json */
    const char *org_id;
    const char *idempotency_key; /* unique per org and destination; NULL: the message's own id */
    const char *ordering_key;    /* messages of one key go in order, one after another */
    const char *partition_key;   /* for the transport only */
    const char *headers;         /* a flat JSON object; sent as headers of the request */
    const char *metadata;        /* a JSON object; never sent */
    const char *correlation_id;  /* NULL: that of the cause, else the message's own id */
    const char *causation_id;    /* id or event_id of the event it came from, or NULL */
    const char *aggregate_type;
    const char *aggregate_id;
    const char *event_id; /* the message's own UUID; NULL: made */
    int64_t available_at; /* not before; 0: at once */
    int64_t delay_us;     /* or this long after now */
    int max_attempts;     /* 0: the destination's */
};

struct outlog_enqueued {
    char event_id[37];
    bool duplicate; /* the key was there already: this is the first message's id */
};

/* Put a message into the outbox inside the open transaction: a relay delivers it after the commit,
 * at least once (or at most once, where the destination says so).
 * OUTLOG_INVALID_FIELD, OUTLOG_TOO_LARGE: err names the field. */
OUTLOG_API int outlog_enqueue(outlog_tx *tx, const struct outlog_new_message *draft,
                              struct outlog_enqueued *out, outlog_err *err);

/* An effect: something asked of the outside world, whose every step is an event (U5). */
struct outlog_new_effect {
    const char *org_id;
    const char *effect_type; /* required: SEND_EMAIL, API_CALL, SOR_UPDATE, … */
    const char *destination; /* required */
    const char *effect_spec; /* required: a JSON object, delivered byte for byte */
    const char *run_id, *step_id, *session_key, *checkpoint_id;
    const char *idempotency_key; /* NULL: effect_spec.idempotency_key, else derived */
    const char *ordering_key;
    const char *correlation_id, *causation_id;
    const char *actor_type, *actor_id;
    int max_attempts;
    const char *traceparent; /* W3C, of the event and the message, as with outlog_append() */
};

struct outlog_effect_requested {
    char effect_id[37];
    char message_id[37];
    int64_t event_id; /* of EFFECT_REQUESTED; 0 for a duplicate */
    bool duplicate;   /* the key was used before: these are the first one's ids */
};

/* Store the effect, its message and EFFECT_REQUESTED inside the open transaction. The relay then
 * writes EFFECT_EXECUTING with each claim, and COMPLETED, FAILED, RETRYING or DEAD_LETTERED with
 * each record. */
OUTLOG_API int outlog_request_effect(outlog_tx *tx, const struct outlog_new_effect *draft,
                                     struct outlog_effect_requested *out, outlog_err *err);

/* --- runs --------------------------------------------------------------------------------- */

/* JSON that the library made; start from a zeroed struct. A struct may be used again and again. */
struct outlog_json {
    const char *text;
    size_t bytes;
    bool is_replay; /* outlog_run_command(): the key was used before, this is the first answer */
    void *memory;   /* the library's; outlog_json_clear() frees it */
};
OUTLOG_API void outlog_json_clear(struct outlog_json *json);

/* A command of a signal, run, step or tool call (U1); docs/runs.md lists them with their bodies. */
struct outlog_run_call {
    const char *verb;   /* "start_run", "complete_step", … */
    const char *id;     /* of the run, step or tool call it is about; NULL for what is new */
    const char *org_id; /* what the caller may touch; NULL: every org */
    const char *actor_type, *actor_id, *request_id; /* as in struct outlog_new_event */
    const char *idempotency_key;                    /* NULL: the command may be repeated */
    const char *body;                               /* a JSON object; NULL: {} */
};

/* Do it inside the open transaction: its events, the change of its row, and the answer, which is
 * the object as JSON. Commands of one run come one after another.
 *
 * What is refused for its body leaves the transaction as it was. After any other error a
 * transaction of outlog_begin() can only be rolled back; a caller's own one stays usable.
 *
 * OUTLOG_NOT_FOUND:          there is no such run, step, tool call or signal (in org_id).
 * OUTLOG_ILLEGAL_TRANSITION: its state does not allow it; err names the state and what is needed.
 * OUTLOG_SEQUENCE_CONFLICT:  body.expected_seq is not the last aggregate_seq of what `id` names.
 * OUTLOG_INVALID_FIELD, OUTLOG_UNKNOWN_FIELD, OUTLOG_ORG_REQUIRED: err names the member. */
OUTLOG_API int outlog_run_command(outlog_tx *tx, const struct outlog_run_call *call,
                                  struct outlog_json *answer, outlog_err *err);

/* A run with its steps, effects and checkpoints, in one consistent read, as each of the following.
 */
OUTLOG_API int outlog_run_get(outlog *log, const char *run_id, struct outlog_json *out,
                              outlog_err *err);

/* {runs, next_after}, the newest first; `status` and `after` may be NULL, limit is 1-10000. */
OUTLOG_API int outlog_run_list(outlog *log, const char *status, const char *after, size_t limit,
                               struct outlog_json *out, outlog_err *err);

/* {run, checkpoint, events}: the latest checkpoint, or null, and the run's events after it (U4). */
OUTLOG_API int outlog_run_resume(outlog *log, const char *run_id, struct outlog_json *out,
                                 outlog_err *err);

/* {run, steps, effects, checkpoints}, rebuilt from events alone (U3). */
OUTLOG_API int outlog_run_replay(outlog *log, const char *run_id, struct outlog_json *out,
                                 outlog_err *err);

/* {matches, differences: [{table, id, field, stored, replayed}]}: the same against what is stored.
 */
OUTLOG_API int outlog_run_verify(outlog *log, const char *run_id, struct outlog_json *out,
                                 outlog_err *err);

/* --- looking at messages ------------------------------------------------------------------ */

/* One attempt to deliver a message. */
struct outlog_attempt {
    int attempt; /* 1 for the first */
    int64_t started_at;
    int64_t duration_ms;
    const char *outcome; /* ok, failed, unknown, released */
    int status;          /* HTTP or SMTP status, exit code; 0: none */
    bool permanent;
    const char *response, *error, *claimed_by;
};

/* A message and what became of it so far. Absent values are NULL, absent times 0. */
struct outlog_message {
    char event_id[37];
    char causation_id[37]; /* "" when there is none */
    const char *org_id, *destination, *event_type;
    const char *state; /* PENDING, CLAIMED, PUBLISHED, DEAD */
    int attempts;
    int max_attempts; /* its own, or what its type, its destination or the default says */
    int64_t available_at, created_at, updated_at, claimed_at, published_at;
    const char *claimed_by, *last_error;
    const char *error_details, *result; /* JSON objects, of the last attempt */
    const char *idempotency_key, *ordering_key, *partition_key, *content_type;
    const char *headers, *metadata; /* JSON objects */
    const char *correlation_id, *aggregate_type, *aggregate_id;
    const char *payload; /* outlog_message_get() only; perhaps with NULs inside */
    size_t payload_bytes;
    bool at_most_once;
    bool is_replay; /* an operator sends it again after it was published */
    bool is_held;   /* DEAD, and the messages of its key wait for a person */
    const struct outlog_attempt *attempts_log; /* outlog_message_get() only */
    size_t attempt_count;
};

struct outlog_message_page {
    struct outlog_message *messages; /* the newest first */
    size_t count;
    const char *next_after; /* opaque; NULL at the end */
    void *memory;           /* the library's; outlog_message_page_clear() frees it */
};

/* A page may be used again and again: each call first drops what it held before. */
OUTLOG_API void outlog_message_page_clear(struct outlog_message_page *page);

/* Which messages; all fields given must match. A zeroed filter matches everything. */
struct outlog_message_filter {
    const char *state;
    const char *destination;
    const char *event_type;
    bool is_retrying;     /* PENDING with attempts > 0 */
    int64_t since, until; /* created_at in [since, until); 0: no bound */
    const char *error;    /* outlog_requeue_all() and outlog_kill_all() alone: last_error, word for
                           * word    or with # for each number, as dead letters are grouped */
};

/* At most `limit` (1-10000) messages, and about 8 MiB, the newest first; `after` is the next_after
 * of the page before, or NULL. What is DEAD, CLAIMED, PENDING or retrying is found without walking
 * the outbox; of PUBLISHED ones, and with further filters, as much is read as it takes to find
 * `limit`. OUTLOG_INVALID_FIELD: the state or `after` is none. */
OUTLOG_API int outlog_messages(outlog *log, const struct outlog_message_filter *filter,
                               const char *after, size_t limit, struct outlog_message_page *page,
                               outlog_err *err);

/* One message with its payload and every attempt. OUTLOG_NOT_FOUND when there is none. */
OUTLOG_API int outlog_message_get(outlog *log, const char *event_id,
                                  struct outlog_message_page *page, outlog_err *err);

/* --- operating messages ------------------------------------------------------------------- */

/* Who does it, for the audit event that every change leaves in its own transaction (X4). */
struct outlog_operator {
    const char *actor_type; /* NULL: system */
    const char *actor_id;   /* NULL: "system" */
    const char *request_id; /* NULL: made */
};

struct outlog_requeue {
    struct outlog_operator by;
    bool even_if_unknown; /* also what is DEAD under at_most_once because nobody knows whether it
                             arrived: it may arrive twice */
    bool dry_run;         /* only count */
    /* Called for each message; may be NULL. */
    void (*on_message)(void *user, const char *event_id);
    void *user;
};

/* Send messages again: DEAD or PUBLISHED becomes PENDING, due now. attempts goes on, the budget
 * starts afresh, last_error is cleared; what was published is marked as a replay. Under `on_dead:
 * skip` younger messages of the key may have gone before: that order cannot be repaired. All or
 * none.
 *
 * OUTLOG_NOT_FOUND:          there is no such message.
 * OUTLOG_ILLEGAL_TRANSITION: it is PENDING or CLAIMED, or its outcome is unknown (see above). */
OUTLOG_API int outlog_requeue_ids(outlog *log, const char *const *event_ids, size_t count,
                                  const struct outlog_requeue *how, outlog_err *err);

/* The same for all that match; filter->state is DEAD (also when NULL) or PUBLISHED. In chunks,
 * oldest first, each a transaction of its own. *requeued and *skipped (unknown outcomes; either may
 * be NULL) tell how many, also after an error. */
OUTLOG_API int outlog_requeue_all(outlog *log, const struct outlog_message_filter *filter,
                                  const struct outlog_requeue *how, int64_t *requeued,
                                  int64_t *skipped, outlog_err *err);

/* End messages that wait: PENDING becomes DEAD, attempts as before. Their keys go on. All or none.
 * OUTLOG_ILLEGAL_TRANSITION: one is CLAIMED (it is on its way), PUBLISHED or DEAD. */
OUTLOG_API int outlog_kill(outlog *log, const char *const *event_ids, size_t count,
                           const struct outlog_operator *by, outlog_err *err);

/* The same for all that match; filter->state is PENDING or NULL. In chunks, oldest first, each a
 * transaction of its own; what comes in meanwhile is not meant. `how` may be NULL; of it, by,
 * dry_run and on_message count. *killed and *skipped (on their way just then; either may be NULL)
 * tell how many, also after an error. */
OUTLOG_API int outlog_kill_all(outlog *log, const struct outlog_message_filter *filter,
                               const struct outlog_requeue *how, int64_t *killed, int64_t *skipped,
                               outlog_err *err);

/* Let the keys of held dead messages go on; the messages stay DEAD. All or none.
 * OUTLOG_ILLEGAL_TRANSITION: one holds nothing. */
OUTLOG_API int outlog_release_keys(outlog *log, const char *const *event_ids, size_t count,
                                   const struct outlog_operator *by, outlog_err *err);

/* Try now what waits for its time at this destination (L6). *hurried (may be NULL): how many. */
OUTLOG_API int outlog_deliver(outlog *log, const char *destination,
                              const struct outlog_operator *by, int64_t *hurried, outlog_err *err);

/* Send now what a session is owed (L6), also what was sent a moment ago: every daemon that has
 * sockets of it hears of it within a second. *hurried (may be NULL): how many effects. */
OUTLOG_API int outlog_deliver_session(outlog *log, const char *org_id, const char *session_key,
                                      const struct outlog_operator *by, int64_t *hurried,
                                      outlog_err *err);

/* Stop or resume sending to a destination. Nothing is lost: its messages wait. *changed (may be
 * NULL) tells whether it was otherwise before. OUTLOG_NOT_FOUND when there is no such destination.
 */
OUTLOG_API int outlog_destination_pause(outlog *log, const char *destination, bool paused,
                                        const struct outlog_operator *by, bool *changed,
                                        outlog_err *err);

/* --- reading ------------------------------------------------------------------------------ */

/* An event as the log holds it. Absent values are NULL. */
struct outlog_event {
    int64_t event_id;
    char id[37];
    char causation_id[37]; /* "" when there is none */
    int64_t occurred_at;
    const char *org_id;
    const char *aggregate_type;
    const char *aggregate_id;
    int64_t aggregate_seq;
    const char *event_type;
    int event_version;
    const char *actor_type;
    const char *actor_id;
    const char *request_id;
    const char *idempotency_key;
    const char *correlation_id;
    const char *app_id;
    const char *env_id;
    const char *visibility;
    const char *metadata;
    const char *payload;
    size_t payload_bytes;
    int depth; /* outlog_causality() only */
};

struct outlog_page {
    struct outlog_event *events; /* in event_id order; outlog_read_back(): the newest first */
    size_t count;
    int64_t next_after; /* go on here; moves past what the filter skipped, never past settled */
    int64_t settled;    /* the highest event_id a reader may pass at this moment */
    char log_id[37];    /* which log: keep it with next_after, and pass both on */
    void *memory;       /* the library's; outlog_page_clear() frees it */
};

/* A page may be used again and again: each read first drops what the page held before. */
OUTLOG_API void outlog_page_clear(struct outlog_page *page);

/* Which events; all fields given must match. A zeroed filter matches everything. */
struct outlog_filter {
    const char *org_id;
    bool is_infrastructure; /* only events without org */
    const char *event_type;
    const char *aggregate_type;
    const char *aggregate_id;
    const char *correlation_id;
    const char *app_id;
    const char *env_id;
    const char *visibility;
    int64_t since, until; /* occurred_at in [since, until); 0: no bound */
    bool raw;             /* as stored, without upcasting to the current event_version */
    /* No filter, but the log that `after` was read from, page.log_id; NULL: not known. A restored
     * log is another one: see OUTLOG_BEYOND_LOG. */
    const char *log_id;
};

/* Read at most `limit` (1-10000) settled events after event_id `after`, in order.
 *
 * Never returns an event while one with a lower event_id can still appear (E6): whoever goes on
 * from next_after misses nothing. `filter` may be NULL.
 * OUTLOG_MISUSE: the handle has an open transaction, which would see what it may yet take back.
 * OUTLOG_BEYOND_LOG: `after` is beyond the last event_id ever given out, or filter->log_id is a log
 * that has other events before `after` (R3).
 * OUTLOG_READ_ONLY: a pooler sent the read to a standby, which may lag (P5). */
OUTLOG_API int outlog_read(outlog *log, const struct outlog_filter *filter, int64_t after,
                           size_t limit, struct outlog_page *page, outlog_err *err);

/* Read at most `limit` (1-10000) settled events before event_id `before`, the newest first;
 * INT64_MAX begins at the end of the log. *next_before says where to go on: 0 when the log begins
 * here. What comes meanwhile is at the other end: whoever goes on misses nothing older.
 * OUTLOG_MISUSE: as for outlog_read(). */
OUTLOG_API int outlog_read_back(outlog *log, const struct outlog_filter *filter, int64_t before,
                                size_t limit, struct outlog_page *page, int64_t *next_before,
                                outlog_err *err);

/* The same, but wait up to `timeout_ms` for at least one event. An empty page at the end of that
 * time is not an error. Woken at once by commits of this process, soon by those of others. */
OUTLOG_API int outlog_follow(outlog *log, const struct outlog_filter *filter, int64_t after,
                             size_t limit, int timeout_ms, struct outlog_page *page,
                             outlog_err *err);

/* One event, by id or event_id. OUTLOG_NOT_FOUND when there is none. */
OUTLOG_API int outlog_get(outlog *log, const char *id, struct outlog_page *page, outlog_err *err);

/* The highest event_id a reader may pass now: nothing at or below it can still appear. */
OUTLOG_API int outlog_settled(outlog *log, int64_t *settled, outlog_err *err);

/* All events of one correlation_id, in order (T3); `filter` narrows the org, or is NULL. */
OUTLOG_API int outlog_trace(outlog *log, const struct outlog_filter *filter,
                            const char *correlation_id, struct outlog_page *page, outlog_err *err);

enum outlog_direction { OUTLOG_UP, OUTLOG_DOWN };

/* The chain of causes from an event up to its root, or the tree of what it caused. The event
 * itself comes first with depth 0. */
OUTLOG_API int outlog_causality(outlog *log, const char *id, enum outlog_direction direction,
                                struct outlog_page *page, outlog_err *err);

/* --- consumers: named, durable cursors ---------------------------------------------------- */

struct outlog_consumer {
    char name[128];
    int64_t cursor_event_id; /* the last event fully processed */
    int64_t lag;             /* settled - cursor_event_id, an upper bound of what is waiting */
    int64_t updated_at;
    char filters[1024]; /* JSON object: {"org_id": …, "event_type": …} */
};

/* Create the consumer, or do nothing when it exists (*created tells; it may be NULL). `filter`
 * is kept with it and applied to its reads. It starts after event_id `from`. */
OUTLOG_API int outlog_consumer_create(outlog *log, const char *name,
                                      const struct outlog_filter *filter, int64_t from,
                                      bool *created, outlog_err *err);
OUTLOG_API int outlog_consumer_get(outlog *log, const char *name, struct outlog_consumer *out,
                                   outlog_err *err);

/* All consumers by name, at most `room`; *count tells how many there are. */
OUTLOG_API int outlog_consumer_list(outlog *log, struct outlog_consumer *out, size_t room,
                                    size_t *count, outlog_err *err);

/* Read after the consumer's cursor, waiting up to timeout_ms; a page also ends with the event that
 * makes it about 8 MiB. Moves nothing: process, then commit page.next_after. After a crash the same
 * events come again, never fewer (C1). */
OUTLOG_API int outlog_consumer_read(outlog *log, const char *name, size_t limit, int timeout_ms,
                                    struct outlog_page *page, outlog_err *err);

/* Move the cursor forward. *moved = false when it stood there or further already: a late commit
 * of an older process changes nothing. OUTLOG_BEYOND_SETTLED: past what may be read. */
OUTLOG_API int outlog_consumer_commit(outlog *log, const char *name, int64_t event_id, bool *moved,
                                      outlog_err *err);

/* Put the cursor at 0, at an event_id, or at the end (OUTLOG_END); with `at_time` before the
 * first event that occurred at or after it. Explicit, so it may go back (C4). */
#define OUTLOG_END INT64_MAX
OUTLOG_API int outlog_consumer_reset(outlog *log, const char *name, int64_t to, outlog_err *err);
OUTLOG_API int outlog_consumer_reset_to_time(outlog *log, const char *name, int64_t at_time,
                                             outlog_err *err);
OUTLOG_API int outlog_consumer_delete(outlog *log, const char *name, outlog_err *err);

/* --- projections: views derived from the log ----------------------------------------------- */

struct outlog_projection {
    char name[64];
    int version;                   /* of what is live; 0: nothing yet */
    char status[16];               /* running, rebuilding, stopped */
    int64_t last_applied_event_id; /* everything up to here is in the view */
    int64_t lag;                   /* settled - last_applied_event_id: an upper bound */
    int64_t updated_at;
    char owner[128]; /* the worker that fills it, or "" */
    char
        error[4096]; /* why it stopped, {"event_id", "event_type", "statement", "message"}; or "" */
    char rebuild[16]; /* "", in_place, aside */
    int rebuild_version;
    int64_t rebuild_event_id, rebuild_upto, rebuild_started_at;
    char rebuild_error[4096]; /* like error; the live view goes on */
    bool is_in_c;             /* outlog_project() fills it, no worker does */
};

/* All projections by name, at most `room`; *count tells how many there are. */
OUTLOG_API int outlog_projection_list(outlog *log, struct outlog_projection *out, size_t room,
                                      size_t *count, outlog_err *err);
OUTLOG_API int outlog_projection_get(outlog *log, const char *name, struct outlog_projection *out,
                                     outlog_err *err);

/* Wait up to timeout_ms until the projection has applied `event_id` (P4); *last_applied (may be
 * NULL) tells where it is, also when it is not there in time. The event must be committed.
 * OUTLOG_PROJECTION_BEHIND: not in time. OUTLOG_NOT_FOUND: there is no such projection. */
OUTLOG_API int outlog_projection_wait(outlog *log, const char *name, int64_t event_id,
                                      int timeout_ms, int64_t *last_applied, outlog_err *err);

/* Ask for the view to be made again from the whole log (P3). In place it is emptied and filled
 * anew, which readers see. Aside it is built beside the live one, which goes on, and takes its
 * place when it has caught up: readers see the old one, then the new one. A worker does it; this
 * only asks. OUTLOG_ILLEGAL_TRANSITION: in place, while another version waits to take its place. */
OUTLOG_API int outlog_projection_rebuild(outlog *log, const char *name, bool aside,
                                         const struct outlog_operator *by, outlog_err *err);

/* Give up a rebuild aside; the live view stays as it is.
 * OUTLOG_ILLEGAL_TRANSITION: there is none. */
OUTLOG_API int outlog_projection_cancel(outlog *log, const char *name,
                                        const struct outlog_operator *by, outlog_err *err);

/* Let the projection go on behind an event that it cannot apply (P6). Rebuilds of this version
 * leave the event out too. OUTLOG_ILLEGAL_TRANSITION: it is not this event that it stopped at. */
OUTLOG_API int outlog_projection_skip(outlog *log, const char *name, int64_t event_id,
                                      const struct outlog_operator *by, outlog_err *err);

/* Try again. OUTLOG_ILLEGAL_TRANSITION: it has not stopped. */
OUTLOG_API int outlog_projection_retry(outlog *log, const char *name,
                                       const struct outlog_operator *by, outlog_err *err);

/* A projection in C. */
struct outlog_project {
    const char *name;
    int version; /* 0 counts as 1; another one begins anew */

    /* Make the tables if they are not there, and empty them: called before the first event, for a
     * new version, and after outlog_projection_rebuild(). May be NULL. */
    int (*begin)(void *user, outlog_tx *tx, outlog_err *err);

    /* Apply the events, in order, inside `tx`, by its own connection: outlog_tx_postgres(),
     * outlog_tx_sqlite(). -1 undoes the batch; err->index may name the event. */
    int (*apply)(void *user, outlog_tx *tx, const struct outlog_event *events, size_t count,
                 outlog_err *err);
    void *user;
};

/* Apply the next events, at most `limit` (1-10000), waiting up to timeout_ms for the first: what
 * `apply` writes and the checkpoint commit together, so each event has its effect exactly once
 * (P1), however many processes do this. *count (may be NULL) tells how many; 0 at the end of the
 * time.
 *
 * When `apply` fails, its error is returned, kept with the projection and shown by
 * outlog_projection_list(); the next call tries again, or after outlog_projection_skip() goes on
 * behind the event. */
OUTLOG_API int outlog_project(outlog *log, const struct outlog_project *projection, size_t limit,
                              int timeout_ms, size_t *count, outlog_err *err);

/* The connection of a transaction, to write to tables of your own in it; NULL for the other
 * store's. Never commit, roll back or close it. */
OUTLOG_API struct pg_conn *outlog_tx_postgres(outlog_tx *tx);
OUTLOG_API struct sqlite3 *outlog_tx_sqlite(outlog_tx *tx);

/* --- command idempotency (I1) ------------------------------------------------------------- */

struct outlog_idempotency {
    const char *org_id; /* NULL: none */
    const char *actor_id;
    const char *endpoint; /* the name of the command: "append", "invoice.pay" */
    const char *key;      /* 1-512 bytes */
    const char *request;  /* JSON; white space and the order of keys do not matter */
};

/* Claim the key inside the open transaction, before doing the work.
 *
 * *response = NULL: new; do the work, then call outlog_idempotent_end. Otherwise the stored answer
 * of the first call, which stays valid until `tx` ends. A call with the same key that is still
 * running elsewhere is waited for.
 * OUTLOG_IDEMPOTENCY_KEY_REUSE:   the key came with another request before.
 * OUTLOG_IDEMPOTENCY_IN_PROGRESS: the first call did not end in time. */
OUTLOG_API int outlog_idempotent_begin(outlog_tx *tx, const struct outlog_idempotency *call,
                                       const char **response, outlog_err *err);

/* Store the answer; it is kept only if the transaction commits. */
OUTLOG_API int outlog_idempotent_end(outlog_tx *tx, const struct outlog_idempotency *call,
                                     const char *response, outlog_err *err);

/* Delete records older than `max_age_s` (at least 24 h), in chunks; *purged tells how many. */
OUTLOG_API int outlog_idempotency_purge(outlog *log, int64_t max_age_s, int64_t *purged,
                                        outlog_err *err);

/* SHA-256 of the request as lower-case hex, over its normal form: keys sorted, no white space,
 * numbers as written. OUTLOG_INVALID_JSON when it is not JSON. */
OUTLOG_API int outlog_request_hash(const char *request, char out[65], outlog_err *err);

/* The deterministic key of S0 5.1: aggregate_type:aggregate_id:event_type:hash(payload) (I3).
 * Returns the length it needs, as snprintf does, or -1. */
OUTLOG_API int outlog_derived_key(const char *aggregate_type, const char *aggregate_id,
                                  const char *event_type, const char *payload, char *out,
                                  size_t room, outlog_err *err);

#ifdef __cplusplus
}
#endif
#endif
