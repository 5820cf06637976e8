/* exec.c: one run of a program per message (D6).
 *
 * The payload is the program's standard input; OUTLOG_… variables hold the rest. It runs without a
 * shell, in a process group of its own, with a clean environment: ours may hold secrets. When the
 * relay is killed, so is the program: nobody else would end it at its deadline.
 *
 *   exit 0              OK: that is what success means here
 *   exit 75             FAILED, surely not sent: "nothing was done, try again later" (EX_TEMPFAIL)
 *   exit 64, 65         FAILED, permanent: wrong usage, bad data (EX_USAGE, EX_DATAERR)
 *   any other exit      FAILED, tried again
 *   killed by a signal  UNKNOWN: the work may be done
 *   past its deadline   the whole group is killed: UNKNOWN
 *   cannot be started   FAILED, surely not sent
 *
 * What it prints, on either stream, is the response. */
#include "base/child.h"
#include "base/clock.h"
#include "base/timestamp.h"
#include "base/traceparent.h"
#include "net/poller.h"
#include "publish/mask.h"
#include "publish/outcome.h"
#include "publish/publisher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    EXEC_EXIT_USAGE = 64,
    EXEC_EXIT_DATA = 65,
    EXEC_EXIT_LATER = 75,
    EXEC_REAP_MS = 2000,
    EXEC_ENV_MAX = 128
};

struct exec_settings {
    struct ol_text_list command;
    const struct outlog_header *env; /* more variables for the program */
    size_t env_count;
};

struct exec_child {
    struct exec_child *next;
    void *tag;
    int64_t started_us, deadline_us;
    pid_t pid;
    int pidfd, output;
    bool is_reported; /* its outcome is reported; it must still be reaped */
    size_t kept_bytes;
    char kept[OL_RESPONSE_KEPT];
};

struct exec {
    const struct outlog_publisher_host *host;
    const struct ol_settings *settings;
    const struct exec_settings *own;
    struct ol_poller poller;
    struct exec_child *children;
    struct ol_arena arena;
    struct ol_buf memory;
};

/* --- outcomes --------------------------------------------------------------------------------- */

static void report_outcome(struct exec *e, struct exec_child *child, struct outlog_outcome *outcome,
                           const char *error)
{
    size_t response_bytes;
    ol_buf_reset(&e->memory);
    ol_mask_add(&e->memory, child->kept, child->kept_bytes, e->settings->masked, OL_RESPONSE_KEPT);
    response_bytes = e->memory.bytes;
    ol_buf_char(&e->memory, '\0');
    if (error)
        ol_mask_line(&e->memory, error, strlen(error), e->settings->masked, OL_ERROR_KEPT);
    if (!e->memory.failed) {
        outcome->response = response_bytes ? e->memory.data : NULL;
        outcome->response_bytes = response_bytes;
        outcome->error = error ? e->memory.data + response_bytes + 1 : NULL;
    }
    outcome->duration_us = child->started_us ? ol_clock_boot_us() - child->started_us : 0;
    child->is_reported = true;
    e->host->done(e->host->user, child->tag, outcome);
}

static void report_exit(struct exec *e, struct exec_child *child, const siginfo_t *info)
{
    struct outlog_outcome outcome = {0};
    char error[200];
    size_t line = child->kept_bytes < 120 ? child->kept_bytes : 120;
    const char *end = memchr(child->kept, '\n', line);
    if (end)
        line = (size_t)(end - child->kept);

    if (info->si_code != CLD_EXITED) {
        outcome.kind = OUTLOG_PUBLISH_UNKNOWN;
        outcome.status = 128 + info->si_status;
        snprintf(error, sizeof error, "the program was ended by signal %d", info->si_status);
        report_outcome(e, child, &outcome, error);
        return;
    }
    outcome.status = info->si_status;
    if (info->si_status == 0) {
        outcome.kind = OUTLOG_PUBLISH_OK;
        report_outcome(e, child, &outcome, NULL);
        return;
    }
    outcome.kind = OUTLOG_PUBLISH_FAILED;
    outcome.is_permanent = info->si_status == EXEC_EXIT_USAGE || info->si_status == EXEC_EXIT_DATA;
    outcome.surely_not_sent = info->si_status == EXEC_EXIT_LATER;
    snprintf(error, sizeof error, "the program ended with %d%s%.*s", info->si_status,
             line ? ": " : "", (int)line, child->kept);
    report_outcome(e, child, &outcome, error);
}

