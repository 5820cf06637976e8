/* group_commit.c: a pier for each kind of connection, and who crosses with whom. */
#include "store/postgres/group_commit.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Two crossings at once: one is written while the other waits for the disk. The second sails when
 * as many wait as the first one carries, so that both are well filled. */
enum { MOST_ABOARD = 128, MOST_CROSSINGS = 2, PATIENCE_MS = 100 };

/* An append at the pier, in its own thread's frame. */
struct passenger {
    struct ol_conn *conn;
    struct ol_append_batch *write;
    struct ol_commit_result end;
    enum { WAITING, ABOARD, CAPTAIN, ARRIVED } state;
    pthread_cond_t called;
    struct passenger *next;
};

struct ol_group_commit {
    char *key;
    int users;
    pthread_mutex_t lock;
    int crossings;
    int overdue; /* of these: they wait for a lock, it seems, and do not count */
    int aboard;  /* passengers of the crossing that sailed last */
    struct passenger *first, **last; /* who waits, in the order they came */
    int waiting;
    struct ol_group_commit *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of the list and the counts of users
static struct ol_group_commit *ferries;

struct ol_group_commit *ol_group_commit_join(const char *key)
{
    pthread_mutex_lock(&lock);
    struct ol_group_commit *ferry = ferries;
    while (ferry && strcmp(ferry->key, key) != 0)
        ferry = ferry->next;
    if (!ferry && (ferry = calloc(1, sizeof *ferry))) {
        if (!(ferry->key = strdup(key))) {
            free(ferry);
            ferry = NULL;
        } else {
            pthread_mutex_init(&ferry->lock, NULL);
            ferry->last = &ferry->first;
            ferry->next = ferries;
            ferries = ferry;
        }
    }
    if (ferry)
        ferry->users++;
    pthread_mutex_unlock(&lock);
    return ferry;
}

void ol_group_commit_leave(struct ol_group_commit *ferry)
{
    if (!ferry)
        return;
    pthread_mutex_lock(&lock);
    if (--ferry->users == 0) {
        struct ol_group_commit **at = &ferries;
        while (*at != ferry)
            at = &(*at)->next;
        *at = ferry->next;
        pthread_mutex_destroy(&ferry->lock);
        free(ferry->key);
        free(ferry);
    }
    pthread_mutex_unlock(&lock);
}

/* May a crossing set out, now that so many would be aboard? `under_way` are those beside it. */
static bool may_sail(const struct ol_group_commit *ferry, int under_way, int passengers)
{
    return under_way <= 0 || (under_way < MOST_CROSSINGS && passengers >= ferry->aboard);
}

static struct passenger *take_first(struct ol_group_commit *ferry)
{
    struct passenger *first = ferry->first;
    if (!(ferry->first = first->next))
        ferry->last = &ferry->first;
    ferry->waiting--;
    first->next = NULL;
    return first;
}

/* Take from the pier who has room beside the captain, in order; *events counts along. */
static struct passenger *board(struct ol_group_commit *ferry, size_t *events)
{
    struct passenger *taken = NULL, **end = &taken;
    ferry->aboard = 1;
    while (ferry->first && *events + ferry->first->write->count <= MOST_ABOARD) {
        *end = take_first(ferry);
        (*end)->state = ABOARD;
        *events += (*end)->write->count;
        end = &(*end)->next;
        ferry->aboard++;
    }
    return taken;
}

/* Whose connection carries them: any of those aboard will do, as their threads wait. Always the
 * same ones if possible, so that few server processes work with warm caches. */
static struct ol_conn *vessel(const struct passenger *captain)
{
    struct ol_conn *conn = captain->conn;
    for (const struct passenger *one = captain; one; one = one->next)
        if ((uintptr_t)one->conn < (uintptr_t)conn)
            conn = one->conn;
    return conn;
}

static struct ol_commit_result cross_together(struct passenger *captain, struct passenger *others,
                                              size_t events, ol_group_commit_writer *cross)
{
    struct ol_commit_result end = {.fate = OL_COMMIT_ALONE};
    struct ol_arena arena = {0};
    struct ol_append_batch all = {.is_alone = true};

    if ((all.events = ol_arena_array(&arena, events, sizeof *all.events))) {
        captain->next = others;
        for (struct passenger *one = captain; one; one = one->next) {
            memcpy(all.events + all.count, one->write->events,
                   one->write->count * sizeof *all.events);
            all.count += one->write->count;
        }
        if (ol_append_batch_number(&all, &arena, NULL) == 0)
            end = cross(vessel(captain), &all, true, NULL);
    }
    ol_arena_clear(&arena);
    // cppcheck-suppress returnDanglingLifetime // an end keeps nothing of what crossed
    return end;
}

/* Stand at the pier until called. Whoever waits too long sails as well: the crossings under way are
 * held up (F2). */
static void wait_at_pier(struct ol_group_commit *ferry, struct passenger *self)
{
    pthread_condattr_t monotonic;
    struct timespec until;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->called, &monotonic);
    pthread_condattr_destroy(&monotonic);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;

