/* writer_queue.c: one queue per database that this process ever wrote to. There are few, and they
 * are never freed. */
#include "store/sqlite/writer_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct queued_writer {
    struct queued_writer *next;
    pthread_cond_t served;
    bool is_served;
};

struct writer_queue {
    struct writer_queue *next;
    uint64_t key;
    bool is_locked;
    struct queued_writer *first, **last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct writer_queue *queues;

/* NULL: out of memory; then writers do not queue, and SQLite's own lock still holds. */
static struct writer_queue *find_queue(uint64_t key)
{
    struct writer_queue *queue = queues;
    while (queue && queue->key != key)
        queue = queue->next;
    if (!queue && (queue = calloc(1, sizeof *queue))) {
        *queue = (struct writer_queue){.next = queues, .key = key, .last = &queue->first};
        queues = queue;
    }
    return queue;
}

static void remove_writer(struct writer_queue *queue, const struct queued_writer *writer)
{
    struct queued_writer **at = &queue->first;
    while (*at != writer)
        at = &(*at)->next;
    *at = writer->next;
    if (!*at)
        queue->last = at;
}

/* Called with the lock held. False: the time has passed. */
static bool wait_turn(struct writer_queue *queue, int64_t timeout_us)
{
    struct queued_writer self = {0};
    struct timespec until;
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&self.served, &attributes);
    pthread_condattr_destroy(&attributes);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_us / 1000000;
    until.tv_nsec += timeout_us % 1000000 * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    *queue->last = &self;
    // cppcheck-suppress autoVariables // it is removed from the queue before this returns
    queue->last = &self.next;
    while (!self.is_served && pthread_cond_timedwait(&self.served, &lock, &until) == 0)
        ;
    if (!self.is_served)
        remove_writer(queue, &self);
    pthread_cond_destroy(&self.served);
    return self.is_served;
}

bool ol_writer_queue_lock(uint64_t key, int64_t timeout_us)
{
    bool is_locked = true;
    if (!key)
        return true;
    pthread_mutex_lock(&lock);
    struct writer_queue *queue = find_queue(key);
    if (queue && queue->is_locked)
        is_locked = wait_turn(queue, timeout_us);
    else if (queue)
        queue->is_locked = true;
    pthread_mutex_unlock(&lock);
    return is_locked;
}

void ol_writer_queue_unlock(uint64_t key)
{
    if (!key)
        return;
    pthread_mutex_lock(&lock);
    struct writer_queue *queue = find_queue(key);
    struct queued_writer *next = queue ? queue->first : NULL;
    if (next) {
        remove_writer(queue, next);
        next->is_served = true; // the lock passes to it directly: no other writer gets in between
        pthread_cond_signal(&next->served);
    } else if (queue) {
        queue->is_locked = false;
    }
    pthread_mutex_unlock(&lock);
}
