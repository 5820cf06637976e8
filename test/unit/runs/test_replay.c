/* test_replay.c: a run replayed from its events is the run that is stored (U3), on both stores. */
#include "runs/command.h"
#include "runs/snapshot.h"
#include "store/user_sql.h"
#include "stores.h"

/* Execute a command, and keep the id that its answer has under `name`. */
static void run_command(struct fixture *fixture, enum ol_run_verb verb, const char *id,
                        const char *body, const char *name, char out[OL_UUID_TEXT])
{
    const struct ol_run_call call = {.verb = verb,
                                     .id = id,
                                     .body = body,
                                     .body_bytes = strlen(body)};
    struct ol_buf answer = {0};
    struct ol_arena arena = {0};
    struct ol_json object;
    outlog_tx *tx;
    outlog_err err;
    OK(outlog_begin(fixture->log, &tx, &err));
    OK(ol_run_command(tx, &call, &answer, NULL, &err));
    OK(outlog_commit(tx, &err));
    if (name) {
        OK(ol_json_parse(answer.data, answer.bytes, &object, &err));
        struct ol_json value = ol_json_get(&object, name);
        snprintf(out, OL_UUID_TEXT, "%s", ol_json_string(&value, &arena, NULL));
    }
    ol_arena_clear(&arena);
    ol_buf_clear(&answer);
}

/* A run with a step that failed, was retried and completed, and a checkpoint. */
static void make_run(struct fixture *fixture, char run_id[OL_UUID_TEXT])
{
    char step_id[OL_UUID_TEXT];
    run_command(fixture, OL_START_RUN, NULL,
                "{\"org_id\":\"acme\",\"run_type\":\"ORDER\",\"orchestrator_version\":\"1\"}",
                "run_id", run_id);
    run_command(fixture, OL_START_STEP, run_id, "{\"step_type\":\"CHARGE\"}", "step_id", step_id);
    run_command(fixture, OL_FAIL_STEP, step_id,
                "{\"error_code\":\"E\",\"error_message\":\"declined\"}", NULL, NULL);
    run_command(fixture, OL_RETRY_STEP, step_id, "{}", NULL, NULL);
    run_command(fixture, OL_COMPLETE_STEP, step_id, "{\"output_result\":{\"paid\": 1.50}}", NULL,
                NULL);
    run_command(fixture, OL_CHECKPOINT_RUN, run_id, "{\"checkpoint_data\":[1,null]}", NULL, NULL);
    run_command(fixture, OL_COMPLETE_RUN, run_id, "{}", NULL, NULL);
}

static void u3_a_replayed_run_has_the_rows_of_the_stored_one(void **state)
{
    struct fixture *fixture = *state;
    struct ol_run_snapshot replayed = {0};
    char run_id[OL_UUID_TEXT];
    int64_t differences = -1;
    outlog_err err;

    make_run(fixture, run_id);
    OK(ol_replay_run(fixture->log, run_id, "acme", &replayed, &err));
    const struct ol_row *run = replayed.runs.first, *step = replayed.steps.first;
    assert_non_null(run);
    assert_non_null(step);
    assert_true(ol_row_is(run, OL_IN_RUN_STATUS, "COMPLETED"));
    assert_int_equal(ol_row_int(run, OL_IN_RUN_TOTAL), 1);
    assert_int_equal(ol_row_int(run, OL_IN_RUN_FAILED), 1);
    assert_true(ol_row_is(step, OL_IN_STEP_STATUS, "COMPLETED"));
    assert_int_equal(ol_row_int(step, OL_IN_STEP_RETRIES), 1);
    assert_null(step->values[OL_IN_STEP_ERROR_CODE]); // of the try that failed
    assert_null(step->next);
    assert_non_null(replayed.checkpoints.first);
    assert_null(replayed.effects.first);
    OK(ol_run_verify(fixture->log, run_id, NULL, NULL, NULL, &differences, &err));
    assert_int_equal(differences, 0);
    ol_run_snapshot_clear(&replayed);
}

static void x1_a_replay_reads_only_events_of_the_given_org(void **state)
{
    struct fixture *fixture = *state;
    struct ol_run_snapshot replayed = {0};
    char run_id[OL_UUID_TEXT];
    outlog_err err;

    make_run(fixture, run_id);
    OK(ol_replay_run(fixture->log, run_id, "other", &replayed, &err));
    assert_null(replayed.runs.first);
    ol_run_snapshot_clear(&replayed);
}

static void on_difference(void *user, const char *table, const char *id, const char *column,
                          const char *stored, const char *replayed)
{
    struct ol_buf *out = user;
    (void)id;
    ol_buf_print(out, "%s.%s %s/%s;", table, column, stored, replayed);
}

static void u3_verify_names_the_column_that_was_changed_by_hand(void **state)
{
    struct fixture *fixture = *state;
    struct ol_buf found = {0}, sql = {0};
    char run_id[OL_UUID_TEXT];
    int64_t differences = 0;
    outlog_err err;

    make_run(fixture, run_id);
    ol_buf_print(&sql, "update %s set total_steps = 5 where run_id = '%s'",
                 fixture->is_postgres ? "outlog.runs" : "outlog_runs", run_id);
    OK(fixture->conn->store->begin(fixture->conn, &err));
    OK(fixture->conn->store->user_sql->script(fixture->conn, sql.data, &err));
    OK(fixture->conn->store->commit(fixture->conn, &err));
    OK(ol_run_verify(fixture->log, run_id, NULL, on_difference, &found, &differences, &err));
    assert_int_equal(differences, 1);
    assert_string_equal(found.data, "runs.total_steps 5/1;");
    ol_buf_clear(&found);
    ol_buf_clear(&sql);
}

int main(void)
{
    const struct CMUnitTest suite[] = {
        cmocka_unit_test(u3_a_replayed_run_has_the_rows_of_the_stored_one),
        cmocka_unit_test(x1_a_replay_reads_only_events_of_the_given_org),
        cmocka_unit_test(u3_verify_names_the_column_that_was_changed_by_hand),
    };
    return run_with_stores("runs/replay", NULL, 0, suite, COUNT(suite));
}
