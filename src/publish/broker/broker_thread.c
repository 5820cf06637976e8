/* broker_thread.c: the queue, the connection and the loop of the thread. */
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

enum { BROKER_CONNECT_MS = 5000 };

static void *run_thread(void *arg);

int ol_broker_thread_open(struct ol_broker_thread *thread, const struct outlog_publisher_host *host,
                          const struct ol_broker_naming *naming,
                          const struct ol_broker_driver *driver, void *self, outlog_err *err)
{
    sigset_t all, before;
    if (ol_inflight_open(&thread->inflight, host, naming, err) < 0)
        return -1;
    thread->driver = driver;
    thread->self = self;
    thread->fd = -1;
    thread->queue_end = &thread->queue;
    thread->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&thread->lock, NULL);
    sigfillset(&all); // no signals here: they are for the thread that started this one
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = thread->wake_fd < 0 ? errno
                                     : pthread_create(&thread->id, NULL, run_thread, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        ol_inflight_close(&thread->inflight);
        if (thread->wake_fd >= 0)
            close(thread->wake_fd);
        return ol_fail(err, OUTLOG_NO_MEMORY, "no thread: %s", strerror(failed));
    }
    return 0;
}

static void wake_thread(struct ol_broker_thread *thread)
{
    uint64_t one = 1;
    if (write(thread->wake_fd, &one, sizeof one) < 0)
        return; // the counter is full, so the descriptor is readable already
}

static void shut_down_socket(struct ol_broker_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    if (thread->fd >= 0)
        shutdown(thread->fd, SHUT_RDWR);
    pthread_mutex_unlock(&thread->lock);
}

void ol_broker_thread_close(struct ol_broker_thread *thread)
{
    ol_inflight_abandon_all(&thread->inflight);
    atomic_store(&thread->is_closing, true);
    shut_down_socket(thread);
    wake_thread(thread);
    pthread_join(thread->id, NULL);
    close(thread->wake_fd);
    pthread_mutex_destroy(&thread->lock);
    ol_inflight_close(&thread->inflight);
}

void ol_broker_thread_replied(struct ol_broker_thread *thread)
{
    atomic_store(&thread->replied_us, ol_clock_boot_us());
}

void ol_broker_thread_lost(struct ol_broker_thread *thread)
{
    atomic_store(&thread->is_broken, true);
    wake_thread(thread);
}

/* --- the owner's side ------------------------------------------------------------------------- */

void ol_broker_thread_submit(void *instance, const struct outlog_delivery *message,
                             int64_t deadline_us, void *tag)
{
    struct ol_broker_thread *thread = instance;
    struct ol_broker_attempt *attempt =
        ol_inflight_add(&thread->inflight, message, deadline_us, tag);
    if (!attempt)
        return;
    pthread_mutex_lock(&thread->lock);
    bool is_first = !thread->queue;
    *thread->queue_end = attempt;
    thread->queue_end = &attempt->next;
    pthread_mutex_unlock(&thread->lock);
    if (is_first)
        wake_thread(thread);
}

void ol_broker_thread_drive(void *instance, int timeout_ms)
{
    struct ol_broker_thread *thread = instance;
    struct ol_inflight *f = &thread->inflight;
    if (timeout_ms != 0)
        ol_poller_wait(&f->poller, timeout_ms);
    ol_inflight_drive(f);
    if (f->is_overdue && atomic_load(&thread->replied_us) <= f->overdue_sent_us)
        shut_down_socket(thread); // the watchdog
    f->is_overdue = false;
}

int ol_broker_thread_fd(void *instance)
{
    struct ol_broker_thread *thread = instance;
    return thread->inflight.poller.fd;
}

void ol_broker_thread_abandon(void *instance, void *tag)
{
    struct ol_broker_thread *thread = instance;
    ol_inflight_abandon(&thread->inflight, tag);
}

/* --- the thread ------------------------------------------------------------------------------- */

