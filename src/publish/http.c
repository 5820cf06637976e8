/* http.c: the curl engine of one thread.
 *
 * C1  A transfer is one attempt. Curl repeats a request by itself when a kept connection turns out
 *     to be dead; the second time `before_request` is asked it says no.
 * C2  `is_sent` is set before the first byte of a request leaves (for mail: before MAIL FROM), so a
 *     transfer without it surely did not reach the receiver.
 * C3  The address is checked where the socket is made, and again before each request, because a
 *     kept connection may have been opened for a destination with other rights.
 * C4  No callback of ours calls `done`: transfers end in one place, `finish`.
 * C5  No request leaves after its deadline, however long the process stood still in between: that is
 *     looked at in `before_request` too, for a transfer that was added may start much later.
 *
 * Curl tells us its sockets and its next timer, and we wait in an epoll of our own: with
 * curl_multi_poll every call looks at every transfer, and 64 that hang halved the speed of the
 * others. */
#include "publish/http.h"

#include "base/clock.h"
#include "publish/guard.h"
#include "publish/publisher.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    HEAD_MAX = 64 * 1024,       // all headers of an answer together
    BODY_ROOM_KEPT = 64 * 1024, // larger buffers are not kept for the next transfer
    CONNECTIONS_KEPT = 512,
    CONNECTION_AGE_S = 55, // idle ones; many servers close at 60 s, and we had better be first
    EVENTS = 256,
};

struct transfer {
    struct ol_http *http;
    CURL *easy;
    struct transfer *next, *previous; /* in flight: both; in the pool: next */
    ol_http_done *done;
    void *owner, *tag;
    int64_t started_us, deadline_us;
    struct ol_buf body;
    size_t body_sent;
    struct curl_slist *headers, *recipients;
    bool is_mail, allow_private;

    bool is_sent;      /* C2 */
    bool is_body_sent; /* mail: curl has read the body to its end */
    bool is_repeated;  /* C1 struck */
    bool is_late;      /* C5 struck */
    bool is_head_done; /* the final head is complete */
    bool is_head_long;
    bool is_reply_done; /* mail: the next line begins a new reply */
    const char *denied; /* the range that the guard refused, and the address */
    char denied_address[64];
    int status;
    size_t head_bytes, read_bytes, kept_bytes;
    char retry_after[64];
    char error[CURL_ERROR_SIZE];
    char kept[OL_RESPONSE_KEPT];
};

struct ol_http {
    CURLM *multi;
    int epoll, wakeup;
    int64_t timer_us; /* when curl wants to be called without a socket; INT64_MAX: never */
    struct transfer *in_flight, *pool;
    size_t in_flight_count;
};

/* --- life ---------------------------------------------------------------------------------------- */

static void global_init(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *of_socket)
{
    struct ol_http *http = data;
    struct epoll_event event = {.data.fd = fd};
    (void)easy, (void)of_socket;

    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(http->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN)
        event.events |= EPOLLIN;
    if (what & CURL_POLL_OUT)
        event.events |= EPOLLOUT;
    if (epoll_ctl(http->epoll, EPOLL_CTL_MOD, fd, &event) < 0)
        epoll_ctl(http->epoll, EPOLL_CTL_ADD, fd, &event);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *data)
{
    struct ol_http *http = data;
    (void)multi;
    http->timer_us = timeout_ms < 0 ? INT64_MAX : ol_clock_boot_us() + timeout_ms * 1000;
    return 0;
}

