/* server.c: the loop, and the way of a request through it.
 *
 *   connection ▶ http1 ▶ on_request ▶ worker: auth, handler ▶ finish_request ▶ http1 ▶ connection
 *                                        ▲                          │
 *                                        └────── followers ◀────────┘  long polls and streams */
#include "server/server.h"

#include "base/clock.h"
#include "base/err.h"
#include "outbox/batcher.h"
#include "server/http/access_log.h"
#include "server/http/cors.h"
#include "server/http/idempotency_key.h"
#include "server/http/request_span.h"
#include "server/http/router.h"
#include "server/live/notification_sockets.h"
#include "server/live/session_inbound.h"
#include "server/live/session_outbound.h"
#include "server/live/session_sockets.h"
#include "store/postgres/shutdown.h"

#include <netdb.h>
#include <openssl/err.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SWEEP_MS = 250, POLL_MS = 10, TOKEN_REFRESH_MS = 2000, STOP_MS_MAX = 10000 };
enum { INLINE_BODY_MAX = 32 * 1024, HOLD_MS = 1000 };

struct ol_server_options ol_server_defaults(const char *store)
{
    return (struct ol_server_options){
        .store = store,
        .listen = "127.0.0.1:7400",
        .workers = 4,
        .body_bytes = (size_t)16 * 1024 * 1024,
        .clients_max = 4096,
        .strangers_max = 256,
        .queue_max = 4096,
    };
}

/* --- back to the loop --- */

void ol_server_finish_job(struct ol_server *server, struct ol_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&server->lock);
    bool was_empty = !server->finished;
    *server->finished_last = job;
    server->finished_last = &job->next;
    pthread_mutex_unlock(&server->lock);
    if (was_empty)
        uv_async_send(&server->woken);
}

void ol_request_finish(struct ol_request *request)
{
    ol_server_finish_job(request->server, &request->job);
}

/* --- requests --- */

static bool admit_request(struct ol_request *request)
{
    if (!request->is_admitted)
        request->is_admitted =
            request->route->is_open ||
            (ol_auth_admit(request->server->auth, request) && ol_auth_allows(request));
    return request->is_admitted;
}

/* On a worker. */
static bool run_request(struct ol_job *job)
{
    struct ol_request *request = (struct ol_request *)job;
    const char *store = request->server->options.direct_store;
    enum ol_handler_result answer = OL_HANDLER_ANSWERED;
    bool is_stream = request->follower.is_streaming; // it has begun, and lags
    outlog_err err;

    request->log = job->log;
    if (!admit_request(request))
        answer = OL_HANDLER_ANSWERED;
    else if (request->route->is_confined && request->who.scope != OL_SCOPE_ADMIN &&
             ol_worker_pool_confine(job, store, request->who.org_id, &request->log, &err) < 0)
        answer = is_stream ? OL_HANDLER_STREAMING : ol_problem(request, &err);
    else
        answer = is_stream ? ol_followers_read(request) : ol_idempotency_key_run(request);
    if (answer == OL_HANDLER_LATER)
        return false; // it may be gone already
    request->answer = answer;
    return true;
}

static void count_answer(struct ol_server *server, const struct ol_request *request)
{
    int kind = request->status / 100;
    atomic_fetch_add(&server->answers[kind >= 1 && kind <= 5 ? kind : 0], 1);
    if (request->status == 503 && request->method && strcmp(request->method, "POST") == 0)
        atomic_store(&server->has_refused, true);
    if (request->route && strcmp(request->route->name, "appendEvents") == 0 && kind == 2)
        ol_rates_append(server->rates, ol_clock_boot_us() - request->began_at);
}

static void send_answer(struct ol_server *server, struct ol_request *request)
{
    if (request->reply.failed || request->extra.failed)
        ol_problem_say(request, 503, "no_memory", "out of memory");
    count_answer(server, request);
    ol_access_log_write(request);
    ol_request_span_end(request);
    ol_http1_answer(request);
}

static void on_poll_timer(uv_timer_t *timer)
{
    struct ol_server *server = timer->data;
    ol_followers_poll(&server->followers);
}

