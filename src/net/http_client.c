/* http_client.c: links, and the thread that drives them.
 *
 *     owner: prepare ---begun---> engine: curl, direct, sockets
 *     owner: report  <--ended---- engine
 *
 * H1  A transfer belongs to the owner until it is put on `begun`, then to the engine until it is on
 *     `ended`, then to the owner again. Both lists are under the lock; nothing else is shared.
 * H2  Only the engine's thread touches multi handles and connections.
 * H3  `done` is called on the owner's thread alone.
 *
 * A link has a multi handle of its own: curl looks through all connections to a host for each
 * request, and one link's hundreds would slow down all others to the same host. The engine waits
 * for the sockets of all links in one epoll, for with curl_multi_poll every call looks at every
 * transfer. */
#include "net/http_client.h"

#include "base/clock.h"
#include "net/http_plain.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_KEPT = 512, EVENTS = 256, TOGETHER = 16, GATHER_US = 150 };

struct ol_http_pool {
    struct ol_http_client *http;
    ol_http_client_done *done;
    void *owner;
    struct ol_http_transfer *first, *spare; /* in flight; to be used again */
    struct ol_http_origin origin;

    /* the engine's */
    struct ol_idle_conns line;
    CURLM *multi;
    struct ol_http_pool *next; /* among those that have something under way */
    size_t count;              /* of curl's transfers under way */
    int64_t timer_us;          /* when curl wants to be called without a socket; INT64_MAX: never */
    struct ol_http_pool *closed; /* among those to be closed */
    bool is_closed;              /* under the lock */
};

/* What the engine waits for at a socket. A connection that rests stays in the epoll. */
struct watched {
    struct ol_http_pool *link;
    uint32_t events, wanted;
    bool is_connection;           /* and not curl's own, which it closes without a word */
    struct ol_connection *direct; /* it is not curl's at all */
};

struct ol_http_client {
    int owner_epoll, bell; /* the owner waits for the bell and for what it watches */
    bool is_running;
    pthread_t thread;
    struct ol_http_transfer *fresh, **fresh_end; /* prepared, the engine does not know yet */
    size_t fresh_count;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* something ended, or a link was closed */
    struct ol_http_transfer *begun, **begun_end;
    struct ol_http_transfer *ended, **ended_end;
    struct ol_http_transfer *given_up;
    struct ol_http_pool *closing;
    bool is_stopped;
    atomic_bool is_asleep; /* set under the lock: who has orders must ring */

    /* the engine's */
    int epoll, wakeup;
    struct ol_http_pool *active;
    struct ol_http_plain direct;
    struct ol_http_sockets told;
    struct watched *sockets; /* by descriptor */
    size_t socket_room;
    struct ol_http_transfer *news, **news_end; /* ended, not handed over yet */
};

static void *work(void *arg);
static void opened(void *engine, int fd);
static int close_socket(void *engine, curl_socket_t fd);
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *of_socket);
static int on_timer(CURLM *multi, long timeout_ms, void *data);
static bool assign(void *engine, int fd, struct ol_connection *connection);
static void finish(void *engine, struct ol_http_transfer *t, CURLcode code);

/* --- life ----------------------------------------------------------------------------------------
 */

static void global_init(void)
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
    pthread_once(&once, global_init);
    pthread_mutex_init(&http->lock, NULL);
    pthread_cond_init(&http->changed, NULL);
    http->told = (struct ol_http_sockets){opened, close_socket, http};
    http->fresh_end = &http->fresh;
    http->begun_end = &http->begun;
    http->ended_end = &http->ended;
    http->news_end = &http->news;
    http->owner_epoll = epoll_create1(EPOLL_CLOEXEC);
    http->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    http->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->owner_epoll < 0 || http->bell < 0 || http->epoll < 0 || http->wakeup < 0 ||
        epoll_ctl(http->epoll, EPOLL_CTL_ADD, http->wakeup, &woken) < 0) {
        ol_http_client_close(http);
        return ol_fail(err, OUTLOG_NO_MEMORY, "no memory or descriptor left for connections");
    }
    http->direct = (struct ol_http_plain){.epoll = http->epoll,
                                          .engine = http,
                                          .assign = assign,
                                          .ended = finish,
                                          .due_us = INT64_MAX};
    if (ol_http_client_watch(http, http->bell, err) < 0) {
        ol_http_client_close(http);
        return -1;
    }
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    *out = http;
    return 0;
}

