/* broker_thread.h: a thread that carries messages to one broker.
 *
 * Clients of brokers block: looking up a name, connecting, writing to a broker that reads no more.
 * The courier does all of that beside the relay's thread, which only queues and hears the outcome.
 *
 *     submit() ---queue---> courier: connect, send ---> broker
 *     drive() <---news----- courier: listen      <----- acknowledgements
 *
 * One connection, made when the first message wants it and again after it broke. What was sent on a
 * connection that broke is UNKNOWN; what waited while there was none is RELEASED and unreached, so
 * that a broker that is down costs nobody an attempt. When a message that was sent is past its
 * deadline and nothing at all was heard since, the connection is cut from outside: that is the
 * watchdog against calls that would block for ever. */
#ifndef OL_PUBLISH_BROKER_BROKER_THREAD_H
#define OL_PUBLISH_BROKER_BROKER_THREAD_H

#include "publish/broker/inflight.h"

struct ol_broker_thread;

/* What a broker's file does, always on the courier's thread. */
struct ol_broker_driver {
    /* Connect and log in, within timeout_ms or little more; -1 and err: no way to the broker. */
    int (*connect)(void *self, int timeout_ms, outlog_err *err);

    /* Send one, or put it where flush() will. It belongs to the broker's file until
     * ol_broker_attempt_end. -1: the connection broke; the load is kept for disconnect(). */
    int (*send)(void *self, struct ol_broker_attempt *load, outlog_err *err);

    /* Everything of this round was handed to send(). NULL: nothing to do. */
    int (*flush)(void *self, outlog_err *err);

    /* Read what there is without waiting. -1: the connection broke. NULL: others listen. */
    int (*listen)(void *self, outlog_err *err);

    /* The socket to wait for; -1: none. */
    int (*fd)(void *self);

    /* Close; every load still in hand ends as UNKNOWN with `why`. Safe when not connected. */
    void (*disconnect)(void *self, const char *why);

    int tick_ms; /* call listen() at least this often, for keep-alives; 0: no need */
};

struct ol_broker_thread {
    struct ol_inflight freight; /* first */

    /* private */
    const struct ol_broker_driver *trade;
    void *self;
    pthread_t thread;
    pthread_mutex_t lock;
    struct ol_broker_attempt *queue, **queue_end;
    int bell;
    int fd; /* guarded by lock: what the watchdog may shut down */
    atomic_bool is_closing, is_broken;
    atomic_llong heard_us;
};

int ol_broker_thread_open(struct ol_broker_thread *courier,
                          const struct outlog_publisher_host *host,
                          const struct ol_broker_naming *form, const struct ol_broker_driver *trade,
                          void *self, outlog_err *err);

/* Ends every attempt, then the thread. */
void ol_broker_thread_close(struct ol_broker_thread *courier);

/* For struct outlog_publisher, when the courier is the first member of the instance. */
void ol_broker_thread_submit(void *instance, const struct outlog_delivery *message,
                             int64_t deadline_us, void *tag);
void ol_broker_thread_drive(void *instance, int timeout_ms);
int ol_broker_thread_fd(void *instance);
void ol_broker_thread_abandon(void *instance, void *tag);

/* --- for the broker's file, any thread
 * -------------------------------------------------------------- */

/* Something came from the broker. */
void ol_broker_thread_answered(struct ol_broker_thread *courier);

/* The connection is gone: the courier will disconnect. For clients that notice by themselves. */
void ol_broker_thread_lost(struct ol_broker_thread *courier);

#endif
