/* broker_thread.c: queue, connect, send, listen. */
#include "publish/broker/broker_thread.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 5000 };

static void *work(void *arg);

int ol_broker_thread_open(struct ol_broker_thread *c, const struct outlog_publisher_host *host,
                          const struct ol_broker_naming *form, const struct ol_broker_driver *trade,
                          void *self, outlog_err *err)
{
    sigset_t all, before;
    if (ol_inflight_open(&c->freight, host, form, err) < 0)
        return -1;
    c->trade = trade;
    c->self = self;
    c->fd = -1;
    c->queue_end = &c->queue;
    c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&c->lock, NULL);
    sigfillset(&all); // signals are for the thread that started us; a closed socket raises none
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = c->bell < 0 ? errno : pthread_create(&c->thread, NULL, work, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        ol_inflight_close(&c->freight);
        if (c->bell >= 0)
            close(c->bell);
        return ol_fail(err, OUTLOG_NO_MEMORY, "no thread: %s", strerror(failed));
    }
    return 0;
}

static void ring(struct ol_broker_thread *c)
{
    uint64_t one = 1;
    if (write(c->bell, &one, sizeof one) < 0)
        return; // the counter is full: it rings anyway
}

static void cut(struct ol_broker_thread *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_RDWR);
    pthread_mutex_unlock(&c->lock);
}

void ol_broker_thread_close(struct ol_broker_thread *c)
{
    ol_inflight_abandon_all(&c->freight);
    atomic_store(&c->is_closing, true);
    cut(c);
    ring(c);
    pthread_join(c->thread, NULL);
    close(c->bell);
    pthread_mutex_destroy(&c->lock);
    ol_inflight_close(&c->freight);
}

void ol_broker_thread_answered(struct ol_broker_thread *c)
{
    atomic_store(&c->heard_us, ol_clock_boot_us());
}

void ol_broker_thread_lost(struct ol_broker_thread *c)
{
    atomic_store(&c->is_broken, true);
    ring(c);
}

/* --- the owner's side
 * ------------------------------------------------------------------------------- */

void ol_broker_thread_submit(void *instance, const struct outlog_delivery *message,
                             int64_t deadline_us, void *tag)
{
    struct ol_broker_thread *c = instance;
    struct ol_broker_attempt *load = ol_inflight_add(&c->freight, message, deadline_us, tag);
    if (!load)
        return;
    pthread_mutex_lock(&c->lock);
    bool is_first = !c->queue;
    *c->queue_end = load;
    c->queue_end = &load->next;
    pthread_mutex_unlock(&c->lock);
    if (is_first)
        ring(c);
}

void ol_broker_thread_drive(void *instance, int timeout_ms)
{
    struct ol_broker_thread *c = instance;
    struct ol_inflight *f = &c->freight;
    if (timeout_ms != 0)
        ol_poller_wait(&f->ready, timeout_ms);
    ol_inflight_drive(f);
    if (f->is_overdue && atomic_load(&c->heard_us) <= f->overdue_sent_us)
        cut(c); // the watchdog
    f->is_overdue = false;
}

int ol_broker_thread_fd(void *instance)
{
    struct ol_broker_thread *c = instance;
    return c->freight.ready.fd;
}

void ol_broker_thread_abandon(void *instance, void *tag)
{
    struct ol_broker_thread *c = instance;
    ol_inflight_abandon(&c->freight, tag);
}

/* --- the thread
 * -------------------------------------------------------------------------------------- */

static struct ol_broker_attempt *take(struct ol_broker_thread *c)
{
    pthread_mutex_lock(&c->lock);
    struct ol_broker_attempt *list = c->queue;
    c->queue = NULL;
    c->queue_end = &c->queue;
    pthread_mutex_unlock(&c->lock);
    return list;
}

/* Give everything of the list back: it was not sent. */
static void turn_away(struct ol_broker_attempt *list, const char *why)
{
    while (list) {
        struct ol_broker_attempt *load = list;
        list = load->next;
        ol_broker_attempt_unreached(load, why);
    }
}

static void show_fd(struct ol_broker_thread *c, int fd)
{
    pthread_mutex_lock(&c->lock);
    c->fd = fd;
    pthread_mutex_unlock(&c->lock);
}

static bool link_up(struct ol_broker_thread *c, outlog_err *err)
{
    int64_t timeout_ms = c->freight.settings->timeout_us / 1000;
    if (timeout_ms > CONNECT_MS)
        timeout_ms = CONNECT_MS;
    atomic_store(&c->is_broken, false);
    if (c->trade->connect(c->self, timeout_ms > 0 ? (int)timeout_ms : 1, err) < 0) {
        c->trade->disconnect(c->self, err->message);
        return false;
    }
    show_fd(c, c->trade->fd(c->self));
    return true;
}

static void hang_up(struct ol_broker_thread *c, const char *why)
{
    show_fd(c, -1); // before the number can belong to somebody else
    c->trade->disconnect(c->self, why);
}

/* Send the list. -1: the connection broke; what was not begun is turned away. */
static int send_all(struct ol_broker_thread *c, struct ol_broker_attempt *list, outlog_err *err)
{
    while (list) {
        struct ol_broker_attempt *load = list;
        list = load->next;
        load->next = NULL;
        if (!ol_broker_attempt_start(load)) {
            ol_broker_attempt_end(load, OUTLOG_PUBLISH_RELEASED, NULL);
        } else if (c->trade->send(c->self, load, err) < 0) {
            turn_away(list, err->message);
            return -1;
        }
    }
    return c->trade->flush ? c->trade->flush(c->self, err) : 0;
}

static void rest(struct ol_broker_thread *c, bool is_linked)
{
    uint64_t count;
    int fd = is_linked ? c->trade->fd(c->self) : -1;
    struct pollfd fds[2] = {{.fd = c->bell, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    poll(fds, 2, is_linked && c->trade->tick_ms ? c->trade->tick_ms : -1);
    if (fds[0].revents && read(c->bell, &count, sizeof count) < 0)
        return; // somebody's ring was taken already
}

static void *work(void *arg)
{
    struct ol_broker_thread *c = arg;
    bool is_linked = false;
    outlog_err err;

    while (!atomic_load(&c->is_closing)) {
        struct ol_broker_attempt *list = take(c);
        snprintf(err.message, sizeof err.message, "the connection was lost");
        bool is_broken = is_linked && atomic_load(&c->is_broken);
        if (is_linked && !is_broken && c->trade->listen)
            is_broken = c->trade->listen(c->self, &err) < 0;
        if (is_broken) {
            hang_up(c, err.message);
            is_linked = false;
        }
        if (list && !is_linked)
            is_linked = link_up(c, &err);
        if (list && !is_linked) {
            turn_away(list, err.message);
        } else if (list && send_all(c, list, &err) < 0) {
            hang_up(c, err.message);
            is_linked = false;
        }
        rest(c, is_linked);
    }
    hang_up(c, "the destination was closed");
    turn_away(take(c), "the destination was closed");
    return NULL;
}
