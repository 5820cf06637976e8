/* wake.c: the waiters of this process, in one list. There are few, and signals are rarer than rows,
 * so a list under a lock is enough. The count lets a commit skip it when there are no waiters. */
#include "store/wake.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ol_waiter *waiters;
static atomic_int waiter_count;

uint64_t ol_wake_key(const char *name)
{
    uint64_t key = 14695981039346656037u; // FNV-1a
    for (; *name; name++)
        key = (key ^ (unsigned char)*name) * 1099511628211u;
    return key ? key : 1;
}

void ol_wake_signal(uint64_t key)
{
    if (!key || atomic_load(&waiter_count) == 0)
        return;
    pthread_mutex_lock(&lock);
    for (struct ol_waiter *waiter = waiters; waiter; waiter = waiter->next)
        if (waiter->key == key)
            (void)!write(waiter->fd, &(uint64_t){1}, sizeof(uint64_t));
    pthread_mutex_unlock(&lock);
}

int ol_waiter_open(struct ol_waiter *waiter, uint64_t key)
{
    *waiter = (struct ol_waiter){.key = key, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (waiter->fd < 0)
        return -1;
    pthread_mutex_lock(&lock);
    waiter->next = waiters;
    waiters = waiter;
    atomic_fetch_add(&waiter_count, 1);
    pthread_mutex_unlock(&lock);
    return 0;
}

void ol_waiter_close(struct ol_waiter *waiter)
{
    if (waiter->fd < 0 || !waiter->key)
        return;
    pthread_mutex_lock(&lock);
    for (struct ol_waiter **at = &waiters; *at; at = &(*at)->next)
        if (*at == waiter) {
            *at = waiter->next;
            atomic_fetch_sub(&waiter_count, 1);
            break;
        }
    pthread_mutex_unlock(&lock);
    close(waiter->fd);
    waiter->fd = -1;
}

bool ol_waiter_wait(struct ol_waiter *waiter, int other_fd, int timeout_ms)
{
    uint64_t dropped;
    struct pollfd fds[2] = {{.fd = waiter->fd, .events = POLLIN},
                            {.fd = other_fd, .events = POLLIN}};

    bool is_woken = poll(fds, 2, timeout_ms) > 0;
    while (fds[0].revents & POLLIN && read(fds[0].fd, &dropped, sizeof dropped) > 0)
        ;
    return is_woken;
}
