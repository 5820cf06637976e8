/* http_engine.h: what the owner's thread and the engine's thread of an HTTP client share.
 *
 *     owner: prepare ---started---> engine: curl, http_plain, sockets
 *     owner: report  <---ended----- engine
 *
 * H1  A transfer belongs to the owner until it is on `started`, then to the engine until it is on
 *     `ended`, then to the owner again. Both lists are under the lock; nothing else is shared.
 * H2  Only the engine's thread touches multi handles and connections.
 * H3  `done` is called on the owner's thread only.
 *
 * Each pool has a multi handle of its own: for each request curl searches all connections to the
 * host, and hundreds of one pool would slow down every other pool to the same host. The engine
 * waits for the sockets of all pools in one epoll set, because each call of curl_multi_poll visits
 * every transfer. */
#ifndef OL_NET_HTTP_ENGINE_H
#define OL_NET_HTTP_ENGINE_H

#include "net/http_plain.h"
#include "net/http_pool.h"

#include <pthread.h>
#include <stdatomic.h>

/* Transfers that are handed to the engine at once, unless a drive or flush comes before. */
enum { OL_HTTP_BATCH = 16 };

struct ol_http_socket;

struct ol_http_pool {
    struct ol_http_client *http;
    ol_http_client_done *done;
    void *owner;
    struct ol_http_transfer *first, *free_transfers; /* in flight; to be used again */
    struct ol_http_origin origin;

    /* the engine's */
    struct ol_idle_conns idle;
    CURLM *multi;
    struct ol_http_pool *next;    /* among those with curl transfers in flight */
    size_t count;                 /* curl's transfers in flight */
    int64_t timer_us;             /* when to call curl without an event; INT64_MAX: never */
    struct ol_http_pool *closing; /* the next one among those to be closed */
    bool is_closed;               /* under the lock */
};

struct ol_http_client {
    int owner_epoll, ended_fd; /* the owner waits for ended_fd and for what it watches */
    bool is_running;
    pthread_t thread;
    struct ol_http_transfer *prepared, **prepared_tail; /* not handed to the engine yet */
    size_t prepared_count;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a transfer ended, or a pool was closed */
    struct ol_http_transfer *started, **started_tail;
    struct ol_http_transfer *ended, **ended_tail;
    struct ol_http_transfer *abandoned;
    struct ol_http_pool *closing;
    bool is_stopped;
    atomic_bool is_asleep; /* set under the lock: write to wake_fd after a change */

    /* the engine's */
    int epoll, wake_fd;
    struct ol_http_pool *active;
    struct ol_http_plain plain;
    struct ol_http_socket_hooks hooks;
    struct ol_http_socket *sockets; /* by descriptor */
    size_t socket_room;
    struct ol_http_transfer *finished, **finished_tail; /* not on `ended` yet */
};

/* Set up the engine's part of a client whose epoll is open, and free it. */
void ol_http_engine_init(struct ol_http_client *http);
void ol_http_engine_clear(struct ol_http_client *http);

/* Let a new pool's multi handle use the engine's epoll set. */
void ol_http_engine_attach(struct ol_http_pool *pool);

/* Wake the engine after a change of a shared list. The lock is held. */
void ol_http_engine_wake(struct ol_http_client *http);

/* Make an eventfd readable, and not readable again. */
void ol_http_engine_signal(int event_fd);
void ol_http_engine_consume(int event_fd);

/* Call `done` for each transfer on `ended`, on the owner's thread. In http_client.c. */
void ol_http_client_report(struct ol_http_client *http);

/* Start the engine's thread, unless it runs. */
int ol_http_engine_start(struct ol_http_client *http, outlog_err *err);

#endif
