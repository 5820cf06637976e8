/* transition.c: the state transitions of signals, runs, steps and tools (U1), for a store without
 * functions of its own. PostgreSQL has the same in sql/postgres/migrations/0003_runs. Legal states
 * and event types of both come from sql/schema/run_transitions.json, and one test suite runs every
 * case on both.
 *
 * M1  A refused transition writes nothing.
 * M2  An event and the change of its row are one transaction, and the row has the event's time.
 * M3  Only `correct_step` changes a run that is not RUNNING.
 * M4  total_steps counts completed steps, failed_steps failures: neither ever decreases. */
#include "runs/transition.h"

#include "base/clock.h"
#include "base/timestamp.h"
#include "log/log.h"
#include "outbox/enqueue.h"
#include "run_transitions.h"

#include <stdio.h>
#include <string.h>

/* What each verb does. States are joined by " or ", as in error texts; NULL: none apply. */
static const struct verb_rule {
    const char *from, *to; /* of the step or tool call that is the target, or of what is made */
    const char *event_type;
    bool is_any_run;         /* the run need not be RUNNING */
    const char *step_states; /* all steps of the run must have one of these */
    const char *signal_from, *signal_to, *signal_event_type; /* of the run's signal */
} rules[OL_RUN_VERB_COUNT] = {OL_RUN_TRANSITIONS};

/* --- the command's body and rows --- */

static int fail_missing(const char *what, const char *id, outlog_err *err)
{
    return ol_fail(err, OUTLOG_NOT_FOUND, "no %s %.100s; check the id", what, id);
}

static int refuse_state(const struct ol_transition *transition, const char *what, const char *id,
                        const char *status, const char *needed, outlog_err *err)
{
    return ol_fail(err, OUTLOG_ILLEGAL_TRANSITION, "%s %s is %s; %s needs %s", what, id, status,
                   transition->verb_name, needed);
}

static struct ol_json find_member(const struct ol_transition *transition, const char *name)
{
    return ol_json_get(&transition->body, name);
}

static const char *body_text(const struct ol_transition *transition, const char *name)
{
    struct ol_json value = find_member(transition, name);
    return ol_json_string(&value, transition->arena, NULL);
}

static const char *row_text(const struct ol_transition *transition, const struct ol_row *row,
                            int column)
{
    return ol_row_text(row, column, transition->arena);
}

static const int64_t *expected_seq(const struct ol_transition *transition)
{
    struct ol_json value = find_member(transition, "expected_seq");
    int64_t *number = ol_arena_alloc(transition->arena, sizeof *number);
    return number && ol_json_int(&value, number) ? number : NULL;
}

