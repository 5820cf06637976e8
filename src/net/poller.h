/* poller.h: one descriptor that becomes readable when any of several does, or at a given time. */
#ifndef OL_NET_POLLER_H
#define OL_NET_POLLER_H

#include "base/err.h"

struct ol_poller {
    int fd; /* poll this one */
    int timer;
    int64_t at_us;
};

int ol_poller_open(struct ol_poller *poller, outlog_err *err);
void ol_poller_close(struct ol_poller *poller);

/* Watch `fd` for `events` (EPOLLIN, EPOLLOUT), level-triggered. -1: it cannot be watched, which
 * for a plain file means that it never blocks. */
int ol_poller_add(struct ol_poller *poller, int fd, uint32_t events);
void ol_poller_remove(struct ol_poller *poller, int fd);

/* Become readable at this CLOCK_BOOTTIME, INT64_MAX for never; replaces the former time. */
void ol_poller_at(struct ol_poller *poller, int64_t at_us);

/* Wait up to timeout_ms for any of these. */
void ol_poller_wait(struct ol_poller *poller, int timeout_ms);

#endif
