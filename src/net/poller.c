/* poller.c: an epoll set with a timerfd in it. */
#include "net/poller.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

int ol_poller_open(struct ol_poller *poller, outlog_err *err)
{
    poller->at_us = INT64_MAX;
    poller->fd = epoll_create1(EPOLL_CLOEXEC);
    poller->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (poller->fd >= 0 && poller->timer >= 0 && ol_poller_add(poller, poller->timer, EPOLLIN) == 0)
        return 0;
    ol_fail(err, OUTLOG_NO_MEMORY, "no descriptor left: %s", strerror(errno));
    ol_poller_close(poller);
    return -1;
}

void ol_poller_close(struct ol_poller *poller)
{
    if (poller->timer >= 0)
        close(poller->timer);
    if (poller->fd >= 0)
        close(poller->fd);
    poller->fd = poller->timer = -1;
}

int ol_poller_add(struct ol_poller *poller, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};
    return epoll_ctl(poller->fd, EPOLL_CTL_ADD, fd, &event);
}

void ol_poller_remove(struct ol_poller *poller, int fd)
{
    epoll_ctl(poller->fd, EPOLL_CTL_DEL, fd, NULL);
}

void ol_poller_at(struct ol_poller *poller, int64_t at_us)
{
    struct itimerspec when = {0};
    if (at_us == poller->at_us)
        return;
    poller->at_us = at_us;
    if (at_us != INT64_MAX) {
        if (at_us < 1)
            at_us = 1; // zero would disarm it
        when.it_value.tv_sec = at_us / 1000000;
        when.it_value.tv_nsec = at_us % 1000000 * 1000;
    }
    timerfd_settime(poller->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void ol_poller_wait(struct ol_poller *poller, int timeout_ms)
{
    struct epoll_event events[1]; // one is enough: the caller checks all of its descriptors
    uint64_t ticks;
    epoll_wait(poller->fd, events, 1, timeout_ms);
    if (read(poller->timer, &ticks, sizeof ticks) > 0)
        poller->at_us = INT64_MAX; // it has fired, so it is disarmed
}
