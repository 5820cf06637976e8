/* runs.c: the rate of run commands compared with plain appends, and the memory of verify.
 *
 *     bench_runs append URL MILLISECONDS     one event per transaction, by outlog_append()
 *     bench_runs commands URL MILLISECONDS   one command per transaction: steps started, completed
 *     bench_runs fill URL RUNS               runs of ten events each, many per transaction
 *     bench_runs verify URL                  verify all of them, like `outlog verify --all`
 *
 * The first two begin and commit a transaction of the library for every event, so that they differ
 * only in what is measured. A transaction counts when it is durable. */
#include "bench.h"
#include "runs/snapshot.h"

#include <stdio.h>
#include <string.h>

enum { WARM_UP = 20, STEPS_PER_RUN = 50, FILL_STEPS = 3, FILL_CHUNK = 100 };

static outlog *handle;
static outlog_err err;
static struct outlog_json answer;

static void begin_tx(outlog_tx **tx)
{
    if (outlog_begin(handle, tx, &err) < 0)
        bench_die("%s", err.message);
}

static void commit_tx(outlog_tx *tx)
{
    if (outlog_commit(tx, &err) < 0)
        bench_die("%s", err.message);
}

/* Copy a text member of the last answer. */
static void copy_member(const char *member, char out[OL_UUID_TEXT])
{
    struct ol_json object;
    if (ol_json_parse(answer.text, answer.bytes, &object, &err) < 0)
        bench_die("%s", err.message);
    struct ol_json id = ol_json_get(&object, member);
    snprintf(out, OL_UUID_TEXT, "%.*s", (int)id.bytes - 2, id.text + 1);
}

static void run_command(outlog_tx *tx, const char *verb, const char *id, const char *body)
{
    struct outlog_run_call call = {.verb = verb, .id = id, .body = body};
    if (outlog_run_command(tx, &call, &answer, &err) < 0)
        bench_die("%s: %s", verb, err.message);
}

static const char *const output =
    "{\"output_result\":{\"order_id\":\"ord_0000000017\",\"total_cents\":12900,\"currency\":"
    "\"EUR\",\"lines\":[{\"sku\":\"SKU-10041\",\"quantity\":1}],\"note\":\"leave at the interface\"}}";

/* --- one per transaction --- */

static int64_t append_one(int64_t number)
{
    static char name[32];
    struct outlog_appended appended;
    outlog_tx *tx;
    snprintf(name, sizeof name, "s-%lld", (long long)(number / 2));
    struct outlog_new_event event = {.org_id = "org_acme",
                                     .aggregate_type = "step",
                                     .aggregate_id = name,
                                     .event_type = number % 2 ? "step.completed" : "step.started",
                                     .payload = number % 2 ? output : "{\"step_type\":\"CHARGE\"}"};
    begin_tx(&tx);
    if (outlog_append(tx, &event, &appended, &err) < 0)
        bench_die("%s", err.message);
    commit_tx(tx);
    return 1;
}

static int64_t command_one(int64_t number)
{
    static char run_id[OL_UUID_TEXT], step_id[OL_UUID_TEXT];
    outlog_tx *tx;
    begin_tx(&tx);
    if (number % (2 * STEPS_PER_RUN) == 0) {
        run_command(
            tx, "start_run", NULL,
            "{\"org_id\":\"org_acme\",\"run_type\":\"ORDER\",\"orchestrator_version\":\"v1\"}");
        copy_member("run_id", run_id);
    }
    if (number % 2 == 0) {
        run_command(tx, "start_step", run_id, "{\"step_type\":\"CHARGE\"}");
        copy_member("step_id", step_id);
    } else {
        run_command(tx, "complete_step", step_id, output);
    }
    commit_tx(tx);
    return 1;
}

static void measure_rate(int64_t (*one)(int64_t), int milliseconds)
{
    int64_t number = 0, events = 0;
    while (number < WARM_UP)
        one(number++);
    double begun = bench_now(), until = begun + milliseconds / 1e3;
    while (bench_now() < until)
        events += one(number++);
    printf("{\"per_second\":%.1f}\n", (double)events / (bench_now() - begun));
}

/* --- many per transaction --- */

static void fill_one(outlog_tx *tx)
{
    char signal_id[OL_UUID_TEXT], run_id[OL_UUID_TEXT], step_id[OL_UUID_TEXT], body[256];
    run_command(tx, "receive_signal", NULL, "{\"org_id\":\"org_acme\",\"signal_type\":\"order\"}");
    copy_member("signal_id", signal_id);
    snprintf(body, sizeof body,
             "{\"org_id\":\"org_acme\",\"run_type\":\"ORDER\",\"orchestrator_version\":\"v1\","
             "\"signal_id\":\"%s\"}",
             signal_id);
    run_command(tx, "start_run", NULL, body);
    copy_member("run_id", run_id);
    for (int i = 0; i < FILL_STEPS; i++) {
        run_command(tx, "start_step", run_id, "{\"step_type\":\"CHARGE\"}");
        copy_member("step_id", step_id);
        run_command(tx, "complete_step", step_id, output);
    }
    run_command(tx, "complete_run", run_id, NULL);
}

static void fill_runs(int runs)
{
    for (int done = 0; done < runs;) {
        outlog_tx *tx;
        begin_tx(&tx);
        for (int i = 0; i < FILL_CHUNK && done < runs; i++, done++)
            fill_one(tx);
        commit_tx(tx);
    }
    printf("{\"runs\":%d}\n", runs);
}

static void verify_runs(void)
{
    struct ol_verify all = {0};
    double begun = bench_now();
    int more;
    while ((more = ol_verify_next(handle, &all, 100, &err)) > 0)
        continue;
    if (more < 0 || ol_verify_orphans(handle, &all, &err) < 0)
        bench_die("%s", err.message);
    printf("{\"runs\":%lld,\"differences\":%lld,\"per_second\":%.1f,\"resident_peak\":%lld}\n",
           (long long)all.runs, (long long)all.differences,
           (double)all.runs / (bench_now() - begun), (long long)bench_resident_peak());
}

int main(int argc, char **argv)
{
    if (argc < 3)
        bench_die("usage: bench_runs append|commands|fill|verify URL [NUMBER]");
    if (outlog_open(argv[2], &handle, &err) < 0)
        bench_die("%s", err.message);
    int number = argc > 3 ? bench_number(argv[3], "the last argument") : 1000;
    if (strcmp(argv[1], "append") == 0)
        measure_rate(append_one, number);
    else if (strcmp(argv[1], "commands") == 0)
        measure_rate(command_one, number);
    else if (strcmp(argv[1], "fill") == 0)
        fill_runs(number);
    else if (strcmp(argv[1], "verify") == 0)
        verify_runs();
    else
        bench_die("there is no %s", argv[1]);
    outlog_json_clear(&answer);
    outlog_close(handle);
    return 0;
}
