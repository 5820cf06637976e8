/* transition.c: the moves of signals, runs, steps and tools (U1), for a store without functions of
 * its own. PostgreSQL's are in sql/postgres/migrations/0003_runs; one suite puts every case through
 * both.
 *
 * M1  A refused move writes nothing.
 * M2  An event and its row's change are one transaction, and the row's time is the event's.
 * M3  Only `correct` touches a run that is not RUNNING.
 * M4  total_steps counts steps that completed, failed_steps failures: neither ever goes back. */
#include "runs/transition.h"

#include "base/clock.h"
#include "base/timestamp.h"
#include "outbox/enqueue.h"

#include <stdio.h>
#include <string.h>

/* --- small things --- */

static int out_of_memory(outlog_err *err)
{
    return ol_no_memory(err);
}

static int missing(const char *what, const char *id, outlog_err *err)
{
    return ol_fail(err, OUTLOG_NOT_FOUND, "no %s %.100s; check the id", what, id);
}

static int refuse(const struct ol_transition *move, const char *what, const char *id,
                  const char *status, const char *needed, outlog_err *err)
{
    return ol_fail(err, OUTLOG_ILLEGAL_TRANSITION, "%s %s is %s; %s needs %s", what, id, status,
                   move->verb_name, needed);
}

static struct ol_json member(const struct ol_transition *move, const char *name)
{
    return ol_json_get(&move->body, name);
}

static const char *text(const struct ol_transition *move, const char *name)
{
    struct ol_json value = member(move, name);
    return ol_json_string(&value, move->arena, NULL);
}

static const char *field(const struct ol_transition *move, const struct ol_row *object, int which)
{
    return ol_row_text(object, which, move->arena);
}

static const int64_t *expected(const struct ol_transition *move)
{
    struct ol_json value = member(move, "expected_seq");
    int64_t *number = ol_arena_alloc(move->arena, sizeof *number);
    return number && ol_json_int(&value, number) ? number : NULL;
}

/* A value of the body as the row keeps it; absent and null are null. */
static const char *raw(const struct ol_transition *move, const char *name)
{
    struct ol_json value = member(move, name);
    bool is_null = value.type == OL_JSON_NONE || value.type == OL_JSON_NULL;
    return is_null ? NULL : ol_arena_copy(move->arena, value.text, value.bytes);
}

/* --- payloads --- */

static void put_text(struct ol_buf *out, const char *name, const char *value)
{
    ol_buf_print(out, "%s\"%s\":", out->bytes ? "," : "{", name);
    ol_buf_json_text(out, value);
}

static void put_int(struct ol_buf *out, const char *name, int64_t number)
{
    ol_buf_print(out, "%s\"%s\":%lld", out->bytes ? "," : "{", name, (long long)number);
}

static void put_json(struct ol_buf *out, const char *name, const char *json)
{
    ol_buf_print(out, "%s\"%s\":", out->bytes ? "," : "{", name);
    ol_buf_text(out, json ? json : "null");
}

struct fact {
    const char *aggregate_type, *aggregate_id, *event_type;
    const char *correlation_id, *causation_id, *id;
    const int64_t *expected_seq;
};

/* Append the event whose payload stands in `payload`, and empty it. */
static int append(outlog_tx *tx, const struct ol_transition *move, const struct fact *fact,
                  struct ol_buf *payload, struct outlog_appended *out, outlog_err *err)
{
    ol_buf_char(payload, '}');
    if (payload->failed)
        return out_of_memory(err);
    struct outlog_new_event event = {.org_id = move->org_id,
                                     .is_infrastructure = !move->org_id,
                                     .aggregate_type = fact->aggregate_type,
                                     .aggregate_id = fact->aggregate_id,
                                     .event_type = fact->event_type,
                                     .payload = payload->data,
                                     .id = fact->id,
                                     .actor_type = move->actor_type,
                                     .actor_id = move->actor_id,
                                     .request_id = move->request_id,
                                     .correlation_id = fact->correlation_id,
                                     .causation_id = fact->causation_id,
                                     .expected_seq = fact->expected_seq,
                                     .traceparent = move->traceparent};
    int result = outlog_append(tx, &event, out, err);
    ol_buf_reset(payload);
    return result;
}

/* --- finding what it is about --- */

