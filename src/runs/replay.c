/* replay.c: a run from its events alone (U3).
 *
 * The events are those that name the run, of its own org, in event_id order. Only this file knows
 * what each event means. It shares no code with the commands that wrote the events, so a mistake in
 * one of the two shows as a difference. What an event does not contain stays null. */
#include "log/read.h"
#include "runs/snapshot.h"

#include <string.h>

enum { REPLAY_PAGE_EVENTS = 64 }; // of up to 256 KiB each

/* One event that is being applied to the snapshot. */
struct fold {
    struct ol_run_snapshot *snapshot;
    const struct outlog_event *event;
    struct ol_json payload;
};

/* A member of the payload as it was written; a string with our own escapes. */
static const char *payload_value(const struct fold *fold, const char *name)
{
    struct ol_arena *arena = &fold->snapshot->arena;
    struct ol_json value = ol_json_get(&fold->payload, name);
    if (value.type == OL_JSON_STRING)
        return ol_row_value_text(arena, ol_json_string(&value, arena, NULL));
    return ol_row_value_json(arena, &value);
}

static const char *event_time(const struct fold *fold)
{
    return ol_row_value_time(&fold->snapshot->arena, fold->event->occurred_at);
}

static const char *event_uuid(const struct fold *fold)
{
    return ol_row_value_text(&fold->snapshot->arena, fold->event->id);
}

static void increment_column(const struct fold *fold, struct ol_row *row, int column)
{
    row->values[column] = ol_row_value_int(&fold->snapshot->arena, ol_row_int(row, column) + 1);
}

/* --- signals --- */

static void fold_signal(struct fold *fold)
{
    struct ol_run_snapshot *snapshot = fold->snapshot;
    const char *type = fold->event->event_type;
    if (strcmp(type, "SIGNAL_RECEIVED") == 0) {
        struct ol_row *signal = ol_row_add(&snapshot->signals, &ol_table_signal, &snapshot->arena);
        if (!signal)
            return;
        signal->values[OL_IN_SIGNAL_ID] = payload_value(fold, "signal_id");
        signal->values[OL_IN_SIGNAL_ORG] = ol_row_value_text(&snapshot->arena, fold->event->org_id);
        signal->values[OL_IN_SIGNAL_TYPE] = payload_value(fold, "signal_type");
        signal->values[OL_IN_SIGNAL_PAYLOAD] = payload_value(fold, "payload");
        signal->values[OL_IN_SIGNAL_STATUS] = "\"RECEIVED\"";
        signal->values[OL_IN_SIGNAL_CORRELATION] =
            ol_row_value_text(&snapshot->arena, fold->event->correlation_id);
        signal->values[OL_IN_SIGNAL_RECEIVED_AT] = event_time(fold);
        signal->values[OL_IN_SIGNAL_LAST_EVENT] = event_uuid(fold);
        return;
    }
    struct ol_row *signal = snapshot->signals.first;
    if (!signal)
        return;
    signal->values[OL_IN_SIGNAL_LAST_EVENT] = event_uuid(fold);
    if (strcmp(type, "SIGNAL_PROCESSING_STARTED") == 0)
        signal->values[OL_IN_SIGNAL_STATUS] = "\"PROCESSING\"";
    else if (strcmp(type, "SIGNAL_PROCESSED") == 0)
        signal->values[OL_IN_SIGNAL_STATUS] = "\"PROCESSED\"";
    else if (strcmp(type, "SIGNAL_PROCESSING_FAILED") == 0)
        signal->values[OL_IN_SIGNAL_STATUS] = "\"FAILED\"";
}

/* --- the run --- */

static void start_run(struct fold *fold)
{
    struct ol_run_snapshot *snapshot = fold->snapshot;
    struct ol_row *run = ol_row_add(&snapshot->runs, &ol_table_run, &snapshot->arena);
    if (!run)
        return;
    run->values[OL_IN_RUN_ID] = payload_value(fold, "run_id");
    run->values[OL_IN_RUN_ORG] = ol_row_value_text(&snapshot->arena, fold->event->org_id);
    run->values[OL_IN_RUN_SIGNAL] = payload_value(fold, "signal_id");
    run->values[OL_IN_RUN_TYPE] = payload_value(fold, "run_type");
    run->values[OL_IN_RUN_VERSION] = payload_value(fold, "orchestrator_version");
    run->values[OL_IN_RUN_STATUS] = "\"RUNNING\"";
    run->values[OL_IN_RUN_TOTAL] = run->values[OL_IN_RUN_FAILED] = "0";
    run->values[OL_IN_RUN_CORRELATION] =
        ol_row_value_text(&snapshot->arena, fold->event->correlation_id);
    run->values[OL_IN_RUN_STARTED_AT] = event_time(fold);
    run->values[OL_IN_RUN_STARTED_EVENT] = run->values[OL_IN_RUN_LAST_EVENT] = event_uuid(fold);
}

