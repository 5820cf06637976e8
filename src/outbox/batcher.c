/* batcher.c: the thread that commits for many callers. */
#include "outbox/batcher.h"

#include "base/clock.h"
#include "log/event.h"
#include "log/log.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Waiting for a lock is short; a command that did not get it is tried again after 25, 50, 100 …
 * ms. */
enum {
    BATCHER_WAITING_MAX = 10000,
    BATCHER_ROWS_MAX = 512,
    BATCHER_LOCK_MS = 20,
    BATCHER_RETRY_MS = 25,
    BATCHER_TRIES_MAX = 9
};

struct batcher_queue {
    struct ol_batcher_command *first, **last;
};

struct ol_batcher {
    outlog *log;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wakeup;
    size_t waiting_max, waiting; /* waiting: all that are not answered yet */
    struct batcher_queue queue;
    struct ol_batcher_command *deferred; /* by due time; used by the thread only */
    bool is_closing;
};

static void push_command(struct batcher_queue *queue, struct ol_batcher_command *command)
{
    command->next = NULL;
    *queue->last = command;
    queue->last = &command->next;
}

/* --- one command --- */

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

/* A message without correlation and causation gets the correlation of its command's events (T1). */
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

static int write_command(outlog_tx *tx, struct ol_batcher_command *command)
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
        return ol_no_memory(err);
    return stored ? 0 : outlog_idempotent_end(tx, command->idempotency, response->data, err);
}

/* Roll back to the savepoint: the transaction is as if nothing had been tried since. */
static int undo_changes(outlog_tx *tx, outlog_err *err)
{
    tx->has_failed = false;
    return tx->conn->store->release(tx->conn, false, err);
}

/* After an error that is undone: try again later, or refuse (G2, G4). */
static void decide_retry(struct ol_batcher_command *command)
{
    bool is_held = command->err.code == OUTLOG_UNAVAILABLE && command->tries < BATCHER_TRIES_MAX;
    command->state = is_held ? OL_BATCHER_DEFERRED : OL_BATCHER_REFUSED;
}

/* Returns -1 when the transaction is lost. */
static int write_one(outlog_tx *tx, struct ol_batcher_command *command, outlog_err *err)
{
    const struct ol_store *store = tx->conn->store;
    command->is_message = false;
    if (store->mark(tx->conn, err) < 0)
        return -1;
    if (write_command(tx, command) == 0) {
        command->state = OL_BATCHER_DONE;
        return store->release(tx->conn, true, err);
    }
    decide_retry(command);
    return undo_changes(tx, err);
}

/* --- plain ones, in one statement --- */

/* It needs no lookup, so its events can be written together with those of others. An id that it
 * brings is most likely new: if not, the store refuses the statement, and then the id is looked
 * up. */
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

/* Append the `count` events of the commands from `first` up to `end`; tx NULL: as a transaction of
 * its own. */
