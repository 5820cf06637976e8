/* wake.h: a commit wakes waiting threads of the same process.
 *
 * Commits of other processes are found by polling (PostgreSQL) or by watching the WAL file
 * (SQLite). */
#ifndef OL_STORE_WAKE_H
#define OL_STORE_WAKE_H

#include <stdbool.h>
#include <stdint.h>

/* The key of a database, from a name that all its connections agree on. */
uint64_t ol_wake_key(const char *name);

/* Wake all waiters of `key`: something was committed. Cheap when there are none. */
void ol_wake_signal(uint64_t key);

/* A waiter: an eventfd that becomes readable at each signal. */
struct ol_waiter {
    uint64_t key;
    int fd;
    struct ol_waiter *next;
};

/* Returns 0, or -1 when there is no descriptor left (then only polling is left). */
int ol_waiter_open(struct ol_waiter *waiter, uint64_t key);
void ol_waiter_close(struct ol_waiter *waiter);

/* Wait for a signal, for `other_fd` (may be -1; nothing is read from it), or for the time to pass.
 * False when the time has passed. */
bool ol_waiter_wait(struct ol_waiter *waiter, int other_fd, int timeout_ms);

#endif
