/* append.c: appending events.
 *
 * W1  All events of a call are stored, or none (E5).
 * W2  aggregate_seq has no gaps: the store assigns it under a lock on the aggregate's head (E4).
 * W3  A cause is stored before its effect, in the same org (T2): so causes form no cycle.
 * W4  The same id with the same content is the same event; with other content it is refused. */
#include "base/traceparent.h"
#include "base/uuid.h"
#include "log/causation.h"
#include "log/event.h"
#include "log/log.h"
#include "store/append_batch.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of one call. Everything in it lives in `arena`. */
struct append_call {
    struct ol_conn *conn;
    struct ol_arena arena;
    const struct outlog_new_event *events;
    struct outlog_appended *out;
    size_t count;
    struct ol_json *payloads;
    struct ol_append_batch_event *rows; /* one per event, stored already or not */
    struct ol_append_batch batch;       /* those to store */
    bool has_own_ids, has_causes;
    bool is_own;     /* by a command of outlog itself: reserved types are allowed */
    bool trusts_ids; /* ids of the caller are taken as new; if not, the store refuses them */
    bool is_record;  /* as in struct outlog_tx */
};

static int set_index(outlog_err *err, size_t index)
{
    if (err)
        err->index = (int)index;
    return -1;
}

/* --- 1. check, and fill in defaults --- */

static const char *default_uuid(const char *text, struct ol_arena *arena)
{
    char made[OL_UUID_TEXT];
    if (text)
        return text;
    ol_uuid_make(made);
    return ol_arena_copy(arena, made, OL_UUID_TEXT - 1);
}

/* The event as it is stored. The traceparent is not part of the request that an idempotency key
 * covers: a repeat may have another one. */
static const struct outlog_new_event *add_trace(const struct outlog_new_event *event,
                                                struct ol_arena *arena)
{
    if (!event->traceparent || !ol_traceparent_is_valid(event->traceparent))
        return event;
    struct outlog_new_event *traced = ol_arena_alloc(arena, sizeof *traced);
    if (!traced)
        return NULL;
    *traced = *event;
    traced->metadata = ol_traceparent_store(event->traceparent, event->metadata, arena);
    return traced->metadata ? traced : NULL;
}

static int prepare_event(struct append_call *call, const struct ol_registry *registry, size_t i,
                         outlog_err *err)
{
    const struct outlog_new_event *event = &call->events[i];
    struct ol_append_batch_event *row = &call->rows[i];
    struct ol_json metadata;

    if (ol_event_check(event, &call->payloads[i], &metadata, err) < 0 ||
        (!call->is_own && ol_event_refuse_reserved(event->event_type, err) < 0) ||
        ol_registry_admit(registry, event, &call->payloads[i], event->metadata ? &metadata : NULL,
                          call->is_record, err) < 0)
        return set_index(err, i);
    if (!(event = add_trace(event, &call->arena)))
        return ol_no_memory(err);
    call->out[i] = (struct outlog_appended){0};
    if (event->id)
        ol_uuid_parse(event->id, call->out[i].id);
    else
        ol_uuid_make(call->out[i].id);
    *row = (struct ol_append_batch_event){
        .index = (int)i,
        .said = event,
        .event_version = event->event_version ? event->event_version : 1,
        .payload_bytes = strlen(event->payload),
        .id = call->out[i].id,
        .actor_type = event->actor_type ? event->actor_type : "system",
        .actor_id = event->actor_id ? event->actor_id : "system",
        .request_id = event->request_id,
        .correlation_id = event->correlation_id,
        .out = &call->out[i],
    };
    call->has_own_ids |= event->id != NULL;
    call->has_causes |= event->causation_id != NULL;
    return 0;
}

static int prepare_events(struct append_call *call, const struct ol_registry *registry,
                          outlog_err *err)
{
    call->rows = ol_arena_array(&call->arena, call->count, sizeof *call->rows);
    call->payloads = ol_arena_array(&call->arena, call->count, sizeof *call->payloads);
    if (!call->rows || !call->payloads)
        return ol_no_memory(err);
    for (size_t i = 0; i < call->count; i++)
        if (prepare_event(call, registry, i, err) < 0)
            return -1;
    return 0;
}

/* --- 2. causes (W3) --- */

/* A cause among the earlier events of this call. */
static struct ol_append_batch_event *find_earlier(struct append_call *call, size_t before,
                                                  const char *id)
{
    for (size_t i = 0; i < before; i++)
        if (call->events[i].id && strcmp(call->rows[i].id, id) == 0)
            return &call->rows[i];
    return NULL;
}

static bool is_same_text(const char *one, const char *two)
{
    return one == two || (one && two && strcmp(one, two) == 0);
}

