/* agent_runner.c: takes a waiting message, asks its agent, stores the answer. */
#include "sessions/agent_runner.h"

#include "base/clock.h"
#include "base/counter_map.h"
#include "base/env.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/logline.h"
#include "log/log.h"
#include "sessions/agent.h"
#include "sessions/session.h"
#include "store/owner.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HINT_NAME_BYTES = 512 }; /* of an org and a key: both have limits */
enum { HINTS_MAX = 4096, POLL_SESSIONS = 64 };
enum { AGENT_RETRY_US = 1000000, AGENT_RETRY_DOUBLINGS = 6, STORE_RETRY_MS = 100 };

struct session_hint {
    struct session_hint *next;
    const char *org_id, *key, *name; /* name: both */
    char text[];
};

struct ol_agent_runner {
    struct ol_agent_runner_options options;
    struct ol_agent_events *events;
    struct ol_owner owner;
    pthread_mutex_t owner_lock;
    bool is_known;      /* the owner has its row */
    atomic_int running; /* threads */
    pthread_mutex_t lock;
    pthread_cond_t has_hint;
    struct session_hint *first, **last; /* each session once, so that they take turns */
    struct ol_counter_map names;        /* of the sessions in the list */
    size_t hint_count;
    int64_t poll_at; /* boot clock: when a thread polls the store next */
    struct ol_session_scan scan;
    atomic_bool is_closing;
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

static struct session_hint *new_hint(const char *org_id, const char *key)
{
    size_t org_bytes = strlen(org_id), key_bytes = strlen(key);
    struct session_hint *hint = calloc(1, sizeof *hint + 2 * (org_bytes + key_bytes + 2));
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

/* Under the lock. A session that finds no space here is found by the next poll. */
static void add_hint(struct ol_agent_runner *runner, const char *org_id, const char *key)
{
    struct session_hint *hint = runner->hint_count < HINTS_MAX ? new_hint(org_id, key) : NULL;
    if (!hint || !ol_counter_map_add(&runner->names, hint->name, 1)) {
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
    char name[HINT_NAME_BYTES];
    if (!runner)
        return; // the daemon is stopping: the next one finds the message
    snprintf(name, sizeof name, "%s\n%s", org_id, key);
    pthread_mutex_lock(&runner->lock);
    if (!ol_counter_map_get(&runner->names,
                            name)) // usually listed already while messages keep coming
        add_hint(runner, org_id, key);
    pthread_mutex_unlock(&runner->lock);
}

/* The next hint, or NULL when it is time to poll; *is_closing ends the thread. */
static struct session_hint *next_hint(struct ol_agent_runner *runner, bool *is_closing)
{
    struct timespec until;
    pthread_mutex_lock(&runner->lock);
    while (!runner->first && !atomic_load(&runner->is_closing) &&
           ol_clock_boot_us() < runner->poll_at) {
        int64_t at = ol_clock_wall_us() + runner->options.poll_us / 2;
        until = (struct timespec){at / 1000000, at % 1000000 * 1000};
        pthread_cond_timedwait(&runner->has_hint, &runner->lock, &until);
    }
    struct session_hint *hint = runner->first;
    if (hint) {
        runner->first = hint->next;
        if (!runner->first)
            runner->last = &runner->first;
        runner->hint_count--;
        ol_counter_map_add(&runner->names, hint->name, -1);
    } else {
        runner->poll_at = ol_clock_boot_us() + runner->options.poll_us; // this thread polls
    }
    *is_closing = atomic_load(&runner->is_closing);
    pthread_mutex_unlock(&runner->lock);
    return hint;
}

static void add_waiting(void *user, const char *org_id, const char *key)
{
    ol_agent_runner_hint(user, org_id, key);
}

/* --- one message --- */

struct agent_turn {
    struct ol_agent_runner *runner;
    outlog *log;
    struct ol_arena arena;
    struct ol_session_work work;
    int64_t renew_at;
};

/* The setting agents.<id> as stored; NULL and err when there is none. */
static const char *read_setting(struct agent_turn *turn, const char *id, outlog_err *err)
{
    const char *key = ol_arena_print(&turn->arena, "agents.%s", id), *text = NULL;
    struct ol_rows rows;
    bool failed = false;

    if (!key) {
        ol_no_memory(err);
        return NULL;
    }
    if (ol_store_query(turn->log->conn, OL_Q_SETTING_GET, OL_PARAMS(ol_value_text(key)), &rows,
                       err) < 0)
        return NULL;
    int got = ol_rows_next(&rows, err);
    if (got > 0 && !(text = ol_rows_copy(&rows, 0, &turn->arena, &failed)))
        ol_no_memory(err);
    ol_rows_end(&rows);
    if (got == 0)
        ol_fail(err, OUTLOG_NOT_FOUND,
                "there is no agent %.100s; name it under agents: in outlog.yaml", id);
    return text;
}

static int load_agent(struct agent_turn *turn, struct ol_agent *out, outlog_err *err)
{
    const char *id = ol_session_agent(turn->work.session_key, &turn->arena);
    struct ol_buf expanded = {0};
    struct ol_json value;

    if (!id)
        return ol_no_memory(err);
    const char *text = read_setting(turn, id, err), *copy = NULL;
    if (!text || ol_json_parse(text, strlen(text), &value, err) < 0)
        return -1;
    int result = ol_env_expand(&value, &turn->arena, &expanded, err);
    if (result == 0 && !(copy = ol_arena_copy(&turn->arena, expanded.data, expanded.bytes)))
        result = ol_no_memory(err);
    if (result == 0)
        result = ol_json_parse(copy, expanded.bytes, &value, err);
    if (result == 0)
        result = ol_agent_parse(&value, &turn->arena, out, err);
    ol_buf_clear(&expanded);
    return result;
}

/* As long as the lease is ours and the runner is not closing. Renews the lease. */
static bool may_continue(void *user)
{
    struct agent_turn *turn = user;
    int64_t now = ol_clock_boot_us(), lease = turn->runner->options.lease_us;
    outlog_err err;

    if (atomic_load(&turn->runner->is_closing))
        return false;
    if (now < turn->renew_at)
        return true;
    turn->renew_at = now + lease / 3;
    // An error does not mean that the lease is lost.
    return ol_session_renew(turn->log, &turn->work, lease, &err) != 0;
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

/* If the store is away, try again as long as the lease may be ours: the agent need not be asked
 * again. After a commit of unknown outcome the answer cannot be stored twice, because the session
 * has moved on (I3). -1: it is refused for good. */
static int store_answer(struct agent_turn *turn, const struct ol_agent_stream *stream,
                        outlog_err *err)
{
    const struct ol_session_work *work = &turn->work;
    const char *content = stream->content.data ? stream->content.data : "";
    const char *checkpoint = stream->checkpoint.bytes ? stream->checkpoint.data : NULL;
    int64_t until = ol_clock_boot_us() + turn->runner->options.lease_us;
    int result;

    while ((result = ol_session_answer(turn->log, work, content, stream->content.bytes, checkpoint,
                                       err)) < 0 &&
           outlog_code_is_retryable(err->code) && !atomic_load(&turn->runner->is_closing) &&
           ol_clock_boot_us() < until)
        ol_clock_sleep_us(STORE_RETRY_MS * INT64_C(1000));
    ol_fault("session.answered");
    if (result > 0)
        ol_agent_events_add_answer(turn->runner->events, work, turn->log);
    return result < 0 && !outlog_code_is_retryable(err->code) ? -1 : 0;
}

/* -1: there is no answer. Else it is stored, or the agent will be asked again. */
static int ask_agent(struct agent_turn *turn, const struct ol_agent *agent, outlog_err *err)
{
    struct ol_agent_stream stream = {.events = turn->runner->events,
                                     .work = &turn->work,
                                     .may_continue = may_continue,
                                     .user = turn};
    struct ol_buf question = {0};

    turn->renew_at = ol_clock_boot_us() + turn->runner->options.lease_us / 3;
    put_question(&turn->work, &question);
    int result = -1;
    if (question.failed)
        ol_no_memory(err);
    else if (agent->type == OL_AGENT_HTTP)
        result = ol_agent_http(agent, question.data, question.bytes, &stream, err);
    else
        result = ol_agent_exec(agent, question.data, question.bytes, &stream, err);
    ol_fault("session.answer");
    if (result == 0)
        result = store_answer(turn, &stream, err);
    ol_buf_clear(&question);
    ol_agent_stream_clear(&stream);
    return result;
}

static void log_failure(const struct ol_session_work *work, const outlog_err *why)
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

/* The agent failed: try again later, or, after its last try, continue without an answer. */
static void record_failure(struct agent_turn *turn, int tries, const outlog_err *why)
{
    const struct ol_session_work *work = &turn->work;
    outlog_err err;

    if (atomic_load(&turn->runner->is_closing)) {
        ol_session_release(turn->log, work, &err); // not the agent's failure
        return;
    }
    log_failure(work, why);
    if (work->tries + 1 < tries) {
        int doubled = work->tries < AGENT_RETRY_DOUBLINGS ? work->tries
                                                          : AGENT_RETRY_DOUBLINGS; // about a minute
        ol_session_fail(turn->log, work, why->message, (int64_t)AGENT_RETRY_US << doubled, &err);
        return;
    }
    if (ol_session_pass(turn->log, work, why->message, &err) > 0)
        ol_agent_events_add_failure(turn->runner->events, work, why->message);
}

/* Answer one message; false: there was none, or another daemon has the session. */
static bool answer_next(struct agent_turn *turn, const struct session_hint *hint)
{
    struct ol_agent agent = {.tries = 3};
    outlog_err err;

    ol_arena_reset(&turn->arena);
    if (ol_session_take(turn->log, turn->runner->owner.run, turn->runner->options.lease_us,
                        hint->org_id, hint->key, &turn->arena, &turn->work, &err) <= 0)
        return false;
    if (!ol_session_key_is_valid(hint->key)) // appended without a socket: no agent to ask
        return ol_session_pass(turn->log, &turn->work, "the key is not userId:agentId:threadId",
                               &err) > 0;
    if (!turn->work.is_message)
        return ol_session_pass(turn->log, &turn->work, NULL, &err) > 0;
    int found = load_agent(turn, &agent, &err);
    if (found < 0 && outlog_code_is_retryable(err.code)) {
        ol_session_release(turn->log, &turn->work,
                           &err); // the store is away, the agent did not fail
        return false;
    }
    if (found < 0 || ask_agent(turn, &agent, &err) < 0) {
        record_failure(turn, agent.tries, &err);
        return false;
    }
    return true;
}

/* Write our row, and note which other daemons have died: one answer is stored per message, so
 * another one may be asked for at once (rule 23). */
static void look_at_owners(struct agent_turn *turn)
{
    struct ol_agent_runner *runner = turn->runner;
    bool has_died = false;
    outlog_err err;

    if (pthread_mutex_trylock(&runner->owner_lock) != 0)
        return; // another thread does it
    if (ol_log_ready(turn->log, &err) == 0) {
        if (!runner->is_known)
            runner->is_known = ol_owner_open(&runner->owner, turn->log->conn, &err) == 0;
        if (runner->is_known)
            ol_owner_look(&runner->owner, turn->log->conn, &has_died, &err);
    }
    pthread_mutex_unlock(&runner->owner_lock);
}

/* Find messages that came without a hint: from another interface, or before this daemon started. */
static void poll_store(struct agent_turn *turn)
{
    struct ol_agent_runner *runner = turn->runner;
    outlog_err err;

    look_at_owners(turn);
    pthread_mutex_lock(&runner->lock);
    struct ol_session_scan scan = runner->scan; // of the last finished poll; another may be running
    pthread_mutex_unlock(&runner->lock);
    if (ol_session_note(turn->log, &scan, &err) < 0)
        return;
    pthread_mutex_lock(&runner->lock);
    runner->scan = scan;
    pthread_mutex_unlock(&runner->lock);
    ol_session_waiting(turn->log, POLL_SESSIONS, add_waiting, runner, &err);
}

static void *run_thread(void *argument)
{
    struct agent_turn turn = {.runner = argument};
    bool is_closing = false;
    outlog_err err;

    while (!is_closing) {
        struct session_hint *hint = next_hint(turn.runner, &is_closing);
        if (!is_closing && !turn.log &&
            outlog_open(turn.runner->options.store, &turn.log, &err) < 0)
            is_closing = false; // the store is away: the next poll tries again
        else if (!is_closing && hint && answer_next(&turn, hint))
            // Its next message queues behind the other sessions.
            ol_agent_runner_hint(turn.runner, hint->org_id, hint->key);
        else if (!is_closing && !hint)
            poll_store(&turn);
        free(hint);
    }
    ol_arena_clear(&turn.arena);
    if (atomic_fetch_sub(&turn.runner->running, 1) == 1 && turn.log && turn.runner->is_known)
        ol_owner_remove(&turn.runner->owner, turn.log->conn); // the last one: nothing is asked
    outlog_close(turn.log);
    return NULL;
}

int ol_agent_runner_open(const struct ol_agent_runner_options *options,
                         struct ol_agent_events *events, struct ol_agent_runner **out,
                         outlog_err *err)
{
    struct ol_agent_runner *runner =
        calloc(1, sizeof *runner + (size_t)options->threads * sizeof(pthread_t));
    if (!runner)
        return ol_no_memory(err);
    runner->options = *options;
    runner->events = events;
    runner->last = &runner->first;
    ol_owner_init(&runner->owner, "agents", "serve", options->lease_us, 0);
    pthread_mutex_init(&runner->owner_lock, NULL);
    atomic_init(&runner->running, options->threads);
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->has_hint, NULL);
    while (runner->count < options->threads &&
           pthread_create(&runner->threads[runner->count], NULL, run_thread, runner) == 0)
        runner->count++;
    *out = runner;
    return 0;
}

void ol_agent_runner_close(struct ol_agent_runner *runner)
{
    if (!runner)
        return;
    pthread_mutex_lock(&runner->lock);
    atomic_store(&runner->is_closing, true);
    pthread_cond_broadcast(&runner->has_hint);
    pthread_mutex_unlock(&runner->lock);
    for (int i = 0; i < runner->count; i++)
        pthread_join(runner->threads[i], NULL);
    while (runner->first) {
        struct session_hint *hint = runner->first;
        runner->first = hint->next;
        free(hint);
    }
    ol_counter_map_clear(&runner->names);
    ol_owner_close(&runner->owner);
    pthread_mutex_destroy(&runner->owner_lock);
    pthread_mutex_destroy(&runner->lock);
    pthread_cond_destroy(&runner->has_hint);
    free(runner);
}
