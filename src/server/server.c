/* server.c: the loop, and the way of a request through it.
 *
 *   peer ▶ http ▶ take() ▶ clerk: auth, handler ▶ finished() ▶ http ▶ peer
 *                             ▲                       │
 *                             └────── follow ◀────────┘  long polls and streams */
#include "server/live/notification_sockets.h"
#include "server/server.h"

#include "base/clock.h"
#include "base/err.h"
#include "outbox/batcher.h"
#include "server/http/access_log.h"
#include "server/http/cors.h"
#include "server/http/idempotency_key.h"
#include "server/http/request_span.h"
#include "server/http/router.h"
#include "server/live/session_sockets.h"
#include "store/postgres/shutdown.h"

#include <netdb.h>
#include <openssl/err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SWEEP_MS = 250, POLL_MS = 10, REFRESH_MS = 2000, STOP_MS = 10000 };

struct ol_server_options ol_server_defaults(const char *store)
{
    return (struct ol_server_options){
        .store = store,
        .listen = "127.0.0.1:7400",
        .clerks = 4,
        .body_bytes = (size_t)16 * 1024 * 1024,
        .most_peers = 4096,
        .most_queued = 4096,
    };
}

/* --- a request's way --- */

/* In a clerk's thread. */
static void work(struct ol_request *request)
{
    struct ol_server *server = request->server;
    enum ol_handler_result answer = OL_HANDLER_ANSWERED;
    outlog_err err;

    if (request->route && !request->is_admitted)
        request->is_admitted = request->route->is_open ||
                               (ol_auth_admit(server->auth, request) && ol_auth_allows(request));
    if (request->route && !request->is_admitted)
        answer = OL_HANDLER_ANSWERED;
    else if (request->route && request->route->is_confined &&
             request->who.scope != OL_SCOPE_ADMIN &&
             ol_worker_pool_confine(request, server->options.direct_store, &err) < 0)
        answer = ol_problem(request, &err);
    else if (request->job)
        answer = request->job(request);
    else
        answer = ol_idempotency_key_run(request);
    if (answer == OL_HANDLER_LATER)
        return; // it may be gone already
    request->answer = answer;
    ol_request_finish(request);
}

void ol_request_finish(struct ol_request *request)
{
    struct ol_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    bool was_empty = !server->done;
    request->next = server->done;
    server->done = request;
    pthread_mutex_unlock(&server->lock);
    if (was_empty)
        uv_async_send(&server->woken);
}

static void count(struct ol_server *server, const struct ol_request *request)
{
    int kind = request->status / 100;
    atomic_fetch_add(&server->answers[kind >= 1 && kind <= 5 ? kind : 0], 1);
    if (request->status == 503 && request->method && strcmp(request->method, "POST") == 0)
        atomic_store(&server->has_refused, true);
    if (request->route && strcmp(request->route->name, "appendEvents") == 0 && kind == 2)
        ol_rates_append(server->rates, ol_clock_boot_us() - request->began_at);
}

void ol_server_post(struct ol_server *server, struct ol_loop_task *post)
{
    post->next = NULL;
    pthread_mutex_lock(&server->lock);
    bool was_empty = !server->posts;
    *server->last_post = post;
    server->last_post = &post->next;
    pthread_mutex_unlock(&server->lock);
    if (was_empty)
        uv_async_send(&server->woken);
}

static void run_posts(struct ol_server *server)
{
    pthread_mutex_lock(&server->lock);
    struct ol_loop_task *post = server->posts;
    server->posts = NULL;
    server->last_post = &server->posts;
    pthread_mutex_unlock(&server->lock);
    for (struct ol_loop_task *next; post; post = next) {
        next = post->next;
        post->run(post);
    }
}

static void answer(struct ol_server *server, struct ol_request *request)
{
    if (request->reply.failed || request->extra.failed)
        ol_problem_say(request, 503, "no_memory", "out of memory");
    count(server, request);
    ol_access_log_write(request);
    ol_request_span_end(request);
    ol_http1_answer(request);
}

/* --- jobs without a client --- */