static void report_killed(struct exec *e, struct exec_child *child, const char *why)
{
    struct outlog_outcome outcome = {.kind = OUTLOG_PUBLISH_UNKNOWN};
    kill(-child->pid, SIGKILL); // not reaped yet, so the group id cannot belong to another
    report_outcome(e, child, &outcome, why);
}

/* --- a running child -------------------------------------------------------------------------- */

static void read_output(struct exec *e, struct exec_child *child)
{
    char data[4096];
    ssize_t got;
    while (child->output >= 0 && (got = read(child->output, data, sizeof data)) != -1) {
        if (got == 0) {
            ol_poller_remove(&e->poller, child->output);
            close(child->output);
            child->output = -1;
            return;
        }
        size_t room = sizeof child->kept - child->kept_bytes;
        size_t part = (size_t)got < room ? (size_t)got : room;
        memcpy(child->kept + child->kept_bytes, data, part);
        child->kept_bytes += part; // the rest is dropped, so that the program never blocks
    }
}

static void free_child(struct exec *e, struct exec_child *child)
{
    if (child->output >= 0) {
        ol_poller_remove(&e->poller, child->output);
        close(child->output);
    }
    ol_poller_remove(&e->poller, child->pidfd);
    close(child->pidfd);
    free(child);
}

/* True when the child has ended and is reaped. */
static bool check_child(struct exec *e, struct exec_child *child, int64_t now_us)
{
    siginfo_t info = {0};
    int waited = waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOHANG);

    read_output(e, child); // after waitid: then all its output is in the pipe
    if (waited == 0 && info.si_pid == 0) {
        if (!child->is_reported && now_us >= child->deadline_us)
            report_killed(e, child, "the program did not end in time and was killed");
        return false;
    }
    if (!child->is_reported && waited == 0) {
        report_exit(e, child, &info);
    } else if (!child->is_reported) { // other code in this process reaped it
        struct outlog_outcome outcome = {.kind = OUTLOG_PUBLISH_UNKNOWN};
        report_outcome(e, child, &outcome, "the program's exit status was lost");
    }
    return true;
}

static void check_children(struct exec *e)
{
    int64_t now_us = ol_clock_boot_us(), next_us = INT64_MAX;
    for (struct exec_child **at = &e->children; *at;) {
        struct exec_child *child = *at;
        if (check_child(e, child, now_us)) {
            *at = child->next;
            free_child(e, child);
            continue;
        }
        if (!child->is_reported && child->deadline_us < next_us)
            next_us = child->deadline_us;
        at = &child->next;
    }
    ol_poller_at(&e->poller, next_us);
}

/* --- start ------------------------------------------------------------------------------------ */

struct exec_environment {
    struct ol_arena *arena;
    char *list[EXEC_ENV_MAX + 1];
    size_t count;
    bool failed;
};

static void add_env(struct exec_environment *env, const char *name, const char *value)
{
    if (!value)
        return;
    char *pair = env->count < EXEC_ENV_MAX ? ol_arena_print(env->arena, "%s=%s", name, value)
                                           : NULL;
    if (pair)
        env->list[env->count++] = pair;
    else
        env->failed = true;
}

static void add_headers_env(struct exec_environment *env, const struct outlog_delivery *message)
{
    struct ol_buf json = {0};
    for (size_t i = 0; i < message->header_count; i++) {
        ol_buf_char(&json, i ? ',' : '{');
        ol_buf_json_text(&json, message->headers[i].name);
        ol_buf_char(&json, ':');
        ol_buf_json_text(&json, message->headers[i].value);
    }
    if (message->header_count)
        ol_buf_char(&json, '}');
    add_env(env, "OUTLOG_HEADERS", message->header_count ? json.data : NULL);
    env->failed = env->failed || json.failed;
    ol_buf_clear(&json);
}

