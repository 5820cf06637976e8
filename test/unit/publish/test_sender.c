/* The sender with the publishers that need no network: null, exec, stdout, plug-ins. */
#include "base/clock.h"
#include "publish/sender.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000)

static struct {
    int count;
    struct outlog_outcome last;
    char response[OL_RESPONSE_KEPT + 1], error[OL_ERROR_KEPT + 1];
    void *tag;
} seen;

static struct ol_sender *sender;
static struct ol_settings *settings;
static struct ol_sender_channel *channel;

static void on_outcome(void *user, void *tag, const struct outlog_outcome *outcome)
{
    (void)user;
    seen.count++;
    seen.last = *outcome;
    seen.tag = tag;
    snprintf(seen.response, sizeof seen.response, "%.*s", (int)outcome->response_bytes,
             outcome->response ? outcome->response : "");
    snprintf(seen.error, sizeof seen.error, "%s", outcome->error ? outcome->error : "");
}

static void open_channel(const char *json)
{
    outlog_err err;
    memset(&seen, 0, sizeof seen);
    if (ol_settings_open("d", json, strlen(json), OL_SETTINGS_USE, &settings, &err) < 0 ||
        ol_sender_open(&sender, on_outcome, NULL, &err) < 0 ||
        ol_sender_channel_open(sender, settings, &channel, &err) < 0)
        fail_msg("%s", err.message);
}

static void close_channel(void)
{
    ol_sender_close(sender);
    ol_settings_close(settings);
}

static struct outlog_delivery message = {
    .event_id = "0190e6a0-0000-7000-8000-000000000001",
    .destination = "d",
    .event_type = "order.created",
    .payload = "{\n \"n\": 1}",
    .payload_bytes = 10,
    .idempotency_key = "k-1",
    .correlation_id = "c-1",
    .created_at = 1767528300000001,
    .attempt = 3,
};

static void submit(intptr_t tag, int64_t within_us)
{
    ol_sender_channel_submit(channel, &message, ol_clock_boot_us() + within_us, (void *)tag);
}

/* Drive until `count` outcomes were seen; a minute, for a busy machine. */
static void wait_for(int count)
{
    int64_t until = ol_clock_boot_us() + 60 * SECOND;
    while (seen.count < count && ol_clock_boot_us() < until)
        ol_sender_drive(sender, 1000);
    assert_int_equal(seen.count, count);
}

static void run(const char *program, int64_t within_us)
{
    char json[1000];
    snprintf(json, sizeof json,
             "{\"type\":\"exec\",\"command\":[\"sh\",\"-c\",\"%s\"],"
             "\"env\":{\"EXTRA\":\"more\",\"API_TOKEN\":\"hush-hush\"}}",
             program);
    open_channel(json);
    submit(7, within_us);
    wait_for(1);
    assert_ptr_equal(seen.tag, (void *)7);
    close_channel();
}

static void null_takes_everything_inside_submit(void **state)
{
    (void)state;
    open_channel("{\"type\":\"null\"}");
    for (int i = 1; i <= 1000; i++) {
        submit(i, SECOND);
        assert_int_equal(seen.count, i);
        assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_OK);
    }
    assert_int_equal(ol_sender_in_flight(sender), 0);
    assert_int_equal(ol_sender_drive(sender, 1000), 1000); // it does not wait: there are outcomes
    assert_int_equal(ol_sender_drive(sender, 0), 0);
    close_channel();
}

static void d6_program_gets_payload_and_environment(void **state)
{
    (void)state;
    setenv("BILLING_SECRET", "must-not-leak", 1);
    run("cat; echo; env | sort; test -z \\\"$BILLING_SECRET\\\"", 60 * SECOND);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_OK);
    assert_int_equal(seen.last.status, 0);
    assert_non_null(strstr(seen.response, "{\n \"n\": 1}\n"));
    assert_non_null(
        strstr(seen.response, "OUTLOG_EVENT_ID=0190e6a0-0000-7000-8000-000000000001\n"));
    assert_non_null(strstr(seen.response, "OUTLOG_EVENT_TYPE=order.created\n"));
    assert_non_null(strstr(seen.response, "OUTLOG_IDEMPOTENCY_KEY=k-1\n"));
    assert_non_null(strstr(seen.response, "OUTLOG_ATTEMPT=3\n"));
    assert_non_null(strstr(seen.response, "OUTLOG_CREATED_AT=2026-01-04T12:05:00.000001Z\n"));
    assert_non_null(strstr(seen.response, "EXTRA=more\n"));
    assert_non_null(strstr(seen.response, "API_TOKEN=***\n")); // E13
    assert_null(strstr(seen.response, "must-not-leak"));
    assert_true(seen.last.duration_us > 0);
}