int ol_http_watch(struct ol_http *http, int fd, outlog_err *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = -1};
    if (epoll_ctl(http->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return ol_fail(err, OUTLOG_NO_MEMORY, "epoll: %s", strerror(errno));
    return 0;
}

int ol_http_open(struct ol_http **out, outlog_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t pipe_signal;
    struct ol_http *http = calloc(1, sizeof *http);

    if (!http)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    pthread_once(&once, global_init);
    http->timer_us = INT64_MAX;
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    http->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    http->multi = curl_multi_init();
    if (http->epoll < 0 || http->wakeup < 0 || !http->multi) {
        ol_http_close(http);
        return ol_fail(err, OUTLOG_NO_MEMORY, "no memory or descriptor left for connections");
    }
    if (ol_http_watch(http, http->wakeup, err) < 0) {
        ol_http_close(http);
        return -1;
    }
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
    curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    *out = http;
    return 0;
}

static void free_transfer(struct transfer *t)
{
    curl_easy_cleanup(t->easy);
    ol_buf_clear(&t->body);
    free(t);
}

void ol_http_close(struct ol_http *http)
{
    if (!http)
        return;
    ol_http_abandon_all(http, NULL);
    while (http->pool) {
        struct transfer *t = http->pool;
        http->pool = t->next;
        free_transfer(t);
    }
    curl_multi_cleanup(http->multi);
    if (http->wakeup >= 0)
        close(http->wakeup);
    if (http->epoll >= 0)
        close(http->epoll);
    free(http);
}

static struct transfer *take_transfer(struct ol_http *http)
{
    struct transfer *t = http->pool;
    if (t) {
        http->pool = t->next;
        return t;
    }
    if (!(t = calloc(1, sizeof *t)) || !(t->easy = curl_easy_init())) {
        free(t);
        return NULL;
    }
    t->http = http;
    return t;
}

static void give_transfer(struct transfer *t)
{
    curl_slist_free_all(t->headers);
    curl_slist_free_all(t->recipients);
    t->headers = t->recipients = NULL;
    if (t->body.room > BODY_ROOM_KEPT)
        ol_buf_clear(&t->body);
    t->next = t->http->pool;
    t->http->pool = t;
}

/* --- the guard, at the socket -------------------------------------------------------------------- */

static bool deny(struct transfer *t, const struct sockaddr *address, socklen_t bytes)
{
    if (t->allow_private || !(t->denied = ol_guard_address(address, bytes)))
        return false;
    if (getnameinfo(address, bytes, t->denied_address, sizeof t->denied_address, NULL, 0,
                    NI_NUMERICHOST) != 0)
        t->denied_address[0] = '\0';
    return true;
}

static curl_socket_t open_socket(void *data, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct transfer *t = data;
    if (purpose != CURLSOCKTYPE_IPCXN || deny(t, &address->addr, address->addrlen))
        return CURL_SOCKET_BAD;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Connected, TLS done, login done; the next thing curl does is to send the request. */
static int before_request(void *data, char *peer, char *local, int peer_port, int local_port)
{
    struct transfer *t = data;
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    (void)local, (void)peer_port, (void)local_port;

    if (t->is_sent) {
        t->is_repeated = true;
        return CURL_PREREQFUNC_ABORT;
    }
    if (ol_clock_boot_us() >= t->deadline_us) {
        t->is_late = true;
        return CURL_PREREQFUNC_ABORT;
    }
    if (inet_pton(AF_INET, peer, &four.sin_addr) == 1) {
        if (deny(t, (struct sockaddr *)&four, sizeof four))
            return CURL_PREREQFUNC_ABORT;
    } else if (inet_pton(AF_INET6, peer, &six.sin6_addr) == 1) {
        if (deny(t, (struct sockaddr *)&six, sizeof six))
            return CURL_PREREQFUNC_ABORT;
    } else if (!t->allow_private) {
        t->denied = "unreadable";
        return CURL_PREREQFUNC_ABORT;
    }
    t->is_sent = true;
    return CURL_PREREQFUNC_OK;
}

/* --- what comes back ------------------------------------------------------------------------------ */

static void keep(struct transfer *t, const char *data, size_t bytes)
{
    size_t room = sizeof t->kept - t->kept_bytes;
    size_t part = bytes < room ? bytes : room;
    memcpy(t->kept + t->kept_bytes, data, part);
    t->kept_bytes += part;
}

/* "retry-after: 120\r\n" */
static void note_header(struct transfer *t, const char *line, size_t bytes)
{
    static const char name[] = "retry-after:";
    if (bytes <= sizeof name - 1 || strncasecmp(line, name, sizeof name - 1) != 0)
        return;
    const char *at = line + sizeof name - 1, *end = line + bytes;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    size_t length = (size_t)(end - at);
    if (length >= sizeof t->retry_after)
        return;
    memcpy(t->retry_after, at, length);
    t->retry_after[length] = '\0';
}

static size_t on_http_head(struct transfer *t, const char *line, size_t bytes)
{
    long status = 0;
    t->head_bytes += bytes;
    if (t->head_bytes > HEAD_MAX) {
        t->is_head_long = true;
        return 0; // ends the transfer
    }
    if (t->is_head_done)
        return bytes; // a trailer
    if (bytes > 5 && memcmp(line, "HTTP/", 5) == 0) {
        t->retry_after[0] = '\0'; // what an interim answer (1xx) said is not the answer
        return bytes;
    }
    if (bytes <= 2 && (line[0] == '\r' || line[0] == '\n')) {
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
        t->status = (int)status;
        t->is_head_done = status >= 200;
        return bytes;
    }
    note_header(t, line, bytes);
    return bytes;
}

/* Each line the mail server says; the last reply is what is kept, but not its farewell. */
static size_t on_mail_reply(struct transfer *t, const char *line, size_t bytes)
{
    bool is_last = bytes < 4 || line[3] != '-';
    if (bytes >= 3 && memcmp(line, "221", 3) == 0)
        return bytes;
    if (t->is_reply_done)
        t->kept_bytes = 0;
    keep(t, line, bytes);
    t->is_reply_done = is_last;
    return bytes;
}

static size_t on_head(char *line, size_t size, size_t count, void *data)
{
    struct transfer *t = data;
    return t->is_mail ? on_mail_reply(t, line, size * count) : on_http_head(t, line, size * count);
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct transfer *t = user;
    size_t bytes = size * count;
    keep(t, data, bytes);
    t->read_bytes += bytes;
    return t->read_bytes > OL_RESPONSE_READ ? 0 : bytes; // 0 ends the transfer
}

static size_t on_upload(char *to, size_t size, size_t count, void *user)
{
    struct transfer *t = user;
    size_t left = t->body.bytes - t->body_sent, room = size * count;
    size_t bytes = left < room ? left : room;
    if (bytes)
        memcpy(to, t->body.data + t->body_sent, bytes);
    t->body_sent += bytes;
    t->is_body_sent = t->body_sent == t->body.bytes;
    return bytes;
}

/* --- start ---------------------------------------------------------------------------------------- */

static long left_ms(int64_t deadline_us, int64_t now_us)
{
    int64_t left = (deadline_us - now_us) / 1000;
    return left < 1 ? 1 : left > 86400000 ? 86400000L : (long)left; // 0 would mean: no limit
}

static void set_common(struct transfer *t, const struct ol_http_request *request)
{
    CURL *easy = t->easy;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, request->url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, left_ms(request->deadline_us, t->started_us));
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); // do not wait for a resolver that hangs
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)CONNECTION_AGE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); // not even from the environment
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (request->ca_file) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, request->ca_file);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, t);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
}

