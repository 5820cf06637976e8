/* writer_queue.c: see writer_queue.h. A gate for each database that was ever written to by this
 * process; there are few, and they stay. */
#include "store/sqlite/writer_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct waiter {
    struct waiter *next;
    pthread_cond_t turn;
    bool is_served;
};

struct gate {
    struct gate *next;
    uint64_t key;
    bool is_taken;
    struct waiter *first, **last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gate *gates;

/* NULL: out of memory; then everybody goes through, and SQLite's own lock holds. */
static struct gate *gate_of(uint64_t key)
{
    struct gate *gate = gates;
    while (gate && gate->key != key)
        gate = gate->next;
    if (!gate && (gate = calloc(1, sizeof *gate))) {
        *gate = (struct gate){.next = gates, .key = key, .last = &gate->first};
        gates = gate;
    }
    return gate;
}

static void step_out(struct gate *gate, const struct waiter *waiter)
{
    struct waiter **at = &gate->first;
    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
    if (!*at)
        gate->last = at;
}

/* Under the lock: stand in the queue. */
static bool wait_turn(struct gate *gate, int64_t timeout_us)
{
    struct waiter self = {0};
    struct timespec until;
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&self.turn, &attributes);
    pthread_condattr_destroy(&attributes);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_us / 1000000;
    until.tv_nsec += timeout_us % 1000000 * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    *gate->last = &self;
    // cppcheck-suppress autoVariables // it is out of the queue before this returns
    gate->last = &self.next;
    while (!self.is_served && pthread_cond_timedwait(&self.turn, &lock, &until) == 0)
        ;
    if (!self.is_served)
        step_out(gate, &self);
    pthread_cond_destroy(&self.turn);
    return self.is_served;
}

bool ol_writer_queue_lock(uint64_t key, int64_t timeout_us)
{
    bool is_ours = true;
    if (!key)
        return true;
    pthread_mutex_lock(&lock);
    struct gate *gate = gate_of(key);
    if (gate && gate->is_taken)
        is_ours = wait_turn(gate, timeout_us);
    else if (gate)
        gate->is_taken = true;
    pthread_mutex_unlock(&lock);
    return is_ours;
}

void ol_writer_queue_unlock(uint64_t key)
{
    if (!key)
        return;
    pthread_mutex_lock(&lock);
    struct gate *gate = gate_of(key);
    struct waiter *next = gate ? gate->first : NULL;
    if (next) {
        step_out(gate, next);
        next->is_served = true; // it is theirs now: nobody comes between
        pthread_cond_signal(&next->turn);
    } else if (gate) {
        gate->is_taken = false;
    }
    pthread_mutex_unlock(&lock);
}