static int read_cause(struct append_call *call, struct ol_append_batch_event *row, bool *found,
                      outlog_err *err)
{
    struct ol_causation cause;
    if (ol_causation_find(call->conn, row->said->causation_id, &call->arena, &cause, found, err) <
        0)
        return -1;
    *found = *found && ol_causation_is_of_org(&cause, row->said->org_id);
    if (!*found)
        return 0;
    row->causation_id = ol_arena_copy(&call->arena, cause.id, OL_UUID_TEXT - 1);
    if (!row->correlation_id)
        row->correlation_id = cause.correlation_id;
    return row->causation_id ? 0 : ol_no_memory(err);
}

static int resolve_cause(struct append_call *call, size_t i, outlog_err *err)
{
    struct ol_append_batch_event *row = &call->rows[i], *cause;
    const char *text = row->said->causation_id;
    char id[OL_UUID_TEXT];
    bool found = false;

    if (ol_uuid_parse(text, id) && (cause = find_earlier(call, i, id)) &&
        is_same_text(cause->said->org_id, row->said->org_id)) {
        row->causation_id = cause->id;
        if (!row->correlation_id)
            row->correlation_id = cause->correlation_id;
        return 0;
    }
    if (read_cause(call, row, &found, err) < 0)
        return -1;
    if (found)
        return 0;
    ol_causation_refuse(err, text);
    return set_index(err, i);
}

/* In order, so that a correlation_id is inherited along a chain within the call. */
static int fill_causes(struct append_call *call, outlog_err *err)
{
    for (size_t i = 0; i < call->count; i++) {
        struct ol_append_batch_event *row = &call->rows[i];
        if (row->said->causation_id && resolve_cause(call, i, err) < 0)
            return -1;
        if (!row->correlation_id)
            row->correlation_id = row->said->correlation_default;
        row->correlation_id = default_uuid(row->correlation_id, &call->arena);
        row->request_id = default_uuid(row->request_id, &call->arena);
        if (!row->correlation_id || !row->request_id)
            return ol_no_memory(err);
        memcpy(row->out->correlation_id, row->correlation_id,
               strnlen(row->correlation_id,
                       sizeof row->out->correlation_id - 1)); // the rest is zero already
    }
    return 0;
}

/* --- 3. ids that are stored already (W4) --- */

static bool has_same_text(const struct ol_rows *rows, int column, const char *text)
{
    const char *stored = ol_rows_text(rows, column, NULL);
    return is_same_text(stored, text);
}

static bool has_same_payload(const struct ol_rows *rows, int column, const struct ol_json *payload)
{
    struct ol_buf one = {0}, two = {0};
    struct ol_json stored;
    size_t bytes;
    const char *text = ol_rows_text(rows, column, &bytes);
    bool same = ol_json_parse(text, bytes, &stored, NULL) == 0 &&
                ol_json_canonical(&stored, &one) == 0 && ol_json_canonical(payload, &two) == 0 &&
                one.bytes == two.bytes && memcmp(one.data, two.data, one.bytes) == 0;
    ol_buf_clear(&one);
    ol_buf_clear(&two);
    return same;
}

/* Columns of event_first. */
enum {
    FIRST_EVENT_ID,
    FIRST_ORG,
    FIRST_TYPE,
    FIRST_AGGREGATE,
    FIRST_SEQ,
    FIRST_EVENT_TYPE,
    FIRST_VERSION,
    FIRST_AT,
    FIRST_CORRELATION,
    FIRST_PAYLOAD
};

static int match_first(struct append_call *call, size_t i, const struct ol_rows *rows,
                       outlog_err *err)
{
    struct ol_append_batch_event *row = &call->rows[i];
    const struct outlog_new_event *given = row->said;
    bool is_same_aggregate = has_same_text(rows, FIRST_ORG, given->org_id) &&
                             has_same_text(rows, FIRST_TYPE, given->aggregate_type) &&
                             has_same_text(rows, FIRST_AGGREGATE, given->aggregate_id);
    if (!is_same_aggregate || !has_same_text(rows, FIRST_EVENT_TYPE, given->event_type) ||
        ol_rows_int(rows, FIRST_VERSION) != row->event_version ||
        !has_same_payload(rows, FIRST_PAYLOAD, &call->payloads[i])) {
        ol_fail_at(err, OUTLOG_ID_CONFLICT, "/id",
                   "id %s is taken by an event with other content; take a new id", row->id);
        if (err && is_same_aggregate)
            err->actual = ol_rows_int(rows, FIRST_SEQ);
        return set_index(err, i);
    }
    row->out->event_id = ol_rows_int(rows, FIRST_EVENT_ID);
    row->out->aggregate_seq = ol_rows_int(rows, FIRST_SEQ);
    row->out->occurred_at = ol_rows_time(rows, FIRST_AT);
    snprintf(row->out->correlation_id, sizeof row->out->correlation_id, "%s",
             ol_rows_text(rows, FIRST_CORRELATION, NULL));
    row->out->duplicate = true;
    return 0;
}