static enum ol_handler_result refresh_tokens(struct ol_request *request)
{
    outlog_err err;
    ol_auth_refresh(request->server->auth, request->log, &err); // the store is away: as before
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result beat(struct ol_request *request)
{
    ol_rates_sample(request->server->rates, request->log);
    ol_cors_refresh(request->server->origins, request->log);
    return OL_HANDLER_ANSWERED;
}

/* Give a clerk a job, unless the last one of its kind still runs. */
static void start_job(struct ol_server *server,
                      enum ol_handler_result (*job)(struct ol_request *request), bool *is_running)
{
    struct ol_request *request = ol_request_new(server);
    if (!request)
        return;
    request->job = job;
    *is_running = true;
    if (!ol_worker_pool_submit(server->clerks, request)) {
        *is_running = false;
        ol_request_free(request);
    }
}

/* Done, or the store could not be opened. */
static void end_job(struct ol_server *server, struct ol_request *request)
{
    if (request->job == beat)
        server->is_beating = false;
    else
        server->is_refreshing = false;
    ol_request_free(request);
}

static void on_quick(uv_timer_t *timer)
{
    struct ol_server *server = timer->data;
    ol_followers_poll(&server->followers);
}

static void finished(struct ol_server *server, struct ol_request *request)
{
    if (request->done) {
        request->done(request);
        return;
    }
    if (!request->route) {
        end_job(server, request);
        return;
    }
    if (request->answer == OL_HANDLER_WAITING || request->answer == OL_HANDLER_STREAMING) {
        ol_followers_put(&server->followers, request, uv_now(&server->loop));
        if (server->followers.poll_count && !uv_is_active((uv_handle_t *)&server->quick))
            uv_timer_start(&server->quick, on_quick, POLL_MS, 0);
        if (server->is_stopping)
            ol_followers_end_all(&server->followers);
        return;
    }
    request->is_working = false;
    if (request->answer == OL_HANDLER_UPGRADING && request->http)
        request->upgrade(request);
    else
        answer(server, request);
}

/* In the loop: a small append goes to the group without a clerk between, which would cost more in
 * switching threads than in work. */
static bool is_swift(struct ol_server *server, struct ol_request *request)
{
    enum { MOST_BYTES = 32 * 1024 };
    return request->route->runs_in_loop && request->body.bytes <= MOST_BYTES &&
           ol_auth_knows(server->auth, request);
}

static void handle_swiftly(struct ol_server *server, struct ol_request *request)
{
    request->is_working = true;
    if (ol_auth_allows(request) && request->route->handle(request) == OL_HANDLER_LATER)
        return;
    request->is_working = false;
    answer(server, request);
}

/* In the loop: a whole request came. */
static void take(struct ol_server *server, struct ol_request *request)
{
    request->who.is_dev = server->options.is_dev;
    if (server->options.is_dev)
        request->who.scope = OL_SCOPE_ADMIN;
    if (!ol_cors_check(request, server->origins, server->options.is_dev) ||
        !ol_router_find(request) || !ol_router_check_query(request)) {
        answer(server, request);
    } else if (request->route->is_instant) {
        request->route->handle(request);
        answer(server, request);
    } else if (is_swift(server, request)) {
        handle_swiftly(server, request);
    } else {
        request->is_working = true;
        if (!ol_worker_pool_submit(server->clerks, request)) {
            request->is_working = false;
            ol_problem_say(request, 503, "unavailable",
                           "too many requests wait; nothing was stored");
            answer(server, request);
        }
    }
}

static void gone(struct ol_server *server, struct ol_request *request)
{
    ol_followers_gone(&server->followers, request);
}

static void drained(struct ol_server *server, struct ol_request *request)
{
    ol_followers_drained(&server->followers, request);
}

/* --- what wakes the loop --- */

static void moved(void *user)
{
    struct ol_server *server = user;
    if (!atomic_exchange(&server->has_moved, true))
        uv_async_send(&server->woken);
}

static void on_woken(uv_async_t *async)
{
    struct ol_server *server = async->data;
    struct ol_request *all = NULL;

    pthread_mutex_lock(&server->lock);
    struct ol_request *done = server->done;
    server->done = NULL;
    pthread_mutex_unlock(&server->lock);
    for (struct ol_request *next; done; done = next) { // the oldest first
        next = done->next;
        done->next = all;
        all = done;
    }
    for (struct ol_request *next; all; all = next) {
        next = all->next;
        all->next = NULL;
        finished(server, all);
    }
    run_posts(server);
    if (atomic_exchange(&server->has_moved, false))
        ol_followers_moved(&server->followers);
}

static void begin_stop(struct ol_server *server)
{
    if (server->is_stopping) { // asked twice
        uv_stop(&server->loop);
        return;
    }
    server->is_stopping = true;
    server->stop_by = uv_now(&server->loop) + STOP_MS;
    uv_close((uv_handle_t *)&server->listener, NULL);
    ol_followers_end_all(&server->followers);
    ol_session_sockets_close_all(server->rooms);
    ol_notification_sockets_close_all(server->feed);
    ol_http1_finish_all(&server->peers);
}

static void on_timer(uv_timer_t *timer)
{
    struct ol_server *server = timer->data;
    uint64_t now = uv_now(&server->loop);

    ol_client_conns_sweep(&server->peers);
    ol_followers_sweep(&server->followers, now);
    ol_session_sockets_sweep(server->rooms);
    ol_notification_sockets_sweep(server->feed);
    if (!server->options.is_dev && now >= server->refresh_at && !server->is_refreshing) {
        server->refresh_at = now + REFRESH_MS;
        start_job(server, refresh_tokens, &server->is_refreshing);
    }
    if (now >= server->beat_at && !server->is_beating) {
        server->beat_at = now + OL_RATES_MS;
        start_job(server, beat, &server->is_beating);
    }
    if (*server->stop && !server->is_stopping)
        begin_stop(server);
    if (server->is_stopping && (!server->peers.first || now >= server->stop_by))
        uv_stop(&server->loop);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct ol_server *server = handle->data;
    (void)number;
    atomic_fetch_add(server->stop, 1);
    ol_shutdown_begin();
    begin_stop(server);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct ol_server *server = listener->data;
    if (status == 0)
        ol_http1_accept(&server->peers, listener, &server->http);
}

/* --- starting --- */

static int split_address(const char *listen, char host[256], char port[16], outlog_err *err)
{
    const char *colon = strrchr(listen, ':');
    size_t bytes = colon ? (size_t)(colon - listen) : 0;
    const char *start = listen;

    if (!colon || !colon[1] || strlen(colon + 1) >= 16 || bytes >= 256)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "listen is HOST:PORT, not '%.80s'", listen);
    if (strtol(colon + 1, NULL, 10) > 65535) // the resolver would take what is left of it
        return ol_fail(err, OUTLOG_INVALID_FIELD, "'%.80s': a port is at most 65535", listen);
    if (bytes >= 2 && start[0] == '[' && start[bytes - 1] == ']') {
        start++;
        bytes -= 2;
    }
    memcpy(host, start, bytes);
    host[bytes] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return 0;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static int bind_listener(struct ol_server *server, outlog_err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    struct sockaddr_storage bound;
    int bytes = sizeof bound, result;
    char host[256], port[16], name[64] = "";

    if (split_address(server->options.listen, host, port, err) < 0)
        return -1;
    if ((result = getaddrinfo(*host ? host : NULL, port, &hints, &found)) != 0)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "cannot listen on '%.80s': %s",
                       server->options.listen, gai_strerror(result));
    // X3: whoever reaches another address could claim any Host name.
    if (server->options.is_dev && !is_loopback(found->ai_addr)) {
        freeaddrinfo(found);
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "--dev asks for no token, so it listens on a loopback address, not on %.80s;"
                       " leave one of the two out",
                       server->options.listen);
    }
    uv_tcp_init(&server->loop, &server->listener);
    server->listener.data = server;
    result = uv_tcp_bind(&server->listener, found->ai_addr, 0);
    freeaddrinfo(found);
    if (result == 0)
        result = uv_listen((uv_stream_t *)&server->listener, 512, on_connection);
    if (result < 0)
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "cannot listen on %.80s: %s; choose another with "
                       "--listen",
                       server->options.listen, uv_strerror(result));
    uv_tcp_getsockname(&server->listener, (struct sockaddr *)&bound, &bytes);
    uv_ip_name((struct sockaddr *)&bound, name, sizeof name);
    int number = bound.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&bound)->sin6_port)
                                             : ntohs(((struct sockaddr_in *)&bound)->sin_port);
    if (server->options.ready)
        server->options.ready(server->options.user, name, number);
    return 0;
}