static void finish_request(struct ol_server *server, struct ol_request *request)
{
    if (request->is_admitted && !request->route->is_open)
        ol_http1_recognize(request);
    if (request->job.result < 0 && !request->follower.is_streaming) // no store
        request->answer = ol_problem(request, &request->job.err);
    if (request->answer == OL_HANDLER_WAITING || request->answer == OL_HANDLER_STREAMING) {
        ol_followers_put(&server->followers, request, uv_now(&server->loop));
        if (server->followers.poll_count && !uv_is_active((uv_handle_t *)&server->poll_timer))
            uv_timer_start(&server->poll_timer, on_poll_timer, POLL_MS, 0);
        if (server->is_stopping)
            ol_followers_end_all(&server->followers);
        return;
    }
    request->is_working = false;
    if (request->answer == OL_HANDLER_UPGRADING && request->http) {
        ol_http1_recognize(request);
        request->upgrade(request);
    } else
        send_answer(server, request);
}

/* A small append goes from the loop to the batcher: a worker in between would cost more for the
 * thread change than for the work. */
static bool is_inline(struct ol_server *server, struct ol_request *request)
{
    return request->route->runs_in_loop && request->body.bytes <= INLINE_BODY_MAX &&
           ol_auth_knows(server->auth, request);
}

static void handle_inline(struct ol_server *server, struct ol_request *request)
{
    ol_http1_recognize(request);
    request->is_working = true;
    if (ol_auth_allows(request) && request->route->handle(request) == OL_HANDLER_LATER)
        return;
    request->is_working = false;
    send_answer(server, request);
}

static bool is_known(struct ol_server *server, const struct ol_request *request)
{
    return server->options.is_dev || ol_auth_recognizes(server->auth, request);
}

/* An unknown token is looked up in the store, as it may be new. An address that sends many of them
 * has to wait for each answer, and nothing is looked up. Right tokens are never held. */
static bool is_guessing(struct ol_server *server, struct ol_request *request)
{
    return !request->route->is_open && ol_request_header(request, "authorization") &&
           !is_known(server, request) && !ol_http1_try_token(request);
}

static void hold_refusal(struct ol_server *server, struct ol_request *request)
{
    ol_problem_say(request, 429, "rate_limited",
                   "too many unknown tokens came from this address; this one was not looked up");
    request->is_working = true; // a client that goes does not free it
    request->held_until = uv_now(&server->loop) + HOLD_MS;
    request->job.next = NULL;
    *server->held_last = &request->job;
    server->held_last = &request->job.next;
}

static void send_held(struct ol_server *server, uint64_t now)
{
    for (struct ol_request *request;
         (request = (struct ol_request *)server->held) && now >= request->held_until;) {
        if (!(server->held = request->job.next))
            server->held_last = &server->held;
        request->is_working = false;
        send_answer(server, request);
    }
}

/* A complete request has arrived. */
static void on_request(struct ol_server *server, struct ol_request *request)
{
    request->who.is_dev = server->options.is_dev;
    if (server->options.is_dev)
        request->who.scope = OL_SCOPE_ADMIN;
    if (!ol_cors_check(request, server->cors, server->options.is_dev) || !ol_router_find(request) ||
        !ol_router_check_query(request)) {
        send_answer(server, request);
    } else if (request->route->is_instant) {
        request->route->handle(request);
        send_answer(server, request);
    } else if (is_inline(server, request)) {
        handle_inline(server, request);
    } else if (is_guessing(server, request)) {
        hold_refusal(server, request);
    } else {
        request->job.run = run_request;
        request->is_working = true;
        if (!ol_worker_pool_submit(server->workers, &request->job)) {
            request->is_working = false;
            ol_problem_say(request, 503, "unavailable",
                           "too many requests wait; nothing was stored");
            send_answer(server, request);
        }
    }
}

static void on_request_gone(struct ol_server *server, struct ol_request *request)
{
    ol_followers_gone(&server->followers, request);
}

static void on_request_drained(struct ol_server *server, struct ol_request *request)
{
    ol_followers_drained(&server->followers, request);
}

/* --- jobs of the server itself --- */

/* If the store is away the tokens stay as they are. */
static bool refresh_tokens(struct ol_job *job)
{
    struct ol_server *server =
        (struct ol_server *)((char *)job - offsetof(struct ol_server, refresh_job));
    job->result = ol_auth_refresh(server->auth, job->log, &job->err);
    return true;
}

static bool sample_rates(struct ol_job *job)
{
    struct ol_server *server =
        (struct ol_server *)((char *)job - offsetof(struct ol_server, sample_job));
    ol_rates_sample(server->rates, job->log);
    ol_cors_refresh(server->cors, job->log);
    return true;
}

