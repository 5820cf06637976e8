/* replay.c: a run from its events alone (U3).
 *
 * The events are those that name the run, of its own org, in event_id order. This is the only place
 * that knows what an event means; it shares no code with the commands that wrote it, so that a
 * mistake in one of the two shows as a difference. What an event does not say stays null. */
#include "log/read.h"
#include "runs/snapshot.h"

#include <string.h>

enum { PAGE = 64 }; // of up to 256 KiB each

/* An event on its way into the story. */
struct fold {
    struct ol_run_snapshot *story;
    const struct outlog_event *event;
    struct ol_json payload;
};

/* A member as it was written; a string in the form that every string of ours has. */
static const char *text_of(const struct fold *fold, const char *name)
{
    struct ol_arena *arena = &fold->story->arena;
    struct ol_json value = ol_json_get(&fold->payload, name);
    if (value.type == OL_JSON_STRING)
        return ol_row_value_text(arena, ol_json_string(&value, arena, NULL));
    return ol_row_value_json(arena, &value);
}

static const char *at(const struct fold *fold)
{
    return ol_row_value_time(&fold->story->arena, fold->event->occurred_at);
}

static void add_one(const struct fold *fold, struct ol_row *object, int field)
{
    object->values[field] = ol_row_value_int(&fold->story->arena, ol_row_int(object, field) + 1);
}

/* --- signals --- */

static void fold_signal(struct fold *fold)
{
    struct ol_run_snapshot *story = fold->story;
    const char *type = fold->event->event_type;
    if (strcmp(type, "SIGNAL_RECEIVED") == 0) {
        struct ol_row *signal = ol_row_add(&story->signals, &ol_kind_signal, &story->arena);
        if (!signal)
            return;
        signal->values[OL_IN_SIGNAL_ID] = text_of(fold, "signal_id");
        signal->values[OL_IN_SIGNAL_ORG] = ol_row_value_text(&story->arena, fold->event->org_id);
        signal->values[OL_IN_SIGNAL_TYPE] = text_of(fold, "signal_type");
        signal->values[OL_IN_SIGNAL_PAYLOAD] = text_of(fold, "payload");
        signal->values[OL_IN_SIGNAL_STATUS] = "\"RECEIVED\"";
        signal->values[OL_IN_SIGNAL_CORRELATION] =
            ol_row_value_text(&story->arena, fold->event->correlation_id);
        signal->values[OL_IN_SIGNAL_RECEIVED_AT] = at(fold);
        return;
    }
    struct ol_row *signal = story->signals.first;
    if (!signal)
        return;
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
    struct ol_run_snapshot *story = fold->story;
    struct ol_row *run = ol_row_add(&story->runs, &ol_kind_run, &story->arena);
    if (!run)
        return;
    run->values[OL_IN_RUN_ID] = text_of(fold, "run_id");
    run->values[OL_IN_RUN_ORG] = ol_row_value_text(&story->arena, fold->event->org_id);
    run->values[OL_IN_RUN_SIGNAL] = text_of(fold, "signal_id");
    run->values[OL_IN_RUN_TYPE] = text_of(fold, "run_type");
    run->values[OL_IN_RUN_VERSION] = text_of(fold, "orchestrator_version");
    run->values[OL_IN_RUN_STATUS] = "\"RUNNING\"";
    run->values[OL_IN_RUN_TOTAL] = run->values[OL_IN_RUN_FAILED] = "0";
    run->values[OL_IN_RUN_CORRELATION] =
        ol_row_value_text(&story->arena, fold->event->correlation_id);
    run->values[OL_IN_RUN_STARTED_AT] = at(fold);
}

static void add_checkpoint(struct fold *fold)
{
    struct ol_run_snapshot *story = fold->story;
    struct ol_row *made = ol_row_add(&story->checkpoints, &ol_kind_checkpoint, &story->arena);
    if (!made)
        return;
    made->values[OL_IN_CHECKPOINT_RUN] = text_of(fold, "run_id");
    made->values[OL_IN_CHECKPOINT_INDEX] = text_of(fold, "checkpoint_index");
    made->values[OL_IN_CHECKPOINT_DATA] = text_of(fold, "checkpoint_data");
    made->values[OL_IN_CHECKPOINT_EVENT] = ol_row_value_int(&story->arena, fold->event->event_id);
    made->values[OL_IN_CHECKPOINT_CREATED_AT] = at(fold);
}

