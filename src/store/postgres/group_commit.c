/* group_commit.c: one queue of appends per kind of connection, and which of them share a batch. */
#include "store/postgres/group_commit.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Two batches at once: one is written while the other waits for the disk. The second starts when as
 * many appends wait as the first one has, so that both are well filled. */
enum { GROUP_EVENTS_MAX = 128, GROUP_BATCHES_MAX = 2, GROUP_OVERDUE_MS = 100 };

/* A waiting append. It lives in the stack frame of its thread. */
struct commit_waiter {
    struct ol_conn *conn;
    struct ol_append_batch *batch;
    struct ol_commit_result result;
    enum { COMMIT_WAITING, COMMIT_IN_BATCH, COMMIT_LEADER, COMMIT_FINISHED } state;
    pthread_cond_t changed;
    struct commit_waiter *next;
};

struct ol_group_commit {
    char *key;
    int users;
    pthread_mutex_t lock;
    int batch_count;   /* being written now */
    int overdue_count; /* of these: probably blocked by a lock, so they do not count (F2) */
    int batch_appends; /* in the batch that started last */
    struct commit_waiter *first, **last; /* the queue, in order of arrival */
    int waiting_count;
    struct ol_group_commit *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards the list and the counts of users
static struct ol_group_commit *groups;

struct ol_group_commit *ol_group_commit_join(const char *key)
{
    pthread_mutex_lock(&lock);
    struct ol_group_commit *group = groups;
    while (group && strcmp(group->key, key) != 0)
        group = group->next;
    if (!group && (group = calloc(1, sizeof *group))) {
        if (!(group->key = strdup(key))) {
            free(group);
            group = NULL;
        } else {
            pthread_mutex_init(&group->lock, NULL);
            group->last = &group->first;
            group->next = groups;
            groups = group;
        }
    }
    if (group)
        group->users++;
    pthread_mutex_unlock(&lock);
    return group;
}

void ol_group_commit_leave(struct ol_group_commit *group)
{
    if (!group)
        return;
    pthread_mutex_lock(&lock);
    if (--group->users == 0) {
        struct ol_group_commit **at = &groups;
        while (*at != group)
            at = &(*at)->next;
        *at = group->next;
        pthread_mutex_destroy(&group->lock);
        free(group->key);
        free(group);
    }
    pthread_mutex_unlock(&lock);
}

/* May a batch of so many appends start now? `running` other batches are being written. */
static bool may_start_batch(const struct ol_group_commit *group, int running, int appends)
{
    return running <= 0 || (running < GROUP_BATCHES_MAX && appends >= group->batch_appends);
}

static struct commit_waiter *take_first(struct ol_group_commit *group)
{
    struct commit_waiter *first = group->first;
    if (!(group->first = first->next))
        group->last = &group->first;
    group->waiting_count--;
    first->next = NULL;
    return first;
}

/* Take from the queue, in order, the appends that fit into the leader's batch. Adds their events to
 * *events. */
static struct commit_waiter *take_fitting(struct ol_group_commit *group, size_t *events)
{
    struct commit_waiter *taken = NULL, **end = &taken;
    group->batch_appends = 1;
    while (group->first && *events + group->first->batch->count <= GROUP_EVENTS_MAX) {
        *end = take_first(group);
        (*end)->state = COMMIT_IN_BATCH;
        *events += (*end)->batch->count;
        end = &(*end)->next;
        group->batch_appends++;
    }
    return taken;
}

/* The connection to write on: any of the batch will do, as their threads wait. Prefers the same
 * ones each time, so that few server processes do the work, with warm caches. */
static struct ol_conn *choose_conn(const struct commit_waiter *leader)
{
    struct ol_conn *conn = leader->conn;
    for (const struct commit_waiter *one = leader; one; one = one->next)
        if ((uintptr_t)one->conn < (uintptr_t)conn)
            conn = one->conn;
    return conn;
}

static struct ol_commit_result write_shared(struct commit_waiter *leader,
                                            struct commit_waiter *others, size_t events,
                                            ol_group_commit_writer *writer)
{
    struct ol_commit_result result = {.status = OL_COMMIT_ALONE};
    struct ol_arena arena = {0};
    struct ol_append_batch all = {.is_alone = true};

    if ((all.events = ol_arena_array(&arena, events, sizeof *all.events))) {
        leader->next = others;
        for (struct commit_waiter *one = leader; one; one = one->next) {
            memcpy(all.events + all.count, one->batch->events,
                   one->batch->count * sizeof *all.events);
            all.count += one->batch->count;
        }
        if (ol_append_batch_number(&all, &arena, NULL) == 0)
            result = writer(choose_conn(leader), &all, true, NULL);
    }
    ol_arena_clear(&arena);
    // cppcheck-suppress returnDanglingLifetime // a result keeps nothing of the batch
    return result;
}

/* Wait in the queue until the append is written or leads the next batch. One that waits too long
 * leads a batch as well: those being written are blocked (F2). */
static void wait_in_queue(struct ol_group_commit *group, struct commit_waiter *self)
{
    pthread_condattr_t monotonic;
    struct timespec until;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += GROUP_OVERDUE_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;

    *group->last = self;
    group->last = &self->next;
    group->waiting_count++;
    int result = 0;
    while (self->state == COMMIT_WAITING && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&self->changed, &group->lock, &until);
    while (self->state == COMMIT_IN_BATCH)
        pthread_cond_wait(&self->changed, &group->lock);
    if (self->state == COMMIT_WAITING) {
        struct commit_waiter **at = &group->first;
        while (*at != self)
            at = &(*at)->next;
        if (!(*at = self->next))
            group->last = at;
        self->next = NULL;
        self->state = COMMIT_LEADER;
        group->waiting_count--;
        group->batch_count++;
        group->overdue_count++;
    }
    pthread_cond_destroy(&self->changed);
}

/* Give the others of the batch its result, and let the next leader start in its place. */
static void finish_batch(struct ol_group_commit *group, struct commit_waiter *others,
                         struct ol_commit_result result)
{
    while (others) {
        struct commit_waiter *one = others;
        others = one->next; // its stack frame may be gone as soon as it is signalled
        one->result = result;
        one->state = COMMIT_FINISHED;
        pthread_cond_signal(&one->changed);
    }
    group->batch_count--;
    if (group->first &&
        may_start_batch(group, group->batch_count - group->overdue_count, group->waiting_count)) {
        struct commit_waiter *next = take_first(group);
        next->state = COMMIT_LEADER;
        group->batch_count++;
        pthread_cond_signal(&next->changed);
    }
}

static void lead_batch(struct ol_group_commit *group, struct commit_waiter *leader,
                       ol_group_commit_writer *writer, outlog_err *err)
{
    size_t events = leader->batch->count;
    struct commit_waiter *others = take_fitting(group, &events);
    int64_t started_at = ol_clock_boot_us();

    pthread_mutex_unlock(&group->lock);
    leader->result = others ? write_shared(leader, others, events, writer)
                            : writer(leader->conn, leader->batch, false, err);
    pthread_mutex_lock(&group->lock);
    if (group->overdue_count == group->batch_count ||
        ol_clock_boot_us() - started_at >= GROUP_OVERDUE_MS * 1000)
        group->overdue_count -= group->overdue_count > 0;
    finish_batch(group, others, leader->result);
}

struct ol_commit_result ol_group_commit_write(struct ol_group_commit *group, struct ol_conn *conn,
                                              struct ol_append_batch *batch,
                                              ol_group_commit_writer *writer, outlog_err *err)
{
    struct commit_waiter self = {.conn = conn, .batch = batch};

    if (!group || batch->count >= GROUP_EVENTS_MAX)
        return self.result;
    pthread_mutex_lock(&group->lock);
    if (may_start_batch(group, group->batch_count - group->overdue_count,
                        group->waiting_count + 1)) {
        group->batch_count++;
        self.state = COMMIT_LEADER;
    } else {
        wait_in_queue(group, &self);
    }
    if (self.state == COMMIT_LEADER)
        lead_batch(group, &self, writer, err);
    pthread_mutex_unlock(&group->lock);
    return self.result;
}