static void add_checkpoint(struct fold *fold)
{
    struct ol_run_snapshot *snapshot = fold->snapshot;
    struct ol_row *checkpoint =
        ol_row_add(&snapshot->checkpoints, &ol_table_checkpoint, &snapshot->arena);
    if (!checkpoint)
        return;
    checkpoint->values[OL_IN_CHECKPOINT_RUN] = payload_value(fold, "run_id");
    checkpoint->values[OL_IN_CHECKPOINT_INDEX] = payload_value(fold, "checkpoint_index");
    checkpoint->values[OL_IN_CHECKPOINT_DATA] = payload_value(fold, "checkpoint_data");
    checkpoint->values[OL_IN_CHECKPOINT_EVENT] =
        ol_row_value_int(&snapshot->arena, fold->event->event_id);
    checkpoint->values[OL_IN_CHECKPOINT_CREATED_AT] = event_time(fold);
}

static void fold_run(struct fold *fold)
{
    const char *type = fold->event->event_type, *status = NULL;
    struct ol_row *run = fold->snapshot->runs.first;
    if (strcmp(type, "RUN_STARTED") == 0) {
        start_run(fold);
        return;
    }
    if (strcmp(type, "RUN_CHECKPOINT_CREATED") == 0) {
        add_checkpoint(fold);
        if (run)
            run->values[OL_IN_RUN_LAST_EVENT] = event_uuid(fold);
        return;
    }
    if (strcmp(type, "RUN_COMPLETED") == 0)
        status = "\"COMPLETED\"";
    else if (strcmp(type, "RUN_FAILED") == 0)
        status = "\"FAILED\"";
    else if (strcmp(type, "RUN_CANCELLED") == 0)
        status = "\"CANCELLED\"";
    if (!run || !status)
        return;
    run->values[OL_IN_RUN_STATUS] = status;
    run->values[OL_IN_RUN_COMPLETED_AT] = event_time(fold);
    run->values[OL_IN_RUN_LAST_EVENT] = event_uuid(fold);
}

/* --- steps --- */

static void start_step(struct fold *fold)
{
    struct ol_run_snapshot *snapshot = fold->snapshot;
    struct ol_row *step = ol_row_add(&snapshot->steps, &ol_table_step, &snapshot->arena);
    if (!step)
        return;
    step->values[OL_IN_STEP_ID] = payload_value(fold, "step_id");
    step->values[OL_IN_STEP_RUN] = payload_value(fold, "run_id");
    step->values[OL_IN_STEP_INDEX] = payload_value(fold, "step_index");
    step->values[OL_IN_STEP_TYPE] = payload_value(fold, "step_type");
    step->values[OL_IN_STEP_STATUS] = "\"RUNNING\"";
    step->values[OL_IN_STEP_RETRIES] = "0";
    step->values[OL_IN_STEP_STARTED_AT] = event_time(fold);
    step->values[OL_IN_STEP_LAST_EVENT] = event_uuid(fold);
}

/* The newest event of the step, and while the run goes on the newest outcome in it. */
static void mark_step(struct fold *fold, struct ol_row *step, struct ol_row *run)
{
    step->values[OL_IN_STEP_LAST_EVENT] = event_uuid(fold);
    if (ol_row_is(run, OL_IN_RUN_STATUS, "RUNNING"))
        run->values[OL_IN_RUN_LAST_EVENT] = step->values[OL_IN_STEP_LAST_EVENT];
}

/* A step ended: the event's values replace those of an earlier try, also where it has none. */
static void end_step(struct fold *fold, struct ol_row *step, const char *status)
{
    step->values[OL_IN_STEP_STATUS] = status;
    step->values[OL_IN_STEP_COMPLETED_AT] = event_time(fold);
    step->values[OL_IN_STEP_DURATION] = payload_value(fold, "duration_ms");
    step->values[OL_IN_STEP_OUTPUT] = payload_value(fold, "output_result");
    step->values[OL_IN_STEP_ERROR_CODE] = payload_value(fold, "error_code");
    step->values[OL_IN_STEP_ERROR_MESSAGE] = payload_value(fold, "error_message");
}

static void retry_step(struct fold *fold, struct ol_row *step)
{
    step->values[OL_IN_STEP_STATUS] = "\"RUNNING\"";
    step->values[OL_IN_STEP_STARTED_AT] = event_time(fold);
    step->values[OL_IN_STEP_RETRIES] = payload_value(fold, "retry_count");
    step->values[OL_IN_STEP_COMPLETED_AT] = step->values[OL_IN_STEP_DURATION] = NULL;
    step->values[OL_IN_STEP_ERROR_CODE] = step->values[OL_IN_STEP_ERROR_MESSAGE] = NULL;
}

