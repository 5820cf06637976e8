/* http_client.c: opens the client, hands transfers to the engine and reports those that ended. */
#include "net/http_client.h"

#include "net/http_engine.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

int ol_http_client_watch(struct ol_http_client *http, int fd, outlog_err *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(http->owner_epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return ol_fail(err, OUTLOG_NO_MEMORY, "epoll: %s", strerror(errno));
    return 0;
}

int ol_http_client_open(struct ol_http_client **out, outlog_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct epoll_event woken = {.events = EPOLLIN, .data.fd = -1};
    sigset_t pipe_signal;
    struct ol_http_client *http = calloc(1, sizeof *http);

    if (!http)
        return ol_no_memory(err);
    pthread_once(&once, init_curl);
    pthread_mutex_init(&http->lock, NULL);
    pthread_cond_init(&http->changed, NULL);
    http->prepared_tail = &http->prepared;
    http->started_tail = &http->started;
    http->ended_tail = &http->ended;
    http->owner_epoll = epoll_create1(EPOLL_CLOEXEC);
    http->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    http->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->owner_epoll < 0 || http->ended_fd < 0 || http->epoll < 0 || http->wake_fd < 0 ||
        epoll_ctl(http->epoll, EPOLL_CTL_ADD, http->wake_fd, &woken) < 0) {
        ol_http_client_close(http);
        return ol_fail(err, OUTLOG_NO_MEMORY, "no memory or descriptor left for connections");
    }
    ol_http_engine_init(http);
    if (ol_http_client_watch(http, http->ended_fd, err) < 0) {
        ol_http_client_close(http);
        return -1;
    }
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    *out = http;
    return 0;
}

void ol_http_client_close(struct ol_http_client *http)
{
    if (!http)
        return;
    if (http->is_running) {
        pthread_mutex_lock(&http->lock);
        http->is_stopped = true;
        pthread_mutex_unlock(&http->lock);
        ol_http_engine_signal(http->wake_fd);
        pthread_join(http->thread, NULL);
    }
    assert(!http->active && !http->ended);
    const int fds[] = {http->owner_epoll, http->ended_fd, http->epoll, http->wake_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pthread_cond_destroy(&http->changed);
    pthread_mutex_destroy(&http->lock);
    ol_http_engine_clear(http);
    free(http);
}

/* Many transfers at once: the engine may run on another processor and takes the same lock. */
void ol_http_client_flush(struct ol_http_client *http)
{
    if (!http->prepared)
        return;
    pthread_mutex_lock(&http->lock);
    *http->started_tail = http->prepared;
    http->started_tail = http->prepared_tail;
    ol_http_engine_wake(http);
    pthread_mutex_unlock(&http->lock);
    http->prepared = NULL;
    http->prepared_tail = &http->prepared;
    http->prepared_count = 0;
}

void ol_http_client_report(struct ol_http_client *http)
{
    pthread_mutex_lock(&http->lock);
    struct ol_http_transfer *list = http->ended;
    http->ended = NULL;
    http->ended_tail = &http->ended;
    pthread_mutex_unlock(&http->lock);
    while (list) {
        struct ol_http_transfer *t = list;
        struct ol_http_pool *pool = t->pool;
        list = t->next;
        if (t->before)
            t->before->after = t->after;
        else
            pool->first = t->after;
        if (t->after)
            t->after->before = t->before;
        ol_http_plain_learn(&pool->origin, t);
        pool->done(pool->owner, t->tag, &t->response);
        t->next = pool->free_transfers;
        pool->free_transfers = t;
    }
}

void ol_http_client_drive(struct ol_http_client *http, int timeout_ms)
{
    struct epoll_event events[2];
    ol_http_client_flush(http);
    int ready = epoll_wait(http->owner_epoll, events, 2, timeout_ms);
    for (int i = 0; i < ready; i++)
        if (events[i].data.fd == http->ended_fd)
            ol_http_engine_consume(http->ended_fd);
    ol_http_client_report(http);
}

int ol_http_client_fd(const struct ol_http_client *http)
{
    return http->owner_epoll;
}