static void start_own_jobs(struct ol_server *server, uint64_t now)
{
    if (!server->options.is_dev && now >= server->refresh_at && !server->is_refreshing) {
        server->refresh_at = now + TOKEN_REFRESH_MS;
        server->is_refreshing = ol_worker_pool_submit(server->workers, &server->refresh_job);
    }
    if (now >= server->sample_at && !server->is_sampling) {
        server->sample_at = now + OL_RATES_MS;
        server->is_sampling = ol_worker_pool_submit(server->workers, &server->sample_job);
    }
}

/* --- what wakes the loop --- */

static void finish_job(struct ol_server *server, struct ol_job *job)
{
    switch (job->type) {
    case OL_JOB_REQUEST:
        finish_request(server, (struct ol_request *)job);
        break;
    case OL_JOB_REFRESH:
        server->is_refreshing = false;
        break;
    case OL_JOB_SAMPLE:
        server->is_sampling = false;
        break;
    case OL_JOB_SESSION_BATCH:
        ol_session_inbound_on_stored(job);
        break;
    case OL_JOB_SESSION_ACK:
        ol_session_inbound_on_acked(job);
        break;
    case OL_JOB_SESSION_LOAD:
        ol_session_outbound_on_loaded(job);
        break;
    case OL_JOB_SESSION_ATTEMPTS:
        ol_session_outbound_on_counted(job);
        break;
    case OL_JOB_SESSION_POLL:
        ol_session_sockets_on_polled(job);
        break;
    case OL_JOB_NOTIFICATION_LOAD:
        ol_notification_sockets_on_loaded(job);
        break;
    case OL_JOB_NOTIFICATION_POLL:
        ol_notification_sockets_on_polled(job);
        break;
    case OL_JOB_NOTIFICATION_READ:
        ol_notification_sockets_on_read(job);
        break;
    }
}

/* On the event tail's thread. */
static void on_tail_moved(void *user)
{
    struct ol_server *server = user;
    if (!atomic_exchange(&server->has_moved, true))
        uv_async_send(&server->woken);
}

static void on_woken(uv_async_t *async)
{
    struct ol_server *server = async->data;

    pthread_mutex_lock(&server->lock);
    struct ol_job *job = server->finished;
    server->finished = NULL;
    server->finished_last = &server->finished;
    pthread_mutex_unlock(&server->lock);
    for (struct ol_job *next; job; job = next) {
        next = job->next;
        finish_job(server, job);
    }
    if (atomic_exchange(&server->has_moved, false))
        ol_followers_moved(&server->followers);
}

static void begin_stop(struct ol_server *server)
{
    if (server->is_stopping) { // the second signal
        uv_stop(&server->loop);
        return;
    }
    server->is_stopping = true;
    server->stop_by = uv_now(&server->loop) + STOP_MS_MAX;
    uv_close((uv_handle_t *)&server->listener, NULL);
    ol_followers_end_all(&server->followers);
    ol_session_sockets_close_all(server->sessions);
    ol_notification_sockets_close_all(server->notifications);
    ol_http1_finish_all(&server->conns);
}

static void on_sweep_timer(uv_timer_t *timer)
{
    struct ol_server *server = timer->data;
    uint64_t now = uv_now(&server->loop);

    ol_client_conns_sweep(&server->conns);
    send_held(server, server->is_stopping ? UINT64_MAX : now);
    ol_followers_sweep(&server->followers, now);
    ol_session_sockets_sweep(server->sessions);
    ol_notification_sockets_sweep(server->notifications);
    start_own_jobs(server, now);
    if (*server->stop && !server->is_stopping)
        begin_stop(server);
    if (server->is_stopping && (!server->conns.first || now >= server->stop_by))
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
        ol_http1_accept(&server->conns, listener, &server->http);
}

/* --- starting --- */

static int split_address(const char *listen, char host[256], char port[16], outlog_err *err)
{
    const char *colon = strrchr(listen, ':');
    size_t bytes = colon ? (size_t)(colon - listen) : 0;
    const char *start = listen;

    if (!colon || !colon[1] || strlen(colon + 1) >= 16 || bytes >= 256)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "listen is HOST:PORT, not '%.80s'", listen);
    if (strtol(colon + 1, NULL, 10) > 65535) // the resolver would take it modulo 65536
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
    // X3: a client on another address could send any Host name.
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
    server->conns.tls = context;
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