static void ring(int fd)
{
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one); // full means: it rings anyway
    (void)ignored;
}

static void silence(int fd)
{
    uint64_t count;
    ssize_t ignored = read(fd, &count, sizeof count);
    (void)ignored;
}

void ol_http_client_close(struct ol_http_client *http)
{
    if (!http)
        return;
    if (http->is_running) {
        pthread_mutex_lock(&http->lock);
        http->is_stopped = true;
        pthread_mutex_unlock(&http->lock);
        ring(http->wakeup);
        pthread_join(http->thread, NULL);
    }
    assert(!http->active && !http->ended);
    const int fds[] = {http->owner_epoll, http->bell, http->epoll, http->wakeup};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pthread_cond_destroy(&http->changed);
    pthread_mutex_destroy(&http->lock);
    free(http->sockets);
    free(http);
}

static int start_engine(struct ol_http_client *http, outlog_err *err)
{
    sigset_t all, before;
    if (http->is_running)
        return 0;
    sigfillset(&all); // signals are for the thread that started us
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&http->thread, NULL, work, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return ol_fail(err, OUTLOG_NO_MEMORY, "no thread: %s", strerror(failed));
    http->is_running = true;
    return 0;
}

/* --- the owner's side
 * ----------------------------------------------------------------------------- */

/* The lock is held. */
static void wake_engine(struct ol_http_client *http)
{
    if (atomic_exchange(&http->is_asleep, false))
        ring(http->wakeup);
}

/* Tell the engine of what was started: of many at once, for it may run on another processor and
 * would want the lock as often as we. */
static void tell_engine(struct ol_http_client *http)
{
    if (!http->fresh)
        return;
    pthread_mutex_lock(&http->lock);
    *http->begun_end = http->fresh;
    http->begun_end = http->fresh_end;
    wake_engine(http);
    pthread_mutex_unlock(&http->lock);
    http->fresh = NULL;
    http->fresh_end = &http->fresh;
    http->fresh_count = 0;
}

/* Take back what has ended and say so. */
static void report(struct ol_http_client *http)
{
    pthread_mutex_lock(&http->lock);
    struct ol_http_transfer *list = http->ended;
    http->ended = NULL;
    http->ended_end = &http->ended;
    pthread_mutex_unlock(&http->lock);
    while (list) {
        struct ol_http_transfer *t = list;
        struct ol_http_pool *link = t->link;
        list = t->next;
        if (t->before)
            t->before->after = t->after;
        else
            link->first = t->after;
        if (t->after)
            t->after->before = t->before;
        ol_http_plain_learn(&link->origin, t);
        link->done(link->owner, t->tag, &t->answer);
        t->next = link->spare;
        link->spare = t;
    }
}

void ol_http_client_drive(struct ol_http_client *http, int timeout_ms)
{
    struct epoll_event events[2];
    tell_engine(http);
    int ready = epoll_wait(http->owner_epoll, events, 2, timeout_ms);
    for (int i = 0; i < ready; i++)
        if (events[i].data.fd == http->bell)
            silence(http->bell);
    report(http);
}

int ol_http_client_fd(const struct ol_http_client *http)
{
    return http->owner_epoll;
}

void ol_http_client_wake(struct ol_http_client *http)
{
    ring(http->bell);
}