static int load_tls(struct ol_server *server, outlog_err *err)
{
    const struct ol_server_options *options = &server->options;
    if (!options->tls_cert && !options->tls_key)
        return 0;
    if (!options->tls_cert || !options->tls_key)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "TLS needs both --tls-cert and --tls-key");
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (!context)
        return ol_no_memory(err);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    server->peers.tls = context;
    if (SSL_CTX_use_certificate_chain_file(context, options->tls_cert) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, options->tls_key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "cannot use the certificate %.120s with its key: %s", options->tls_cert,
                       ERR_reason_error_string(ERR_peek_last_error()));
    return 0;
}

static void close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static int start(struct ol_server *server, outlog_err *err)
{
    uv_loop_init(&server->loop);
    uv_async_init(&server->loop, &server->woken, on_woken);
    uv_timer_init(&server->loop, &server->timer);
    uv_timer_init(&server->loop, &server->quick);
    uv_signal_init(&server->loop, &server->term);
    uv_signal_init(&server->loop, &server->interrupt);
    server->woken.data = server->timer.data = server->quick.data = server->term.data =
        server->interrupt.data = server;
    const struct ol_server_options *options = &server->options;
    if (load_tls(server, err) < 0 || ol_auth_open(&server->auth, err) < 0 ||
        ol_cors_open(&server->origins, options->store, err) < 0 ||
        ol_rates_open(&server->rates, err) < 0 ||
        ol_event_tail_open(&server->hub, options->store, moved, server, err) < 0 ||
        ol_batcher_open(options->store, options->most_queued, &server->group, err) < 0 ||
        ol_worker_pool_open(&server->clerks, options->store, options->clerks, options->most_queued,
                            work, err) < 0)
        return -1;
    server->followers =
        (struct ol_followers){.clerks = server->clerks, .hub = server->hub, .auth = server->auth};
    if (ol_session_sockets_open(server, &server->rooms, err) < 0 ||
        ol_notification_sockets_open(server, &server->feed, err) < 0)
        return -1;
    uv_timer_start(&server->timer, on_timer, SWEEP_MS, SWEEP_MS);
    uv_signal_start(&server->term, on_signal, SIGTERM);
    uv_signal_start(&server->interrupt, on_signal, SIGINT);
    return bind_listener(server, err);
}