static int append_together(outlog *log, outlog_tx *tx, struct ol_batcher_command *first,
                           struct ol_batcher_command *end, struct ol_arena *arena, size_t count,
                           outlog_err *err)
{
    struct outlog_new_event *events = ol_arena_array(arena, count, sizeof *events);
    struct outlog_appended *appended = ol_arena_array(arena, count, sizeof *appended);
    size_t at = 0;

    if (!events || !appended)
        return ol_no_memory(err);
    for (struct ol_batcher_command *one = first; one != end; one = one->next) {
        memcpy(events + at, one->events, one->event_count * sizeof *events);
        at += one->event_count;
    }
    if ((tx ? ol_append_new_ids(tx, events, count, appended, err)
            : ol_append_autocommit(log, events, count, BATCHER_LOCK_MS, appended, err)) < 0)
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

/* All of them at once or, when one of them is refused, each half by itself: one bad command among
 * many costs a few more statements, not one per command. After a lock timeout, each alone: every
 * half would wait for the lock again. */
static int write_run(outlog_tx *tx, struct ol_batcher_command *first,
                     struct ol_batcher_command *end, struct ol_arena *arena, size_t count,
                     outlog_err *err)
{
    const struct ol_store *store = tx->conn->store;
    struct ol_batcher_command *middle = first;
    outlog_err ignored;
    if (count == 1)
        return write_one(tx, first, err);
    if (store->mark(tx->conn, err) < 0)
        return -1;
    if (append_together(tx->log, tx, first, end, arena, count_events(first, end), &ignored) == 0)
        return store->release(tx->conn, true, err);
    if (undo_changes(tx, err) < 0)
        return -1;
    if (ignored.code == OUTLOG_UNAVAILABLE) {
        for (; first != end; first = first->next)
            if (write_one(tx, first, err) < 0)
                return -1;
        return 0;
    }
    for (size_t i = 0; i < count / 2; i++)
        middle = middle->next;
    return write_run(tx, first, middle, arena, count / 2, err) < 0
               ? -1
               : write_run(tx, middle, end, arena, count - count / 2, err);
}

static bool are_plain(const struct ol_batcher_command *commands)
{
    for (; commands; commands = commands->next)
        if (!is_plain(commands))
            return false;
    return true;
}

/* --- a transaction --- */

static int allocate_results(struct ol_batcher_command *commands, struct ol_arena *arena,
                            outlog_err *err)
{
    for (struct ol_batcher_command *one = commands; one; one = one->next) {
        one->state = OL_BATCHER_OPEN;
        one->appended = ol_arena_array(arena, one->event_count + 1, sizeof *one->appended);
        one->enqueued = ol_arena_array(arena, one->message_count + 1, sizeof *one->enqueued);
        if (!one->appended || !one->enqueued)
            return ol_no_memory(err);
    }
    return 0;
}

static int write_all(outlog_tx *tx, struct ol_batcher_command *commands, struct ol_arena *arena,
                     outlog_err *err)
{
    struct ol_batcher_command *one = commands;
    if (ol_store_exec(tx->conn, OL_Q_LOCK_WAIT, OL_PARAMS(ol_value_int(BATCHER_LOCK_MS)), NULL,
                      err) < 0)
        return -1;
    while (one) {
        struct ol_batcher_command *end = one;
        size_t count = 0;
        for (; end && is_plain(end); end = end->next)
            count++;
        if (count == 0) {
            if (write_one(tx, one, err) < 0)
                return -1;
            one = one->next;
        } else {
            if (write_run(tx, one, end, arena, count, err) < 0)
                return -1;
            one = end;
        }
    }
    return 0;
}

static int write_commands(outlog *log, struct ol_batcher_command *commands, struct ol_arena *arena,
                          outlog_err *err)
{
    outlog_tx *tx;
    if (allocate_results(commands, arena, err) < 0)
        return -1;
    if (are_plain(commands)) {
        int result =
            append_together(log, NULL, commands, NULL, arena, count_events(commands, NULL), err);
        if (result == 0 || err->code == OUTLOG_OUTCOME_UNKNOWN)
            return result;
    }
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    if (write_all(tx, commands, arena, err) < 0) {
        outlog_rollback(tx);
        return -1;
    }
    return outlog_commit(tx, err);
}

/* --- the thread --- */

static void defer_command(struct ol_batcher *batcher, struct ol_batcher_command *command)
{
    struct ol_batcher_command **at = &batcher->deferred;
    command->due = ol_clock_boot_us() + ((int64_t)BATCHER_RETRY_MS * 1000 << command->tries++);
    while (*at && (*at)->due <= command->due)
        at = &(*at)->next;
    command->next = *at;
    *at = command;
}

static void answer_command(struct ol_batcher *batcher, struct ol_batcher_command *command,
                           int result)
{
    struct ol_buf response;
    pthread_mutex_lock(&batcher->lock);
    batcher->waiting--;
    pthread_mutex_unlock(&batcher->lock);
    response = command->response; // the command belongs to the caller again, and `done` may free it
    command->done(command, result);
    ol_buf_clear(&response);
}

/* Commit the commands, and answer all of them (G1, G3). */
static void commit_commands(struct ol_batcher *batcher, struct ol_batcher_command *commands)
{
    struct ol_arena arena = {0};
    outlog_err err = {0};
    int result = write_commands(batcher->log, commands, &arena, &err);

    while (commands) {
        struct ol_batcher_command *one = commands;
        commands = one->next;
        if (one->state == OL_BATCHER_DEFERRED) {
            defer_command(batcher, one);
            continue;
        }
        if (one->state != OL_BATCHER_REFUSED && result < 0)
            one->err = err;
        answer_command(batcher, one, one->state == OL_BATCHER_DONE ? result : -1);
    }
    ol_arena_clear(&arena);
}

/* Wait until something is submitted or `us` have passed. */
static void wait_for_wakeup(struct ol_batcher *batcher, int64_t us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanoseconds = until.tv_nsec + us * 1000;
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    pthread_cond_timedwait(&batcher->wakeup, &batcher->lock, &until);
}

/* Move what is due or new to `taken`, as much as one transaction takes. */
static void move_due(struct ol_batcher *batcher, struct batcher_queue *taken, int64_t now)
{
    size_t rows = 0;
    while (batcher->deferred && (batcher->deferred->due <= now || batcher->is_closing)) {
        struct ol_batcher_command *one = batcher->deferred;
        batcher->deferred = one->next;
        rows += one->event_count + one->message_count;
        push_command(taken, one);
    }
    while (batcher->queue.first && rows < BATCHER_ROWS_MAX) {
        struct ol_batcher_command *one = batcher->queue.first;
        if (!(batcher->queue.first = one->next))
            batcher->queue.last = &batcher->queue.first;
        rows += one->event_count + one->message_count;
        push_command(taken, one);
    }
}

/* The commands of the next transaction; waits for them. NULL: closed, and none is left. */
static struct ol_batcher_command *take_commands(struct ol_batcher *batcher)
{
    struct batcher_queue taken = {NULL, &taken.first};
    pthread_mutex_lock(&batcher->lock);
    for (;;) {
        int64_t now = ol_clock_boot_us();
        move_due(batcher, &taken, now);
        if (taken.first || batcher->is_closing)
            break;
        if (batcher->deferred)
            wait_for_wakeup(batcher, batcher->deferred->due - now);
        else
            pthread_cond_wait(&batcher->wakeup, &batcher->lock);
    }
    pthread_mutex_unlock(&batcher->lock);
    return taken.first;
}

static void *run_batcher(void *argument)
{
    struct ol_batcher *batcher = argument;
    struct ol_batcher_command *commands;
    while ((commands = take_commands(batcher)))
        commit_commands(batcher, commands);
    return NULL;
}

/* --- life cycle --- */

int ol_batcher_open(const char *url, size_t waiting_max, struct ol_batcher **out, outlog_err *err)
{
    pthread_condattr_t monotonic;
    struct ol_batcher *batcher = calloc(1, sizeof *batcher);
    *out = NULL;
    if (!batcher)
        return ol_no_memory(err);
    batcher->waiting_max = waiting_max ? waiting_max : BATCHER_WAITING_MAX;
    batcher->queue.last = &batcher->queue.first;
    if (outlog_open(url, &batcher->log, err) < 0)
        goto failed;
    pthread_mutex_init(&batcher->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&batcher->wakeup, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&batcher->thread, NULL, run_batcher, batcher) != 0) {
        ol_fail(err, OUTLOG_NO_MEMORY, "cannot start a thread");
        pthread_mutex_destroy(&batcher->lock);
        pthread_cond_destroy(&batcher->wakeup);
        goto failed;
    }
    *out = batcher;
    return 0;
failed:
    outlog_close(batcher->log);
    free(batcher);
    return -1;
}