static bool append(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer)
        *list = longer;
    return longer != NULL;
}

/* Curl takes "name:" without a value as an order to send no such header; "name;" sends it empty. */
static bool append_header(struct transfer *t, const char *line)
{
    char name[OL_HEADER_NAME + 2];
    const char *colon = strchr(line, ':');
    if (colon[1 + strspn(colon + 1, " ")] != '\0')
        return append(&t->headers, line);
    snprintf(name, sizeof name, "%.*s;", (int)(colon - line), line);
    return append(&t->headers, name);
}

static bool set_http(struct transfer *t, const struct ol_http_request *request)
{
    CURL *easy = t->easy;
    bool is_ok = append(&t->headers, "Expect:"); // a round trip that receivers get wrong
    for (size_t i = 0; i < request->headers->count; i++)
        is_ok = is_ok && append_header(t, ol_headers_line(request->headers, i));
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    /* With TLS the handshake tells at once whether streams can share the connection, and waiting
     * for it saves a crowd of connections. Without TLS only an answer would tell, and one hanging
     * request would hold up all others. */
    bool is_https = strncasecmp(request->url, "https:", 6) == 0;
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                     (long)(is_https ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(easy, CURLOPT_PIPEWAIT, is_https ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, t->headers);
    if (request->body_bytes == 0 && strcmp(request->method, "GET") == 0) {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
        return is_ok;
    }
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body.bytes);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, t->body.data ? t->body.data : "");
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    return is_ok;
}