static void init_loop(struct ol_server *server)
{
    uv_loop_init(&server->loop);
    uv_async_init(&server->loop, &server->woken, on_woken);
    uv_timer_init(&server->loop, &server->sweep_timer);
    uv_timer_init(&server->loop, &server->poll_timer);
    uv_signal_init(&server->loop, &server->term);
    uv_signal_init(&server->loop, &server->interrupt);
    server->woken.data = server->sweep_timer.data = server->poll_timer.data = server->term.data =
        server->interrupt.data = server;
}

static int open_parts(struct ol_server *server, outlog_err *err)
{
    const struct ol_server_options *options = &server->options;
    const struct ol_worker_pool_options pool = {.server = server,
                                                .store = options->store,
                                                .threads = options->workers,
                                                .queue_max = options->queue_max};
    if (!(server->conns.peers = ol_peer_table_open()))
        return ol_no_memory(err);
    if (load_tls(server, err) < 0 || ol_auth_open(&server->auth, err) < 0 ||
        ol_cors_open(&server->cors, options->store, err) < 0 ||
        ol_rates_open(&server->rates, err) < 0 ||
        ol_event_tail_open(&server->event_tail, options->store, on_tail_moved, server, err) < 0 ||
        ol_batcher_open(options->store, options->queue_max, &server->batcher, err) < 0 ||
        ol_worker_pool_open(&pool, &server->workers, err) < 0)
        return -1;
    server->followers = (struct ol_followers){.workers = server->workers,
                                              .event_tail = server->event_tail,
                                              .auth = server->auth};
    return ol_session_sockets_open(server, &server->sessions, err) < 0 ||
                   ol_notification_sockets_open(server, &server->notifications, err) < 0
               ? -1
               : 0;
}

static int start_server(struct ol_server *server, outlog_err *err)
{
    init_loop(server);
    if (open_parts(server, err) < 0)
        return -1;
    uv_timer_start(&server->sweep_timer, on_sweep_timer, SWEEP_MS, SWEEP_MS);
    uv_signal_start(&server->term, on_signal, SIGTERM);
    uv_signal_start(&server->interrupt, on_signal, SIGINT);
    return bind_listener(server, err);
}

/* Workers and the batcher end first: they may still finish requests, whose clients have gone. */
static void close_server(struct ol_server *server)
{
    ol_session_sockets_end_runner(server->sessions);
    ol_worker_pool_close(server->workers);
    server->workers = NULL; // what finished last may submit one more job: it is refused
    ol_batcher_close(server->batcher);
    server->batcher = NULL;
    on_woken(&server->woken);
    send_held(server, UINT64_MAX);
    ol_client_conns_close_all(&server->conns);
    uv_walk(&server->loop, close_handle, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    ol_session_sockets_close(server->sessions);
    ol_notification_sockets_close(server->notifications);
    ol_event_tail_close(server->event_tail);
    ol_auth_close(server->auth);
    ol_cors_close(server->cors);
    ol_rates_close(server->rates);
    ol_peer_table_close(server->conns.peers);
    SSL_CTX_free(server->conns.tls);
    uv_loop_close(&server->loop);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

/* How many clients there may be. They get at most half of the file descriptors: the store and the
 * deliveries need some too, even when every client's descriptor is taken. */
static size_t limit_clients(size_t wanted)
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
    server->conns.loop = &server->loop;
    server->conns.max = limit_clients(options->clients_max);
    server->conns.strangers_max = options->strangers_max;
    TAILQ_INIT(&server->conns.strangers);
    server->http = (struct ol_http1_handler){
        .server = server,
        .limits = {.head_bytes = 16 * 1024,
                   .body_bytes = options->body_bytes,
                   .bodies_bytes = options->body_bytes * 16,
                   .stranger_bodies_bytes = options->body_bytes * 4,
                   .head_ms = 10000,
                   .body_ms = 30000,
                   .idle_ms = 75000,
                   .write_ms = 30000},
        .is_known = is_known,
        .request = on_request,
        .gone = on_request_gone,
        .drained = on_request_drained,
    };
    pthread_mutex_init(&server->lock, NULL);
    server->finished_last = &server->finished;
    server->held_last = &server->held;
    server->refresh_job = (struct ol_job){.type = OL_JOB_REFRESH, .run = refresh_tokens};
    server->sample_job = (struct ol_job){.type = OL_JOB_SAMPLE, .run = sample_rates};
    signal(SIGPIPE, SIG_IGN);
    int result = start_server(server, err);
    if (result == 0)
        uv_run(&server->loop, UV_RUN_DEFAULT);
    close_server(server);
    return result;
}
