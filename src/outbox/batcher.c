/* batcher.c: the thread that commits for many. */
#include "outbox/batcher.h"

#include "base/clock.h"
#include "log/event.h"
#include "log/log.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A lock is waited for shortly; what did not get it is tried again after 25, 50, 100 … ms. */
enum { MOST_WAITING = 10000, MOST_ROWS = 512, LOCK_MS = 20, FIRST_WAIT_MS = 25, MOST_TRIES = 9 };

struct queue {
    struct ol_batcher_command *first, **last;
};

struct ol_batcher {
    outlog *log;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    size_t most_waiting, waiting; /* all that are not answered yet */
    struct queue queue;
    struct ol_batcher_command *put_off; /* by due time; the thread's own */
    bool is_closing;
};

static void push(struct queue *queue, struct ol_batcher_command *command)
{
    command->next = NULL;
    *queue->last = command;
    queue->last = &command->next;
}

/* --- one command --- */

static int out_of_memory(outlog_err *err)
{
    return ol_no_memory(err);
}

void ol_batcher_json(const struct ol_batcher_command *command, struct ol_buf *out)
{
    ol_buf_text(out, "{\"events\":[");
    for (size_t i = 0; i < command->event_count; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_event_write_appended(&command->appended[i], out);
    }
    ol_buf_text(out, "],\"messages\":[");
    for (size_t i = 0; i < command->message_count; i++)
        ol_buf_print(out, "%s{\"event_id\":\"%s\",\"duplicate\":%s}", i ? "," : "",
                     command->enqueued[i].event_id,
                     command->enqueued[i].duplicate ? "true" : "false");
    ol_buf_text(out, "]}");
}

/* A message that says nothing of it belongs to the story of its command's events (T1). */
static int enqueue_all(outlog_tx *tx, struct ol_batcher_command *command)
{
    for (size_t i = 0; i < command->message_count; i++) {
        struct outlog_new_message message = command->messages[i];
        if (!message.correlation_id && !message.causation_id && command->event_count)
            message.correlation_id = command->appended[0].correlation_id;
        if (outlog_enqueue(tx, &message, &command->enqueued[i], &command->err) < 0) {
            command->is_message = true;
            command->err.index = (int)i;
            return -1;
        }
    }
    return 0;
}

static int put_all(outlog_tx *tx, struct ol_batcher_command *command)
{
    return outlog_append_many(tx, command->events, command->event_count, command->appended,
                              &command->err) < 0
               ? -1
               : enqueue_all(tx, command);
}

static int work(outlog_tx *tx, struct ol_batcher_command *command)
{
    const char *stored = NULL;
    struct ol_buf *response = &command->response;
    outlog_err *err = &command->err;

    if (!command->idempotency)
        return put_all(tx, command);
    if (outlog_idempotent_begin(tx, command->idempotency, &stored, err) < 0)
        return -1;
    ol_buf_reset(response);
    command->is_replayed = stored != NULL;
    if (stored)
        ol_buf_text(response, stored);
    else if (put_all(tx, command) == 0)
        ol_batcher_json(command, response);
    else
        return -1;
    if (response->failed)
        return out_of_memory(err);
    return stored ? 0 : outlog_idempotent_end(tx, command->idempotency, response->data, err);
}

/* Go back to the mark: the transaction is as if nothing had been tried since. */
static int undo(outlog_tx *tx, outlog_err *err)
{
    tx->has_failed = false;
    return tx->conn->store->release(tx->conn, false, err);
}

/* What came of an error that is undone: try again later, or refuse (G2, G4). */
static void judge(struct ol_batcher_command *command)
{
    bool is_held = command->err.code == OUTLOG_UNAVAILABLE && command->tries < MOST_TRIES;
    command->state = is_held ? OL_BATCHER_PUT_OFF : OL_BATCHER_REFUSED;
}

/* Returns -1 when the transaction is lost. */
static int do_one(outlog_tx *tx, struct ol_batcher_command *command, outlog_err *err)
{
    const struct ol_store *store = tx->conn->store;
    command->is_message = false;
    if (store->mark(tx->conn, err) < 0)
        return -1;
    if (work(tx, command) == 0) {
        command->state = OL_BATCHER_DONE;
        return store->release(tx->conn, true, err);
    }
    judge(command);
    return undo(tx, err);
}

/* --- plain ones, in one statement --- */

/* Nothing of it must be looked up first, so that its events can be sent with those of others. An id
 * that it brings is most likely new: the store refuses the batch when it is not, and then it is
 * looked up. */
static bool is_plain(const struct ol_batcher_command *command)
{
    if (command->idempotency || command->message_count)
        return false;
    for (size_t i = 0; i < command->event_count; i++) {
        const struct outlog_new_event *event = &command->events[i];
        if (event->causation_id || event->idempotency_key)
            return false;
    }
    return true;
}

