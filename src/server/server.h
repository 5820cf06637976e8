/* server.h: outlog serve: the API, the console and, unless told otherwise, the relay. */
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
    const char *direct_store;   /* the same database without a pooler between; may be `store` */
    const char *tls_cert, *tls_key;
    bool is_dev;
    int64_t lease_us; /* of sessions; 0: the default */
    bool has_relay;   /* this process delivers too */
    int clerks;
    int answers; /* agents that speak at a time; 0: the default */
    size_t body_bytes, most_peers, most_queued;
    struct ol_span_exporter *tracer; /* the caller's; NULL: no spans */
    /* Called once, when requests are answered; `port` is the one that was bound. */
    void (*ready)(void *user, const char *host, int port);
    void *user;
};

/* Something for the loop to do, from another thread. */
struct ol_loop_task {
    struct ol_loop_task *next;
    void (*run)(struct ol_loop_task *post); /* owns it */
};

struct ol_notification_sockets;
struct ol_cors;
struct ol_session_sockets;

struct ol_server {
    struct ol_server_options options;
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_async_t woken;
    uv_timer_t timer, quick;
    uv_signal_t term, interrupt;
    struct ol_client_conns peers;
    struct ol_http1_handler http;
    struct ol_worker_pool *clerks;
    struct ol_event_tail *hub;
    struct ol_batcher *group; /* appends of many requests in one transaction */
    struct ol_auth *auth;
    struct ol_cors *origins; /* pages of others that may open sockets */
    struct ol_rates *rates;
    struct ol_followers followers;
    pthread_mutex_t lock;
    struct ol_request *done; /* finished by others, newest first */
    struct ol_loop_task *posts, **last_post;
    struct ol_session_sockets *rooms;     /* live sessions */
    struct ol_notification_sockets *feed; /* users who listen for notices */
    atomic_bool has_moved;
    bool is_stopping;
    bool is_refreshing, is_beating;
    uint64_t refresh_at, beat_at, stop_by;
    int64_t started_at;
    atomic_bool has_refused; /* a write was answered 503: readiness tries one itself */
    atomic_llong answers[6]; /* by the hundreds of their status */
    atomic_int *stop;        /* 1: finish and return */
};

struct ol_server_options ol_server_defaults(const char *store);

/* Serve until *stop becomes 1 or SIGTERM comes; then what runs is finished, in a bounded time. A
 * second signal ends it at once. -1 when it could not start. */
int ol_server_run(const struct ol_server_options *options, atomic_int *stop, outlog_err *err);

/* Have the loop do it, in order, from any thread. */
void ol_server_post(struct ol_server *server, struct ol_loop_task *post);

#endif
