/* agent_runner.c: from a waiting message to a stored answer. */
#include "sessions/agent_runner.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/logline.h"
#include "base/map.h"
#include "log/log.h"
#include "sessions/agent.h"
#include "sessions/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAME_BYTES = 512 }; /* of an org and a key: both have limits */
enum { MOST_HINTS = 4096, LOOK = 64, RETRY_US = 1000000, MOST_DOUBLED = 6, STORE_MS = 100 };

struct hint {
    struct hint *next;
    const char *org_id, *key, *name; /* name: both */
    char text[];
};

struct ol_agent_runner {
    struct ol_agent_runner_options options;
    struct ol_agent_runner_handler user;
    char owner[37];
    pthread_mutex_t lock;
    pthread_cond_t has_hint;
    struct hint *first, **last; /* each session once: they take turns */
    struct ol_map names;        /* of these */
    size_t hint_count;
    int64_t look_at; /* boot clock: when somebody looks into the store again */
    struct ol_session_filter look;
    atomic_bool is_over;
    int count;
    pthread_t threads[];
};

struct ol_agent_runner_options ol_agent_runner_defaults(const char *store)
{
    return (struct ol_agent_runner_options){.store = store,
                                            .threads = 8,
                                            .lease_us = 30 * 1000000,
                                            .poll_us = 500000};
}

/* --- hints --- */

static struct hint *new_hint(const char *org_id, const char *key)
{
    size_t org_bytes = strlen(org_id), key_bytes = strlen(key);
    struct hint *hint = calloc(1, sizeof *hint + 2 * (org_bytes + key_bytes + 2));
    if (!hint)
        return NULL;
    char *at = hint->text;
    hint->org_id = memcpy(at, org_id, org_bytes);
    hint->key = memcpy(at += org_bytes + 1, key, key_bytes);
    hint->name = memcpy(at += key_bytes + 1, org_id, org_bytes);
    at[org_bytes] = '\n';
    memcpy(at + org_bytes + 1, key, key_bytes);
    return hint;
}

/* Under the lock. What is left out is found by the next look. */
static void add_hint(struct ol_agent_runner *runner, const char *org_id, const char *key)
{
    struct hint *hint = runner->hint_count < MOST_HINTS ? new_hint(org_id, key) : NULL;
    if (!hint || !ol_map_add(&runner->names, hint->name, 1)) {
        free(hint);
        return;
    }
    *runner->last = hint;
    runner->last = &hint->next;
    runner->hint_count++;
    pthread_cond_signal(&runner->has_hint);
}

void ol_agent_runner_hint(struct ol_agent_runner *runner, const char *org_id, const char *key)
{
    char name[NAME_BYTES];
    if (!runner)
        return; // the daemon ends: whoever runs next finds the message
    snprintf(name, sizeof name, "%s\n%s", org_id, key);
    pthread_mutex_lock(&runner->lock);
    if (!ol_map_get(&runner->names, name)) // most are there already while somebody speaks on
        add_hint(runner, org_id, key);
    pthread_mutex_unlock(&runner->lock);
}

/* The next hint, or NULL when it is time to look; *is_over ends the thread. */
static struct hint *next_hint(struct ol_agent_runner *runner, bool *is_over)
{
    struct timespec until;
    pthread_mutex_lock(&runner->lock);
    while (!runner->first && !atomic_load(&runner->is_over) &&
           ol_clock_boot_us() < runner->look_at) {
        int64_t at = ol_clock_wall_us() + runner->options.poll_us / 2;
        until = (struct timespec){at / 1000000, at % 1000000 * 1000};
        pthread_cond_timedwait(&runner->has_hint, &runner->lock, &until);
    }
    struct hint *hint = runner->first;
    if (hint) {
        runner->first = hint->next;
        if (!runner->first)
            runner->last = &runner->first;
        runner->hint_count--;
        ol_map_add(&runner->names, hint->name, -1);
    } else {
        runner->look_at = ol_clock_boot_us() + runner->options.poll_us; // this thread looks
    }
    *is_over = atomic_load(&runner->is_over);
    pthread_mutex_unlock(&runner->lock);
    return hint;
}

static void note(void *user, const char *org_id, const char *key)
{
    ol_agent_runner_hint(user, org_id, key);
}

/* --- one message --- */

struct turn {
    struct ol_agent_runner *runner;
    outlog *log;
    struct ol_arena arena;
    struct ol_session_work work;
    int64_t renew_at;
};