static struct ol_broker_attempt *take_queue(struct ol_broker_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    struct ol_broker_attempt *list = thread->queue;
    thread->queue = NULL;
    thread->queue_end = &thread->queue;
    pthread_mutex_unlock(&thread->lock);
    return list;
}

/* End the whole list as unreached: none of it was sent. */
static void end_unreached(struct ol_broker_attempt *list, const char *why)
{
    while (list) {
        struct ol_broker_attempt *attempt = list;
        list = attempt->next;
        ol_broker_attempt_unreached(attempt, why);
    }
}

static void publish_fd(struct ol_broker_thread *thread, int fd)
{
    pthread_mutex_lock(&thread->lock);
    thread->fd = fd;
    pthread_mutex_unlock(&thread->lock);
}

static bool open_connection(struct ol_broker_thread *thread, outlog_err *err)
{
    int64_t timeout_ms = thread->inflight.settings->timeout_us / 1000;
    if (timeout_ms > BROKER_CONNECT_MS)
        timeout_ms = BROKER_CONNECT_MS;
    atomic_store(&thread->is_broken, false);
    if (thread->driver->connect(thread->self, timeout_ms > 0 ? (int)timeout_ms : 1, err) < 0) {
        thread->driver->disconnect(thread->self, err->message);
        return false;
    }
    publish_fd(thread, thread->driver->fd(thread->self));
    return true;
}

static void close_connection(struct ol_broker_thread *thread, const char *why)
{
    publish_fd(thread, -1); // before another file can get the same number
    thread->driver->disconnect(thread->self, why);
}

/* Send the list. -1: the connection broke; the attempts not begun end as unreached. */
static int send_all(struct ol_broker_thread *thread, struct ol_broker_attempt *list,
                    outlog_err *err)
{
    while (list) {
        struct ol_broker_attempt *attempt = list;
        list = attempt->next;
        attempt->next = NULL;
        if (!ol_broker_attempt_start(attempt)) {
            ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_RELEASED, NULL);
        } else if (thread->driver->send(thread->self, attempt, err) < 0) {
            end_unreached(list, err->message);
            return -1;
        }
    }
    return thread->driver->flush ? thread->driver->flush(thread->self, err) : 0;
}

static void wait_for_work(struct ol_broker_thread *thread, bool is_connected)
{
    uint64_t count;
    int fd = is_connected ? thread->driver->fd(thread->self) : -1;
    struct pollfd fds[2] = {{.fd = thread->wake_fd, .events = POLLIN},
                            {.fd = fd, .events = POLLIN}};
    poll(fds, 2, is_connected && thread->driver->tick_ms ? thread->driver->tick_ms : -1);
    if (fds[0].revents && read(thread->wake_fd, &count, sizeof count) < 0)
        return; // another wake-up was read already
}

static void *run_thread(void *arg)
{
    struct ol_broker_thread *thread = arg;
    bool is_connected = false;
    outlog_err err;

    while (!atomic_load(&thread->is_closing)) {
        struct ol_broker_attempt *list = take_queue(thread);
        snprintf(err.message, sizeof err.message, "the connection was lost");
        bool is_broken = is_connected && atomic_load(&thread->is_broken);
        if (is_connected && !is_broken && thread->driver->read_replies)
            is_broken = thread->driver->read_replies(thread->self, &err) < 0;
        if (is_broken) {
            close_connection(thread, err.message);
            is_connected = false;
        }
        if (list && !is_connected)
            is_connected = open_connection(thread, &err);
        if (list && !is_connected) {
            end_unreached(list, err.message);
        } else if (list && send_all(thread, list, &err) < 0) {
            close_connection(thread, err.message);
            is_connected = false;
        }
        wait_for_work(thread, is_connected);
    }
    close_connection(thread, "the destination was closed");
    end_unreached(take_queue(thread), "the destination was closed");
    return NULL;
}