static void make_env(struct exec *e, const struct outlog_delivery *message,
                     struct exec_environment *env)
{
    static const char *const inherited[] = {"PATH",   "HOME", "USER",  "LANG",
                                            "LC_ALL", "TZ",   "TMPDIR"};
    char number[24], time[OL_TIMESTAMP_TEXT], trace[OL_TRACEPARENT_TEXT];

    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++)
        add_env(env, inherited[i], getenv(inherited[i]));
    for (size_t i = 0; i < e->own->env_count; i++)
        add_env(env, e->own->env[i].name, e->own->env[i].value);
    snprintf(number, sizeof number, "%d", message->attempt);
    add_env(env, "OUTLOG_EVENT_ID", message->event_id);
    add_env(env, "OUTLOG_EVENT_TYPE", message->event_type);
    add_env(env, "OUTLOG_DESTINATION", message->destination);
    add_env(env, "OUTLOG_ORG_ID", message->org_id);
    add_env(env, "OUTLOG_IDEMPOTENCY_KEY", ol_publisher_message_key(message));
    add_env(env, "OUTLOG_ORDERING_KEY", message->ordering_key);
    add_env(env, "OUTLOG_PARTITION_KEY", message->partition_key);
    add_env(env, "OUTLOG_CONTENT_TYPE", message->content_type);
    add_env(env, "OUTLOG_CORRELATION_ID", message->correlation_id);
    add_env(env, "OUTLOG_CAUSATION_ID", message->causation_id);
    add_env(env, "OUTLOG_AGGREGATE_TYPE", message->aggregate_type);
    add_env(env, "OUTLOG_AGGREGATE_ID", message->aggregate_id);
    add_env(env, "OUTLOG_CREATED_AT", ol_timestamp_format(message->created_at, time));
    add_env(env, "OUTLOG_ATTEMPT", number);
    add_env(env, "OUTLOG_REPLAY", message->is_replay ? "true" : NULL);
    if (ol_traceparent_next(message->traceparent, message->event_id, message->attempt, trace)) {
        add_env(env, "OUTLOG_TRACEPARENT", trace);
        add_env(env, "TRACEPARENT", trace); // where tools look for it
    }
    add_headers_env(env, message);
}

/* The payload as a file in memory: the program reads at its own pace, and we never write to a pipe
 * that it does not empty. */
static int make_payload_file(const struct outlog_delivery *message)
{
    int fd = memfd_create("outlog-payload", MFD_CLOEXEC);
    size_t at = 0;
    while (fd >= 0 && at < message->payload_bytes) {
        ssize_t put = write(fd, message->payload + at, message->payload_bytes - at);
        if (put <= 0) {
            close(fd);
            return -1;
        }
        at += (size_t)put;
    }
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

/* Returns an errno value, 0 when the child runs. */
static int start_child(struct exec *e, const struct outlog_delivery *message,
                       struct exec_child *child)
{
    struct exec_environment env = {.arena = &e->arena};
    int input = -1, pipes[2] = {-1, -1}, error = 0;

    ol_arena_reset(&e->arena);
    make_env(e, message, &env);
    if (env.failed || (input = make_payload_file(message)) < 0 || pipe2(pipes, O_CLOEXEC) < 0) {
        error = ENOMEM;
        goto out;
    }
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    error = ol_child_start((char *const *)(uintptr_t)e->own->command.items, env.list, input,
                           pipes[1], pipes[1], &child->pid);
    if (error)
        goto out;
    child->pidfd = pidfd_open(child->pid, 0);
    if (child->pidfd < 0) { // without it we would not see it end
        error = errno;
        kill(-child->pid, SIGKILL);
        waitpid(child->pid, NULL, 0);
        goto out;
    }
    child->output = pipes[0];
    pipes[0] = -1;
    ol_poller_add(&e->poller, child->pidfd, EPOLLIN);
    ol_poller_add(&e->poller, child->output, EPOLLIN);
out:
    if (pipes[0] >= 0)
        close(pipes[0]);
    if (pipes[1] >= 0)
        close(pipes[1]);
    if (input >= 0)
        close(input);
    return error;
}

static void exec_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                        void *tag)
{
    struct exec *e = instance;
    struct exec_child *child = calloc(1, sizeof *child);
    struct outlog_outcome failed = {.kind = OUTLOG_PUBLISH_FAILED, .surely_not_sent = true};
    char text[200];

    if (!child) {
        failed.kind = OUTLOG_PUBLISH_RELEASED;
        failed.error = "out of memory";
        e->host->done(e->host->user, tag, &failed);
        return;
    }
    child->tag = tag;
    child->started_us = ol_clock_boot_us();
    child->deadline_us = deadline_us;
    child->output = child->pidfd = -1;
    int error = start_child(e, message, child);
    if (error) {
        snprintf(text, sizeof text, "%.80s: the program could not be started: %s",
                 e->own->command.items[0], strerror(error));
        report_outcome(e, child, &failed, text);
        free(child);
        return;
    }
    child->next = e->children;
    e->children = child;
    if (deadline_us < e->poller.at_us)
        ol_poller_at(&e->poller, deadline_us);
}