int ol_http_pool_open(struct ol_http_client *http, int connections, ol_http_client_done *done,
                      void *owner, struct ol_http_pool **out, outlog_err *err)
{
    struct ol_http_pool *link = calloc(1, sizeof *link);
    if (!link || !(link->multi = curl_multi_init())) {
        free(link);
        return ol_no_memory(err);
    }
    if (start_engine(http, err) < 0) {
        curl_multi_cleanup(link->multi);
        free(link);
        return -1;
    }
    link->http = http;
    link->done = done;
    link->owner = owner;
    link->timer_us = INT64_MAX;
    link->line.most = connections > 0 ? (size_t)connections : CONNECTIONS_KEPT;
    curl_multi_setopt(link->multi, CURLMOPT_MAXCONNECTS, (long)link->line.most);
    curl_multi_setopt(link->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    curl_multi_setopt(link->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(link->multi, CURLMOPT_SOCKETDATA, link);
    curl_multi_setopt(link->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(link->multi, CURLMOPT_TIMERDATA, link);
    *out = link;
    return 0;
}

int ol_http_pool_start(struct ol_http_pool *link, const struct ol_http_client_request *request,
                       outlog_err *err)
{
    struct ol_http_client *http = link->http;
    struct ol_http_transfer *t = link->spare;
    if (t)
        link->spare = t->next;
    else if (!(t = ol_http_transfer_new(&http->told)))
        return ol_no_memory(err);
    t->link = link;
    bool is_ready = ol_http_plain_admits(&link->origin, request)
                        ? ol_http_plain_prepare(&link->origin, t, request)
                        : ol_http_transfer_prepare(t, request);
    if (!is_ready) {
        t->next = link->spare;
        link->spare = t;
        return ol_no_memory(err);
    }
    t->before = NULL;
    if ((t->after = link->first))
        t->after->before = t;
    link->first = t;
    t->next = NULL;
    *http->fresh_end = t;
    http->fresh_end = &t->next;
    if (++http->fresh_count >= TOGETHER)
        tell_engine(http);
    return 0;
}

void ol_http_client_flush(struct ol_http_client *http)
{
    tell_engine(http);
}

/* Ask for the end of one, or of all, and wait for it: the engine never waits for a receiver. */
static void give_up(struct ol_http_pool *link, const struct ol_http_transfer *one)
{
    struct ol_http_client *http = link->http;
    tell_engine(http);
    pthread_mutex_lock(&http->lock);
    for (struct ol_http_transfer *t = link->first; t; t = t->after)
        if (!t->is_ended && (!one || t == one)) {
            t->next_end = http->given_up;
            http->given_up = t;
        }
    wake_engine(http);
    for (const struct ol_http_transfer *t = link->first; t; t = t->after)
        while (!t->is_ended && (!one || t == one))
            pthread_cond_wait(&http->changed, &http->lock);
    pthread_mutex_unlock(&http->lock);
    report(http);
}

void ol_http_pool_abandon(struct ol_http_pool *link, void *tag)
{
    for (const struct ol_http_transfer *t = link->first; t; t = t->after)
        if (t->tag == tag) {
            give_up(link, t);
            return;
        }
}

void ol_http_pool_close(struct ol_http_pool *link)
{
    struct ol_http_client *http = link ? link->http : NULL;
    if (!link)
        return;
    give_up(link, NULL);
    assert(!link->first);
    pthread_mutex_lock(&http->lock);
    link->closed = http->closing;
    http->closing = link;
    wake_engine(http);
    while (!link->is_closed)
        pthread_cond_wait(&http->changed, &http->lock);
    pthread_mutex_unlock(&http->lock);
    while (link->spare) {
        struct ol_http_transfer *t = link->spare;
        link->spare = t->next;
        ol_http_transfer_free(t);
    }
    ol_http_origin_clear(&link->origin);
    free(link);
}

/* --- the engine: sockets
 * --------------------------------------------------------------------------- */

static struct watched *socket_of(struct ol_http_client *http, int fd)
{
    size_t wanted = (size_t)fd + 1;
    if (wanted > http->socket_room) {
        size_t room = wanted * 2;
        struct watched *wider = realloc(http->sockets, room * sizeof *wider);
        if (!wider)
            return NULL;
        memset(wider + http->socket_room, 0, (room - http->socket_room) * sizeof *wider);
        http->sockets = wider;
        http->socket_room = room;
    }
    return &http->sockets[fd];
}

static int watch(struct ol_http_client *http, int fd, struct watched *socket)
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

/* Curl lets go of a socket after each answer and takes it up again for the next request: what is
 * only waited for to be readable stays in the epoll meanwhile. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *of_socket)
{
    struct ol_http_pool *link = data;
    struct watched *socket = socket_of(link->http, fd);
    (void)easy, (void)of_socket;

    if (!socket)
        return -1;
    socket->link = link;
    socket->wanted = 0;
    if (what == CURL_POLL_REMOVE && socket->is_connection && socket->events == EPOLLIN)
        return 0;
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        socket->wanted |= EPOLLIN;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        socket->wanted |= EPOLLOUT;
    return watch(link->http, fd, socket);
}

static void opened(void *engine, int fd)
{
    struct watched *socket = socket_of(engine, fd);
    if (socket)
        *socket = (struct watched){.is_connection = true};
}

static bool assign(void *engine, int fd, struct ol_connection *connection)
{
    struct watched *socket = socket_of(engine, fd);
    if (socket)
        *socket = (struct watched){.direct = connection};
    return socket != NULL;
}

/* The epoll forgets a descriptor that is closed; so must we, before its number is given out again.
 */
static int close_socket(void *engine, curl_socket_t fd)
{
    struct ol_http_client *http = engine;
    if ((size_t)fd < http->socket_room)
        http->sockets[fd] = (struct watched){0};
    return close(fd);
}

static void handle(struct ol_http_client *http, const struct epoll_event *event)
{
    int running, what = 0, fd = event->data.fd;
    if (fd < 0) {
        silence(http->wakeup);
        return;
    }
    struct watched *socket = &http->sockets[fd];
    if (socket->direct) {
        ol_http_plain_ready(&http->direct, socket->direct, event->events);
        return;
    }
    if (!socket->wanted) { // a connection that rests: it was closed, or says what nobody asked
        if (socket->events)
            watch(http, fd, socket);
        return;
    }
    if (event->events & EPOLLIN)
        what |= CURL_CSELECT_IN;
    if (event->events & EPOLLOUT)
        what |= CURL_CSELECT_OUT;
    if (event->events & (EPOLLERR | EPOLLHUP))
        what |= CURL_CSELECT_ERR;
    curl_multi_socket_action(socket->link->multi, fd, what, &running);
}

/* --- the engine: transfers
 * -------------------------------------------------------------------------- */

static int on_timer(CURLM *multi, long timeout_ms, void *data)
{
    struct ol_http_pool *link = data;
    (void)multi;
    link->timer_us = timeout_ms < 0    ? INT64_MAX
                     : timeout_ms == 0 ? 0
                                       : ol_clock_boot_us() + timeout_ms * 1000;
    return 0;
}

/* It is the owner's again with the next exchange. */
static void end(struct ol_http_client *http, struct ol_http_transfer *t, CURLcode code,
                bool is_abandoned)
{
    ol_http_transfer_end(t, code, is_abandoned);
    t->is_over = true;
    t->next = NULL;
    *http->news_end = t;
    http->news_end = &t->next;
}

static void finish(void *engine, struct ol_http_transfer *t, CURLcode code)
{
    end(engine, t, code, false);
}

/* The same for what curl carries. */
static void leave(struct ol_http_client *http, struct ol_http_transfer *t, CURLcode code,
                  bool is_abandoned)
{
    struct ol_http_pool *link = t->link;
    end(http, t, code, is_abandoned);
    curl_multi_remove_handle(link->multi, t->easy);
    link->count--;
}

static void give_up_one(struct ol_http_client *http, struct ol_http_transfer *t)
{
    if (!t->is_direct) {
        leave(http, t, CURLE_ABORTED_BY_CALLBACK, true);
        return;
    }
    ol_http_plain_drop(&http->direct, t);
    end(http, t, CURLE_ABORTED_BY_CALLBACK, true);
}

static void begin(struct ol_http_client *http, struct ol_http_transfer *t)
{
    struct ol_http_pool *link = t->link;
    if (t->is_direct) {
        ol_http_plain_begin(&http->direct, &link->line, t);
        return;
    }
    if (link->count++ == 0) {
        bool is_active = false;
        for (struct ol_http_pool *l = http->active; l; l = l->next)
            is_active |= l == link;
        if (!is_active) {
            link->next = http->active;
            http->active = link;
        }
    }
    if (curl_multi_add_handle(link->multi, t->easy) != CURLM_OK)
        leave(http, t, CURLE_OUT_OF_MEMORY, false);
}

static void collect(struct ol_http_client *http, struct ol_http_pool *link)
{
    int queued;
    CURLMsg *message;
    while ((message = curl_multi_info_read(link->multi, &queued))) {
        char *private = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result; // the message dies with the handle's removal
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        leave(http, (struct ol_http_transfer *)(void *)private, code, false);
    }
}

/* What is due by the clock: new transfers, deadlines. Lines with nothing under way fall out. */
static void fire_timers(struct ol_http_client *http)
{
    int64_t now = ol_clock_boot_us();
    int running;
    ol_http_plain_expire(&http->direct, now);
    for (struct ol_http_pool **at = &http->active; *at;) {
        struct ol_http_pool *link = *at;
        if (link->timer_us <= now) {
            link->timer_us = INT64_MAX;
            curl_multi_socket_action(link->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        collect(http, link);
        if (link->count == 0)
            *at = link->next;
        else
            at = &link->next;
    }
}

static int patience_ms(const struct ol_http_client *http)
{
    int64_t first = http->direct.due_us;
    for (const struct ol_http_pool *link = http->active; link; link = link->next)
        first = link->timer_us < first ? link->timer_us : first;
    if (first == INT64_MAX)
        return -1;
    int64_t left_us = first - ol_clock_boot_us();
    return left_us <= 0 ? 0 : left_us > 60000000 ? 60000 : (int)((left_us + 999) / 1000);
}

/* --- the engine: its thread
 * -------------------------------------------------------------------------- */

struct orders {
    struct ol_http_transfer *begun, *given_up;
    struct ol_http_pool *closing;
    bool is_stopped, is_none;
};

/* The lock is held. What ended meanwhile must not be given up: it is the owner's again. */
static void hand_over(struct ol_http_client *http)
{
    if (!http->news)
        return;
    if (!http->ended)
        ring(http->bell);
    *http->ended_end = http->news;
    http->ended_end = http->news_end;
    for (struct ol_http_transfer *t = http->news; t; t = t->next)
        t->is_ended = true;
    http->news = NULL;
    http->news_end = &http->news;
    for (struct ol_http_transfer **at = &http->given_up; *at;)
        if ((*at)->is_ended)
            *at = (*at)->next_end;
        else
            at = &(*at)->next_end;
    pthread_cond_broadcast(&http->changed);
}

/* Hand over what ended and take what is new. If nothing is, the owner must ring from now on. */
static struct orders exchange(struct ol_http_client *http)
{
    pthread_mutex_lock(&http->lock);
    hand_over(http);
    struct orders orders = {http->begun, http->given_up, http->closing, http->is_stopped, true};
    http->begun = http->given_up = NULL;
    http->begun_end = &http->begun;
    http->closing = NULL;
    orders.is_none = !orders.begun && !orders.given_up && !orders.closing;
    atomic_store(&http->is_asleep, orders.is_none);
    pthread_mutex_unlock(&http->lock);
    return orders;
}

static void obey(struct ol_http_client *http, const struct orders *orders)
{
    for (struct ol_http_transfer *t = orders->begun, *next; t; t = next) {
        next = t->next;
        begin(http, t);
    }
    for (struct ol_http_transfer *t = orders->given_up; t; t = t->next_end)
        if (!t->is_over)
            give_up_one(http, t);
    for (struct ol_http_pool *link = orders->closing, *next; link; link = next) {
        next = link->closed;
        curl_multi_cleanup(link->multi);
        ol_http_plain_hang_up(&http->direct, &link->line);
        pthread_mutex_lock(&http->lock);
        link->is_closed = true; // from here on it is the owner's to free
        pthread_cond_broadcast(&http->changed);
        pthread_mutex_unlock(&http->lock);
    }
}

/* Answers to many requests come one by one, and to wake our owner, and be woken, for each takes
 * longer than to read it. While many more are awaited a few may gather: nobody's connections run
 * dry meanwhile. */
static void gather(const struct ol_http_client *http, int ready)
{
    const struct timespec moment = {.tv_nsec = GATHER_US * 1000};
    if (http->direct.busy_count >= TOGETHER && (size_t)ready * 4 < http->direct.busy_count)
        nanosleep(&moment, NULL);
}

static void *work(void *arg)
{
    struct ol_http_client *http = arg;
    struct epoll_event events[EVENTS];

    for (;;) {
        struct orders orders = exchange(http);
        if (orders.is_stopped)
            return NULL;
        obey(http, &orders);
        fire_timers(http); // first of all, start what was added
        int ready = epoll_wait(http->epoll, events, EVENTS,
                               orders.is_none && !http->news ? patience_ms(http) : 0);
        atomic_store(&http->is_asleep, false); // whatever comes now we take in by ourselves
        for (int i = 0; i < ready; i++)
            handle(http, &events[i]);
        fire_timers(http);
        if (ready > 0)
            gather(http, ready);
    }
}