/* `count` events of the commands from `first` up to `end`; tx NULL: as a transaction of its own. */
static int append_together(outlog *log, outlog_tx *tx, struct ol_batcher_command *first,
                           struct ol_batcher_command *end, struct ol_arena *arena, size_t count,
                           outlog_err *err)
{
    struct outlog_new_event *events = ol_arena_array(arena, count, sizeof *events);
    struct outlog_appended *appended = ol_arena_array(arena, count, sizeof *appended);
    size_t at = 0;

    if (!events || !appended)
        return out_of_memory(err);
    for (struct ol_batcher_command *one = first; one != end; one = one->next) {
        memcpy(events + at, one->events, one->event_count * sizeof *events);
        at += one->event_count;
    }
    if ((tx ? ol_append_new_ids(tx, events, count, appended, err)
            : ol_append_autocommit(log, events, count, LOCK_MS, appended, err)) < 0)
        return -1;
    at = 0;
    for (struct ol_batcher_command *one = first; one != end; one = one->next) {
        memcpy(one->appended, appended + at, one->event_count * sizeof *appended);
        at += one->event_count;
        one->state = OL_BATCHER_DONE;
    }
    return 0;
}

static size_t count_events(const struct ol_batcher_command *first,
                           const struct ol_batcher_command *end)
{
    size_t events = 0;
    for (; first != end; first = first->next)
        events += first->event_count;
    return events;
}

/* All of them at once or, when one of them is refused, each half by itself: one bad neighbour among
 * many costs a few more statements, not one for each. When a lock was waited for, each alone: every
 * half would wait for it again. */
static int do_run(outlog_tx *tx, struct ol_batcher_command *first, struct ol_batcher_command *end,
                  struct ol_arena *arena, size_t count, outlog_err *err)
{
    const struct ol_store *store = tx->conn->store;
    struct ol_batcher_command *middle = first;
    outlog_err ignored;
    if (count == 1)
        return do_one(tx, first, err);
    if (store->mark(tx->conn, err) < 0)
        return -1;
    if (append_together(tx->log, tx, first, end, arena, count_events(first, end), &ignored) == 0)
        return store->release(tx->conn, true, err);
    if (undo(tx, err) < 0)
        return -1;
    if (ignored.code == OUTLOG_UNAVAILABLE) {
        for (; first != end; first = first->next)
            if (do_one(tx, first, err) < 0)
                return -1;
        return 0;
    }
    for (size_t i = 0; i < count / 2; i++)
        middle = middle->next;
    return do_run(tx, first, middle, arena, count / 2, err) < 0
               ? -1
               : do_run(tx, middle, end, arena, count - count / 2, err);
}

static bool are_plain(const struct ol_batcher_command *commands)
{
    for (; commands; commands = commands->next)
        if (!is_plain(commands))
            return false;
    return true;
}

/* --- a transaction --- */

static int make_room(struct ol_batcher_command *commands, struct ol_arena *arena, outlog_err *err)
{
    for (struct ol_batcher_command *one = commands; one; one = one->next) {
        one->state = OL_BATCHER_OPEN;
        one->appended = ol_arena_array(arena, one->event_count + 1, sizeof *one->appended);
        one->enqueued = ol_arena_array(arena, one->message_count + 1, sizeof *one->enqueued);
        if (!one->appended || !one->enqueued)
            return out_of_memory(err);
    }
    return 0;
}

static int do_all(outlog_tx *tx, struct ol_batcher_command *commands, struct ol_arena *arena,
                  outlog_err *err)
{
    struct ol_batcher_command *one = commands;
    if (ol_store_exec(tx->conn, OL_Q_LOCK_WAIT, OL_PARAMS(ol_value_int(LOCK_MS)), NULL, err) < 0)
        return -1;
    while (one) {
        struct ol_batcher_command *end = one;
        size_t count = 0;
        for (; end && is_plain(end); end = end->next)
            count++;
        if (count == 0) {
            if (do_one(tx, one, err) < 0)
                return -1;
            one = one->next;
        } else {
            if (do_run(tx, one, end, arena, count, err) < 0)
                return -1;
            one = end;
        }
    }
    return 0;
}

static int transact(outlog *log, struct ol_batcher_command *commands, struct ol_arena *arena,
                    outlog_err *err)
{
    outlog_tx *tx;
    if (make_room(commands, arena, err) < 0)
        return -1;
    if (are_plain(commands)) {
        int result =
            append_together(log, NULL, commands, NULL, arena, count_events(commands, NULL), err);
        if (result == 0 || err->code == OUTLOG_OUTCOME_UNKNOWN)
            return result;
    }
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (do_all(tx, commands, arena, err) < 0) {
        outlog_rollback(tx);
        return -1;
    }
    return outlog_commit(tx, err);
}

/* --- the thread --- */

static void put_off(struct ol_batcher *group, struct ol_batcher_command *command)
{
    struct ol_batcher_command **at = &group->put_off;
    command->due = ol_clock_boot_us() + ((int64_t)FIRST_WAIT_MS * 1000 << command->tries++);
    while (*at && (*at)->due <= command->due)
        at = &(*at)->next;
    command->next = *at;
    *at = command;
}