/* --- the publisher ---------------------------------------------------------------------------- */

static int exec_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    struct exec *e = calloc(1, sizeof *e);
    if (!e)
        return ol_no_memory(err);
    e->host = host;
    e->settings = own->settings;
    e->own = own->settings->own;
    if (ol_poller_open(&e->poller, err) < 0) {
        free(e);
        return -1;
    }
    *instance = e;
    return 0;
}

static void exec_drive(void *instance, int timeout_ms)
{
    struct exec *e = instance;
    ol_poller_wait(&e->poller, timeout_ms);
    check_children(e);
}

static int exec_fd(void *instance)
{
    struct exec *e = instance;
    return e->poller.fd;
}

static void exec_abandon(void *instance, void *tag)
{
    struct exec *e = instance;
    for (struct exec_child *child = e->children; child; child = child->next)
        if (child->tag == tag && !child->is_reported) {
            report_killed(e, child, "given up before its deadline; the program was killed");
            return;
        }
}

static void exec_close(void *instance)
{
    struct exec *e = instance;
    for (struct exec_child *child = e->children; child; child = child->next)
        if (!child->is_reported)
            report_killed(e, child, "given up before its deadline; the program was killed");
    while (e->children) {
        struct exec_child *child = e->children;
        struct pollfd gone = {.fd = child->pidfd, .events = POLLIN};
        siginfo_t info;
        e->children = child->next;
        if (poll(&gone, 1, EXEC_REAP_MS) > 0) // one that the kernel cannot end stays a zombie
            waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOHANG);
        free_child(e, child);
    }
    ol_poller_close(&e->poller);
    ol_arena_clear(&e->arena);
    ol_buf_clear(&e->memory);
    free(e);
}

static const struct outlog_publisher publisher = {
    .name = "exec",
    .batch_max = 8,
    .keeps_attempts = true,
    .open = exec_open,
    .submit = exec_submit,
    .drive = exec_drive,
    .fd = exec_fd,
    .abandon = exec_abandon,
    .close = exec_close,
};

/* --- settings --------------------------------------------------------------------------------- */

static int read_env(struct ol_setting_reader *r, const struct ol_setting_key *key,
                    const struct ol_json *value)
{
    struct exec_settings *own = r->settings->own;
    struct outlog_header *list;
    if (ol_headers_read(value, r->settings->arena, &list, &own->env_count, NULL) < 0)
        return ol_setting_types_wrong(r, key->name, "an object of texts is wanted");
    for (size_t i = 0; i < own->env_count; i++)
        if (!*list[i].name || strchr(list[i].name, '='))
            return ol_setting_types_wrong(r, key->name, "a name is empty or has a =");
    own->env = list;
    return 0;
}

static int check_exec(struct ol_setting_reader *r)
{
    const struct exec_settings *own = r->settings->own;
    return ol_setting_types_mask_pairs(r, own->env, own->env_count);
}

static const struct ol_setting_key exec_keys[] = {
    {.name = "command",
     .read = ol_setting_types_texts,
     .offset = offsetof(struct exec_settings, command),
     .is_needed = true},
    {.name = "env", .read = read_env},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_exec = {
    .name = "exec",
    .publisher = &publisher,
    .timeout_s = 20,
    .concurrency = 8,
    .own_bytes = sizeof(struct exec_settings),
    .keys = {exec_keys},
    .check = check_exec,
};
