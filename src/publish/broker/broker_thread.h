/* broker_thread.h: a thread that sends messages to one broker.
 *
 * Clients of brokers block: in name resolution, in connect, in a write to a broker that stopped
 * reading. This thread takes all of that off the sender's thread, which only queues messages and
 * collects outcomes.
 *
 *     submit() ---queue----> thread: connect, send  -----> broker
 *     drive() <--outcomes--- thread: read_replies   <----- acknowledgements
 *
 * There is one connection. It is made for the first message, and again after it broke. What was
 * sent on a connection that broke is UNKNOWN. What waited while there was none is RELEASED and
 * unreached, so a broker that is down costs no message an attempt. When a sent message is past its
 * deadline and the broker has sent nothing since, the owner shuts the socket down: a watchdog
 * against calls that would block without end. */
#ifndef OL_PUBLISH_BROKER_BROKER_THREAD_H
#define OL_PUBLISH_BROKER_BROKER_THREAD_H

#include "publish/broker/inflight.h"

struct ol_broker_thread;

/* What a broker's file implements; always called on this thread. */
struct ol_broker_driver {
    /* Connect and log in within about timeout_ms. -1: the broker cannot be reached. */
    int (*connect)(void *self, int timeout_ms, outlog_err *err);

    /* Send one attempt, or queue it for flush(). The broker's file holds it until it calls
     * ol_broker_attempt_end. -1: the connection broke; disconnect() ends the attempt. */
    int (*send)(void *self, struct ol_broker_attempt *attempt, outlog_err *err);

    /* All attempts of this round went to send(). NULL: nothing to do. */
    int (*flush)(void *self, outlog_err *err);

    /* Read what has arrived, without waiting. -1: the connection broke. NULL: the client has a
     * thread that reads. */
    int (*read_replies)(void *self, outlog_err *err);

    /* The socket to poll; -1: none. */
    int (*fd)(void *self);

    /* Close, and end the attempts it still holds as UNKNOWN with `why`. Safe when not open. */
    void (*disconnect)(void *self, const char *why);

    int tick_ms; /* call read_replies() at least this often, for keep-alives; 0: no need */
};

struct ol_broker_thread {
    struct ol_inflight inflight; /* first */

    /* private */
    const struct ol_broker_driver *driver;
    void *self;
    pthread_t id;
    pthread_mutex_t lock;
    struct ol_broker_attempt *queue, **queue_end;
    int wake_fd;
    int fd; /* guarded by lock: the socket that the watchdog may shut down */
    atomic_bool is_closing, is_broken;
    atomic_llong replied_us; /* when the broker last sent something */
};

int ol_broker_thread_open(struct ol_broker_thread *thread, const struct outlog_publisher_host *host,
                          const struct ol_broker_naming *naming,
                          const struct ol_broker_driver *driver, void *self, outlog_err *err);

/* Ends every attempt, then stops the thread. */
void ol_broker_thread_close(struct ol_broker_thread *thread);

/* Functions of struct outlog_publisher, for an instance whose first member is this struct. */
void ol_broker_thread_submit(void *instance, const struct outlog_delivery *message,
                             int64_t deadline_us, void *tag);
void ol_broker_thread_drive(void *instance, int timeout_ms);
int ol_broker_thread_fd(void *instance);
void ol_broker_thread_abandon(void *instance, void *tag);

/* --- for the broker's file, any thread -------------------------------------------------------- */

/* The broker has sent something. */
void ol_broker_thread_replied(struct ol_broker_thread *thread);

/* The connection is gone: the thread will call disconnect(). For clients that notice it. */
void ol_broker_thread_lost(struct ol_broker_thread *thread);

#endif