/* The first row of a query about `id`, its columns as text. 1, 0 when there is none, or -1. */
static int first_texts(outlog_tx *tx, enum ol_query_id query, const char *id,
                       struct ol_arena *arena, const char **out, int count, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    if (ol_store_query(tx->conn, query, OL_PARAMS(ol_value_text(id)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    for (int i = 0; got > 0 && i < count; i++)
        out[i] = ol_rows_copy(&rows, i, arena, &failed);
    ol_rows_end(&rows);
    return failed ? out_of_memory(err) : got;
}

/* The run, and what its events are caused by. */
static int find_run(outlog_tx *tx, struct ol_transition *move, const char *run_id, outlog_err *err)
{
    const char *causes[2] = {"", ""};
    if (ol_row_list_load(tx->conn, OL_Q_RUN_GET, OL_PARAMS(ol_value_text(run_id)), &ol_table_run,
                         move->arena, &move->list, err) < 0)
        return -1;
    move->run = move->list.first;
    if (!move->run)
        return 0;
    move->org_id = field(move, move->run, OL_IN_RUN_ORG);
    int got = first_texts(tx, OL_Q_RUN_CAUSES, run_id, move->arena, causes, 2, err);
    if (got < 0)
        return -1;
    snprintf(move->started_event_id, sizeof move->started_event_id, "%s", causes[0]);
    snprintf(move->last_event_id, sizeof move->last_event_id, "%s", causes[1]);
    return 0;
}

static int find_step(outlog_tx *tx, struct ol_transition *move, outlog_err *err)
{
    const char *found[2];
    int got = first_texts(tx, OL_Q_RUN_OF_STEP, move->id, move->arena, found, 2, err);
    if (got <= 0)
        return got;
    snprintf(move->step_event_id, sizeof move->step_event_id, "%s", found[1]);
    if (find_run(tx, move, found[0], err) < 0 ||
        ol_row_list_load(tx->conn, OL_Q_STEP_GET, OL_PARAMS(ol_value_text(move->id)),
                         &ol_table_step, move->arena, &move->list, err) < 0)
        return -1;
    move->step = move->list.last;
    return 0;
}

static int find_tool(outlog_tx *tx, struct ol_transition *move, outlog_err *err)
{
    const char *found[3];
    int got = first_texts(tx, OL_Q_RUN_OF_TOOL, move->id, move->arena, found, 3, err);
    if (got <= 0)
        return got;
    move->tool_step_id = found[1];
    move->tool_name = found[2];
    return find_run(tx, move, found[0], err);
}

static int find_org(struct ol_transition *move, const char *org_id, outlog_err *err)
{
    struct ol_json said = member(move, "org_id");
    if (said.type == OL_JSON_NONE && !org_id)
        return ol_fail_at(err, OUTLOG_ORG_REQUIRED, "/org_id",
                          "org_id is missing; give one, or null for an infrastructure event");
    move->org_id = said.type == OL_JSON_NONE ? org_id : text(move, "org_id");
    return 0;
}

int ol_transition_find(outlog_tx *tx, struct ol_transition *move, const char *org_id,
                       outlog_err *err)
{
    const char *target = ol_run_verb_target(move->verb);
    if (!target)
        return find_org(move, org_id, err);
    bool is_step = strcmp(target, "step_id") == 0, is_tool = strcmp(target, "tool_call_id") == 0;
    int result = is_step   ? find_step(tx, move, err)
                 : is_tool ? find_tool(tx, move, err)
                           : find_run(tx, move, move->id, err);
    if (result < 0)
        return -1;
    if (!move->run || (org_id && (!move->org_id || strcmp(org_id, move->org_id) != 0)))
        return missing(is_step ? "step" : is_tool ? "tool call" : "run", move->id, err);
    return 0;
}

/* --- what is legal --- */

/* The states a step may be in; docs/runs.md has the same as a table. */
static const char *const step_needs[OL_RUN_VERB_COUNT] = {
    [OL_COMPLETE_STEP] = "RUNNING",
    [OL_FAIL_STEP] = "RUNNING",
    [OL_SKIP_STEP] = "RUNNING or FAILED",
    [OL_RETRY_STEP] = "FAILED",
    [OL_CORRECT_STEP] = "COMPLETED or FAILED",
    [OL_CALL_TOOL] = "RUNNING",
};

static int check_legal(const struct ol_transition *move, outlog_err *err)
{
    if (move->run && !ol_row_is(move->run, OL_IN_RUN_STATUS, "RUNNING") &&
        move->verb != OL_CORRECT_STEP)
        return refuse(move, "run", field(move, move->run, OL_IN_RUN_ID),
                      field(move, move->run, OL_IN_RUN_STATUS), "a RUNNING run", err);
    if (!move->step)
        return 0;
    const char *status = field(move, move->step, OL_IN_STEP_STATUS);
    const char *needed = step_needs[move->verb], *at = status ? strstr(needed, status) : NULL;
    return at ? 0 : refuse(move, "step", move->id, status, needed, err);
}

/* expected_seq of a command whose event stands on another aggregate than the one it names. */
static int check_expected(outlog_tx *tx, const struct ol_transition *move, outlog_err *err)
{
    const int64_t *seq = expected(move);
    int64_t actual = 0;
    if (!seq)
        return 0;
    if (ol_store_number(tx->conn, OL_Q_HEAD_GET,
                        OL_PARAMS(ol_value_text(move->org_id ? move->org_id : ""),
                                  ol_value_text("RUN"), ol_value_text(move->id)),
                        &actual, err) < 0)
        return -1;
    if (actual == *seq)
        return 0;
    ol_fail(err, OUTLOG_SEQUENCE_CONFLICT,
            "RUN/%s: expected sequence %lld, actual %lld; read it again and decide anew", move->id,
            (long long)*seq, (long long)actual);
    if (err) {
        err->expected = *seq;
        err->actual = actual;
    }
    return -1;
}

/* --- signals and runs --- */

static int receive_signal(outlog_tx *tx, struct ol_transition *move, struct ol_buf *payload,
                          struct ol_buf *answer, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    struct outlog_appended at;
    struct ol_row *signal = ol_row_add(&move->list, &ol_table_signal, move->arena);
    const char *type = text(move, "signal_type"), *body = raw(move, "payload");

    ol_uuid_make(id);
    put_text(payload, "signal_id", id);
    put_text(payload, "signal_type", type);
    put_json(payload, "payload", body);
    struct fact fact = {.aggregate_type = "SIGNAL",
                        .aggregate_id = id,
                        .event_type = "SIGNAL_RECEIVED",
                        .correlation_id = text(move, "correlation_id"),
                        .expected_seq = expected(move)};
    if (!signal)
        return out_of_memory(err);
    if (append(tx, move, &fact, payload, &at, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_SIGNAL_INSERT,
                      OL_PARAMS(ol_value_text(id), ol_value_text(move->org_id), ol_value_text(type),
                                ol_value_text(body), ol_value_text("RECEIVED"),
                                ol_value_text(at.correlation_id), ol_value_time(at.occurred_at),
                                ol_value_text(at.id)),
                      NULL, err) < 0)
        return -1;
    signal->values[OL_IN_SIGNAL_ID] = ol_row_value_text(move->arena, id);
    signal->values[OL_IN_SIGNAL_ORG] = ol_row_value_text(move->arena, move->org_id);
    signal->values[OL_IN_SIGNAL_TYPE] = ol_row_value_text(move->arena, type);
    signal->values[OL_IN_SIGNAL_PAYLOAD] = body;
    signal->values[OL_IN_SIGNAL_STATUS] = "\"RECEIVED\"";
    signal->values[OL_IN_SIGNAL_CORRELATION] = ol_row_value_text(move->arena, at.correlation_id);
    signal->values[OL_IN_SIGNAL_RECEIVED_AT] = ol_row_value_time(move->arena, at.occurred_at);
    ol_row_json(signal, answer);
    return 0;
}

/* The signal a run is to work on, and the event that set it. */
static int find_signal(outlog_tx *tx, struct ol_transition *move, const char *signal_id,
                       struct ol_row **out, const char **last_event_id, outlog_err *err)
{
    struct ol_row_list list = {0};
    if (ol_row_list_load(tx->conn, OL_Q_SIGNAL_GET, OL_PARAMS(ol_value_text(signal_id)),
                         &ol_table_signal, move->arena, &list, err) < 0)
        return -1;
    const char *org = list.first ? field(move, list.first, OL_IN_SIGNAL_ORG) : NULL;
    if (!list.first || !!org != !!move->org_id || (org && strcmp(org, move->org_id) != 0))
        return missing("signal", signal_id, err);
    *out = list.first;
    return first_texts(tx, OL_Q_SIGNAL_EVENT, signal_id, move->arena, last_event_id, 1, err) < 0
               ? -1
               : 0;
}

static int pick_signal(outlog_tx *tx, struct ol_transition *move, const struct ol_row *signal,
                       const char *signal_id, const char *run_id, const char *cause,
                       struct ol_buf *payload, outlog_err *err)
{
    struct outlog_appended at;
    const char *status = field(move, signal, OL_IN_SIGNAL_STATUS);
    if (strcmp(status, "RECEIVED") != 0 && strcmp(status, "FAILED") != 0)
        return refuse(move, "signal", signal_id, status, "RECEIVED or FAILED", err);
    put_text(payload, "signal_id", signal_id);
    put_text(payload, "run_id", run_id);
    struct fact fact = {.aggregate_type = "SIGNAL",
                        .aggregate_id = signal_id,
                        .event_type = "SIGNAL_PROCESSING_STARTED",
                        .correlation_id = field(move, signal, OL_IN_SIGNAL_CORRELATION),
                        .causation_id = cause};
    if (append(tx, move, &fact, payload, &at, err) < 0)
        return -1;
    return ol_store_exec(tx->conn, OL_Q_SIGNAL_MOVE,
                         OL_PARAMS(ol_value_text(signal_id), ol_value_text("PROCESSING"),
                                   ol_value_text(at.id)),
                         NULL, err);
}

static int start_run(outlog_tx *tx, struct ol_transition *move, struct ol_buf *payload,
                     struct ol_buf *answer, outlog_err *err)
{
    char run_id[OL_UUID_TEXT], lower[OL_UUID_TEXT];
    struct outlog_appended at;
    struct ol_row_list list = {0};
    struct ol_row *signal = NULL;
    const char *signal_id = text(move, "signal_id"), *cause = NULL, *type = text(move, "run_type"),
               *version = text(move, "orchestrator_version");

    ol_uuid_make(run_id);
    if (signal_id && ol_uuid_parse(signal_id, lower))
        signal_id = lower;
    if (signal_id && (find_signal(tx, move, signal_id, &signal, &cause, err) < 0 ||
                      pick_signal(tx, move, signal, signal_id, run_id, cause, payload, err) < 0))
        return -1;
    put_text(payload, "run_id", run_id);
    put_text(payload, "signal_id", signal_id);
    put_text(payload, "run_type", type);
    put_text(payload, "orchestrator_version", version);
    struct fact fact = {.aggregate_type = "RUN",
                        .aggregate_id = run_id,
                        .event_type = "RUN_STARTED",
                        .correlation_id = signal ? field(move, signal, OL_IN_SIGNAL_CORRELATION)
                                                 : NULL,
                        .causation_id = cause,
                        .expected_seq = expected(move)};
    if (append(tx, move, &fact, payload, &at, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_RUN_INSERT,
                      OL_PARAMS(ol_value_text(run_id), ol_value_text(move->org_id),
                                ol_value_text(signal_id), ol_value_text(type),
                                ol_value_text(version), ol_value_text(at.correlation_id),
                                ol_value_time(at.occurred_at), ol_value_text(at.id)),
                      NULL, err) < 0 ||
        ol_row_list_load(tx->conn, OL_Q_RUN_GET, OL_PARAMS(ol_value_text(run_id)), &ol_table_run,
                         move->arena, &list, err) < 0)
        return -1;
    ol_row_json(list.first, answer);
    return 0;
}

static int checkpoint_run(outlog_tx *tx, struct ol_transition *move, struct ol_buf *payload,
                          struct ol_buf *answer, outlog_err *err)
{
    struct outlog_appended at;
    int64_t index;
    const char *data = raw(move, "checkpoint_data");
    struct ol_row *made = ol_row_add(&move->list, &ol_table_checkpoint, move->arena);

    if (!made)
        return out_of_memory(err);
    if (ol_store_number(tx->conn, OL_Q_RUN_NEXT_CHECKPOINT, OL_PARAMS(ol_value_text(move->id)),
                        &index, err) < 0)
        return -1;
    put_text(payload, "run_id", move->id);
    put_int(payload, "checkpoint_index", index);
    put_json(payload, "checkpoint_data", data);
    struct fact fact = {.aggregate_type = "RUN",
                        .aggregate_id = move->id,
                        .event_type = "RUN_CHECKPOINT_CREATED",
                        .correlation_id = field(move, move->run, OL_IN_RUN_CORRELATION),
                        .causation_id = move->last_event_id,
                        .expected_seq = expected(move)};
    if (append(tx, move, &fact, payload, &at, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_CHECKPOINT_INSERT,
                      OL_PARAMS(ol_value_text(move->id), ol_value_int(index), ol_value_text(data),
                                ol_value_int(at.event_id), ol_value_time(at.occurred_at)),
                      NULL, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_RUN_COUNT,
                      OL_PARAMS(ol_value_text(move->id), ol_value_int(0), ol_value_int(0),
                                ol_value_text(at.id)),
                      NULL, err) < 0)
        return -1;
    made->values[OL_IN_CHECKPOINT_RUN] = ol_row_value_text(move->arena, move->id);
    made->values[OL_IN_CHECKPOINT_INDEX] = ol_row_value_int(move->arena, index);
    made->values[OL_IN_CHECKPOINT_DATA] = data;
    made->values[OL_IN_CHECKPOINT_EVENT] = ol_row_value_int(move->arena, at.event_id);
    made->values[OL_IN_CHECKPOINT_CREATED_AT] = ol_row_value_time(move->arena, at.occurred_at);
    ol_row_json(made, answer);
    return 0;
}

/* How a run ends, and its signal with it. */
static const struct ending {
    const char *status, *event_type, *signal_status, *signal_event_type;
} endings[OL_RUN_VERB_COUNT] = {
    [OL_COMPLETE_RUN] = {"COMPLETED", "RUN_COMPLETED", "PROCESSED", "SIGNAL_PROCESSED"},
    [OL_FAIL_RUN] = {"FAILED", "RUN_FAILED", "FAILED", "SIGNAL_PROCESSING_FAILED"},
    [OL_CANCEL_RUN] = {"CANCELLED", "RUN_CANCELLED", "FAILED", "SIGNAL_PROCESSING_FAILED"},
};

static void put_why(const struct ol_transition *move, struct ol_buf *payload)
{
    if (move->verb == OL_FAIL_RUN || move->verb == OL_FAIL_TOOL) {
        put_text(payload, "error_code", text(move, "error_code"));
        put_text(payload, "error_message", text(move, "error_message"));
    } else if (move->verb == OL_CANCEL_RUN) {
        put_text(payload, "reason", text(move, "reason"));
    }
}

static int end_signal(outlog_tx *tx, struct ol_transition *move, const char *signal_id,
                      const char *cause, struct ol_buf *payload, outlog_err *err)
{
    const struct ending *ending = &endings[move->verb];
    struct outlog_appended at;
    put_text(payload, "signal_id", signal_id);
    put_text(payload, "run_id", move->id);
    put_why(move, payload);
    struct fact fact = {.aggregate_type = "SIGNAL",
                        .aggregate_id = signal_id,
                        .event_type = ending->signal_event_type,
                        .correlation_id = field(move, move->run, OL_IN_RUN_CORRELATION),
                        .causation_id = cause};
    if (append(tx, move, &fact, payload, &at, err) < 0)
        return -1;
    return ol_store_exec(tx->conn, OL_Q_SIGNAL_MOVE,
                         OL_PARAMS(ol_value_text(signal_id), ol_value_text(ending->signal_status),
                                   ol_value_text(at.id)),
                         NULL, err);
}

static int end_run(outlog_tx *tx, struct ol_transition *move, struct ol_buf *payload,
                   struct ol_buf *answer, outlog_err *err)
{
    const struct ending *ending = &endings[move->verb];
    const char *open[2], *signal_id = field(move, move->run, OL_IN_RUN_SIGNAL);
    struct outlog_appended at;

    if (move->verb == OL_COMPLETE_RUN) {
        int got = first_texts(tx, OL_Q_RUN_OPEN_STEP, move->id, move->arena, open, 2, err);
        if (got != 0)
            return got < 0 ? -1
                           : refuse(move, "step", open[0], open[1],
                                    "every step COMPLETED or SKIPPED", err);
    }
    put_text(payload, "run_id", move->id);
    put_why(move, payload);
    struct fact fact = {.aggregate_type = "RUN",
                        .aggregate_id = move->id,
                        .event_type = ending->event_type,
                        .correlation_id = field(move, move->run, OL_IN_RUN_CORRELATION),
                        .causation_id = move->last_event_id,
                        .expected_seq = expected(move)};
    if (append(tx, move, &fact, payload, &at, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_RUN_END,
                      OL_PARAMS(ol_value_text(move->id), ol_value_text(ending->status),
                                ol_value_time(at.occurred_at), ol_value_text(at.id)),
                      NULL, err) < 0)
        return -1;
    if (signal_id && end_signal(tx, move, signal_id, at.id, payload, err) < 0)
        return -1;
    move->run->values[OL_IN_RUN_STATUS] = ol_row_value_text(move->arena, ending->status);
    move->run->values[OL_IN_RUN_COMPLETED_AT] = ol_row_value_time(move->arena, at.occurred_at);
    ol_row_json(move->run, answer);
    return 0;
}

/* --- steps --- */

static int store_step(outlog_tx *tx, struct ol_transition *move, const struct ol_row *step,
                      const char *last_event_id, outlog_err *err)
{
    const char *texts[12] = {NULL};
    for (int i = 0; i < ol_table_step.count; i++)
        texts[i] = ol_table_step.columns[i].type == OL_COLUMN_JSON ? step->values[i]
                                                                   : field(move, step, i);
    return ol_store_exec(tx->conn, OL_Q_STEP_PUT,
                         OL_PARAMS(ol_value_text(texts[OL_IN_STEP_ID]),
                                   ol_value_text(texts[OL_IN_STEP_RUN]),
                                   ol_value_int(ol_row_int(step, OL_IN_STEP_INDEX)),
                                   ol_value_text(texts[OL_IN_STEP_TYPE]),
                                   ol_value_text(texts[OL_IN_STEP_STATUS]),
                                   ol_value_text(texts[OL_IN_STEP_OUTPUT]),
                                   ol_value_text(texts[OL_IN_STEP_ERROR_CODE]),
                                   ol_value_text(texts[OL_IN_STEP_ERROR_MESSAGE]),
                                   step->values[OL_IN_STEP_DURATION]
                                       ? ol_value_int(ol_row_int(step, OL_IN_STEP_DURATION))
                                       : ol_value_text(NULL),
                                   ol_value_int(ol_row_int(step, OL_IN_STEP_RETRIES)),
                                   ol_value_text(texts[OL_IN_STEP_STARTED_AT]),
                                   ol_value_text(texts[OL_IN_STEP_COMPLETED_AT]),
                                   ol_value_text(last_event_id)),
                         NULL, err);
}

static void put_step(const struct ol_row *step, struct ol_buf *payload)
{
    put_json(payload, "step_id", step->values[OL_IN_STEP_ID]);
    put_json(payload, "run_id", step->values[OL_IN_STEP_RUN]);
    put_json(payload, "step_index", step->values[OL_IN_STEP_INDEX]);
    put_json(payload, "step_type", step->values[OL_IN_STEP_TYPE]);
}

static int start_step(outlog_tx *tx, struct ol_transition *move, struct ol_buf *payload,
                      struct ol_buf *answer, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    struct outlog_appended at;
    int64_t index;
    struct ol_json said = member(move, "step_index");
    struct ol_row *step = ol_row_add(&move->list, &ol_table_step, move->arena);

    if (!step)
        return out_of_memory(err);
    if (check_expected(tx, move, err) < 0)
        return -1;
    if (!ol_json_int(&said, &index) &&
        ol_store_number(tx->conn, OL_Q_RUN_NEXT_STEP, OL_PARAMS(ol_value_text(move->id)), &index,
                        err) < 0)
        return -1;
    if (index > INT32_MAX) // as wide as PostgreSQL's
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/step_index",
                          "no step_index is left after 2147483647; give one");
    ol_uuid_make(id);
    step->values[OL_IN_STEP_ID] = ol_row_value_text(move->arena, id);
    step->values[OL_IN_STEP_RUN] = ol_row_value_text(move->arena, move->id);
    step->values[OL_IN_STEP_INDEX] = ol_row_value_int(move->arena, index);
    step->values[OL_IN_STEP_TYPE] = ol_row_value_text(move->arena, text(move, "step_type"));
    step->values[OL_IN_STEP_STATUS] = "\"RUNNING\"";
    step->values[OL_IN_STEP_RETRIES] = "0";
    put_step(step, payload);
    struct fact fact = {.aggregate_type = "STEP",
                        .aggregate_id = id,
                        .event_type = "STEP_STARTED",
                        .correlation_id = field(move, move->run, OL_IN_RUN_CORRELATION),
                        .causation_id = move->started_event_id};
    if (append(tx, move, &fact, payload, &at, err) < 0)
        return -1;
    step->values[OL_IN_STEP_STARTED_AT] = ol_row_value_time(move->arena, at.occurred_at);
    if (store_step(tx, move, step, at.id, err) < 0)
        return -1;
    ol_row_json(step, answer);
    return 0;
}

/* How long the step took: as said, else since it started. */
static const char *duration(const struct ol_transition *move)
{
    struct ol_json said = member(move, "duration_ms");
    const char *started = field(move, move->step, OL_IN_STEP_STARTED_AT);
    int64_t ms, since;
    if (ol_json_int(&said, &ms))
        return ol_row_value_int(move->arena, ms);
    if (!started || ol_timestamp_parse(started, strlen(started), &since) < 0)
        return NULL;
    ms = (ol_clock_wall_us() - since) / 1000;
    return ol_row_value_int(move->arena, ms > 0 ? ms : 0);
}

/* What the verb makes of the step, but for its times; the rest of the payload goes along. */
static const char *change_step(const struct ol_transition *move, struct ol_buf *payload)
{
    const char **values = move->step->values;
    switch (move->verb) {
    case OL_COMPLETE_STEP:
        values[OL_IN_STEP_STATUS] = "\"COMPLETED\"";
        values[OL_IN_STEP_OUTPUT] = raw(move, "output_result");
        values[OL_IN_STEP_DURATION] = duration(move);
        put_json(payload, "output_result", values[OL_IN_STEP_OUTPUT]);
        put_json(payload, "duration_ms", values[OL_IN_STEP_DURATION]);
        return "STEP_COMPLETED";
    case OL_FAIL_STEP:
        values[OL_IN_STEP_STATUS] = "\"FAILED\"";
        values[OL_IN_STEP_ERROR_CODE] = ol_row_value_text(move->arena, text(move, "error_code"));
        values[OL_IN_STEP_ERROR_MESSAGE] =
            ol_row_value_text(move->arena, text(move, "error_message"));
        values[OL_IN_STEP_DURATION] = duration(move);
        put_json(payload, "error_code", values[OL_IN_STEP_ERROR_CODE]);
        put_json(payload, "error_message", values[OL_IN_STEP_ERROR_MESSAGE]);
        put_json(payload, "duration_ms", values[OL_IN_STEP_DURATION]);
        return "STEP_FAILED";
    case OL_SKIP_STEP:
        values[OL_IN_STEP_STATUS] = "\"SKIPPED\"";
        put_text(payload, "reason", text(move, "reason"));
        return "STEP_SKIPPED";
    case OL_RETRY_STEP:
        values[OL_IN_STEP_STATUS] = "\"RUNNING\"";
        values[OL_IN_STEP_RETRIES] =
            ol_row_value_int(move->arena, ol_row_int(move->step, OL_IN_STEP_RETRIES) + 1);
        put_json(payload, "retry_count", values[OL_IN_STEP_RETRIES]);
        return "STEP_RETRIED";
    default:
        values[OL_IN_STEP_STATUS] = "\"COMPLETED\"";
        values[OL_IN_STEP_OUTPUT] = raw(move, "output_result");
        put_json(payload, "output_result", values[OL_IN_STEP_OUTPUT]);
        return "STEP_CORRECTED";
    }
}

static int move_step(outlog_tx *tx, struct ol_transition *move, struct ol_buf *payload,
                     struct ol_buf *answer, outlog_err *err)
{
    struct ol_row *step = move->step;
    struct outlog_appended at;
    const char *was = step->values[OL_IN_STEP_STATUS], *corrected = text(move, "causation_id");

    put_step(step, payload);
    struct fact fact = {.aggregate_type = "STEP",
                        .aggregate_id = move->id,
                        .event_type = change_step(move, payload),
                        .correlation_id = field(move, move->run, OL_IN_RUN_CORRELATION),
                        .causation_id = corrected ? corrected : move->step_event_id,
                        .expected_seq = expected(move)};
    if (append(tx, move, &fact, payload, &at, err) < 0)
        return -1;
    bool is_running = ol_row_is(step, OL_IN_STEP_STATUS, "RUNNING");
    bool is_completed = ol_row_is(step, OL_IN_STEP_STATUS, "COMPLETED");
    if (is_running) { // a new try
        step->values[OL_IN_STEP_STARTED_AT] = ol_row_value_time(move->arena, at.occurred_at);
        step->values[OL_IN_STEP_COMPLETED_AT] = step->values[OL_IN_STEP_DURATION] = NULL;
    } else if (strcmp(step->values[OL_IN_STEP_STATUS], was) != 0) {
        step->values[OL_IN_STEP_COMPLETED_AT] = ol_row_value_time(move->arena, at.occurred_at);
    }
    if (is_running || is_completed)
        step->values[OL_IN_STEP_ERROR_CODE] = step->values[OL_IN_STEP_ERROR_MESSAGE] = NULL;
    bool is_new = is_completed && strcmp(was, "\"COMPLETED\"") != 0;
    bool is_failure = ol_row_is(step, OL_IN_STEP_STATUS, "FAILED");
    if (store_step(tx, move, step, at.id, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_RUN_COUNT,
                      OL_PARAMS(ol_value_text(field(move, move->run, OL_IN_RUN_ID)),
                                ol_value_int(is_new), ol_value_int(is_failure),
                                ol_value_text(at.id)),
                      NULL, err) < 0)
        return -1;
    ol_row_json(step, answer);
    return 0;
}

/* --- tools: a call is the event that says so --- */

static void put_tool(const char *tool_call_id, const char *step_id, const char *run_id,
                     const char *tool_name, struct ol_buf *out)
{
    put_text(out, "tool_call_id", tool_call_id);
    put_text(out, "step_id", step_id);
    put_text(out, "run_id", run_id);
    put_text(out, "tool_name", tool_name);
}

static int call_tool(outlog_tx *tx, struct ol_transition *move, struct ol_buf *payload,
                     struct ol_buf *answer, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    struct outlog_appended at;
    const char *run_id = field(move, move->run, OL_IN_RUN_ID), *name = text(move, "tool_name");

    ol_uuid_make(id);
    put_tool(id, move->id, run_id, name, payload);
    put_json(payload, "input", raw(move, "input"));
    struct fact fact = {.aggregate_type = "STEP",
                        .aggregate_id = move->id,
                        .event_type = "TOOL_CALLED",
                        .id = id,
                        .correlation_id = field(move, move->run, OL_IN_RUN_CORRELATION),
                        .causation_id = move->step_event_id,
                        .expected_seq = expected(move)};
    if (append(tx, move, &fact, payload, &at, err) < 0)
        return -1;
    put_tool(id, move->id, run_id, name, answer);
    ol_buf_text(answer, ",\"status\":\"RUNNING\"}");
    return 0;
}

static int end_tool(outlog_tx *tx, struct ol_transition *move, struct ol_buf *payload,
                    struct ol_buf *answer, outlog_err *err)
{
    const char *ended[1], *run_id = field(move, move->run, OL_IN_RUN_ID);
    bool is_completed = move->verb == OL_COMPLETE_TOOL;
    struct outlog_appended at;

    int got = first_texts(tx, OL_Q_RUN_TOOL_END, move->id, move->arena, ended, 1, err);
    if (got != 0)
        return got < 0 ? -1
                       : refuse(move, "tool call", move->id, ended[0] + strlen("TOOL_"), "RUNNING",
                                err);
    put_tool(move->id, move->tool_step_id, run_id, move->tool_name, payload);
    if (is_completed)
        put_json(payload, "result", raw(move, "result"));
    put_why(move, payload);
    struct fact fact = {.aggregate_type = "STEP",
                        .aggregate_id = move->tool_step_id,
                        .event_type = is_completed ? "TOOL_COMPLETED" : "TOOL_FAILED",
                        .correlation_id = field(move, move->run, OL_IN_RUN_CORRELATION),
                        .causation_id = move->id,
                        .expected_seq = expected(move)};
    if (append(tx, move, &fact, payload, &at, err) < 0)
        return -1;
    put_tool(move->id, move->tool_step_id, run_id, move->tool_name, answer);
    ol_buf_print(answer, ",\"status\":\"%s\"}", is_completed ? "COMPLETED" : "FAILED");
    return 0;
}

/* --- effects --- */

static int request_effect(outlog_tx *tx, struct ol_transition *move, struct ol_buf *answer,
                          outlog_err *err)
{
    struct outlog_effect_requested requested;
    int64_t most = 0;
    struct ol_json said = member(move, "max_attempts");
    if (check_expected(tx, move, err) < 0)
        return -1;
    ol_json_int(&said, &most);
    struct outlog_new_effect draft = {.org_id = move->org_id,
                                      .effect_type = text(move, "effect_type"),
                                      .destination = text(move, "destination"),
                                      .effect_spec = raw(move, "effect_spec"),
                                      .run_id = move->id,
                                      .step_id = text(move, "step_id"),
                                      .idempotency_key = text(move, "idempotency_key"),
                                      .ordering_key = text(move, "ordering_key"),
                                      .actor_type = move->actor_type,
                                      .actor_id = move->actor_id,
                                      .max_attempts = (int)most,
                                      .traceparent = move->traceparent};
    if (outlog_request_effect(tx, &draft, &requested, err) < 0)
        return -1;
    ol_buf_print(answer, "{\"effect_id\":\"%s\",\"event_id\":\"%s\",\"duplicate\":%s}",
                 requested.effect_id, requested.message_id, requested.duplicate ? "true" : "false");
    return 0;
}

/* --- the move --- */

int ol_transition_apply(outlog_tx *tx, struct ol_transition *move, struct ol_buf *answer,
                        outlog_err *err)
{
    struct ol_buf payload = {0};
    int result = -1;

    if (check_legal(move, err) < 0)
        return -1;
    switch (move->verb) {
    case OL_RECEIVE_SIGNAL:
        result = receive_signal(tx, move, &payload, answer, err);
        break;
    case OL_START_RUN:
        result = start_run(tx, move, &payload, answer, err);
        break;
    case OL_CHECKPOINT_RUN:
        result = checkpoint_run(tx, move, &payload, answer, err);
        break;
    case OL_COMPLETE_RUN:
    case OL_FAIL_RUN:
    case OL_CANCEL_RUN:
        result = end_run(tx, move, &payload, answer, err);
        break;
    case OL_START_STEP:
        result = start_step(tx, move, &payload, answer, err);
        break;
    case OL_CALL_TOOL:
        result = call_tool(tx, move, &payload, answer, err);
        break;
    case OL_COMPLETE_TOOL:
    case OL_FAIL_TOOL:
        result = end_tool(tx, move, &payload, answer, err);
        break;
    case OL_REQUEST_EFFECT:
        result = request_effect(tx, move, answer, err);
        break;
    default:
        result = move_step(tx, move, &payload, answer, err);
        break;
    }
    ol_buf_clear(&payload);
    return result;
}
