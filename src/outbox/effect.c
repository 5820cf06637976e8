/* effect.c: an effect is requested together with its message and its event, and every step of its
 * delivery is an event in the transaction that records it (U5, L2).
 *
 * The events belong to the effect's own aggregate, so that a caller that holds the lock on a run's
 * head can never delay a lane. */
#include "outbox/effect.h"

#include "base/json/json.h"
#include "base/sha256.h"
#include "base/traceparent.h"

#include <stdio.h>
#include <string.h>

bool ol_effect_is_message(const struct ol_claimed_message *claimed)
{
    return claimed->message.aggregate_type &&
           strcmp(claimed->message.aggregate_type, "EFFECT") == 0;
}

/* --- the row --- */

struct effect_row {
    char effect_id[OL_UUID_TEXT], last_event_id[OL_UUID_TEXT];
    const char *org_id, *run_id, *effect_type, *correlation_id;
    int64_t attempts;
    int64_t now;      // by the store's clock, like its message's available_at
    int64_t moved_at; // when its newest event occurred
};

static int load_effect(outlog_tx *tx, const char *message_id, struct ol_arena *arena,
                       struct effect_row *out, bool *found, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    if (ol_store_query(tx->conn, OL_Q_EFFECT_OF_MESSAGE, OL_PARAMS(ol_value_text(message_id)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *found = got > 0;
    if (*found) {
        ol_rows_uuid(&rows, 0, out->effect_id);
        out->org_id = ol_rows_copy(&rows, 1, arena, &failed);
        out->run_id = ol_rows_copy(&rows, 2, arena, &failed);
        out->effect_type = ol_rows_copy(&rows, 3, arena, &failed);
        ol_rows_uuid(&rows, 4, out->last_event_id);
        out->correlation_id = ol_rows_copy(&rows, 5, arena, &failed);
        out->attempts = ol_rows_int(&rows, 6);
        out->now = ol_rows_time(&rows, 7);
    }
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : got < 0 ? -1 : 0;
}

/* --- its events --- */

static void begin_payload(struct ol_buf *out, const struct effect_row *effect)
{
    ol_buf_print(out, "{\"effect_id\":\"%s\",\"run_id\":", effect->effect_id);
    ol_buf_json_text(out, effect->run_id);
    ol_buf_text(out, ",\"effect_type\":");
    ol_buf_json_text(out, effect->effect_type);
}

/* What an event of an effect says beside its ids. */
enum {
    SAYS_ATTEMPT = 1,
    SAYS_RESULT = 2,
    SAYS_ERROR = 4,
    SAYS_RETRY = 8,
};

/* What was left out of an event, or would be missing in it, so that it can be stored (L8). */
struct effect_gaps {
    char omitted[OL_OMITTED_TEXT]; /* why the receiver's text is left out; "": it is not */
    char shape_error[OL_OMITTED_TEXT];
};

static void write_error(struct ol_buf *out, const struct ol_claimed_message *claimed,
                        const char *omitted)
{
    char code[32] = "UNKNOWN_OUTCOME";
    if (claimed->outcome.status)
        snprintf(code, sizeof code, "STATUS_%d", claimed->outcome.status);
    else if (claimed->outcome.kind == OUTLOG_PUBLISH_FAILED)
        snprintf(code, sizeof code, "DELIVERY_FAILED");
    ol_buf_print(out, ",\"error_code\":\"%s\",\"error_message\":", code);
    ol_buf_json_text(out, *omitted ? "left out" : claimed->error ? claimed->error : "no answer");
}

static void write_retry(struct ol_buf *out, const struct effect_row *effect, int64_t wait_us)
{
    ol_buf_print(out, ",\"retry_count\":%lld,\"next_retry_at\":", (long long)effect->attempts);
    ol_buf_json_time(out, wait_us < 0 ? 0 : effect->now + wait_us);
}

static void write_result(struct ol_buf *out, const struct ol_claimed_message *claimed,
                         const char *omitted)
{
    ol_buf_print(out, "{\"status\":%d,\"response\":", claimed->outcome.status);
    ol_buf_json_text(out, *omitted ? NULL : claimed->response);
    ol_buf_char(out, '}');
}

static void write_payload(struct ol_buf *out, const struct effect_row *effect,
                          const struct ol_claimed_message *claimed, int says, int64_t wait_us,
                          const struct effect_gaps *gaps)
{
    ol_buf_reset(out);
    begin_payload(out, effect);
    if (says & SAYS_ATTEMPT)
        ol_buf_print(out, ",\"attempt\":%lld", (long long)effect->attempts);
    if (says & SAYS_RESULT) {
        ol_buf_text(out, ",\"execution_result\":");
        write_result(out, claimed, gaps->omitted);
    }
    if (says & SAYS_ERROR)
        write_error(out, claimed, gaps->omitted);
    if (says & SAYS_RETRY)
        write_retry(out, effect, wait_us);
    if (*gaps->omitted) {
        ol_buf_text(out, says & SAYS_RESULT ? ",\"result_omitted\":" : ",\"error_omitted\":");
        ol_buf_json_text(out, gaps->omitted);
    }
    if (*gaps->shape_error) {
        ol_buf_text(out, ",\"shape_error\":");
        ol_buf_json_text(out, gaps->shape_error);
    }
    ol_buf_char(out, '}');
}

/* After the log refused an event before anything was written: what to change, or false. A shape is
 * named and passed over; what else is refused can only be in the receiver's text. */
static bool fill_gap(const outlog_tx *tx, const outlog_err *why, struct effect_gaps *gaps)
{
    bool is_shape = why->code == OUTLOG_INVALID_FIELD || why->code == OUTLOG_UNKNOWN_EVENT_TYPE;
    char *gap = is_shape && !*gaps->shape_error ? gaps->shape_error : gaps->omitted;
    if (tx->has_failed || *gap || outlog_code_is_retryable(why->code))
        return false;
    snprintf(gap, OL_OMITTED_TEXT, "%s: %.200s", outlog_code_name(why->code), why->message);
    return true;
}

/* Append one event of the effect; it becomes the cause of the next. */
static int append_event(outlog_tx *tx, struct effect_row *effect,
                        const struct ol_claimed_message *claimed, const char *event_type, int says,
                        int64_t wait_us, struct effect_gaps *gaps, outlog_err *err)
{
    struct outlog_appended appended;
    struct ol_buf payload = {0};
    bool was_record = tx->is_record;
    int result;

    do {
        write_payload(&payload, effect, claimed, says, wait_us, gaps);
        tx->is_record = was_record || *gaps->shape_error;
        struct outlog_new_event event = {.org_id = effect->org_id,
                                         .is_infrastructure = !effect->org_id,
                                         .aggregate_type = "EFFECT",
                                         .aggregate_id = effect->effect_id,
                                         .event_type = event_type,
                                         .payload = payload.data,
                                         .actor_id = "relay",
                                         .correlation_id = effect->correlation_id,
                                         .causation_id = effect->last_event_id};
        result = payload.failed ? ol_no_memory(err) : ol_append_own(tx, &event, 1, &appended, err);
    } while (result < 0 && fill_gap(tx, err, gaps));
    tx->is_record = was_record;
    if (result == 0) {
        memcpy(effect->last_event_id, appended.id, sizeof effect->last_event_id);
        effect->moved_at = appended.occurred_at;
    }
    ol_buf_clear(&payload);
    return result;
}

/* The events of each step, in order, and whether the wait is known. */
static const struct effect_event {
    const char *event_type;
    int says;
} step_events[][2] = {
    [OL_EFFECT_EXECUTING] = {{"EFFECT_EXECUTING", SAYS_ATTEMPT}},
    [OL_EFFECT_COMPLETED] = {{"EFFECT_COMPLETED", SAYS_RESULT}},
    [OL_EFFECT_RETRYING] = {{"EFFECT_FAILED", SAYS_ERROR | SAYS_RETRY},
                            {"EFFECT_RETRYING", SAYS_RETRY}},
    [OL_EFFECT_DEAD] = {{"EFFECT_FAILED", SAYS_ERROR | SAYS_RETRY},
                        {"EFFECT_DEAD_LETTERED", SAYS_ERROR}},
    [OL_EFFECT_REQUEUED] = {{"EFFECT_RETRYING", SAYS_RETRY}},
    [OL_EFFECT_KILLED] = {{"EFFECT_DEAD_LETTERED", SAYS_ERROR}},
};

static int write_step(outlog_tx *tx, struct effect_row *effect,
                      const struct ol_claimed_message *claimed, enum ol_effect_step step,
                      int64_t wait_us, struct ol_buf *result_json, outlog_err *err)
{
    for (int i = 0; i < 2 && step_events[step][i].event_type; i++) {
        const struct effect_event *event = &step_events[step][i];
        struct effect_gaps gaps = {.omitted = ""};
        if (append_event(tx, effect, claimed, event->event_type, event->says,
                         step == OL_EFFECT_DEAD ? -1 : wait_us, &gaps, err) < 0)
            return -1;
        if (event->says & SAYS_RESULT)
            write_result(result_json, claimed, gaps.omitted);
    }
    return 0;
}

static const char *const statuses[] = {
    [OL_EFFECT_EXECUTING] = "EXECUTING", [OL_EFFECT_COMPLETED] = "COMPLETED",
    [OL_EFFECT_RETRYING] = "PENDING",    [OL_EFFECT_DEAD] = "FAILED",
    [OL_EFFECT_REQUEUED] = "PENDING",    [OL_EFFECT_KILLED] = "FAILED",
};

int ol_effect_write(outlog_tx *tx, const struct ol_claimed_message *claimed,
                    enum ol_effect_step step, int64_t wait_us, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_buf result_json = {0};
    struct effect_row effect = {0};
    bool found;
    int result = -1;

    if (load_effect(tx, claimed->message.event_id, &arena, &effect, &found, err) < 0)
        goto out;
    if (!found) {
        result = 0;
        goto out;
    }
    if (step == OL_EFFECT_EXECUTING)
        effect.attempts++;
    if (write_step(tx, &effect, claimed, step, wait_us, &result_json, err) < 0)
        goto out;
    result =
        ol_store_exec(tx->conn, OL_Q_EFFECT_MOVE,
                      OL_PARAMS(ol_value_text(effect.effect_id), ol_value_text(statuses[step]),
                                ol_value_int(effect.attempts), ol_value_text(effect.last_event_id),
                                ol_value_text(result_json.bytes ? result_json.data : NULL),
                                ol_value_time(effect.moved_at)),
                      NULL, err);
out:
    ol_buf_clear(&result_json);
    ol_arena_clear(&arena);
    return result;
}

int ol_effect_try(outlog_tx *tx, const struct ol_claimed_message *claimed, enum ol_effect_step step,
                  int64_t wait_us, bool *is_written, outlog_err *err)
{
    const struct ol_store *store = tx->conn->store;
    if (store->mark(tx->conn, err) < 0)
        return -1;
    *is_written = ol_effect_write(tx, claimed, step, wait_us, err) == 0;
    if (!*is_written && outlog_code_is_retryable(err->code))
        return -1; // the caller rolls back
    tx->has_failed = false;
    return store->release(tx->conn, *is_written, *is_written ? err : NULL);
}

/* --- requesting one --- */

static const char *read_spec_key(const struct outlog_new_effect *draft, struct ol_arena *arena)
{
    struct ol_json spec, key;
    if (ol_json_parse(draft->effect_spec, strlen(draft->effect_spec), &spec, NULL) < 0)
        return NULL;
    key = ol_json_get(&spec, "idempotency_key");
    return ol_json_string(&key, arena, NULL);
}

/* The key of the effect: the given one, else that of its spec, else a derived one (I3, S0 5.1). */
static const char *find_key(const struct outlog_new_effect *draft, const char *effect_id,
                            struct ol_arena *arena, outlog_err *err)
{
    const char *key = draft->idempotency_key ? draft->idempotency_key : read_spec_key(draft, arena);
    if (key)
        return key;
    char *derived = ol_arena_alloc(arena, 512);
    if (!derived) {
        ol_no_memory(err);
        return NULL;
    }
    if (outlog_derived_key("EFFECT", effect_id, draft->effect_type, draft->effect_spec, derived,
                           512, err) < 0)
        return NULL;
    return derived;
}

/* The key is known. If an effect has it, that is the answer; a message that is no effect is an
 * error. */
static int answer_duplicate(outlog_tx *tx, const char *message_id, const char *key,
                            struct ol_arena *arena, struct outlog_effect_requested *out,
                            outlog_err *err)
{
    struct effect_row effect = {0};
    bool found;
    if (load_effect(tx, message_id, arena, &effect, &found, err) < 0)
        return -1;
    if (!found)
        return ol_fail_at(err, OUTLOG_IDEMPOTENCY_KEY_REUSE, "/idempotency_key",
                          "key %.200s was used for a message that is no effect; take a new key",
                          key);
    out->duplicate = true;
    snprintf(out->message_id, sizeof out->message_id, "%s", message_id);
    memcpy(out->effect_id, effect.effect_id, sizeof out->effect_id);
    return 0;
}

static int append_requested(outlog_tx *tx, const struct outlog_new_effect *draft, const char *key,
                            const struct outlog_effect_requested *out,
                            struct outlog_appended *appended, outlog_err *err)
{
    struct ol_buf payload = {0};
    char spec_hash[OL_SHA256_TEXT];
    struct effect_row effect = {.run_id = draft->run_id, .effect_type = draft->effect_type};
    if (outlog_request_hash(draft->effect_spec, spec_hash, err) < 0)
        return -1;
    memcpy(effect.effect_id, out->effect_id, sizeof effect.effect_id);
    begin_payload(&payload,
                  &effect); // ids, type, destination and key; never the spec or headers (E13)
    ol_buf_text(&payload, ",\"step_id\":");
    ol_buf_json_text(&payload, draft->step_id);
    ol_buf_text(&payload, ",\"session_key\":");
    ol_buf_json_text(&payload, draft->session_key);
    ol_buf_text(&payload, ",\"checkpoint_id\":");
    ol_buf_json_text(&payload, draft->checkpoint_id);
    ol_buf_text(&payload, ",\"destination\":");
    ol_buf_json_text(&payload, draft->destination);
    ol_buf_print(&payload, ",\"message_id\":\"%s\",\"idempotency_key\":", out->message_id);
    ol_buf_json_text(&payload, key);
    ol_buf_print(&payload, ",\"spec_hash\":\"%s\"}", spec_hash); // which verify needs (U3)
    struct outlog_new_event event = {.org_id = draft->org_id,
                                     .is_infrastructure = !draft->org_id,
                                     .aggregate_type = "EFFECT",
                                     .aggregate_id = out->effect_id,
                                     .event_type = "EFFECT_REQUESTED",
                                     .payload = payload.data,
                                     .actor_type = draft->actor_type,
                                     .actor_id = draft->actor_id,
                                     .traceparent = draft->traceparent,
                                     .correlation_id = draft->correlation_id,
                                     .causation_id = draft->causation_id};
    int result = payload.failed ? ol_no_memory(err) : ol_append_own(tx, &event, 1, appended, err);
    ol_buf_clear(&payload);
    return result;
}

/* An effect of a run gets the run's org and correlation, and is caused by its step, else by the
 * run's start. */
static int join_run(outlog_tx *tx, struct outlog_new_effect *draft, struct ol_arena *arena,
                    outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    char cause[OL_UUID_TEXT];

    if (!draft->run_id)
        return 0;
    if (ol_store_query(tx->conn, OL_Q_RUN_OF_EFFECT,
                       OL_PARAMS(ol_value_text(draft->run_id), ol_value_text(draft->step_id)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        const char *org_id = ol_rows_copy(&rows, 0, arena, &failed);
        const char *status = ol_rows_copy(&rows, 1, arena, &failed);
        const char *correlation_id = ol_rows_copy(&rows, 2, arena, &failed);
        ol_rows_uuid(&rows, 3, cause);
        bool is_ours = !draft->org_id || (org_id && strcmp(draft->org_id, org_id) == 0);
        if (failed)
            got = ol_no_memory(err);
        else if (!is_ours || !ol_rows_int(&rows, 4))
            got = ol_fail(err, OUTLOG_NOT_FOUND, "run %.60s has no step %.60s", draft->run_id,
                          draft->step_id ? draft->step_id : "");
        else if (strcmp(status, "RUNNING") != 0)
            got = ol_fail(err, OUTLOG_ILLEGAL_TRANSITION,
                          "run %.60s is %s; request_effect needs a RUNNING run", draft->run_id,
                          status);
        draft->org_id = org_id;
        if (!draft->correlation_id)
            draft->correlation_id = correlation_id;
        if (!draft->causation_id)
            draft->causation_id = ol_arena_copy(arena, cause, OL_UUID_TEXT - 1);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* The message that has the key already; "" when there is none. */
static int find_message(outlog_tx *tx, const struct outlog_new_effect *draft, const char *key,
                        char message_id[OL_UUID_TEXT], outlog_err *err)
{
    struct ol_rows rows;
    *message_id = '\0';
    if (ol_store_query(tx->conn, OL_Q_MESSAGE_BY_KEY,
                       OL_PARAMS(ol_value_text(draft->org_id), ol_value_text(draft->destination),
                                 ol_value_text(key)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        ol_rows_uuid(&rows, 0, message_id);
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

static int enqueue_message(outlog_tx *tx, const struct outlog_new_effect *draft, const char *key,
                           const struct outlog_effect_requested *effect,
                           const struct outlog_appended *cause, struct ol_arena *arena,
                           outlog_err *err)
{
    struct outlog_enqueued enqueued;
    bool is_traced = draft->traceparent && ol_traceparent_is_valid(draft->traceparent);
    const char *metadata = is_traced ? ol_traceparent_store(draft->traceparent, NULL, arena) : NULL;
    if (is_traced && !metadata)
        return ol_no_memory(err);
    struct outlog_new_message message = {.destination = draft->destination,
                                         .event_type = draft->effect_type,
                                         .metadata = metadata,
                                         .payload = draft->effect_spec,
                                         .payload_bytes = strlen(draft->effect_spec),
                                         .org_id = draft->org_id,
                                         .idempotency_key = key,
                                         .ordering_key = draft->ordering_key,
                                         .correlation_id = cause->correlation_id,
                                         .causation_id = cause->id,
                                         .aggregate_type = "EFFECT",
                                         .aggregate_id = effect->effect_id,
                                         .event_id = effect->message_id,
                                         .max_attempts = draft->max_attempts};
    if (outlog_enqueue(tx, &message, &enqueued, err) < 0)
        return -1;
    if (enqueued.duplicate) // another transaction committed the same key after find_message()
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "an effect with key %.100s was just requested; roll back and try again",
                       key);
    return 0;
}

static int request_effect(outlog_tx *tx, const struct outlog_new_effect *draft,
                          struct ol_arena *arena, struct outlog_effect_requested *out,
                          outlog_err *err)
{
    struct outlog_appended appended;
    char first[OL_UUID_TEXT];

    ol_uuid_make(out->effect_id);
    const char *key = find_key(draft, out->effect_id, arena, err);
    if (!key || find_message(tx, draft, key, first, err) < 0)
        return -1;
    if (*first)
        return answer_duplicate(tx, first, key, arena, out, err);
    ol_uuid_make(out->message_id);
    // The event comes first: the message gets its correlation, and is caused by it.
    if (append_requested(tx, draft, key, out, &appended, err) < 0 ||
        enqueue_message(tx, draft, key, out, &appended, arena, err) < 0)
        return -1;
    out->event_id = appended.event_id;
    return ol_store_exec(tx->conn, OL_Q_EFFECT_INSERT,
                         OL_PARAMS(ol_value_text(out->effect_id), ol_value_text(draft->org_id),
                                   ol_value_text(draft->run_id), ol_value_text(draft->step_id),
                                   ol_value_text(draft->session_key),
                                   ol_value_text(draft->checkpoint_id),
                                   ol_value_text(draft->effect_type),
                                   ol_value_text(draft->effect_spec),
                                   ol_value_text(draft->destination), ol_value_text(key),
                                   ol_value_text(out->message_id), ol_value_int(appended.event_id),
                                   ol_value_text(appended.id),
                                   ol_value_text(appended.correlation_id),
                                   ol_value_time(appended.occurred_at)),
                         NULL, err);
}

int outlog_request_effect(outlog_tx *tx, const struct outlog_new_effect *draft,
                          struct outlog_effect_requested *out, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_json spec;
    const struct ol_store *store = tx->conn->store;
    int result = -1;

    *out = (struct outlog_effect_requested){0};
    if (!draft->effect_type || !draft->destination || !draft->effect_spec)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "effect_type, destination and effect_spec are required");
    if (ol_json_parse(draft->effect_spec, strlen(draft->effect_spec), &spec, err) < 0)
        return -1;
    if (spec.type != OL_JSON_OBJECT)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/effect_spec",
                          "effect_spec must be a JSON object");
    if (!tx->log && store->mark(tx->conn, err) < 0)
        return -1;
    struct outlog_new_effect joined = *draft;
    result = join_run(tx, &joined, &arena, err) < 0 ? -1
                                                    : request_effect(tx, &joined, &arena, out, err);
    if (!tx->log && store->release(tx->conn, result == 0, result == 0 ? err : NULL) < 0)
        result = -1;
    ol_arena_clear(&arena);
    return result;
}