static bool set_mail(struct transfer *t, const struct ol_http_request *request)
{
    CURL *easy = t->easy;
    const struct ol_mail_envelope *mail = request->mail;
    bool is_ok = true;
    for (size_t i = 0; i < mail->to_count; i++)
        is_ok = is_ok && append(&t->recipients, mail->to[i]);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "smtp,smtps");
    curl_easy_setopt(easy, CURLOPT_USE_SSL,
                     (long)(mail->is_plain ? CURLUSESSL_NONE : CURLUSESSL_ALL));
    if (mail->user) {
        curl_easy_setopt(easy, CURLOPT_USERNAME, mail->user);
        curl_easy_setopt(easy, CURLOPT_PASSWORD, mail->password);
    }
    curl_easy_setopt(easy, CURLOPT_MAIL_FROM, mail->from);
    curl_easy_setopt(easy, CURLOPT_MAIL_RCPT, t->recipients);
    curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->body.bytes);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
    curl_easy_setopt(easy, CURLOPT_READDATA, t);
    return is_ok;
}

static void forget(struct transfer *t)
{
    t->body_sent = t->head_bytes = t->read_bytes = t->kept_bytes = 0;
    t->is_sent = t->is_body_sent = t->is_repeated = t->is_late = t->is_head_done = false;
    t->is_head_long = false;
    t->is_reply_done = false;
    t->denied = NULL;
    t->denied_address[0] = t->retry_after[0] = t->error[0] = '\0';
    t->status = 0;
}

int ol_http_start(struct ol_http *http, const struct ol_http_request *request, outlog_err *err)
{
    struct transfer *t = take_transfer(http);
    if (!t)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    forget(t);
    t->started_us = ol_clock_boot_us();
    t->deadline_us = request->deadline_us;
    t->done = request->done;
    t->owner = request->owner;
    t->tag = request->tag;
    t->is_mail = request->mail != NULL;
    t->allow_private = request->allow_private || t->is_mail; // a mail server is the operator's own
    ol_buf_reset(&t->body);
    ol_buf_add(&t->body, request->body, request->body_bytes);
    set_common(t, request);
    bool is_ok = request->mail ? set_mail(t, request) : set_http(t, request);
    if (!is_ok || t->body.failed || curl_multi_add_handle(http->multi, t->easy) != CURLM_OK) {
        give_transfer(t);
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    }
    t->previous = NULL;
    t->next = http->in_flight;
    if (t->next)
        t->next->previous = t;
    http->in_flight = t;
    http->in_flight_count++;
    return 0;
}

/* --- end ------------------------------------------------------------------------------------------ */

static enum ol_reach http_reach(const struct transfer *t)
{
    if (t->is_head_done)
        return OL_REACH_ANSWERED; // whatever became of the body
    return t->is_sent ? OL_REACH_LOST : OL_REACH_NOTHING;
}

static enum ol_reach mail_reach(const struct transfer *t, CURLcode code)
{
    if (code == CURLE_OK)
        return OL_REACH_ANSWERED;
    if (t->status >= 400)
        return OL_REACH_REFUSED;
    return t->is_body_sent ? OL_REACH_LOST : OL_REACH_NOTHING;
}

static const char *reason(const struct transfer *t, CURLcode code, bool is_abandoned, char *room,
                          size_t room_bytes)
{
    if (t->denied)
        snprintf(room, room_bytes,
                 "the host's address %s is %s; allow_private: true would admit it",
                 t->denied_address, t->denied);
    else if (is_abandoned)
        snprintf(room, room_bytes, "given up before its deadline");
    else if (t->is_repeated)
        snprintf(room, room_bytes, "the connection was closed before an answer came");
    else if (t->is_late)
        snprintf(room, room_bytes, "its time was over before it could be sent");
    else if (t->is_head_long)
        snprintf(room, room_bytes, "the answer's headers are longer than %d bytes", HEAD_MAX);
    else
        return t->error[0] ? t->error : curl_easy_strerror(code);
    return room;
}