static void answer(struct ol_batcher *group, struct ol_batcher_command *command, int result)
{
    struct ol_buf response;
    pthread_mutex_lock(&group->lock);
    group->waiting--;
    pthread_mutex_unlock(&group->lock);
    response = command->response; // the command is the caller's again, and may go with its `done`
    command->done(command, result);
    ol_buf_clear(&response);
}

/* Commit what was taken, and tell everyone (G1, G3). */
static void commit(struct ol_batcher *group, struct ol_batcher_command *commands)
{
    struct ol_arena arena = {0};
    outlog_err err = {0};
    int result = transact(group->log, commands, &arena, &err);

    while (commands) {
        struct ol_batcher_command *one = commands;
        commands = one->next;
        if (one->state == OL_BATCHER_PUT_OFF) {
            put_off(group, one);
            continue;
        }
        if (one->state != OL_BATCHER_REFUSED && result < 0)
            one->err = err;
        answer(group, one, one->state == OL_BATCHER_DONE ? result : -1);
    }
    ol_arena_clear(&arena);
}

/* Until something is submitted or `us` have passed. */
static void wait_for_news(struct ol_batcher *group, int64_t us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanoseconds = until.tv_nsec + us * 1000;
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    pthread_cond_timedwait(&group->news, &group->lock, &until);
}

/* Move what is due or came to `taken`, as much as one transaction takes. */
static void gather(struct ol_batcher *group, struct queue *taken, int64_t now)
{
    size_t rows = 0;
    while (group->put_off && (group->put_off->due <= now || group->is_closing)) {
        struct ol_batcher_command *one = group->put_off;
        group->put_off = one->next;
        rows += one->event_count + one->message_count;
        push(taken, one);
    }
    while (group->queue.first && rows < MOST_ROWS) {
        struct ol_batcher_command *one = group->queue.first;
        if (!(group->queue.first = one->next))
            group->queue.last = &group->queue.first;
        rows += one->event_count + one->message_count;
        push(taken, one);
    }
}

/* The commands of the next transaction; waits for them. NULL: closed, and none is left. */
static struct ol_batcher_command *take(struct ol_batcher *group)
{
    struct queue taken = {NULL, &taken.first};
    pthread_mutex_lock(&group->lock);
    for (;;) {
        int64_t now = ol_clock_boot_us();
        gather(group, &taken, now);
        if (taken.first || group->is_closing)
            break;
        if (group->put_off)
            wait_for_news(group, group->put_off->due - now);
        else
            pthread_cond_wait(&group->news, &group->lock);
    }
    pthread_mutex_unlock(&group->lock);
    return taken.first;
}

static void *run(void *argument)
{
    struct ol_batcher *group = argument;
    struct ol_batcher_command *commands;
    while ((commands = take(group)))
        commit(group, commands);
    return NULL;
}

/* --- life --- */

int ol_batcher_open(const char *url, size_t most_waiting, struct ol_batcher **out, outlog_err *err)
{
    pthread_condattr_t monotonic;
    struct ol_batcher *group = calloc(1, sizeof *group);
    *out = NULL;
    if (!group)
        return out_of_memory(err);
    group->most_waiting = most_waiting ? most_waiting : MOST_WAITING;
    group->queue.last = &group->queue.first;
    if (outlog_open(url, &group->log, err) < 0)
        goto failed;
    pthread_mutex_init(&group->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&group->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&group->thread, NULL, run, group) != 0) {
        ol_fail(err, OUTLOG_NO_MEMORY, "cannot start a thread");
        pthread_mutex_destroy(&group->lock);
        pthread_cond_destroy(&group->news);
        goto failed;
    }
    *out = group;
    return 0;
failed:
    outlog_close(group->log);
    free(group);
    return -1;
}

int ol_batcher_submit(struct ol_batcher *group, struct ol_batcher_command *command, outlog_err *err)
{
    assert(command->done);
    if (command->event_count == 0 && command->message_count == 0)
        return ol_fail(err, OUTLOG_MISUSE, "a command has at least one event or message");
    pthread_mutex_lock(&group->lock);
    bool has_room = group->waiting < group->most_waiting;
    if (has_room) {
        group->waiting++;
        push(&group->queue, command);
        pthread_cond_signal(&group->news);
    }
    pthread_mutex_unlock(&group->lock);
    return has_room ? 0
                    : ol_fail(err, OUTLOG_UNAVAILABLE,
                              "%zu commands wait for the store already; try again later",
                              group->most_waiting);
}

void ol_batcher_close(struct ol_batcher *group)
{
    if (!group)
        return;
    pthread_mutex_lock(&group->lock);
    group->is_closing = true;
    pthread_cond_signal(&group->news);
    pthread_mutex_unlock(&group->lock);
    pthread_join(group->thread, NULL);
    pthread_mutex_destroy(&group->lock);
    pthread_cond_destroy(&group->news);
    outlog_close(group->log);
    free(group);
}