static void fold_run(struct fold *fold)
{
    const char *type = fold->event->event_type, *status = NULL;
    struct ol_row *run = fold->story->runs.first;
    if (strcmp(type, "RUN_STARTED") == 0) {
        start_run(fold);
        return;
    }
    if (strcmp(type, "RUN_CHECKPOINT_CREATED") == 0) {
        add_checkpoint(fold);
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
    run->values[OL_IN_RUN_COMPLETED_AT] = at(fold);
}

/* --- steps --- */

static void start_step(struct fold *fold)
{
    struct ol_run_snapshot *story = fold->story;
    struct ol_row *step = ol_row_add(&story->steps, &ol_kind_step, &story->arena);
    if (!step)
        return;
    step->values[OL_IN_STEP_ID] = text_of(fold, "step_id");
    step->values[OL_IN_STEP_RUN] = text_of(fold, "run_id");
    step->values[OL_IN_STEP_INDEX] = text_of(fold, "step_index");
    step->values[OL_IN_STEP_TYPE] = text_of(fold, "step_type");
    step->values[OL_IN_STEP_STATUS] = "\"RUNNING\"";
    step->values[OL_IN_STEP_RETRIES] = "0";
    step->values[OL_IN_STEP_STARTED_AT] = at(fold);
}

/* A step came to an end: what is said of it holds, what was said of an earlier try does not. */
static void end_step(struct fold *fold, struct ol_row *step, const char *status)
{
    step->values[OL_IN_STEP_STATUS] = status;
    step->values[OL_IN_STEP_COMPLETED_AT] = at(fold);
    step->values[OL_IN_STEP_DURATION] = text_of(fold, "duration_ms");
    step->values[OL_IN_STEP_OUTPUT] = text_of(fold, "output_result");
    step->values[OL_IN_STEP_ERROR_CODE] = text_of(fold, "error_code");
    step->values[OL_IN_STEP_ERROR_MESSAGE] = text_of(fold, "error_message");
}

static void retry_step(struct fold *fold, struct ol_row *step)
{
    step->values[OL_IN_STEP_STATUS] = "\"RUNNING\"";
    step->values[OL_IN_STEP_STARTED_AT] = at(fold);
    step->values[OL_IN_STEP_RETRIES] = text_of(fold, "retry_count");
    step->values[OL_IN_STEP_COMPLETED_AT] = step->values[OL_IN_STEP_DURATION] = NULL;
    step->values[OL_IN_STEP_ERROR_CODE] = step->values[OL_IN_STEP_ERROR_MESSAGE] = NULL;
}

/* Returns whether the step is completed only now. */
static bool correct_step(struct fold *fold, struct ol_row *step)
{
    bool is_new = !ol_row_is(step, OL_IN_STEP_STATUS, "COMPLETED");
    if (is_new) {
        step->values[OL_IN_STEP_STATUS] = "\"COMPLETED\"";
        step->values[OL_IN_STEP_COMPLETED_AT] = at(fold);
        step->values[OL_IN_STEP_ERROR_CODE] = step->values[OL_IN_STEP_ERROR_MESSAGE] = NULL;
    }
    step->values[OL_IN_STEP_OUTPUT] = text_of(fold, "output_result");
    return is_new;
}

static void fold_step(struct fold *fold)
{
    const char *type = fold->event->event_type;
    struct ol_row *run = fold->story->runs.first;
    struct ol_row *step = ol_row_find(&fold->story->steps, text_of(fold, "step_id"));

    if (strcmp(type, "STEP_STARTED") == 0) {
        start_step(fold);
    } else if (!step || !run) {
        return;
    } else if (strcmp(type, "STEP_COMPLETED") == 0) {
        end_step(fold, step, "\"COMPLETED\"");
        add_one(fold, run, OL_IN_RUN_TOTAL);
    } else if (strcmp(type, "STEP_FAILED") == 0) {
        end_step(fold, step, "\"FAILED\"");
        add_one(fold, run, OL_IN_RUN_FAILED);
    } else if (strcmp(type, "STEP_SKIPPED") == 0) {
        step->values[OL_IN_STEP_STATUS] = "\"SKIPPED\"";
        step->values[OL_IN_STEP_COMPLETED_AT] = at(fold);
    } else if (strcmp(type, "STEP_RETRIED") == 0) {
        retry_step(fold, step);
    } else if (strcmp(type, "STEP_CORRECTED") == 0 && correct_step(fold, step)) {
        add_one(fold, run, OL_IN_RUN_TOTAL);
    }
}

/* --- effects --- */

static void request_effect(struct fold *fold)
{
    struct ol_run_snapshot *story = fold->story;
    struct ol_row *effect = ol_row_add(&story->effects, &ol_kind_effect, &story->arena);
    if (!effect)
        return;
    effect->values[OL_IN_EFFECT_ID] = text_of(fold, "effect_id");
    effect->values[OL_IN_EFFECT_RUN] = text_of(fold, "run_id");
    effect->values[OL_IN_EFFECT_STEP] = text_of(fold, "step_id");
    effect->values[OL_IN_EFFECT_SESSION] = text_of(fold, "session_key");
    effect->values[OL_IN_EFFECT_CHECKPOINT] = text_of(fold, "checkpoint_id");
    effect->values[OL_IN_EFFECT_TYPE] = text_of(fold, "effect_type");
    effect->values[OL_IN_EFFECT_DESTINATION] = text_of(fold, "destination");
    effect->values[OL_IN_EFFECT_STATUS] = "\"PENDING\"";
    effect->values[OL_IN_EFFECT_KEY] = text_of(fold, "idempotency_key");
    effect->values[OL_IN_EFFECT_MESSAGE] = text_of(fold, "message_id");
    effect->values[OL_IN_EFFECT_ATTEMPTS] = "0";
    effect->values[OL_IN_EFFECT_CREATED_AT] = effect->values[OL_IN_EFFECT_UPDATED_AT] = at(fold);
}

static void fold_effect(struct fold *fold)
{
    const char *type = fold->event->event_type;
    struct ol_row *effect = ol_row_find(&fold->story->effects, text_of(fold, "effect_id"));

    if (strcmp(type, "EFFECT_REQUESTED") == 0) {
        request_effect(fold);
        return;
    }
    if (!effect)
        return;
    if (strcmp(type, "EFFECT_EXECUTING") == 0) {
        effect->values[OL_IN_EFFECT_STATUS] = "\"EXECUTING\"";
        effect->values[OL_IN_EFFECT_ATTEMPTS] = text_of(fold, "attempt");
        effect->values[OL_IN_EFFECT_LAST_ATTEMPT_AT] = at(fold);
    } else if (strcmp(type, "EFFECT_COMPLETED") == 0) {
        effect->values[OL_IN_EFFECT_STATUS] = "\"COMPLETED\"";
        effect->values[OL_IN_EFFECT_RESULT] = text_of(fold, "execution_result");
        effect->values[OL_IN_EFFECT_EXECUTED_AT] = at(fold);
    } else if (strcmp(type, "EFFECT_RETRYING") == 0) {
        effect->values[OL_IN_EFFECT_STATUS] = "\"PENDING\"";
    } else if (strcmp(type, "EFFECT_DEAD_LETTERED") == 0) {
        effect->values[OL_IN_EFFECT_STATUS] = "\"FAILED\"";
    }
    effect->values[OL_IN_EFFECT_UPDATED_AT] = at(fold);
}

/* --- all of them --- */

static int fold_page(struct ol_run_snapshot *story, const struct outlog_page *page, outlog_err *err)
{
    for (size_t i = 0; i < page->count; i++) {
        struct fold fold = {.story = story, .event = &page->events[i]};
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
                  struct ol_run_snapshot *story, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_rows rows;
    int64_t after = 0;
    int result = -1;
    do {
        if (ol_store_query(log->conn, OL_Q_RUN_EVENTS,
                           OL_PARAMS(ol_value_text(run_id), ol_value_text(org_key),
                                     ol_value_int(after), ol_value_int(PAGE)),
                           &rows, err) < 0 ||
            read_page(log, &page, &rows, err) < 0 || fold_page(story, &page, err) < 0)
            goto out;
        if (page.count)
            after = page.events[page.count - 1].event_id;
    } while (page.count == PAGE);
    result = 0;
out:
    outlog_page_clear(&page);
    return result;
}

int ol_replay_signal(outlog *log, const char *signal_id, const char *org_key,
                     struct ol_run_snapshot *story, outlog_err *err)
{
    struct outlog_page page = {0};
    struct ol_rows rows;
    int result = -1;
    if (ol_store_query(log->conn, OL_Q_SIGNAL_EVENTS,
                       OL_PARAMS(ol_value_text(signal_id), ol_value_text(org_key)), &rows,
                       err) == 0 &&
        read_page(log, &page, &rows, err) == 0)
        result = fold_page(story, &page, err);
    outlog_page_clear(&page);
    return result;
}