static void finish(struct transfer *t, CURLcode code, bool is_abandoned)
{
    struct ol_http *http = t->http;
    char room[200];
    long status = 0;

    if (t->is_mail) {
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
        t->status = (int)status;
    }
    struct ol_answer answer = {
        .reach = t->is_mail ? mail_reach(t, code) : http_reach(t),
        .status = t->status,
        .is_denied = t->denied != NULL,
        .is_timeout = code == CURLE_OPERATION_TIMEDOUT,
        .is_abandoned = is_abandoned,
        .is_before_message = t->is_mail && !t->is_sent,
        .retry_after = t->retry_after,
        .body = t->kept,
        .body_bytes = t->kept_bytes,
        .error = code == CURLE_OK ? "" : reason(t, code, is_abandoned, room, sizeof room),
        .duration_us = ol_clock_boot_us() - t->started_us,
    };
    curl_multi_remove_handle(http->multi, t->easy);
    if (t->previous)
        t->previous->next = t->next;
    else
        http->in_flight = t->next;
    if (t->next)
        t->next->previous = t->previous;
    http->in_flight_count--;
    t->done(t->owner, t->tag, &answer);
    give_transfer(t);
}

/* --- drive ---------------------------------------------------------------------------------------- */

static void collect(struct ol_http *http)
{
    int queued;
    CURLMsg *message;

    while ((message = curl_multi_info_read(http->multi, &queued))) {
        char *private = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result; // the message dies with the handle's removal
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        finish((struct transfer *)(void *)private, code, false);
    }
}

/* What is due by the clock: new transfers, deadlines. */
static void fire_timer(struct ol_http *http)
{
    int running;
    if (http->timer_us > ol_clock_boot_us())
        return;
    http->timer_us = INT64_MAX;
    curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

static int patience_ms(const struct ol_http *http, int timeout_ms)
{
    if (http->timer_us == INT64_MAX)
        return timeout_ms;
    int64_t left_us = http->timer_us - ol_clock_boot_us();
    int64_t left = left_us <= 0 ? 0 : (left_us + 999) / 1000;
    return timeout_ms >= 0 && timeout_ms < left ? timeout_ms : (int)left;
}

static void handle(struct ol_http *http, const struct epoll_event *event)
{
    int running, what = 0;
    uint64_t wakes;

    if (event->data.fd < 0) { // a watched one; ours is emptied, the others belong to their owner
        ssize_t ignored = read(http->wakeup, &wakes, sizeof wakes);
        (void)ignored;
        return;
    }
    if (event->events & EPOLLIN)
        what |= CURL_CSELECT_IN;
    if (event->events & EPOLLOUT)
        what |= CURL_CSELECT_OUT;
    if (event->events & (EPOLLERR | EPOLLHUP))
        what |= CURL_CSELECT_ERR;
    curl_multi_socket_action(http->multi, event->data.fd, what, &running);
}

void ol_http_drive(struct ol_http *http, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    size_t before = http->in_flight_count;

    fire_timer(http); // first of all, start what was added since the last time
    collect(http);
    if (http->in_flight_count < before)
        timeout_ms = 0; // there is news already
    int ready = epoll_wait(http->epoll, events, EVENTS, patience_ms(http, timeout_ms));
    for (int i = 0; i < ready; i++)
        handle(http, &events[i]);
    fire_timer(http);
    collect(http);
}

void ol_http_wake(struct ol_http *http)
{
    uint64_t one = 1;
    ssize_t ignored = write(http->wakeup, &one, sizeof one); // full means: it wakes anyway
    (void)ignored;
}

void ol_http_abandon(struct ol_http *http, void *owner, void *tag)
{
    for (struct transfer *t = http->in_flight, *next; t; t = next) {
        next = t->next;
        if (t->owner == owner && t->tag == tag) {
            finish(t, CURLE_ABORTED_BY_CALLBACK, true);
            return;
        }
    }
}

void ol_http_abandon_all(struct ol_http *http, void *owner)
{
    for (struct transfer *t = http->in_flight, *next; t; t = next) {
        next = t->next;
        if (!owner || t->owner == owner)
            finish(t, CURLE_ABORTED_BY_CALLBACK, true);
    }
}

size_t ol_http_in_flight(const struct ol_http *http)
{
    return http->in_flight_count;
}
