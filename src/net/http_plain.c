/* http_plain.c: writes a request, parses a response, keeps idle connections.
 *
 * D1  A connection carries one request at a time. It becomes idle only after a complete response
 *     with nothing behind it. Any byte that arrives on an idle connection closes it.
 * D2  Connections are in the epoll set all their life, edge-triggered: nothing is changed there in
 *     between. So reading goes on until nothing is left, or less arrived than fits. */
#include "net/http_plain.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <llhttp.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    PLAIN_LEARNED_US = 60 * 1000000, // as long as curl caches a name
    PLAIN_IDLE_US = 55 * 1000000,    // many servers close at 60 s; close before
    PLAIN_READ_BYTES = 16 * 1024,
    PLAIN_NAME_BYTES = 16, // more than the longest header name that is read
};

struct ol_connection {
    int fd;
    bool is_connecting, is_complete, is_kept;
    struct ol_remote_address peer;
    struct ol_idle_conns *idle;
    struct ol_http_transfer *transfer;    /* NULL: it is idle */
    struct ol_connection *before, *after; /* among the busy or the idle ones */
    size_t sent;                          /* bytes of the request */
    int64_t idle_since;
    llhttp_t parser;
    char name[PLAIN_NAME_BYTES]; /* of the header that is being read */
    size_t name_bytes;
    size_t value_bytes; /* of its value, so far */
};

/* --- the owner's side ------------------------------------------------------------------------- */

/* Write the first lines, which most destinations have in common for all messages. */
static void write_start(struct ol_http_origin *origin, const char *path)
{
    struct ol_buf *out = &origin->start;
    ol_buf_reset(out);
    ol_buf_print(out, "%s %s%s HTTP/1.1\r\nHost: %s", origin->method, *path == '/' ? "" : "/", path,
                 origin->authority);
    size_t bytes = strlen(origin->authority);
    if (bytes > 3 && strcmp(origin->authority + bytes - 3, ":80") == 0 && !out->failed)
        out->bytes -= 3; // the default port is left out
    ol_buf_text(out, "\r\nAccept: */*\r\n");
}

static bool parse_origin(struct ol_http_origin *origin,
                         const struct ol_http_client_request *request)
{
    const char *host = request->url + strlen("http://"), *path = host + strcspn(host, "/?");
    size_t bytes = (size_t)(path - host);
    struct ol_parsed_url url;
    outlog_err ignored;

    if (bytes >= sizeof origin->authority || strlen(request->method) >= sizeof origin->method ||
        ol_ssrf_guard_url(request->url, request->allow_private, &url, &ignored) < 0)
        return false;
    if (strncmp(origin->authority, host, bytes) != 0 || origin->authority[bytes]) {
        memcpy(origin->authority, host, bytes);
        origin->authority[bytes] = '\0';
        bool is_known = url.is_address && ol_remote_address_set(&origin->peer, url.host, url.port);
        origin->good_until = is_known ? INT64_MAX : 0;
    }
    snprintf(origin->method, sizeof origin->method, "%s", request->method);
    ol_buf_reset(&origin->url);
    ol_buf_text(&origin->url, request->url);
    write_start(origin, path);
    return !origin->url.failed && !origin->start.failed;
}

bool ol_http_plain_admits(struct ol_http_origin *origin,
                          const struct ol_http_client_request *request)
{
    if (request->mail || strncasecmp(request->url, "http://", 7) != 0)
        return false;
    bool is_known = origin->url.bytes && strcmp(origin->url.data, request->url) == 0 &&
                    strcmp(origin->method, request->method) == 0;
    if (!is_known && !parse_origin(origin, request)) {
        ol_http_origin_clear(origin);
        return false;
    }
    return origin->good_until == INT64_MAX || origin->good_until > ol_clock_boot_us();
}

bool ol_http_plain_prepare(const struct ol_http_origin *origin, struct ol_http_transfer *t,
                           const struct ol_http_client_request *request)
{
    struct ol_buf *out = &t->body;
    const struct ol_headers *headers = request->headers;

    ol_http_transfer_reset(t, request);
    t->is_plain = true;
    t->peer = origin->peer;
    ol_buf_add(out, origin->start.data, origin->start.bytes);
    for (size_t i = 0; i < headers->count; i++) {
        ol_buf_text(out, ol_headers_line(headers, i));
        ol_buf_add(out, "\r\n", 2);
    }
    if (request->body_bytes || strcmp(request->method, "GET") != 0) {
        ol_buf_text(out, "Content-Length: ");
        ol_buf_int(out, (int64_t)request->body_bytes);
        ol_buf_add(out, "\r\n", 2);
    }
    ol_buf_add(out, "\r\n", 2);
    ol_buf_add(out, request->body, request->body_bytes);
    return !out->failed;
}

