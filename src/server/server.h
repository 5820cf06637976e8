/* server.h: the daemon of `outlog serve`: the HTTP API, the console and the live sockets. */
#ifndef OL_SERVER_SERVER_H
#define OL_SERVER_SERVER_H

#include "server/http/auth.h"
#include "server/http/http1.h"
#include "server/live/event_tail.h"
#include "server/live/followers.h"
#include "server/rates.h"
#include "server/worker_pool.h"

#include <pthread.h>
#include <stdatomic.h>

struct ol_batcher;
struct ol_span_exporter;

struct ol_server_options {
    const char *store, *listen; /* listen: HOST:PORT, [HOST]:PORT */
    const char *direct_store;   /* the same database without a pooler; may equal `store` */
    const char *tls_cert, *tls_key;
    bool is_dev;
    int64_t lease_us; /* of sessions; 0: the default */
    bool has_relay;   /* this process delivers too */
    int workers;      /* threads for requests */
    int answers;      /* agents that run at a time; 0: the default */
    size_t body_bytes, clients_max, queue_max;
    size_t strangers_max;            /* connections of one address that showed no token */
    struct ol_span_exporter *tracer; /* the caller's; NULL: no spans */
    /* Called once, when requests are answered; `port` is the one that was bound. */
    void (*ready)(void *user, const char *host, int port);
    void *user;
};

struct ol_notification_sockets;
struct ol_cors;
struct ol_session_sockets;

struct ol_server {
    struct ol_server_options options;
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_async_t woken;
    uv_timer_t sweep_timer, poll_timer;
    uv_signal_t term, interrupt;
    struct ol_client_conns conns;
    struct ol_http1_handler http;
    struct ol_worker_pool *workers;
    struct ol_event_tail *event_tail;
    struct ol_batcher *batcher; /* appends of many requests in one transaction */
    struct ol_auth *auth;
    struct ol_cors *cors; /* other origins whose pages may open sockets */
    struct ol_rates *rates;
    struct ol_followers followers;
    struct ol_session_sockets *sessions;
    struct ol_notification_sockets *notifications;

    pthread_mutex_t lock;
    struct ol_job *finished, **finished_last; /* by other threads, oldest first */
    struct ol_job *held, **held_last;         /* refusals that wait for `held_until` */
    atomic_bool has_moved;                    /* the event tail has new events */

    struct ol_job refresh_job, sample_job;
    bool is_refreshing, is_sampling;
    uint64_t refresh_at, sample_at;

    bool is_stopping;
    uint64_t stop_by;
    atomic_int *stop; /* 1: finish and return */

    int64_t started_at;
    atomic_bool has_refused; /* a write was answered 503: readiness tries one itself */
    atomic_llong answers[6]; /* by the hundreds of their status */
};

struct ol_server_options ol_server_defaults(const char *store);

/* Serve until *stop becomes 1 or SIGTERM arrives; then finish what runs, within a bounded time. A
 * second signal ends it at once. -1: it could not start. */
int ol_server_run(const struct ol_server_options *options, atomic_int *stop, outlog_err *err);

#endif