/* Returns whether the step is completed only now. */
static bool correct_step(struct fold *fold, struct ol_row *step)
{
    bool is_new = !ol_row_is(step, OL_IN_STEP_STATUS, "COMPLETED");
    if (is_new) {
        step->values[OL_IN_STEP_STATUS] = "\"COMPLETED\"";
        step->values[OL_IN_STEP_COMPLETED_AT] = event_time(fold);
        step->values[OL_IN_STEP_ERROR_CODE] = step->values[OL_IN_STEP_ERROR_MESSAGE] = NULL;
    }
    step->values[OL_IN_STEP_OUTPUT] = payload_value(fold, "output_result");
    return is_new;
}

static void fold_step(struct fold *fold)
{
    const char *type = fold->event->event_type;
    struct ol_row *run = fold->snapshot->runs.first;
    struct ol_row *step = ol_row_find(&fold->snapshot->steps, payload_value(fold, "step_id"));

    if (strcmp(type, "STEP_STARTED") == 0) {
        start_step(fold);
    } else if (!step || !run || strncmp(type, "STEP_", strlen("STEP_")) != 0) {
        return; // a tool's event moves no row
    } else if (strcmp(type, "STEP_COMPLETED") == 0) {
        end_step(fold, step, "\"COMPLETED\"");
        increment_column(fold, run, OL_IN_RUN_TOTAL);
    } else if (strcmp(type, "STEP_FAILED") == 0) {
        end_step(fold, step, "\"FAILED\"");
        increment_column(fold, run, OL_IN_RUN_FAILED);
    } else if (strcmp(type, "STEP_SKIPPED") == 0) {
        step->values[OL_IN_STEP_STATUS] = "\"SKIPPED\"";
        step->values[OL_IN_STEP_COMPLETED_AT] = event_time(fold);
    } else if (strcmp(type, "STEP_RETRIED") == 0) {
        retry_step(fold, step);
    } else if (strcmp(type, "STEP_CORRECTED") == 0 && correct_step(fold, step)) {
        increment_column(fold, run, OL_IN_RUN_TOTAL);
    }
    if (step && run)
        mark_step(fold, step, run);
}

/* --- effects --- */

static void request_effect(struct fold *fold)
{
    struct ol_run_snapshot *snapshot = fold->snapshot;
    struct ol_row *effect = ol_row_add(&snapshot->effects, &ol_table_effect, &snapshot->arena);
    if (!effect)
        return;
    effect->values[OL_IN_EFFECT_ID] = payload_value(fold, "effect_id");
    effect->values[OL_IN_EFFECT_RUN] = payload_value(fold, "run_id");
    effect->values[OL_IN_EFFECT_STEP] = payload_value(fold, "step_id");
    effect->values[OL_IN_EFFECT_SESSION] = payload_value(fold, "session_key");
    effect->values[OL_IN_EFFECT_CHECKPOINT] = payload_value(fold, "checkpoint_id");
    effect->values[OL_IN_EFFECT_TYPE] = payload_value(fold, "effect_type");
    effect->values[OL_IN_EFFECT_DESTINATION] = payload_value(fold, "destination");
    effect->values[OL_IN_EFFECT_STATUS] = "\"PENDING\"";
    effect->values[OL_IN_EFFECT_KEY] = payload_value(fold, "idempotency_key");
    effect->values[OL_IN_EFFECT_MESSAGE] = payload_value(fold, "message_id");
    effect->values[OL_IN_EFFECT_ATTEMPTS] = "0";
    effect->values[OL_IN_EFFECT_ORG] = ol_row_value_text(&snapshot->arena, fold->event->org_id);
    effect->values[OL_IN_EFFECT_CORRELATION] =
        ol_row_value_text(&snapshot->arena, fold->event->correlation_id);
    effect->values[OL_IN_EFFECT_EVENT] = ol_row_value_int(&snapshot->arena, fold->event->event_id);
    effect->values[OL_IN_EFFECT_LAST_EVENT] = event_uuid(fold);
    effect->values[OL_IN_EFFECT_SPEC_HASH] = payload_value(fold, "spec_hash");
    effect->values[OL_IN_EFFECT_CREATED_AT] = effect->values[OL_IN_EFFECT_UPDATED_AT] =
        event_time(fold);
}