static void d6_exit_codes_tell_what_to_do(void **state)
{
    (void)state;
    run("echo bad data; exit 65", 60 * SECOND);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_FAILED);
    assert_int_equal(seen.last.status, 65);
    assert_true(seen.last.is_permanent);
    assert_string_equal(seen.error, "the program ended with 65: bad data");
    run("exit 64", 60 * SECOND);
    assert_true(seen.last.is_permanent);
    run("exit 75", 60 * SECOND);
    assert_true(!seen.last.is_permanent && seen.last.surely_not_sent);
    run("exit 1", 60 * SECOND);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_FAILED);
    assert_true(!seen.last.is_permanent && !seen.last.surely_not_sent);
    run("kill -9 $$", 60 * SECOND);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_UNKNOWN);
    assert_int_equal(seen.last.status, 137);
}

static void d6_program_past_its_deadline_is_killed_with_its_children(void **state)
{
    char path[] = "/tmp/outlog-test-XXXXXX", program[200];
    int fd = mkstemp(path), pid = 0;
    (void)state;
    snprintf(program, sizeof program, "sleep 1000 & echo $! > %s; wait", path);
    run(program, SECOND / 2);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_UNKNOWN);
    FILE *file = fdopen(fd, "r");
    if (fscanf(file, "%d", &pid) != 1) // the machine was too busy to start it within the deadline
        pid = 0;
    fclose(file);
    unlink(path);
    for (int64_t until = ol_clock_boot_us() + 60 * SECOND; pid && ol_clock_boot_us() < until;) {
        char stat[64], state_char = 'Z';
        snprintf(stat, sizeof stat, "/proc/%d/stat", pid);
        file = fopen(stat, "r");
        if (!file)
            return; // gone
        if (fscanf(file, "%*d (%*[^)]) %c", &state_char) != 1)
            state_char = 'Z';
        fclose(file);
        if (state_char == 'Z')
            return; // dead; the init process reaps it
        usleep(1000);
    }
    if (pid)
        fail_msg("process %d is still there", pid);
}

static void d6_program_that_cannot_start_was_surely_not_run(void **state)
{
    (void)state;
    open_channel("{\"type\":\"exec\",\"command\":[\"/nonexistent/x\"]}");
    submit(1, SECOND);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_FAILED);
    assert_true(seen.last.surely_not_sent && !seen.last.is_permanent);
    close_channel();
}

static void d6_many_programs_run_side_by_side(void **state)
{
    (void)state;
    open_channel("{\"type\":\"exec\",\"command\":[\"sh\",\"-c\",\"head -c 300000 /dev/zero\"]}");
    for (int i = 0; i < 20; i++) // each prints more than a pipe holds
        submit(i, 60 * SECOND);
    wait_for(20);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_OK);
    assert_true(seen.last.response_bytes <= OL_RESPONSE_KEPT);
    close_channel();
}

static void closing_gives_every_attempt_its_outcome(void **state)
{
    (void)state;
    open_channel("{\"type\":\"exec\",\"command\":[\"sleep\",\"1000\"]}");
    submit(1, 60 * SECOND);
    submit(2, 60 * SECOND);
    ol_sender_channel_abandon(channel, (void *)1);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_UNKNOWN);
    close_channel();
    assert_int_equal(seen.count, 2);
}

/* Standard output becomes `fd` for the time of one test. */
static int take_stdout(int fd)
{
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    dup2(fd, STDOUT_FILENO);
    return kept;
}

static void give_stdout(int kept)
{
    dup2(kept, STDOUT_FILENO);
    close(kept);
}

static void d6_stdout_writes_one_json_line_a_message(void **state)
{
    int pipes[2];
    char line[4096];
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    int kept = take_stdout(pipes[1]);
    open_channel("{\"type\":\"stdout\"}");
    submit(1, 60 * SECOND);
    submit(2, 60 * SECOND);
    give_stdout(kept);
    close(pipes[1]);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_OK);
    FILE *file = fdopen(pipes[0], "r");
    for (int i = 0; i < 2; i++) {
        struct ol_json object;
        assert_non_null(fgets(line, sizeof line, file));
        assert_int_equal(ol_json_parse(line, strlen(line), &object, NULL), 0);
        struct ol_json id = ol_json_get(&object, "event_id");
        assert_true(ol_json_equals(&id, message.event_id));
        assert_int_equal(ol_json_get(&object, "payload").type, OL_JSON_OBJECT);
    }
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
    close_channel();
}