static int find_first(struct append_call *call, size_t i, outlog_err *err)
{
    struct ol_append_batch_event *row = &call->rows[i];
    struct ol_rows rows;
    if (find_earlier(call, i, row->id)) {
        ol_fail_at(err, OUTLOG_ID_CONFLICT, "/id", "id %s is given twice in this call", row->id);
        return set_index(err, i);
    }
    if (ol_store_query(call->conn, OL_Q_EVENT_FIRST, OL_PARAMS(ol_value_text(row->id)), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0 && match_first(call, i, &rows, err) < 0)
        got = -1;
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* --- 4. heads --- */

/* The events that are not duplicates, with their aggregates. */
static int gather_heads(struct append_call *call, outlog_err *err)
{
    struct ol_append_batch *batch = &call->batch;
    batch->events = ol_arena_array(&call->arena, call->count, sizeof *batch->events);
    if (!batch->events)
        return ol_no_memory(err);
    batch->count = 0;
    for (size_t i = 0; i < call->count; i++)
        if (!call->out[i].duplicate)
            batch->events[batch->count++] = call->rows[i];
    return ol_append_batch_number(batch, &call->arena, err);
}

static int lock_heads(struct append_call *call, outlog_err *err)
{
    for (size_t i = 0; i < call->batch.head_count; i++) {
        const struct ol_append_batch_head *head = &call->batch.heads[i];
        if (ol_store_exec(call->conn, OL_Q_HEAD_LOCK,
                          OL_PARAMS(ol_value_text(head->org_key),
                                    ol_value_text(head->aggregate_type),
                                    ol_value_text(head->aggregate_id)),
                          NULL, err) < 0)
            return -1;
    }
    return 0;
}

/* Two calls with the same id contend for the aggregate's head: lock it, and then look up the id. */
static int skip_stored(struct append_call *call, outlog_err *err)
{
    if (gather_heads(call, err) < 0 || lock_heads(call, err) < 0)
        return -1;
    for (size_t i = 0; i < call->count; i++)
        if (call->events[i].id && find_first(call, i, err) < 0)
            return -1;
    return 0;
}

/* --- the call --- */

static int append_prepared(struct append_call *call, outlog_err *err)
{
    bool needs_lookup = call->has_own_ids && !call->trusts_ids;
    if (fill_causes(call, err) < 0 || (needs_lookup && skip_stored(call, err) < 0) ||
        gather_heads(call, err) < 0)
        return -1;
    if (call->batch.count == 0)
        return 0; // all were stored already
    return call->conn->store->append(call->conn, &call->batch, err);
}

static int append_with_key(struct append_call *call, outlog_tx *tx, outlog_err *err)
{
    const struct outlog_new_event *first = &call->events[0];
    struct ol_buf request = {0}, response = {0};
    const char *stored;
    int result = -1;

    ol_event_request(call->events, call->count, &request);
    if (request.failed) {
        ol_no_memory(err);
        goto out;
    }
    struct outlog_idempotency key = {.org_id = first->org_id,
                                     .actor_id = first->actor_id ? first->actor_id : "system",
                                     .endpoint = "append",
                                     .key = first->idempotency_key,
                                     .request = request.data};
    if (outlog_idempotent_begin(tx, &key, &stored, err) < 0)
        goto out;
    if (stored) {
        result = ol_event_replay(stored, call->out, call->count, err);
        goto out;
    }
    if (append_prepared(call, err) < 0)
        goto out;
    ol_event_response(call->out, call->count, &response);
    result = response.failed ? ol_no_memory(err)
                             : outlog_idempotent_end(tx, &key, response.data, err);
out:
    ol_buf_clear(&request);
    ol_buf_clear(&response);
    return result;
}

static struct append_call new_call(struct ol_conn *conn, const struct outlog_new_event *events,
                                   size_t count, struct outlog_appended *out)
{
    return (struct append_call){.conn = conn, .events = events, .count = count, .out = out};
}

static int append_many(struct append_call call, outlog_tx *tx, outlog_err *err)
{
    const struct ol_store *store = tx->conn->store;
    int result = -1;

    if (call.count == 0)
        return 0;
    call.is_record = tx->is_record;
    if (tx->has_failed)
        return ol_fail(err, OUTLOG_MISUSE,
                       "an earlier append of this transaction failed; roll it back");
    if (prepare_events(&call, tx->registry, err) < 0)
        goto out;
    // A caller's own transaction stays usable even if we fail.
    if (!tx->log && store->mark(tx->conn, err) < 0)
        goto out;
    result = call.events[0].idempotency_key ? append_with_key(&call, tx, err)
                                            : append_prepared(&call, err);
    if (!tx->log && store->release(tx->conn, result == 0, result == 0 ? err : NULL) < 0)
        result = -1;
    tx->has_failed = tx->log && result < 0;
out:
    ol_arena_clear(&call.arena);
    return result;
}

int outlog_append_many(outlog_tx *tx, const struct outlog_new_event *events, size_t count,
                       struct outlog_appended *out, outlog_err *err)
{
    return append_many(new_call(tx->conn, events, count, out), tx, err);
}

int ol_append_new_ids(outlog_tx *tx, const struct outlog_new_event *events, size_t count,
                      struct outlog_appended *out, outlog_err *err)
{
    struct append_call call = new_call(tx->conn, events, count, out);
    call.trusts_ids = true;
    return append_many(call, tx, err);
}

int ol_append_own(outlog_tx *tx, const struct outlog_new_event *events, size_t count,
                  struct outlog_appended *out, outlog_err *err)
{
    struct append_call call = new_call(tx->conn, events, count, out);
    call.is_own = true;
    return append_many(call, tx, err);
}

int outlog_append(outlog_tx *tx, const struct outlog_new_event *event, struct outlog_appended *out,
                  outlog_err *err)
{
    return outlog_append_many(tx, event, 1, out, err);
}

/* A call that needs no lookup is sent as one statement. */
static int append_alone(struct append_call *call, int wait_ms, outlog_err *err)
{
    if (fill_causes(call, err) < 0 || gather_heads(call, err) < 0)
        return -1;
    call->batch.is_alone = true;
    call->batch.wait_ms = wait_ms;
    return call->conn->store->append(call->conn, &call->batch, err);
}

static int prepare_log(outlog *log, outlog_err *err)
{
    return ol_log_ready(log, err) < 0 || ol_registry_refresh(&log->registry, log->conn, err) < 0
               ? -1
               : 0;
}

int ol_append_autocommit(outlog *log, const struct outlog_new_event *events, size_t count,
                         int wait_ms, struct outlog_appended *out, outlog_err *err)
{
    struct append_call call = new_call(log->conn, events, count, out);
    int result = prepare_log(log, err) < 0 || prepare_events(&call, &log->registry, err) < 0
                     ? -1
                     : append_alone(&call, wait_ms, err);
    ol_arena_clear(&call.arena);
    return result;
}

int outlog_append_now(outlog *log, const struct outlog_new_event *events, size_t count,
                      struct outlog_appended *out, outlog_err *err)
{
    struct append_call call = new_call(log->conn, events, count, out);
    outlog_tx *tx;
    int result = -1;

    if (count == 0)
        return 0;
    if (log->tx)
        return ol_fail(err, OUTLOG_MISUSE,
                       "outlog_append_now: this handle has an open transaction");
    if (prepare_log(log, err) < 0)
        return -1;
    if (prepare_events(&call, &log->registry, err) < 0)
        goto out;
    if (!call.has_own_ids && !call.has_causes && !events[0].idempotency_key) {
        result = append_alone(&call, 0, err);
        goto out;
    }
    if (outlog_begin(log, &tx, err) < 0)
        goto out;
    if ((events[0].idempotency_key ? append_with_key(&call, tx, err)
                                   : append_prepared(&call, err)) < 0)
        outlog_rollback(tx);
    else
        result = outlog_commit(tx, err);
out:
    ol_arena_clear(&call.arena);
    return result;
}

int outlog_resolve(outlog *log, const char *id, bool *stored, struct outlog_appended *out,
                   outlog_err *err)
{
    char uuid[OL_UUID_TEXT];
    struct ol_rows rows;

    if (!ol_uuid_parse(id, uuid))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "id must be a UUID");
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_EVENT_FIRST, OL_PARAMS(ol_value_text(uuid)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *stored = got > 0;
    if (got > 0 && out) {
        *out = (struct outlog_appended){.event_id = ol_rows_int(&rows, FIRST_EVENT_ID),
                                        .aggregate_seq = ol_rows_int(&rows, FIRST_SEQ),
                                        .occurred_at = ol_rows_time(&rows, FIRST_AT),
                                        .duplicate = true};
        memcpy(out->id, uuid, sizeof out->id);
        snprintf(out->correlation_id, sizeof out->correlation_id, "%s",
                 ol_rows_text(&rows, FIRST_CORRELATION, NULL));
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}