static void fold_effect(struct fold *fold)
{
    const char *type = fold->event->event_type;
    struct ol_row *effect = ol_row_find(&fold->snapshot->effects, payload_value(fold, "effect_id"));

    if (strcmp(type, "EFFECT_REQUESTED") == 0) {
        request_effect(fold);
        return;
    }
    if (!effect)
        return;
    if (payload_value(fold, "attempts")) { // a session's effect ended: its deliveries until then
        effect->values[OL_IN_EFFECT_ATTEMPTS] = payload_value(fold, "attempts");
        effect->values[OL_IN_EFFECT_LAST_ATTEMPT_AT] = payload_value(fold, "last_attempt_at");
    }
    if (strcmp(type, "EFFECT_EXECUTING") == 0) {
        effect->values[OL_IN_EFFECT_STATUS] = "\"EXECUTING\"";
        effect->values[OL_IN_EFFECT_ATTEMPTS] = payload_value(fold, "attempt");
        effect->values[OL_IN_EFFECT_LAST_ATTEMPT_AT] = event_time(fold);
    } else if (strcmp(type, "EFFECT_COMPLETED") == 0) {
        effect->values[OL_IN_EFFECT_STATUS] = "\"COMPLETED\"";
        effect->values[OL_IN_EFFECT_RESULT] = payload_value(fold, "execution_result");
        effect->values[OL_IN_EFFECT_EXECUTED_AT] = event_time(fold);
    } else if (strcmp(type, "EFFECT_RETRYING") == 0) {
        effect->values[OL_IN_EFFECT_STATUS] = "\"PENDING\"";
    } else if (strcmp(type, "EFFECT_DEAD_LETTERED") == 0) {
        effect->values[OL_IN_EFFECT_STATUS] = "\"FAILED\"";
    }
    effect->values[OL_IN_EFFECT_UPDATED_AT] = event_time(fold);
    effect->values[OL_IN_EFFECT_LAST_EVENT] = event_uuid(fold);
}

/* --- every event of a run or signal --- */

static int fold_page(struct ol_run_snapshot *snapshot, const struct outlog_page *page,
                     outlog_err *err)
{
    for (size_t i = 0; i < page->count; i++) {
        struct fold fold = {.snapshot = snapshot, .event = &page->events[i]};
        const char *type = fold.event->aggregate_type;
        if (ol_json_parse(fold.event->payload, fold.event->payload_bytes, &fold.payload, err) < 0)
            return -1;
        if (strcmp(type, "RUN") == 0)
            fold_run(&fold);
        else if (strcmp(type, "STEP") == 0)
            fold_step(&fold);
        else if (strcmp(type, "EFFECT") == 0)
            fold_effect(&fold);
        else if (strcmp(type, "SIGNAL") == 0)
            fold_signal(&fold);
    }
    return 0;
}

static int read_page(outlog *log, struct outlog_page *page, struct ol_rows *rows, outlog_err *err)
{
    int filled = ol_read_page_reset(page) ? ol_read_page_fill(log, page, rows, false, false, err)
                                          : ol_no_memory(err);
    ol_rows_end(rows);
    return filled < 0 ? -1 : 0;
}

int ol_replay_run(outlog *log, const char *run_id, const char *org_key,
                  struct ol_run_snapshot *snapshot, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_rows rows;
    int64_t after = 0;
    int result = -1;
    do {
        if (ol_store_query(log->conn, OL_Q_RUN_EVENTS,
                           OL_PARAMS(ol_value_text(run_id), ol_value_text(org_key),
                                     ol_value_int(after), ol_value_int(REPLAY_PAGE_EVENTS)),
                           &rows, err) < 0 ||
            read_page(log, &page, &rows, err) < 0 || fold_page(snapshot, &page, err) < 0)
            goto out;
        if (page.count)
            after = page.events[page.count - 1].event_id;
    } while (page.count == REPLAY_PAGE_EVENTS);
    result = 0;
out:
    outlog_page_clear(&page);
    return result;
}

/* All events of one aggregate. */
static int replay_aggregate(outlog *log, enum ol_query_id query, const char *id,
                            const char *org_key, struct ol_run_snapshot *snapshot, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_rows rows;
    int result = -1;
    if (ol_store_query(log->conn, query, OL_PARAMS(ol_value_text(id), ol_value_text(org_key)),
                       &rows, err) == 0 &&
        read_page(log, &page, &rows, err) == 0)
        result = fold_page(snapshot, &page, err);
    outlog_page_clear(&page);
    return result;
}

int ol_replay_signal(outlog *log, const char *signal_id, const char *org_key,
                     struct ol_run_snapshot *snapshot, outlog_err *err)
{
    return replay_aggregate(log, OL_Q_SIGNAL_EVENTS, signal_id, org_key, snapshot, err);
}

int ol_replay_effect(outlog *log, const char *effect_id, const char *org_key,
                     struct ol_run_snapshot *snapshot, outlog_err *err)
{
    return replay_aggregate(log, OL_Q_EFFECT_EVENTS, effect_id, org_key, snapshot, err);
}