void ol_http_plain_learn(struct ol_http_origin *origin, const struct ol_http_transfer *t)
{
    bool is_ours = t->peer.bytes && origin->url.bytes && t->url.bytes &&
                   strcmp(origin->url.data, t->url.data) == 0;
    if (!is_ours || t->is_plain || origin->good_until == INT64_MAX)
        return;
    origin->peer = t->peer;
    origin->good_until = t->started_us + PLAIN_LEARNED_US;
}

void ol_http_origin_clear(struct ol_http_origin *origin)
{
    ol_buf_clear(&origin->url);
    ol_buf_clear(&origin->start);
    *origin = (struct ol_http_origin){0};
}

/* --- connections ------------------------------------------------------------------------------ */

static void close_connection(struct ol_http_plain *plain, struct ol_connection *c)
{
    plain->on_connection(plain->engine, c->fd, NULL);
    close(c->fd); // this removes it from the epoll set
    free(c);
}

static void remove_conn(struct ol_connection **first, struct ol_connection *c)
{
    if (c->before)
        c->before->after = c->after;
    else
        *first = c->after;
    if (c->after)
        c->after->before = c->before;
}

static void add_conn(struct ol_connection **first, struct ol_connection *c)
{
    c->before = NULL;
    if ((c->after = *first))
        c->after->before = c;
    *first = c;
}

static void remove_idle(struct ol_connection *c)
{
    remove_conn(&c->idle->first, c);
    c->idle->count--;
}

