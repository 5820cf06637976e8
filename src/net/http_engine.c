/* http_engine.c: the thread that drives curl and the plain connections; H1 to H3 are in
 * http_engine.h. */
#include "net/http_engine.h"

#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { ENGINE_EVENTS = 256, ENGINE_GATHER_US = 150 };

/* What the engine waits for at a socket. An idle connection stays in the epoll set. */
struct ol_http_socket {
    struct ol_http_pool *pool;
    uint32_t events, wanted;
    bool is_connection;          /* not one of curl's internal sockets, which it closes silently */
    struct ol_connection *plain; /* a connection of http_plain.c, not of curl */
};

static void *run_engine(void *arg);
static void on_opened(void *engine, int fd);
static int on_close(void *engine, curl_socket_t fd);
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *of_socket);
static int on_timer(CURLM *multi, long timeout_ms, void *data);
static bool on_connection(void *engine, int fd, struct ol_connection *connection);
static void on_plain_end(void *engine, struct ol_http_transfer *t, CURLcode code);

void ol_http_engine_init(struct ol_http_client *http)
{
    http->hooks = (struct ol_http_socket_hooks){on_opened, on_close, http};
    http->finished_tail = &http->finished;
    http->plain = (struct ol_http_plain){.epoll = http->epoll,
                                         .engine = http,
                                         .on_connection = on_connection,
                                         .on_end = on_plain_end,
                                         .due_us = INT64_MAX};
}

void ol_http_engine_clear(struct ol_http_client *http)
{
    free(http->sockets);
}

int ol_http_engine_start(struct ol_http_client *http, outlog_err *err)
{
    sigset_t all, before;
    if (http->is_running)
        return 0;
    sigfillset(&all); // no signals here: they are for the thread that started this one
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&http->thread, NULL, run_engine, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return ol_fail(err, OUTLOG_NO_MEMORY, "no thread: %s", strerror(failed));
    http->is_running = true;
    return 0;
}