static void l5_stdout_that_is_not_read_holds_nobody_up(void **state)
{
    int pipes[2];
    char *big = malloc(100000), data[4096];
    struct outlog_delivery before = message;
    (void)state;
    memset(big, 'x', 100000);
    big[0] = big[99999] = '"';
    message.payload = big;
    message.payload_bytes = 100000;
    assert_int_equal(pipe(pipes), 0);
    int kept = take_stdout(pipes[1]);
    open_channel("{\"type\":\"stdout\"}");
    submit(1, 60 * SECOND); // more than the pipe holds
    submit(2, SECOND / 10);
    int after_submit = seen.count;
    int64_t until = ol_clock_boot_us() + 60 * SECOND;
    while (seen.count < 1 && ol_clock_boot_us() < until)
        ol_sender_drive(sender, 100);
    enum outlog_outcome_kind late = seen.last.kind;
    void *late_tag = seen.tag;
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    while (seen.count < 2 && ol_clock_boot_us() < until) { // now the pipe is read
        while (read(pipes[0], data, sizeof data) > 0)
            ;
        ol_sender_drive(sender, 10);
    }
    enum outlog_outcome_kind first = seen.last.kind;
    while (read(pipes[0], data, sizeof data) > 0) // queued lines leave with the next message
        ;
    message = before;
    submit(3, 60 * SECOND);
    while (seen.count < 3 && ol_clock_boot_us() < until) {
        while (read(pipes[0], data, sizeof data) > 0)
            ;
        ol_sender_drive(sender, 10);
    }
    give_stdout(kept);
    assert_int_equal(after_submit, 0);
    assert_int_equal(late, OUTLOG_PUBLISH_UNKNOWN);
    assert_ptr_equal(late_tag, (void *)2);
    assert_int_equal(first, OUTLOG_PUBLISH_OK);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_OK);
    close(pipes[0]);
    close(pipes[1]);
    free(big);
    close_channel();
}

static const char *plugin_path(void)
{
    static char path[500];
    const char *build = getenv("OUTLOG_BUILD");
    snprintf(path, sizeof path, "%s/examples/publisher_file.so", build ? build : "build");
    return access(path, R_OK) == 0 ? path : NULL;
}

static void d7_plugin_is_loaded_and_delivers(void **state)
{
    char file[] = "/tmp/outlog-test-XXXXXX", json[800], text[64] = "";
    (void)state;
    if (!plugin_path())
        skip();
    int fd = mkstemp(file);
    snprintf(json, sizeof json,
             "{\"type\":\"plugin\",\"path\":\"%s\",\"options\":{\"file\":\"%s\"}}", plugin_path(),
             file);
    open_channel(json);
    assert_string_equal(ol_sender_channel_publisher(channel)->name, "file");
    submit(1, SECOND);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.last.kind, OUTLOG_PUBLISH_OK);
    close_channel();
    assert_int_equal(read(fd, text, sizeof text - 1), 11);
    assert_string_equal(text, "{\n \"n\": 1}\n");
    close(fd);
    unlink(file);
}

static void d7_what_is_no_plugin_is_refused(void **state)
{
    static const char *const paths[] = {"relative.so", "/nonexistent.so", "/etc/passwd"};
    char json[100];
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(json, sizeof json, "{\"type\":\"plugin\",\"path\":\"%s\"}", paths[i]);
        assert_int_equal(ol_settings_open("d", json, strlen(json), OL_SETTINGS_USE, &settings,
                                          &err),
                         0);
        assert_int_equal(ol_sender_open(&sender, on_outcome, NULL, &err), 0);
        assert_int_equal(ol_sender_channel_open(sender, settings, &channel, &err), -1);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        close_channel();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_takes_everything_inside_submit),
        cmocka_unit_test(d6_program_gets_payload_and_environment),
        cmocka_unit_test(d6_exit_codes_tell_what_to_do),
        cmocka_unit_test(d6_program_past_its_deadline_is_killed_with_its_children),
        cmocka_unit_test(d6_program_that_cannot_start_was_surely_not_run),
        cmocka_unit_test(d6_many_programs_run_side_by_side),
        cmocka_unit_test(closing_gives_every_attempt_its_outcome),
        cmocka_unit_test(d6_stdout_writes_one_json_line_a_message),
        cmocka_unit_test(l5_stdout_that_is_not_read_holds_nobody_up),
        cmocka_unit_test(d7_plugin_is_loaded_and_delivers),
        cmocka_unit_test(d7_what_is_no_plugin_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