/* Whether it is still open and no byte has arrived. */
static bool is_alive(const struct ol_connection *c)
{
    char byte;
    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Add it as the newest idle connection. If there are too many, close the oldest: its address is the
 * least likely to be needed again. */
static void make_idle(struct ol_http_plain *plain, struct ol_connection *c)
{
    struct ol_idle_conns *idle = c->idle;
    c->idle_since = ol_clock_boot_us();
    add_conn(&idle->first, c);
    if (++idle->count <= idle->max)
        return;
    while (c->after)
        c = c->after;
    remove_idle(c);
    close_connection(plain, c);
}

/* Take the connection that has been idle for the shortest time, or NULL. */
static struct ol_connection *take_idle(struct ol_http_plain *plain, struct ol_idle_conns *idle,
                                       const struct ol_remote_address *peer, int64_t now)
{
    for (struct ol_connection *c = idle->first, *next; c; c = next) {
        next = c->after;
        if (!ol_remote_address_equals(&c->peer, peer))
            continue;
        remove_idle(c);
        if (now - c->idle_since < PLAIN_IDLE_US && is_alive(c))
            return c;
        close_connection(plain, c);
    }
    return NULL;
}

/* "cannot connect to 10.0.0.7:443: Connection refused" */
static void describe_failure(const struct ol_remote_address *peer, const char *why, char *out,
                             size_t room)
{
    char host[64] = "?", port[8] = "?";
    getnameinfo(&peer->address.any, peer->bytes, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, room,
             strchr(host, ':') ? "cannot connect to [%s]:%s: %s" : "cannot connect to %s:%s: %s",
             host, port, why);
}

static struct ol_connection *open_connection(struct ol_http_plain *plain,
                                             struct ol_idle_conns *idle, struct ol_http_transfer *t)
{
    const struct sockaddr *address = &t->peer.address.any;
    struct ol_connection *c = calloc(1, sizeof *c);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    const char *what = "memory is out";

    if (!c)
        goto fail;
    *c = (struct ol_connection){.idle = idle, .peer = t->peer, .is_connecting = true};
    c->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    event.data.fd = c->fd;
    what = "no descriptor left for a connection";
    if (c->fd < 0)
        goto fail;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    if (connect(c->fd, address, t->peer.bytes) < 0 && errno != EINPROGRESS) {
        what = strerror(errno);
        goto fail;
    }
    if (!plain->on_connection(plain->engine, c->fd, c) ||
        epoll_ctl(plain->epoll, EPOLL_CTL_ADD, c->fd, &event) < 0) {
        plain->on_connection(plain->engine, c->fd, NULL);
        goto fail;
    }
    return c;
fail:
    if (c && c->fd >= 0)
        close(c->fd);
    free(c);
    describe_failure(&t->peer, what, t->error, sizeof t->error);
    return NULL;
}

/* --- the end of a transfer -------------------------------------------------------------------- */

static struct ol_http_transfer *detach_transfer(struct ol_http_plain *plain,
                                                struct ol_connection *c)
{
    struct ol_http_transfer *t = c->transfer;
    remove_conn(&plain->busy, c);
    plain->busy_count--;
    c->transfer = NULL;
    t->connection = NULL;
    return t;
}

static void fail_transfer(struct ol_http_plain *plain, struct ol_connection *c, CURLcode code,
                          const char *why)
{
    struct ol_http_transfer *t = detach_transfer(plain, c);
    snprintf(t->error, sizeof t->error, "%s", why);
    close_connection(plain, c);
    plain->on_end(plain->engine, t, code);
}

static void succeed_transfer(struct ol_http_plain *plain, struct ol_connection *c)
{
    struct ol_http_transfer *t = detach_transfer(plain, c);
    if (c->is_kept)
        make_idle(plain, c);
    else
        close_connection(plain, c);
    plain->on_end(plain->engine, t, CURLE_OK);
}

/* --- the response ----------------------------------------------------------------------------- */

static int on_name(llhttp_t *parser, const char *at, size_t bytes)
{
    struct ol_connection *c = parser->data;
    size_t room = sizeof c->name - c->name_bytes;
    bytes = bytes < room ? bytes : room;
    memcpy(c->name + c->name_bytes, at, bytes);
    c->name_bytes += bytes;
    return 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t bytes)
{
    static const char wanted[] = "retry-after";
    struct ol_connection *c = parser->data;
    struct ol_http_transfer *t = c->transfer;
    size_t before = c->value_bytes;

    c->value_bytes += bytes; // it may arrive in parts
    if (t->is_head_done || c->name_bytes != sizeof wanted - 1 ||
        strncasecmp(c->name, wanted, c->name_bytes) != 0)
        return 0;
    if (c->value_bytes >= sizeof t->retry_after)
        bytes = before = 0; // no valid value is that long, whatever its last part is
    memcpy(t->retry_after + before, at, bytes);
    t->retry_after[before + bytes] = '\0';
    return 0;
}

static int on_value_end(llhttp_t *parser)
{
    struct ol_connection *c = parser->data;
    c->name_bytes = 0;
    c->value_bytes = 0;
    return 0;
}

static int on_head(llhttp_t *parser)
{
    struct ol_connection *c = parser->data;
    struct ol_http_transfer *t = c->transfer;
    if (parser->status_code < 200) {
        t->retry_after[0] = '\0'; // of an interim response: it does not count
        return parser->upgrade ? HPE_USER : 0;
    }
    size_t bytes = strlen(t->retry_after);
    while (bytes && strchr(" \t", t->retry_after[bytes - 1]))
        t->retry_after[--bytes] = '\0';
    t->status = parser->status_code;
    t->is_head_done = true;
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t bytes)
{
    struct ol_connection *c = parser->data;
    return ol_http_transfer_receive(c->transfer, at, bytes) ? 0 : HPE_USER;
}

static int on_complete(llhttp_t *parser)
{
    struct ol_connection *c = parser->data;
    if (!c->transfer->is_head_done)
        return 0; // the end of an interim response
    c->is_complete = true;
    c->is_kept = llhttp_should_keep_alive(parser) != 0;
    return HPE_PAUSED; // what follows is not part of the response
}

static const llhttp_settings_t callbacks = {
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_end,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

/* The connection was closed or broke. Some responses end that way. */
static void handle_end(struct ol_http_plain *plain, struct ol_connection *c, int why)
{
    if (why == 0 && llhttp_finish(&c->parser) != HPE_OK && !c->is_complete)
        why = ECONNRESET;
    if (c->is_complete) {
        c->is_kept = false;
        succeed_transfer(plain, c);
        return;
    }
    fail_transfer(plain, c, CURLE_RECV_ERROR,
                  why && why != ECONNRESET ? strerror(why)
                                           : "the connection was closed before an answer came");
}

/* False: the transfer has ended, and the connection may be freed. */
static bool parse_bytes(struct ol_http_plain *plain, struct ol_connection *c, const char *data,
                        size_t bytes)
{
    struct ol_http_transfer *t = c->transfer;
    if (!t->is_sent) { // nothing was requested
        fail_transfer(plain, c, CURLE_WEIRD_SERVER_REPLY, "an answer came before the request");
        return false;
    }
    size_t before = t->read_bytes;
    llhttp_errno_t result = llhttp_execute(&c->parser, data, bytes);
    // Chunk headers and trailers count as head: their length is not limited otherwise.
    t->head_bytes += bytes - (t->read_bytes - before);
    if (c->is_complete) {
        bool is_all = llhttp_get_error_pos(&c->parser) == data + bytes;
        c->is_kept &= is_all && c->sent == t->body.bytes;
        succeed_transfer(plain, c);
        return false;
    }
    if (result != HPE_OK) {
        fail_transfer(plain, c, CURLE_WEIRD_SERVER_REPLY, "the answer is not HTTP/1.1");
        return false;
    }
    if (ol_http_transfer_is_head_long(t)) {
        fail_transfer(plain, c, CURLE_WEIRD_SERVER_REPLY, "");
        return false;
    }
    return true;
}

static void read_response(struct ol_http_plain *plain, struct ol_connection *c, uint32_t events)
{
    char data[PLAIN_READ_BYTES];
    bool is_ending = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    for (;;) {
        ssize_t got = recv(c->fd, data, sizeof data, 0);
        if (got <= 0) {
            if (got == 0 || errno != EAGAIN)
                handle_end(plain, c, got == 0 ? 0 : errno);
            return;
        }
        if (!parse_bytes(plain, c, data, (size_t)got) || (got < PLAIN_READ_BYTES && !is_ending))
            return;
    }
}

/* --- the request ------------------------------------------------------------------------------ */

/* C3, C5: no byte of the request has left before this. C2: from here on some may have. */
static bool begin_request(struct ol_http_plain *plain, struct ol_connection *c)
{
    struct ol_http_transfer *t = c->transfer;
    if (ol_http_transfer_is_late(t) || ol_http_transfer_is_denied(t, &c->peer)) {
        fail_transfer(plain, c, CURLE_ABORTED_BY_CALLBACK, "");
        return false;
    }
    llhttp_init(&c->parser, HTTP_RESPONSE, &callbacks);
    c->parser.data = c;
    c->is_complete = c->is_kept = false;
    c->name_bytes = c->value_bytes = 0;
    t->is_sent = true;
    return true;
}

/* False: the transfer has ended, and the connection may be freed. */
static bool send_request(struct ol_http_plain *plain, struct ol_connection *c)
{
    struct ol_http_transfer *t = c->transfer;
    if (!t->is_sent && !begin_request(plain, c))
        return false;
    while (c->sent < t->body.bytes) {
        ssize_t sent = send(c->fd, t->body.data + c->sent, t->body.bytes - c->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return true; // epoll reports when it can continue
        if (sent < 0) {
            if (c->sent > 0)
                return true; // a response may have arrived; if not, reading finds the end
            t->is_sent = false;
            fail_transfer(plain, c, CURLE_SEND_ERROR, strerror(errno));
            return false;
        }
        c->sent += (size_t)sent;
    }
    return true;
}

static bool finish_connect(struct ol_http_plain *plain, struct ol_connection *c)
{
    int why = 0;
    char text[256];
    socklen_t bytes = sizeof why;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &bytes) == 0 && why == 0) {
        c->is_connecting = false;
        return true;
    }
    describe_failure(&c->transfer->peer, strerror(why), text, sizeof text);
    fail_transfer(plain, c, CURLE_COULDNT_CONNECT, text);
    return false;
}

/* --- the engine's side ------------------------------------------------------------------------ */

void ol_http_plain_begin(struct ol_http_plain *plain, struct ol_idle_conns *idle,
                         struct ol_http_transfer *t)
{
    struct ol_connection *c = take_idle(plain, idle, &t->peer, ol_clock_boot_us());
    if (!c && !(c = open_connection(plain, idle, t))) {
        plain->on_end(plain->engine, t, CURLE_COULDNT_CONNECT);
        return;
    }
    c->transfer = t;
    c->sent = 0;
    t->connection = c;
    add_conn(&plain->busy, c);
    plain->busy_count++;
    if (t->deadline_us < plain->due_us)
        plain->due_us = t->deadline_us;
    if (!c->is_connecting)
        send_request(plain, c);
}

void ol_http_plain_ready(struct ol_http_plain *plain, struct ol_connection *c, uint32_t events)
{
    bool is_readable = events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    if (!c->transfer) {
        if (!is_readable)
            return;     // an event that was handled already
        remove_idle(c); // D1
        close_connection(plain, c);
        return;
    }
    if (c->is_connecting && !finish_connect(plain, c))
        return;
    if (c->sent < c->transfer->body.bytes && !send_request(plain, c))
        return;
    if (is_readable)
        read_response(plain, c, events);
}

void ol_http_plain_expire(struct ol_http_plain *plain, int64_t now_us)
{
    if (now_us < plain->due_us)
        return;
    plain->due_us = INT64_MAX;
    for (struct ol_connection *c = plain->busy, *next; c; c = next) {
        next = c->after;
        if (c->transfer->deadline_us <= now_us)
            fail_transfer(plain, c, CURLE_OPERATION_TIMEDOUT,
                          c->is_connecting ? "no connection in time" : "no answer in time");
        else if (c->transfer->deadline_us < plain->due_us)
            plain->due_us = c->transfer->deadline_us;
    }
}

void ol_http_plain_drop(struct ol_http_plain *plain, struct ol_http_transfer *t)
{
    struct ol_connection *c = t->connection;
    detach_transfer(plain, c);
    close_connection(plain, c);
}

void ol_http_plain_close_idle(struct ol_http_plain *plain, struct ol_idle_conns *idle)
{
    for (struct ol_connection *c = idle->first, *next; c; c = next) {
        next = c->after;
        close_connection(plain, c);
    }
    idle->first = NULL;
    idle->count = 0;
}