static int load_agent(struct turn *turn, struct ol_agent *out, outlog_err *err)
{
    const char *id = ol_session_agent(turn->work.session_key, &turn->arena);
    const char *key = id ? ol_arena_print(&turn->arena, "agents.%s", id) : NULL;
    struct ol_buf expanded = {0};
    struct ol_json value;
    struct ol_rows rows;
    bool failed = false;

    if (!key || ol_store_query(turn->log->conn, OL_Q_SETTING_GET, OL_PARAMS(ol_value_text(key)),
                               &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    const char *text = got > 0 ? ol_rows_copy(&rows, 0, &turn->arena, &failed) : NULL;
    ol_rows_end(&rows);
    if (got == 0)
        return ol_fail(err, OUTLOG_NOT_FOUND,
                       "there is no agent %.100s; name it under agents: in "
                       "outlog.yaml",
                       id);
    if (!text)
        return -1;
    int result = ol_json_parse(text, strlen(text), &value, err);
    if (result == 0)
        result = ol_env_expand(&value, &turn->arena, &expanded, err);
    const char *copy = result == 0 ? ol_arena_copy(&turn->arena, expanded.data, expanded.bytes)
                                   : NULL;
    if (copy && (result = ol_json_parse(copy, expanded.bytes, &value, err)) == 0)
        result = ol_agent_parse(&value, &turn->arena, out, err);
    ol_buf_clear(&expanded);
    return copy ? result : -1;
}

static void on_token(void *user, const char *text, size_t bytes)
{
    struct turn *turn = user;
    const struct ol_session_work *work = &turn->work;
    turn->runner->user.token(turn->runner->user.user, work->org_id, work->session_key,
                             work->request_id, text, bytes);
}

/* As long as the session is ours and we are not told to end. */
static bool goes_on(void *user)
{
    struct turn *turn = user;
    int64_t now = ol_clock_boot_us(), lease = turn->runner->options.lease_us;
    outlog_err err;

    if (atomic_load(&turn->runner->is_over))
        return false;
    if (now < turn->renew_at)
        return true;
    turn->renew_at = now + lease / 3;
    return ol_session_renew(turn->log, &turn->work, lease, &err) !=
           0; // an error is not the end yet
}

static void put_question(const struct ol_session_work *work, struct ol_buf *out)
{
    ol_buf_text(out, "{\"session_key\":");
    ol_buf_json_text(out, work->session_key);
    ol_buf_print(out, ",\"seq\":%lld,\"requestId\":", (long long)work->seq);
    ol_buf_json_text(out, work->request_id);
    ol_buf_text(out, ",\"text\":");
    ol_buf_json_text(out, work->text);
    ol_buf_print(out, ",\"checkpoint\":%s}\n", work->checkpoint ? work->checkpoint : "null");
}

/* The agent has answered: a store that is away is no reason to ask it again, as long as the session
 * may still be ours. What a commit of unknown outcome did store is not stored twice: the session
 * has moved on. -1: it is refused for good. */
static int store(struct turn *turn, const struct ol_agent_stream *ear, outlog_err *err)
{
    const struct ol_session_work *work = &turn->work;
    const char *content = ear->content.data ? ear->content.data : "";
    const char *checkpoint = ear->checkpoint.bytes ? ear->checkpoint.data : NULL;
    int64_t until = ol_clock_boot_us() + turn->runner->options.lease_us;
    int result;

    while ((result = ol_session_answer(turn->log, work, content, ear->content.bytes, checkpoint,
                                       err)) < 0 &&
           outlog_code_is_retryable(err->code) && !atomic_load(&turn->runner->is_over) &&
           ol_clock_boot_us() < until)
        ol_clock_sleep_us(STORE_MS * INT64_C(1000));
    ol_fault("session.answered");
    if (result > 0)
        turn->runner->user.owed(turn->runner->user.user, work->org_id, work->session_key);
    return result < 0 && !outlog_code_is_retryable(err->code) ? -1 : 0;
}

/* -1: there is no answer. Else it is stored, or the agent will be asked again. */
static int answer(struct turn *turn, const struct ol_agent *agent, outlog_err *err)
{
    struct ol_agent_stream ear = {.token = on_token, .goes_on = goes_on, .user = turn};
    struct ol_buf question = {0};

    turn->renew_at = ol_clock_boot_us() + turn->runner->options.lease_us / 3;
    put_question(&turn->work, &question);
    int result = question.failed ? ol_no_memory(err)
                                 : ol_agent_ask(agent, question.data, question.bytes, &ear, err);
    ol_fault("session.answer");
    if (result == 0)
        result = store(turn, &ear, err);
    ol_buf_clear(&question);
    ol_agent_stream_clear(&ear);
    return result;
}

static void tell(const struct ol_session_work *work, const outlog_err *why)
{
    struct ol_buf line = {0};
    ol_logline_begin(&line, OL_LOGLINE_WARN, "agent");
    ol_logline_text(&line, "session_key", work->session_key);
    ol_logline_int(&line, "seq", work->seq);
    ol_logline_text(&line, "request_id", work->request_id);
    ol_logline_int(&line, "attempt", work->tries + 1);
    ol_logline_text(&line, "error", why->message);
    ol_logline_end(&line);
}

/* The agent failed: again in a while, or, when it had its tries, on without an answer. */
static void fail(struct turn *turn, int tries, const outlog_err *why)
{
    const struct ol_session_work *work = &turn->work;
    outlog_err err;

    if (atomic_load(&turn->runner->is_over)) {
        ol_session_release(turn->log, work, &err); // it was not the agent's fault
        return;
    }
    tell(work, why);
    if (work->tries + 1 < tries) {
        int doubled = work->tries < MOST_DOUBLED ? work->tries : MOST_DOUBLED; // about a minute
        ol_session_fail(turn->log, work, why->message, (int64_t)RETRY_US << doubled, &err);
        return;
    }
    if (ol_session_pass(turn->log, work, why->message, &err) > 0)
        turn->runner->user.failed(turn->runner->user.user,
                                  &(struct ol_session_failure){.org_id = work->org_id,
                                                               .session_key = work->session_key,
                                                               .request_id = work->request_id,
                                                               .why = why->message,
                                                               .seq = work->seq});
}

/* One message; false when there is none, or not for us. */
static bool step(struct turn *turn, const struct hint *hint)
{
    struct ol_agent agent = {.tries = 3};
    outlog_err err;

    ol_arena_reset(&turn->arena);
    if (ol_session_take(turn->log, turn->runner->owner, turn->runner->options.lease_us,
                        hint->org_id, hint->key, &turn->arena, &turn->work, &err) <= 0)
        return false;
    if (!ol_session_key_is_valid(hint->key)) // appended by another door: nobody can be asked
        return ol_session_pass(turn->log, &turn->work, "the key is not userId:agentId:threadId",
                               &err) > 0;
    if (!turn->work.is_message)
        return ol_session_pass(turn->log, &turn->work, NULL, &err) > 0;
    int found = load_agent(turn, &agent, &err);
    if (found < 0 && outlog_code_is_retryable(err.code)) {
        ol_session_release(turn->log, &turn->work, &err); // the store is away, not the agent
        return false;
    }
    if (found < 0 || answer(turn, &agent, &err) < 0) {
        fail(turn, agent.tries, &err);
        return false;
    }
    return true;
}

/* What no hint told of: said by another door, or before this daemon was there. */
static void look(struct turn *turn)
{
    struct ol_agent_runner *runner = turn->runner;
    outlog_err err;

    pthread_mutex_lock(&runner->lock);
    struct ol_session_filter look =
        runner->look; // the last that was finished; another may be under way
    pthread_mutex_unlock(&runner->lock);
    if (ol_session_note(turn->log, &look, &err) < 0)
        return;
    pthread_mutex_lock(&runner->lock);
    runner->look = look;
    pthread_mutex_unlock(&runner->lock);
    ol_session_waiting(turn->log, LOOK, note, runner, &err);
}

static void *run(void *argument)
{
    struct turn turn = {.runner = argument};
    bool is_over = false;
    outlog_err err;

    while (!is_over) {
        struct hint *hint = next_hint(turn.runner, &is_over);
        if (!is_over && !turn.log && outlog_open(turn.runner->options.store, &turn.log, &err) < 0)
            is_over = false; // the store is away: the next look tries again
        else if (!is_over && hint && step(&turn, hint)) // its next message waits behind the others
            ol_agent_runner_hint(turn.runner, hint->org_id, hint->key);
        else if (!is_over && !hint)
            look(&turn);
        free(hint);
    }
    ol_arena_clear(&turn.arena);
    outlog_close(turn.log);
    return NULL;
}

int ol_agent_runner_open(const struct ol_agent_runner_options *options,
                         const struct ol_agent_runner_handler *user, struct ol_agent_runner **out,
                         outlog_err *err)
{
    struct ol_agent_runner *runner =
        calloc(1, sizeof *runner + (size_t)options->threads * sizeof(pthread_t));
    if (!runner)
        return ol_no_memory(err);
    runner->options = *options;
    runner->user = *user;
    runner->last = &runner->first;
    ol_uuid_make(runner->owner);
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->has_hint, NULL);
    while (runner->count < options->threads &&
           pthread_create(&runner->threads[runner->count], NULL, run, runner) == 0)
        runner->count++;
    *out = runner;
    return 0;
}

void ol_agent_runner_close(struct ol_agent_runner *runner)
{
    if (!runner)
        return;
    pthread_mutex_lock(&runner->lock);
    atomic_store(&runner->is_over, true);
    pthread_cond_broadcast(&runner->has_hint);
    pthread_mutex_unlock(&runner->lock);
    for (int i = 0; i < runner->count; i++)
        pthread_join(runner->threads[i], NULL);
    while (runner->first) {
        struct hint *hint = runner->first;
        runner->first = hint->next;
        free(hint);
    }
    ol_map_clear(&runner->names);
    pthread_mutex_destroy(&runner->lock);
    pthread_cond_destroy(&runner->has_hint);
    free(runner);
}