/* Clerks and the group end first: they may still finish requests, which the loop then answers to
 * nobody. */
static void clear(struct ol_server *server)
{
    ol_session_sockets_end_runner(server->rooms);
    ol_worker_pool_close(server->clerks);
    server->clerks = NULL; // what they finished last may want one more job done
    ol_batcher_close(server->group);
    server->group = NULL; // nor is anything stored any more
    on_woken(&server->woken);
    ol_client_conns_close_all(&server->peers);
    uv_walk(&server->loop, close_handle, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    ol_session_sockets_close(server->rooms);
    ol_notification_sockets_close(server->feed);
    ol_event_tail_close(server->hub);
    ol_auth_close(server->auth);
    ol_cors_close(server->origins);
    ol_rates_close(server->rates);
    SSL_CTX_free(server->peers.tls);
    uv_loop_close(&server->loop);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

/* How many clients there may be: at most half of the descriptors are theirs, for the store and what
 * is delivered need some too, and who takes them all must not take those. */
static size_t allow_peers(size_t wanted)
{
    struct rlimit files;
    rlim_t needed = (rlim_t)wanted * 2;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return wanted;
    if (files.rlim_cur < needed && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max < needed ? files.rlim_max : needed;
        if (setrlimit(RLIMIT_NOFILE, &files) < 0)
            getrlimit(RLIMIT_NOFILE, &files);
    }
    return files.rlim_cur < needed ? (size_t)files.rlim_cur / 2 : wanted;
}

int ol_server_run(const struct ol_server_options *options, atomic_int *stop, outlog_err *err)
{
    struct ol_server *server = calloc(1, sizeof *server);
    if (!server)
        return ol_no_memory(err);
    server->options = *options;
    server->stop = stop;
    server->started_at = ol_clock_boot_us();
    server->peers.loop = &server->loop;
    server->peers.max = allow_peers(options->most_peers);
    server->http = (struct ol_http1_handler){
        .server = server,
        .limits = {.head_bytes = 16 * 1024,
                   .body_bytes = options->body_bytes,
                   .bodies_bytes = options->body_bytes * 16,
                   .head_ms = 10000,
                   .body_ms = 30000,
                   .idle_ms = 75000,
                   .write_ms = 30000},
        .request = take,
        .gone = gone,
        .drained = drained,
    };
    pthread_mutex_init(&server->lock, NULL);
    server->last_post = &server->posts;
    signal(SIGPIPE, SIG_IGN);
    int result = start(server, err);
    if (result == 0)
        uv_run(&server->loop, UV_RUN_DEFAULT);
    clear(server);
    return result;
}