void ol_http_engine_attach(struct ol_http_pool *pool)
{
    pool->timer_us = INT64_MAX;
    curl_multi_setopt(pool->multi, CURLMOPT_MAXCONNECTS, (long)pool->idle.max);
    curl_multi_setopt(pool->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    curl_multi_setopt(pool->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(pool->multi, CURLMOPT_SOCKETDATA, pool);
    curl_multi_setopt(pool->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(pool->multi, CURLMOPT_TIMERDATA, pool);
}

void ol_http_engine_signal(int event_fd)
{
    uint64_t one = 1;
    ssize_t ignored = write(event_fd, &one, sizeof one); // if the counter is full it is readable
    (void)ignored;
}

void ol_http_engine_consume(int event_fd)
{
    uint64_t count;
    ssize_t ignored = read(event_fd, &count, sizeof count);
    (void)ignored;
}

void ol_http_engine_wake(struct ol_http_client *http)
{
    if (atomic_exchange(&http->is_asleep, false))
        ol_http_engine_signal(http->wake_fd);
}

/* --- sockets ---------------------------------------------------------------------------------- */

static struct ol_http_socket *find_socket(struct ol_http_client *http, int fd)
{
    size_t wanted = (size_t)fd + 1;
    if (wanted > http->socket_room) {
        size_t room = wanted * 2;
        struct ol_http_socket *wider = realloc(http->sockets, room * sizeof *wider);
        if (!wider)
            return NULL;
        memset(wider + http->socket_room, 0, (room - http->socket_room) * sizeof *wider);
        http->sockets = wider;
        http->socket_room = room;
    }
    return &http->sockets[fd];
}

static int watch_socket(struct ol_http_client *http, int fd, struct ol_http_socket *socket)
{
    struct epoll_event event = {.events = socket->wanted, .data.fd = fd};
    uint32_t before = socket->events;
    socket->events = socket->wanted;
    if (before == socket->wanted && socket->is_connection)
        return 0;
    if (!socket->wanted) {
        epoll_ctl(http->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (before && epoll_ctl(http->epoll, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    return epoll_ctl(http->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* Curl removes a socket after each response and adds it again for the next request. A socket that
 * is only watched for reading stays in the epoll set in between. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *of_socket)
{
    struct ol_http_pool *pool = data;
    struct ol_http_socket *socket = find_socket(pool->http, fd);
    (void)easy, (void)of_socket;

    if (!socket)
        return -1;
    socket->pool = pool;
    socket->wanted = 0;
    if (what == CURL_POLL_REMOVE && socket->is_connection && socket->events == EPOLLIN)
        return 0;
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        socket->wanted |= EPOLLIN;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        socket->wanted |= EPOLLOUT;
    return watch_socket(pool->http, fd, socket);
}

static void on_opened(void *engine, int fd)
{
    struct ol_http_socket *socket = find_socket(engine, fd);
    if (socket)
        *socket = (struct ol_http_socket){.is_connection = true};
}

static bool on_connection(void *engine, int fd, struct ol_connection *connection)
{
    struct ol_http_socket *socket = find_socket(engine, fd);
    if (socket)
        *socket = (struct ol_http_socket){.plain = connection};
    return socket != NULL;
}

/* The epoll set forgets a closed descriptor. So must we, before its number is used again. */
static int on_close(void *engine, curl_socket_t fd)
{
    struct ol_http_client *http = engine;
    if ((size_t)fd < http->socket_room)
        http->sockets[fd] = (struct ol_http_socket){0};
    return close(fd);
}

static void handle_event(struct ol_http_client *http, const struct epoll_event *event)
{
    int running, what = 0, fd = event->data.fd;
    if (fd < 0) {
        ol_http_engine_consume(http->wake_fd);
        return;
    }
    struct ol_http_socket *socket = &http->sockets[fd];
    if (socket->plain) {
        ol_http_plain_ready(&http->plain, socket->plain, event->events);
        return;
    }
    if (!socket->wanted) { // an idle connection: closed, or unexpected data
        if (socket->events)
            watch_socket(http, fd, socket);
        return;
    }
    if (event->events & EPOLLIN)
        what |= CURL_CSELECT_IN;
    if (event->events & EPOLLOUT)
        what |= CURL_CSELECT_OUT;
    if (event->events & (EPOLLERR | EPOLLHUP))
        what |= CURL_CSELECT_ERR;
    curl_multi_socket_action(socket->pool->multi, fd, what, &running);
}

/* --- transfers -------------------------------------------------------------------------------- */

static int on_timer(CURLM *multi, long timeout_ms, void *data)
{
    struct ol_http_pool *pool = data;
    (void)multi;
    pool->timer_us = timeout_ms < 0    ? INT64_MAX
                     : timeout_ms == 0 ? 0
                                       : ol_clock_boot_us() + timeout_ms * 1000;
    return 0;
}

/* The owner gets it back with the next exchange_lists(). */
static void add_finished(struct ol_http_client *http, struct ol_http_transfer *t, CURLcode code,
                         bool is_abandoned)
{
    ol_http_transfer_end(t, code, is_abandoned);
    t->is_over = true;
    t->next = NULL;
    *http->finished_tail = t;
    http->finished_tail = &t->next;
}

static void on_plain_end(void *engine, struct ol_http_transfer *t, CURLcode code)
{
    add_finished(engine, t, code, false);
}

/* The same for a transfer of curl's. */
static void finish_curl(struct ol_http_client *http, struct ol_http_transfer *t, CURLcode code,
                        bool is_abandoned)
{
    struct ol_http_pool *pool = t->pool;
    add_finished(http, t, code, is_abandoned);
    curl_multi_remove_handle(pool->multi, t->easy);
    pool->count--;
}

static void abandon_transfer(struct ol_http_client *http, struct ol_http_transfer *t)
{
    if (!t->is_plain) {
        finish_curl(http, t, CURLE_ABORTED_BY_CALLBACK, true);
        return;
    }
    ol_http_plain_drop(&http->plain, t);
    add_finished(http, t, CURLE_ABORTED_BY_CALLBACK, true);
}

static void start_transfer(struct ol_http_client *http, struct ol_http_transfer *t)
{
    struct ol_http_pool *pool = t->pool;
    if (t->is_plain) {
        ol_http_plain_begin(&http->plain, &pool->idle, t);
        return;
    }
    if (pool->count++ == 0) {
        bool is_active = false;
        for (struct ol_http_pool *p = http->active; p; p = p->next)
            is_active |= p == pool;
        if (!is_active) {
            pool->next = http->active;
            http->active = pool;
        }
    }
    if (curl_multi_add_handle(pool->multi, t->easy) != CURLM_OK)
        finish_curl(http, t, CURLE_OUT_OF_MEMORY, false);
}

static void collect_finished(struct ol_http_client *http, struct ol_http_pool *pool)
{
    int queued;
    CURLMsg *message;
    while ((message = curl_multi_info_read(pool->multi, &queued))) {
        char *private = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result; // removing the handle frees the message
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        finish_curl(http, (struct ol_http_transfer *)(void *)private, code, false);
    }
}

/* Run due timers: new transfers, deadlines. Pools without transfers leave the active list. */
static void fire_timers(struct ol_http_client *http)
{
    int64_t now = ol_clock_boot_us();
    int running;
    ol_http_plain_expire(&http->plain, now);
    for (struct ol_http_pool **at = &http->active; *at;) {
        struct ol_http_pool *pool = *at;
        if (pool->timer_us <= now) {
            pool->timer_us = INT64_MAX;
            curl_multi_socket_action(pool->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        collect_finished(http, pool);
        if (pool->count == 0)
            *at = pool->next;
        else
            at = &pool->next;
    }
}

static int next_timeout_ms(const struct ol_http_client *http)
{
    int64_t first = http->plain.due_us;
    for (const struct ol_http_pool *pool = http->active; pool; pool = pool->next)
        first = pool->timer_us < first ? pool->timer_us : first;
    if (first == INT64_MAX)
        return -1;
    int64_t left_us = first - ol_clock_boot_us();
    return left_us <= 0 ? 0 : left_us > 60000000 ? 60000 : (int)((left_us + 999) / 1000);
}

/* --- the thread ------------------------------------------------------------------------------- */

struct engine_work {
    struct ol_http_transfer *started, *abandoned;
    struct ol_http_pool *closing;
    bool is_stopped, is_none;
};

/* The lock is held. A transfer that has ended must not be abandoned: the owner has it again. */
static void publish_finished(struct ol_http_client *http)
{
    if (!http->finished)
        return;
    if (!http->ended)
        ol_http_engine_signal(http->ended_fd);
    *http->ended_tail = http->finished;
    http->ended_tail = http->finished_tail;
    for (struct ol_http_transfer *t = http->finished; t; t = t->next)
        t->is_ended = true;
    http->finished = NULL;
    http->finished_tail = &http->finished;
    for (struct ol_http_transfer **at = &http->abandoned; *at;)
        if ((*at)->is_ended)
            *at = (*at)->next_abandoned;
        else
            at = &(*at)->next_abandoned;
    pthread_cond_broadcast(&http->changed);
}

/* Publish what finished and take what is new. If nothing is, the owner must wake us for more. */
static struct engine_work exchange_lists(struct ol_http_client *http)
{
    pthread_mutex_lock(&http->lock);
    publish_finished(http);
    struct engine_work work = {http->started, http->abandoned, http->closing, http->is_stopped,
                               true};
    http->started = http->abandoned = NULL;
    http->started_tail = &http->started;
    http->closing = NULL;
    work.is_none = !work.started && !work.abandoned && !work.closing;
    atomic_store(&http->is_asleep, work.is_none);
    pthread_mutex_unlock(&http->lock);
    return work;
}

static void process_work(struct ol_http_client *http, const struct engine_work *work)
{
    for (struct ol_http_transfer *t = work->started, *next; t; t = next) {
        next = t->next;
        start_transfer(http, t);
    }
    for (struct ol_http_transfer *t = work->abandoned; t; t = t->next_abandoned)
        if (!t->is_over)
            abandon_transfer(http, t);
    for (struct ol_http_pool *pool = work->closing, *next; pool; pool = next) {
        next = pool->closing;
        curl_multi_cleanup(pool->multi);
        ol_http_plain_close_idle(&http->plain, &pool->idle);
        pthread_mutex_lock(&http->lock);
        pool->is_closed = true; // from here on the owner may free it
        pthread_cond_broadcast(&http->changed);
        pthread_mutex_unlock(&http->lock);
    }
}

/* Responses to many requests arrive one by one, and waking the owner for each costs more than
 * reading it. While many more are expected, wait a moment so that several arrive: enough requests
 * are in flight to keep the connections busy. */
static void wait_for_more(const struct ol_http_client *http, int ready)
{
    const struct timespec moment = {.tv_nsec = ENGINE_GATHER_US * 1000};
    if (http->plain.busy_count >= OL_HTTP_BATCH && (size_t)ready * 4 < http->plain.busy_count)
        nanosleep(&moment, NULL);
}

static void *run_engine(void *arg)
{
    struct ol_http_client *http = arg;
    struct epoll_event events[ENGINE_EVENTS];

    for (;;) {
        struct engine_work work = exchange_lists(http);
        if (work.is_stopped)
            return NULL;
        process_work(http, &work);
        fire_timers(http); // starts what was added
        int ready = epoll_wait(http->epoll, events, ENGINE_EVENTS,
                               work.is_none && !http->finished ? next_timeout_ms(http) : 0);
        atomic_store(&http->is_asleep, false); // the lists are read before the next sleep
        for (int i = 0; i < ready; i++)
            handle_event(http, &events[i]);
        fire_timers(http);
        if (ready > 0)
            wait_for_more(http, ready);
    }
}
