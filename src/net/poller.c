/* poller.c: an epoll with a timer in it. */
#include "net/poller.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

int ol_poller_open(struct ol_poller *ready, outlog_err *err)
{
    ready->at_us = INT64_MAX;
    ready->fd = epoll_create1(EPOLL_CLOEXEC);
    ready->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (ready->fd >= 0 && ready->timer >= 0 && ol_poller_add(ready, ready->timer, EPOLLIN) == 0)
        return 0;
    ol_fail(err, OUTLOG_NO_MEMORY, "no descriptor left: %s", strerror(errno));
    ol_poller_close(ready);
    return -1;
}

void ol_poller_close(struct ol_poller *ready)
{
    if (ready->timer >= 0)
        close(ready->timer);
    if (ready->fd >= 0)
        close(ready->fd);
    ready->fd = ready->timer = -1;
}

int ol_poller_add(struct ol_poller *ready, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};
    return epoll_ctl(ready->fd, EPOLL_CTL_ADD, fd, &event);
}

void ol_poller_remove(struct ol_poller *ready, int fd)
{
    epoll_ctl(ready->fd, EPOLL_CTL_DEL, fd, NULL);
}

void ol_poller_at(struct ol_poller *ready, int64_t at_us)
{
    struct itimerspec when = {0};
    if (at_us == ready->at_us)
        return;
    ready->at_us = at_us;
    if (at_us != INT64_MAX) {
        if (at_us < 1)
            at_us = 1; // zero would switch it off
        when.it_value.tv_sec = at_us / 1000000;
        when.it_value.tv_nsec = at_us % 1000000 * 1000;
    }
    timerfd_settime(ready->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void ol_poller_wait(struct ol_poller *ready, int timeout_ms)
{
    struct epoll_event events[1]; // whoever waits looks at everything it has
    uint64_t ticks;
    epoll_wait(ready->fd, events, 1, timeout_ms);
    if (read(ready->timer, &ticks, sizeof ticks) > 0)
        ready->at_us = INT64_MAX; // it fired, and is off now
}