int ol_batcher_submit(struct ol_batcher *batcher, struct ol_batcher_command *command,
                      outlog_err *err)
{
    assert(command->done);
    if (command->event_count == 0 && command->message_count == 0)
        return ol_fail(err, OUTLOG_MISUSE, "a command has at least one event or message");
    pthread_mutex_lock(&batcher->lock);
    bool is_accepted = batcher->waiting < batcher->waiting_max;
    if (is_accepted) {
        batcher->waiting++;
        push_command(&batcher->queue, command);
        pthread_cond_signal(&batcher->wakeup);
    }
    pthread_mutex_unlock(&batcher->lock);
    return is_accepted ? 0
                       : ol_fail(err, OUTLOG_UNAVAILABLE,
                                 "%zu commands wait for the store already; try again later",
                                 batcher->waiting_max);
}

void ol_batcher_close(struct ol_batcher *batcher)
{
    if (!batcher)
        return;
    pthread_mutex_lock(&batcher->lock);
    batcher->is_closing = true;
    pthread_cond_signal(&batcher->wakeup);
    pthread_mutex_unlock(&batcher->lock);
    pthread_join(batcher->thread, NULL);
    pthread_mutex_destroy(&batcher->lock);
    pthread_cond_destroy(&batcher->wakeup);
    outlog_close(batcher->log);
    free(batcher);
}
