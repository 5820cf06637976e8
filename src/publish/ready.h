/* ready.h: one descriptor that becomes readable for any of several, or at a time. */
#ifndef OL_PUBLISH_READY_H
#define OL_PUBLISH_READY_H

#include "base/err.h"

struct ol_ready {
    int fd; /* poll this one */
    int timer;
    int64_t at_us;
};

int ol_ready_open(struct ol_ready *ready, outlog_err *err);
void ol_ready_close(struct ol_ready *ready);

/* Watch `fd` for `events` (EPOLLIN, EPOLLOUT), level-triggered. -1: it cannot be watched, which
 * for a plain file means that it never blocks. */
int ol_ready_add(struct ol_ready *ready, int fd, uint32_t events);
void ol_ready_remove(struct ol_ready *ready, int fd);

/* Become readable at this CLOCK_BOOTTIME, INT64_MAX for never; replaces the former time. */
void ol_ready_at(struct ol_ready *ready, int64_t at_us);

/* Wait up to timeout_ms for any of it. */
void ol_ready_wait(struct ol_ready *ready, int timeout_ms);

#endif