/* A value of the body as the row stores it; NULL for absent and for null. */
static const char *body_json(const struct ol_transition *transition, const char *name)
{
    struct ol_json value = find_member(transition, name);
    bool is_null = value.type == OL_JSON_NONE || value.type == OL_JSON_NULL;
    return is_null ? NULL : ol_arena_copy(transition->arena, value.text, value.bytes);
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

struct run_event {
    const char *aggregate_type, *aggregate_id, *event_type;
    const char *correlation_id, *causation_id, *id;
    const int64_t *expected_seq;
};

/* Append the event with this payload, close its braces first, and empty the buffer. */
static int append_event(outlog_tx *tx, const struct ol_transition *transition,
                        const struct run_event *run_event, struct ol_buf *payload,
                        struct outlog_appended *out, outlog_err *err)
{
    ol_buf_char(payload, '}');
    if (payload->failed)
        return ol_no_memory(err);
    struct outlog_new_event event = {.org_id = transition->org_id,
                                     .is_infrastructure = !transition->org_id,
                                     .aggregate_type = run_event->aggregate_type,
                                     .aggregate_id = run_event->aggregate_id,
                                     .event_type = run_event->event_type,
                                     .payload = payload->data,
                                     .id = run_event->id,
                                     .actor_type = transition->actor_type,
                                     .actor_id = transition->actor_id,
                                     .request_id = transition->request_id,
                                     .correlation_id = run_event->correlation_id,
                                     .causation_id = run_event->causation_id,
                                     .expected_seq = run_event->expected_seq,
                                     .traceparent = transition->traceparent};
    int result = ol_append_own(tx, &event, 1, out, err);
    ol_buf_reset(payload);
    return result;
}

/* --- finding the target --- */

/* The first row of a query about `id`, its columns as text. 1, 0 when there is none, or -1. */
static int read_first_row(outlog_tx *tx, enum ol_query_id query, const char *id,
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
    return failed ? ol_no_memory(err) : got;
}

/* Load the run, and the events that cause its next ones. */
static int find_run(outlog_tx *tx, struct ol_transition *transition, const char *run_id,
                    outlog_err *err)
{
    const char *causes[2] = {"", ""};
    if (ol_row_list_load(tx->conn, OL_Q_RUN_GET, OL_PARAMS(ol_value_text(run_id)), &ol_table_run,
                         transition->arena, &transition->list, err) < 0)
        return -1;
    transition->run = transition->list.first;
    if (!transition->run)
        return 0;
    transition->org_id = row_text(transition, transition->run, OL_IN_RUN_ORG);
    int got = read_first_row(tx, OL_Q_RUN_CAUSES, run_id, transition->arena, causes, 2, err);
    if (got < 0)
        return -1;
    snprintf(transition->started_event_id, sizeof transition->started_event_id, "%s", causes[0]);
    snprintf(transition->last_event_id, sizeof transition->last_event_id, "%s", causes[1]);
    return 0;
}

static int find_step(outlog_tx *tx, struct ol_transition *transition, outlog_err *err)
{
    const char *found[2];
    int got =
        read_first_row(tx, OL_Q_RUN_OF_STEP, transition->id, transition->arena, found, 2, err);
    if (got <= 0)
        return got;
    snprintf(transition->step_event_id, sizeof transition->step_event_id, "%s", found[1]);
    if (find_run(tx, transition, found[0], err) < 0 ||
        ol_row_list_load(tx->conn, OL_Q_STEP_GET, OL_PARAMS(ol_value_text(transition->id)),
                         &ol_table_step, transition->arena, &transition->list, err) < 0)
        return -1;
    transition->step = transition->list.last;
    return 0;
}

static int find_tool(outlog_tx *tx, struct ol_transition *transition, outlog_err *err)
{
    const char *found[3];
    int got =
        read_first_row(tx, OL_Q_RUN_OF_TOOL, transition->id, transition->arena, found, 3, err);
    if (got <= 0)
        return got;
    transition->tool_step_id = found[1];
    transition->tool_name = found[2];
    return find_run(tx, transition, found[0], err);
}

static int find_org(struct ol_transition *transition, const char *org_id, outlog_err *err)
{
    struct ol_json given = find_member(transition, "org_id");
    if (given.type == OL_JSON_NONE && !org_id)
        return ol_fail_at(err, OUTLOG_ORG_REQUIRED, "/org_id",
                          "org_id is missing; give one, or null for an infrastructure event");
    transition->org_id = given.type == OL_JSON_NONE ? org_id : body_text(transition, "org_id");
    return 0;
}

int ol_transition_find(outlog_tx *tx, struct ol_transition *transition, const char *org_id,
                       outlog_err *err)
{
    const char *target = ol_run_verb_target(transition->verb);
    if (!target)
        return find_org(transition, org_id, err);
    bool is_step = strcmp(target, "step_id") == 0, is_tool = strcmp(target, "tool_call_id") == 0;
    int result = is_step   ? find_step(tx, transition, err)
                 : is_tool ? find_tool(tx, transition, err)
                           : find_run(tx, transition, transition->id, err);
    if (result < 0)
        return -1;
    if (!transition->run ||
        (org_id && (!transition->org_id || strcmp(org_id, transition->org_id) != 0)))
        return fail_missing(is_step ? "step" : is_tool ? "tool call" : "run", transition->id, err);
    return 0;
}

/* --- legal states --- */

/* No state's name is part of another's. */
static bool is_one_of(const char *states, const char *status)
{
    return status && strstr(states, status);
}

static int check_legal(const struct ol_transition *transition, outlog_err *err)
{
    const struct verb_rule *rule = &rules[transition->verb];
    if (transition->run && !rule->is_any_run &&
        !ol_row_is(transition->run, OL_IN_RUN_STATUS, "RUNNING"))
        return refuse_state(transition, "run", row_text(transition, transition->run, OL_IN_RUN_ID),
                            row_text(transition, transition->run, OL_IN_RUN_STATUS),
                            "a RUNNING run", err);
    if (!transition->step)
        return 0;
    const char *status = row_text(transition, transition->step, OL_IN_STEP_STATUS);
    return is_one_of(rule->from, status)
               ? 0
               : refuse_state(transition, "step", transition->id, status, rule->from, err);
}

/* Check expected_seq of a command whose event belongs to another aggregate than its target. */
static int check_expected_seq(outlog_tx *tx, const struct ol_transition *transition,
                              outlog_err *err)
{
    const int64_t *seq = expected_seq(transition);
    int64_t actual = 0;
    if (!seq)
        return 0;
    if (ol_store_number(tx->conn, OL_Q_HEAD_GET,
                        OL_PARAMS(ol_value_text(transition->org_id ? transition->org_id : ""),
                                  ol_value_text("RUN"), ol_value_text(transition->id)),
                        &actual, err) < 0)
        return -1;
    if (actual == *seq)
        return 0;
    ol_fail(err, OUTLOG_SEQUENCE_CONFLICT,
            "RUN/%s: expected sequence %lld, actual %lld; read it again and decide anew",
            transition->id, (long long)*seq, (long long)actual);
    if (err) {
        err->expected = *seq;
        err->actual = actual;
    }
    return -1;
}

/* --- signals and runs --- */

static int receive_signal(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *payload,
                          struct ol_buf *answer, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    struct outlog_appended at;
    struct ol_row *signal = ol_row_add(&transition->list, &ol_table_signal, transition->arena);
    const char *type = body_text(transition, "signal_type"),
               *body = body_json(transition, "payload");

    ol_uuid_make(id);
    put_text(payload, "signal_id", id);
    put_text(payload, "signal_type", type);
    put_json(payload, "payload", body);
    struct run_event event = {.aggregate_type = "SIGNAL",
                              .aggregate_id = id,
                              .event_type = rules[transition->verb].event_type,
                              .correlation_id = body_text(transition, "correlation_id"),
                              .expected_seq = expected_seq(transition)};
    if (!signal)
        return ol_no_memory(err);
    if (append_event(tx, transition, &event, payload, &at, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_SIGNAL_INSERT,
                      OL_PARAMS(ol_value_text(id), ol_value_text(transition->org_id),
                                ol_value_text(type), ol_value_text(body),
                                ol_value_text(rules[transition->verb].to),
                                ol_value_text(at.correlation_id), ol_value_time(at.occurred_at),
                                ol_value_text(at.id)),
                      NULL, err) < 0)
        return -1;
    signal->values[OL_IN_SIGNAL_ID] = ol_row_value_text(transition->arena, id);
    signal->values[OL_IN_SIGNAL_ORG] = ol_row_value_text(transition->arena, transition->org_id);
    signal->values[OL_IN_SIGNAL_TYPE] = ol_row_value_text(transition->arena, type);
    signal->values[OL_IN_SIGNAL_PAYLOAD] = body;
    signal->values[OL_IN_SIGNAL_STATUS] =
        ol_row_value_text(transition->arena, rules[transition->verb].to);
    signal->values[OL_IN_SIGNAL_CORRELATION] =
        ol_row_value_text(transition->arena, at.correlation_id);
    signal->values[OL_IN_SIGNAL_RECEIVED_AT] = ol_row_value_time(transition->arena, at.occurred_at);
    ol_row_json(signal, answer);
    return 0;
}

/* Load the signal that a run is for, and its newest event. */
static int find_signal(outlog_tx *tx, struct ol_transition *transition, const char *signal_id,
                       struct ol_row **out, const char **last_event_id, outlog_err *err)
{
    struct ol_row_list list = {0};
    if (ol_row_list_load(tx->conn, OL_Q_SIGNAL_GET, OL_PARAMS(ol_value_text(signal_id)),
                         &ol_table_signal, transition->arena, &list, err) < 0)
        return -1;
    const char *org = list.first ? row_text(transition, list.first, OL_IN_SIGNAL_ORG) : NULL;
    if (!list.first || !!org != !!transition->org_id ||
        (org && strcmp(org, transition->org_id) != 0))
        return fail_missing("signal", signal_id, err);
    *out = list.first;
    return read_first_row(tx, OL_Q_SIGNAL_EVENT, signal_id, transition->arena, last_event_id, 1,
                          err) < 0
               ? -1
               : 0;
}

/* Append the event that the verb has for its signal, and move the signal's row with it. */
static int move_signal(outlog_tx *tx, struct ol_transition *transition, const char *signal_id,
                       const char *correlation_id, const char *cause, struct ol_buf *payload,
                       outlog_err *err)
{
    const struct verb_rule *rule = &rules[transition->verb];
    struct outlog_appended at;
    const struct run_event event = {.aggregate_type = "SIGNAL",
                                    .aggregate_id = signal_id,
                                    .event_type = rule->signal_event_type,
                                    .correlation_id = correlation_id,
                                    .causation_id = cause};
    if (append_event(tx, transition, &event, payload, &at, err) < 0)
        return -1;
    return ol_store_exec(tx->conn, OL_Q_SIGNAL_MOVE,
                         OL_PARAMS(ol_value_text(signal_id), ol_value_text(rule->signal_to),
                                   ol_value_text(at.id)),
                         NULL, err);
}

static int start_signal(outlog_tx *tx, struct ol_transition *transition,
                        const struct ol_row *signal, const char *signal_id, const char *run_id,
                        const char *cause, struct ol_buf *payload, outlog_err *err)
{
    const char *status = row_text(transition, signal, OL_IN_SIGNAL_STATUS);
    const struct verb_rule *rule = &rules[transition->verb];
    if (!is_one_of(rule->signal_from, status))
        return refuse_state(transition, "signal", signal_id, status, rule->signal_from, err);
    put_text(payload, "signal_id", signal_id);
    put_text(payload, "run_id", run_id);
    return move_signal(tx, transition, signal_id,
                       row_text(transition, signal, OL_IN_SIGNAL_CORRELATION), cause, payload, err);
}

static int start_run(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *payload,
                     struct ol_buf *answer, outlog_err *err)
{
    char run_id[OL_UUID_TEXT], lower[OL_UUID_TEXT];
    struct outlog_appended at;
    struct ol_row_list list = {0};
    struct ol_row *signal = NULL;
    const char *signal_id = body_text(transition, "signal_id"), *cause = NULL,
               *type = body_text(transition, "run_type"),
               *version = body_text(transition, "orchestrator_version");

    ol_uuid_make(run_id);
    if (signal_id && ol_uuid_parse(signal_id, lower))
        signal_id = lower;
    if (signal_id &&
        (find_signal(tx, transition, signal_id, &signal, &cause, err) < 0 ||
         start_signal(tx, transition, signal, signal_id, run_id, cause, payload, err) < 0))
        return -1;
    put_text(payload, "run_id", run_id);
    put_text(payload, "signal_id", signal_id);
    put_text(payload, "run_type", type);
    put_text(payload, "orchestrator_version", version);
    struct run_event event = {.aggregate_type = "RUN",
                              .aggregate_id = run_id,
                              .event_type = rules[transition->verb].event_type,
                              .correlation_id =
                                  signal ? row_text(transition, signal, OL_IN_SIGNAL_CORRELATION)
                                         : NULL,
                              .causation_id = cause,
                              .expected_seq = expected_seq(transition)};
    if (append_event(tx, transition, &event, payload, &at, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_RUN_INSERT,
                      OL_PARAMS(ol_value_text(run_id), ol_value_text(transition->org_id),
                                ol_value_text(signal_id), ol_value_text(type),
                                ol_value_text(version), ol_value_text(at.correlation_id),
                                ol_value_time(at.occurred_at), ol_value_text(at.id)),
                      NULL, err) < 0 ||
        ol_row_list_load(tx->conn, OL_Q_RUN_GET, OL_PARAMS(ol_value_text(run_id)), &ol_table_run,
                         transition->arena, &list, err) < 0)
        return -1;
    ol_row_json(list.first, answer);
    return 0;
}

static int checkpoint_run(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *payload,
                          struct ol_buf *answer, outlog_err *err)
{
    struct outlog_appended at;
    int64_t index;
    const char *data = body_json(transition, "checkpoint_data");
    struct ol_row *made = ol_row_add(&transition->list, &ol_table_checkpoint, transition->arena);

    if (!made)
        return ol_no_memory(err);
    if (ol_store_number(tx->conn, OL_Q_RUN_NEXT_CHECKPOINT,
                        OL_PARAMS(ol_value_text(transition->id)), &index, err) < 0)
        return -1;
    put_text(payload, "run_id", transition->id);
    put_int(payload, "checkpoint_index", index);
    put_json(payload, "checkpoint_data", data);
    struct run_event event = {.aggregate_type = "RUN",
                              .aggregate_id = transition->id,
                              .event_type = rules[transition->verb].event_type,
                              .correlation_id =
                                  row_text(transition, transition->run, OL_IN_RUN_CORRELATION),
                              .causation_id = transition->last_event_id,
                              .expected_seq = expected_seq(transition)};
    if (append_event(tx, transition, &event, payload, &at, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_CHECKPOINT_INSERT,
                      OL_PARAMS(ol_value_text(transition->id), ol_value_int(index),
                                ol_value_text(data), ol_value_int(at.event_id),
                                ol_value_time(at.occurred_at)),
                      NULL, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_RUN_COUNT,
                      OL_PARAMS(ol_value_text(transition->id), ol_value_int(0), ol_value_int(0),
                                ol_value_text(at.id)),
                      NULL, err) < 0)
        return -1;
    made->values[OL_IN_CHECKPOINT_RUN] = ol_row_value_text(transition->arena, transition->id);
    made->values[OL_IN_CHECKPOINT_INDEX] = ol_row_value_int(transition->arena, index);
    made->values[OL_IN_CHECKPOINT_DATA] = data;
    made->values[OL_IN_CHECKPOINT_EVENT] = ol_row_value_int(transition->arena, at.event_id);
    made->values[OL_IN_CHECKPOINT_CREATED_AT] =
        ol_row_value_time(transition->arena, at.occurred_at);
    ol_row_json(made, answer);
    return 0;
}

static void put_reason(const struct ol_transition *transition, struct ol_buf *payload)
{
    if (transition->verb == OL_FAIL_RUN || transition->verb == OL_FAIL_TOOL) {
        put_text(payload, "error_code", body_text(transition, "error_code"));
        put_text(payload, "error_message", body_text(transition, "error_message"));
    } else if (transition->verb == OL_CANCEL_RUN) {
        put_text(payload, "reason", body_text(transition, "reason"));
    }
}

static int end_signal(outlog_tx *tx, struct ol_transition *transition, const char *signal_id,
                      const char *cause, struct ol_buf *payload, outlog_err *err)
{
    put_text(payload, "signal_id", signal_id);
    put_text(payload, "run_id", transition->id);
    put_reason(transition, payload);
    return move_signal(tx, transition, signal_id,
                       row_text(transition, transition->run, OL_IN_RUN_CORRELATION), cause, payload,
                       err);
}

static int end_run(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *payload,
                   struct ol_buf *answer, outlog_err *err)
{
    const struct verb_rule *rule = &rules[transition->verb];
    const char *open[2], *signal_id = row_text(transition, transition->run, OL_IN_RUN_SIGNAL);
    struct outlog_appended at;

    if (rule->step_states) {
        char needed[64];
        int got =
            read_first_row(tx, OL_Q_RUN_OPEN_STEP, transition->id, transition->arena, open, 2, err);
        snprintf(needed, sizeof needed, "every step %s", rule->step_states);
        if (got != 0)
            return got < 0 ? -1 : refuse_state(transition, "step", open[0], open[1], needed, err);
    }
    put_text(payload, "run_id", transition->id);
    put_reason(transition, payload);
    struct run_event event = {.aggregate_type = "RUN",
                              .aggregate_id = transition->id,
                              .event_type = rule->event_type,
                              .correlation_id =
                                  row_text(transition, transition->run, OL_IN_RUN_CORRELATION),
                              .causation_id = transition->last_event_id,
                              .expected_seq = expected_seq(transition)};
    if (append_event(tx, transition, &event, payload, &at, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_RUN_END,
                      OL_PARAMS(ol_value_text(transition->id), ol_value_text(rule->to),
                                ol_value_time(at.occurred_at), ol_value_text(at.id)),
                      NULL, err) < 0)
        return -1;
    if (signal_id && end_signal(tx, transition, signal_id, at.id, payload, err) < 0)
        return -1;
    transition->run->values[OL_IN_RUN_STATUS] = ol_row_value_text(transition->arena, rule->to);
    transition->run->values[OL_IN_RUN_COMPLETED_AT] =
        ol_row_value_time(transition->arena, at.occurred_at);
    ol_row_json(transition->run, answer);
    return 0;
}

/* --- steps --- */

static int store_step(outlog_tx *tx, struct ol_transition *transition, const struct ol_row *step,
                      const char *last_event_id, outlog_err *err)
{
    const char *texts[12] = {NULL};
    for (int i = 0; i < ol_table_step.shown; i++)
        texts[i] = ol_table_step.columns[i].type == OL_COLUMN_JSON ? step->values[i]
                                                                   : row_text(transition, step, i);
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

static int start_step(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *payload,
                      struct ol_buf *answer, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    struct outlog_appended at;
    int64_t index;
    struct ol_json given = find_member(transition, "step_index");
    struct ol_row *step = ol_row_add(&transition->list, &ol_table_step, transition->arena);

    if (!step)
        return ol_no_memory(err);
    if (check_expected_seq(tx, transition, err) < 0)
        return -1;
    if (!ol_json_int(&given, &index) &&
        ol_store_number(tx->conn, OL_Q_RUN_NEXT_STEP, OL_PARAMS(ol_value_text(transition->id)),
                        &index, err) < 0)
        return -1;
    if (index > INT32_MAX) // as wide as PostgreSQL's
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/step_index",
                          "no step_index is left after 2147483647; give one");
    ol_uuid_make(id);
    step->values[OL_IN_STEP_ID] = ol_row_value_text(transition->arena, id);
    step->values[OL_IN_STEP_RUN] = ol_row_value_text(transition->arena, transition->id);
    step->values[OL_IN_STEP_INDEX] = ol_row_value_int(transition->arena, index);
    step->values[OL_IN_STEP_TYPE] =
        ol_row_value_text(transition->arena, body_text(transition, "step_type"));
    step->values[OL_IN_STEP_STATUS] = "\"RUNNING\"";
    step->values[OL_IN_STEP_RETRIES] = "0";
    put_step(step, payload);
    struct run_event event = {.aggregate_type = "STEP",
                              .aggregate_id = id,
                              .event_type = rules[transition->verb].event_type,
                              .correlation_id =
                                  row_text(transition, transition->run, OL_IN_RUN_CORRELATION),
                              .causation_id = transition->started_event_id};
    if (append_event(tx, transition, &event, payload, &at, err) < 0)
        return -1;
    step->values[OL_IN_STEP_STARTED_AT] = ol_row_value_time(transition->arena, at.occurred_at);
    if (store_step(tx, transition, step, at.id, err) < 0)
        return -1;
    ol_row_json(step, answer);
    return 0;
}

/* How long the step took: as given, else since it started. */
static const char *step_duration(const struct ol_transition *transition)
{
    struct ol_json given = find_member(transition, "duration_ms");
    const char *started = row_text(transition, transition->step, OL_IN_STEP_STARTED_AT);
    int64_t ms, since;
    if (ol_json_int(&given, &ms))
        return ol_row_value_int(transition->arena, ms);
    if (!started || ol_timestamp_parse(started, strlen(started), &since) < 0)
        return NULL;
    ms = (ol_clock_wall_us() - since) / 1000;
    return ol_row_value_int(transition->arena, ms > 0 ? ms : 0);
}

/* Apply the verb to the step, all but its times, and add its members to the payload. */
static void apply_verb(const struct ol_transition *transition, struct ol_buf *payload)
{
    const char **values = transition->step->values;
    values[OL_IN_STEP_STATUS] = ol_row_value_text(transition->arena, rules[transition->verb].to);
    switch (transition->verb) {
    case OL_COMPLETE_STEP:
        values[OL_IN_STEP_OUTPUT] = body_json(transition, "output_result");
        values[OL_IN_STEP_DURATION] = step_duration(transition);
        put_json(payload, "output_result", values[OL_IN_STEP_OUTPUT]);
        put_json(payload, "duration_ms", values[OL_IN_STEP_DURATION]);
        break;
    case OL_FAIL_STEP:
        values[OL_IN_STEP_ERROR_CODE] =
            ol_row_value_text(transition->arena, body_text(transition, "error_code"));
        values[OL_IN_STEP_ERROR_MESSAGE] =
            ol_row_value_text(transition->arena, body_text(transition, "error_message"));
        values[OL_IN_STEP_DURATION] = step_duration(transition);
        put_json(payload, "error_code", values[OL_IN_STEP_ERROR_CODE]);
        put_json(payload, "error_message", values[OL_IN_STEP_ERROR_MESSAGE]);
        put_json(payload, "duration_ms", values[OL_IN_STEP_DURATION]);
        break;
    case OL_SKIP_STEP:
        put_text(payload, "reason", body_text(transition, "reason"));
        break;
    case OL_RETRY_STEP:
        values[OL_IN_STEP_RETRIES] =
            ol_row_value_int(transition->arena,
                             ol_row_int(transition->step, OL_IN_STEP_RETRIES) + 1);
        put_json(payload, "retry_count", values[OL_IN_STEP_RETRIES]);
        break;
    default: // OL_CORRECT_STEP
        values[OL_IN_STEP_OUTPUT] = body_json(transition, "output_result");
        put_json(payload, "output_result", values[OL_IN_STEP_OUTPUT]);
        break;
    }
}

static int change_step_state(outlog_tx *tx, struct ol_transition *transition,
                             struct ol_buf *payload, struct ol_buf *answer, outlog_err *err)
{
    struct ol_row *step = transition->step;
    struct outlog_appended at;
    const char *was = step->values[OL_IN_STEP_STATUS],
               *corrected = body_text(transition, "causation_id");

    put_step(step, payload);
    apply_verb(transition, payload);
    struct run_event event = {.aggregate_type = "STEP",
                              .aggregate_id = transition->id,
                              .event_type = rules[transition->verb].event_type,
                              .correlation_id =
                                  row_text(transition, transition->run, OL_IN_RUN_CORRELATION),
                              .causation_id = corrected ? corrected : transition->step_event_id,
                              .expected_seq = expected_seq(transition)};
    if (append_event(tx, transition, &event, payload, &at, err) < 0)
        return -1;
    bool is_running = ol_row_is(step, OL_IN_STEP_STATUS, "RUNNING");
    bool is_completed = ol_row_is(step, OL_IN_STEP_STATUS, "COMPLETED");
    if (is_running) { // a retry
        step->values[OL_IN_STEP_STARTED_AT] = ol_row_value_time(transition->arena, at.occurred_at);
        step->values[OL_IN_STEP_COMPLETED_AT] = step->values[OL_IN_STEP_DURATION] = NULL;
    } else if (strcmp(step->values[OL_IN_STEP_STATUS], was) != 0) {
        step->values[OL_IN_STEP_COMPLETED_AT] =
            ol_row_value_time(transition->arena, at.occurred_at);
    }
    if (is_running || is_completed)
        step->values[OL_IN_STEP_ERROR_CODE] = step->values[OL_IN_STEP_ERROR_MESSAGE] = NULL;
    bool is_new = is_completed && strcmp(was, "\"COMPLETED\"") != 0;
    bool is_failure = ol_row_is(step, OL_IN_STEP_STATUS, "FAILED");
    if (store_step(tx, transition, step, at.id, err) < 0 ||
        ol_store_exec(tx->conn, OL_Q_RUN_COUNT,
                      OL_PARAMS(ol_value_text(row_text(transition, transition->run, OL_IN_RUN_ID)),
                                ol_value_int(is_new), ol_value_int(is_failure),
                                ol_value_text(at.id)),
                      NULL, err) < 0)
        return -1;
    ol_row_json(step, answer);
    return 0;
}

/* --- tools: a tool call is its event TOOL_CALLED --- */

static void put_tool(const char *tool_call_id, const char *step_id, const char *run_id,
                     const char *tool_name, struct ol_buf *out)
{
    put_text(out, "tool_call_id", tool_call_id);
    put_text(out, "step_id", step_id);
    put_text(out, "run_id", run_id);
    put_text(out, "tool_name", tool_name);
}

static int call_tool(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *payload,
                     struct ol_buf *answer, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    struct outlog_appended at;
    const char *run_id = row_text(transition, transition->run, OL_IN_RUN_ID),
               *name = body_text(transition, "tool_name");

    ol_uuid_make(id);
    put_tool(id, transition->id, run_id, name, payload);
    put_json(payload, "input", body_json(transition, "input"));
    struct run_event event = {.aggregate_type = "STEP",
                              .aggregate_id = transition->id,
                              .event_type = rules[transition->verb].event_type,
                              .id = id,
                              .correlation_id =
                                  row_text(transition, transition->run, OL_IN_RUN_CORRELATION),
                              .causation_id = transition->step_event_id,
                              .expected_seq = expected_seq(transition)};
    if (append_event(tx, transition, &event, payload, &at, err) < 0)
        return -1;
    put_tool(id, transition->id, run_id, name, answer);
    ol_buf_text(answer, ",\"status\":\"RUNNING\"}");
    return 0;
}

static int end_tool(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *payload,
                    struct ol_buf *answer, outlog_err *err)
{
    const char *ended[1], *run_id = row_text(transition, transition->run, OL_IN_RUN_ID);
    const struct verb_rule *rule = &rules[transition->verb];
    struct outlog_appended at;

    int got =
        read_first_row(tx, OL_Q_RUN_TOOL_END, transition->id, transition->arena, ended, 1, err);
    if (got != 0)
        return got < 0 ? -1
                       : refuse_state(transition, "tool call", transition->id,
                                      ended[0] + strlen("TOOL_"), rule->from, err);
    put_tool(transition->id, transition->tool_step_id, run_id, transition->tool_name, payload);
    if (transition->verb == OL_COMPLETE_TOOL)
        put_json(payload, "result", body_json(transition, "result"));
    put_reason(transition, payload);
    struct run_event event = {.aggregate_type = "STEP",
                              .aggregate_id = transition->tool_step_id,
                              .event_type = rule->event_type,
                              .correlation_id =
                                  row_text(transition, transition->run, OL_IN_RUN_CORRELATION),
                              .causation_id = transition->id,
                              .expected_seq = expected_seq(transition)};
    if (append_event(tx, transition, &event, payload, &at, err) < 0)
        return -1;
    put_tool(transition->id, transition->tool_step_id, run_id, transition->tool_name, answer);
    ol_buf_print(answer, ",\"status\":\"%s\"}", rule->to);
    return 0;
}

/* --- effects --- */

static int request_effect(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *answer,
                          outlog_err *err)
{
    struct outlog_effect_requested requested;
    int64_t attempts = 0;
    struct ol_json given = find_member(transition, "max_attempts");
    if (check_expected_seq(tx, transition, err) < 0)
        return -1;
    ol_json_int(&given, &attempts);
    struct outlog_new_effect draft = {.org_id = transition->org_id,
                                      .effect_type = body_text(transition, "effect_type"),
                                      .destination = body_text(transition, "destination"),
                                      .effect_spec = body_json(transition, "effect_spec"),
                                      .run_id = transition->id,
                                      .step_id = body_text(transition, "step_id"),
                                      .idempotency_key = body_text(transition, "idempotency_key"),
                                      .ordering_key = body_text(transition, "ordering_key"),
                                      .actor_type = transition->actor_type,
                                      .actor_id = transition->actor_id,
                                      .max_attempts = (int)attempts,
                                      .traceparent = transition->traceparent};
    if (outlog_request_effect(tx, &draft, &requested, err) < 0)
        return -1;
    ol_buf_print(answer, "{\"effect_id\":\"%s\",\"event_id\":\"%s\",\"duplicate\":%s}",
                 requested.effect_id, requested.message_id, requested.duplicate ? "true" : "false");
    return 0;
}

/* --- all verbs --- */

int ol_transition_apply(outlog_tx *tx, struct ol_transition *transition, struct ol_buf *answer,
                        outlog_err *err)
{
    struct ol_buf payload = {0};
    int result = -1;

    if (check_legal(transition, err) < 0)
        return -1;
    switch (transition->verb) {
    case OL_RECEIVE_SIGNAL:
        result = receive_signal(tx, transition, &payload, answer, err);
        break;
    case OL_START_RUN:
        result = start_run(tx, transition, &payload, answer, err);
        break;
    case OL_CHECKPOINT_RUN:
        result = checkpoint_run(tx, transition, &payload, answer, err);
        break;
    case OL_COMPLETE_RUN:
    case OL_FAIL_RUN:
    case OL_CANCEL_RUN:
        result = end_run(tx, transition, &payload, answer, err);
        break;
    case OL_START_STEP:
        result = start_step(tx, transition, &payload, answer, err);
        break;
    case OL_CALL_TOOL:
        result = call_tool(tx, transition, &payload, answer, err);
        break;
    case OL_COMPLETE_TOOL:
    case OL_FAIL_TOOL:
        result = end_tool(tx, transition, &payload, answer, err);
        break;
    case OL_REQUEST_EFFECT:
        result = request_effect(tx, transition, answer, err);
        break;
    default:
        result = change_step_state(tx, transition, &payload, answer, err);
        break;
    }
    ol_buf_clear(&payload);
    return result;
}