    *ferry->last = self;
    ferry->last = &self->next;
    ferry->waiting++;
    int result = 0;
    while (self->state == WAITING && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&self->called, &ferry->lock, &until);
    while (self->state == ABOARD)
        pthread_cond_wait(&self->called, &ferry->lock);
    if (self->state == WAITING) {
        struct passenger **at = &ferry->first;
        while (*at != self)
            at = &(*at)->next;
        if (!(*at = self->next))
            ferry->last = at;
        self->next = NULL;
        self->state = CAPTAIN;
        ferry->waiting--;
        ferry->crossings++;
        ferry->overdue++;
    }
    pthread_cond_destroy(&self->called);
}

/* Those aboard learn their end, and the next captain is called: the crossing's place is theirs. */
static void land(struct ol_group_commit *ferry, struct passenger *others,
                 struct ol_commit_result end)
{
    while (others) {
        struct passenger *one = others;
        others = one->next; // it may leave its frame as soon as it is told
        one->end = end;
        one->state = ARRIVED;
        pthread_cond_signal(&one->called);
    }
    ferry->crossings--;
    if (ferry->first && may_sail(ferry, ferry->crossings - ferry->overdue, ferry->waiting)) {
        struct passenger *next = take_first(ferry);
        next->state = CAPTAIN;
        ferry->crossings++;
        pthread_cond_signal(&next->called);
    }
}

static void sail(struct ol_group_commit *ferry, struct passenger *captain,
                 ol_group_commit_writer *cross, outlog_err *err)
{
    size_t events = captain->write->count;
    struct passenger *others = board(ferry, &events);
    int64_t begun = ol_clock_boot_us();

    pthread_mutex_unlock(&ferry->lock);
    captain->end = others ? cross_together(captain, others, events, cross)
                          : cross(captain->conn, captain->write, false, err);
    pthread_mutex_lock(&ferry->lock);
    if (ferry->overdue == ferry->crossings || ol_clock_boot_us() - begun >= PATIENCE_MS * 1000)
        ferry->overdue -= ferry->overdue > 0;
    land(ferry, others, captain->end);
}

struct ol_commit_result ol_group_commit_write(struct ol_group_commit *ferry, struct ol_conn *conn,
                                              struct ol_append_batch *write,
                                              ol_group_commit_writer *cross, outlog_err *err)
{
    struct passenger self = {.conn = conn, .write = write};

    if (!ferry || write->count >= MOST_ABOARD)
        return self.end;
    pthread_mutex_lock(&ferry->lock);
    if (may_sail(ferry, ferry->crossings - ferry->overdue, ferry->waiting + 1)) {
        ferry->crossings++;
        self.state = CAPTAIN;
    } else {
        wait_at_pier(ferry, &self);
    }
    if (self.state == CAPTAIN)
        sail(ferry, &self, cross, err);
    pthread_mutex_unlock(&ferry->lock);
    return self.end;
}
