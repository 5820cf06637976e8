/* http_transfer.c: curl's options and callbacks for one attempt, and what its end means. */
#include "net/http_transfer.h"

#include "base/clock.h"
#include "net/ssrf_guard.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum {
    TRANSFER_HEAD_MAX = 64 * 1024,  // all headers of a response together
    TRANSFER_BODY_KEPT = 64 * 1024, // larger buffers are freed after use
    TRANSFER_IDLE_S = 55, // many servers close idle connections at 60 s; close them before
};

struct ol_http_transfer *ol_http_transfer_new(const struct ol_http_socket_hooks *hooks)
{
    struct ol_http_transfer *t = calloc(1, sizeof *t);
    if (t)
        t->hooks = hooks;
    return t;
}

void ol_http_transfer_free(struct ol_http_transfer *t)
{
    curl_easy_cleanup(t->easy); // NULL is fine
    curl_slist_free_all(t->recipients);
    ol_buf_clear(&t->body);
    ol_buf_clear(&t->head);
    ol_buf_clear(&t->url);
    free(t);
}

/* --- addresses -------------------------------------------------------------------------------- */

bool ol_remote_address_set(struct ol_remote_address *peer, const char *text, int port)
{
    *peer = (struct ol_remote_address){0};
    if (inet_pton(AF_INET, text, &peer->address.four.sin_addr) == 1) {
        peer->address.four.sin_family = AF_INET;
        peer->address.four.sin_port = htons((uint16_t)port);
        peer->bytes = sizeof peer->address.four;
    } else if (inet_pton(AF_INET6, text, &peer->address.six.sin6_addr) == 1) {
        peer->address.six.sin6_family = AF_INET6;
        peer->address.six.sin6_port = htons((uint16_t)port);
        peer->bytes = sizeof peer->address.six;
    }
    return peer->bytes > 0;
}

bool ol_remote_address_equals(const struct ol_remote_address *a, const struct ol_remote_address *b)
{
    return a->bytes == b->bytes && memcmp(&a->address, &b->address, a->bytes) == 0;
}

/* --- the guard, at the socket ----------------------------------------------------------------- */

static bool check_denied(struct ol_http_transfer *t, const struct sockaddr *address,
                         socklen_t bytes)
{
    if (t->allow_private || !(t->denied = ol_ssrf_guard_address(address, bytes)))
        return false;
    if (getnameinfo(address, bytes, t->denied_address, sizeof t->denied_address, NULL, 0,
                    NI_NUMERICHOST) != 0)
        t->denied_address[0] = '\0';
    return true;
}

static curl_socket_t on_open_socket(void *data, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct ol_http_transfer *t = data;
    if (purpose != CURLSOCKTYPE_IPCXN || check_denied(t, &address->addr, address->addrlen))
        return CURL_SOCKET_BAD;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0)
        t->hooks->on_opened(t->hooks->engine, fd);
    return fd;
}

bool ol_http_transfer_is_denied(struct ol_http_transfer *t, const struct ol_remote_address *peer)
{
    return !t->allow_private && check_denied(t, &peer->address.any, peer->bytes);
}

bool ol_http_transfer_is_late(struct ol_http_transfer *t)
{
    t->is_late = ol_clock_boot_us() >= t->deadline_us;
    return t->is_late;
}

/* Connected, TLS and login done: curl sends the request next. */
static int on_before_request(void *data, char *peer, char *local, int peer_port, int local_port)
{
    struct ol_http_transfer *t = data;
    (void)local, (void)local_port;

    if (t->is_sent) {
        t->is_repeated = true;
        return CURL_PREREQFUNC_ABORT;
    }
    if (ol_http_transfer_is_late(t))
        return CURL_PREREQFUNC_ABORT;
    if (!ol_remote_address_set(&t->peer, peer, peer_port) && !t->allow_private) {
        t->denied = "unreadable";
        return CURL_PREREQFUNC_ABORT;
    }
    if (ol_http_transfer_is_denied(t, &t->peer))
        return CURL_PREREQFUNC_ABORT;
    t->is_sent = true;
    return CURL_PREREQFUNC_OK;
}

/* --- what comes back -------------------------------------------------------------------------- */

static void keep_part(struct ol_http_transfer *t, const char *data, size_t bytes)
{
    size_t room = sizeof t->kept - t->kept_bytes;
    size_t part = bytes < room ? bytes : room;
    memcpy(t->kept + t->kept_bytes, data, part);
    t->kept_bytes += part;
}

/* "retry-after: 120\r\n" */
static void read_retry_after(struct ol_http_transfer *t, const char *line, size_t bytes)
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

bool ol_http_transfer_is_head_long(struct ol_http_transfer *t)
{
    t->is_head_long = t->head_bytes > TRANSFER_HEAD_MAX;
    return t->is_head_long;
}

static size_t on_http_head(struct ol_http_transfer *t, const char *line, size_t bytes)
{
    long status = 0;
    t->head_bytes += bytes;
    if (ol_http_transfer_is_head_long(t))
        return 0; // ends the transfer
    if (t->is_head_done)
        return bytes; // a trailer
    if (bytes > 5 && memcmp(line, "HTTP/", 5) == 0) {
        t->retry_after[0] = '\0'; // of an interim response (1xx): it does not count
        return bytes;
    }
    if (bytes <= 2 && (line[0] == '\r' || line[0] == '\n')) {
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
        t->status = (int)status;
        t->is_head_done = status >= 200;
        return bytes;
    }
    read_retry_after(t, line, bytes);
    return bytes;
}

/* Each line of the mail server. The last reply is kept, except the 221 that ends the session. */
static size_t on_mail_reply(struct ol_http_transfer *t, const char *line, size_t bytes)
{
    bool is_last = bytes < 4 || line[3] != '-';
    if (bytes >= 3 && memcmp(line, "221", 3) == 0)
        return bytes;
    if (t->is_reply_done)
        t->kept_bytes = 0;
    keep_part(t, line, bytes);
    t->is_reply_done = is_last;
    return bytes;
}

static size_t on_head(char *line, size_t size, size_t count, void *data)
{
    struct ol_http_transfer *t = data;
    return t->is_mail ? on_mail_reply(t, line, size * count) : on_http_head(t, line, size * count);
}

bool ol_http_transfer_receive(struct ol_http_transfer *t, const char *data, size_t bytes)
{
    keep_part(t, data, bytes);
    t->read_bytes += bytes;
    return t->read_bytes <= OL_RESPONSE_READ;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    return ol_http_transfer_receive(user, data, size * count) ? size * count
                                                              : 0; // 0 ends the transfer
}

static size_t on_upload(char *to, size_t size, size_t count, void *user)
{
    struct ol_http_transfer *t = user;
    size_t left = t->body.bytes - t->body_sent, room = size * count;
    size_t bytes = left < room ? left : room;
    if (bytes)
        memcpy(to, t->body.data + t->body_sent, bytes);
    t->body_sent += bytes;
    t->is_body_sent = t->body_sent == t->body.bytes;
    return bytes;
}

/* --- start ------------------------------------------------------------------------------------ */

static void forget_attempt(struct ol_http_transfer *t)
{
    t->body_sent = t->head_bytes = t->read_bytes = t->kept_bytes = 0;
    t->is_sent = t->is_body_sent = t->is_repeated = t->is_late = t->is_head_done = false;
    t->is_head_long = t->is_reply_done = t->is_over = t->is_ended = false;
    t->denied = NULL;
    t->denied_address[0] = t->retry_after[0] = t->error[0] = '\0';
    t->status = 0;
    t->peer.bytes = 0;
    curl_slist_free_all(t->recipients);
    t->recipients = NULL;
}

static long limit_ms(int64_t deadline_us, int64_t now_us)
{
    int64_t left = (deadline_us - now_us) / 1000;
    return left < 1 ? 1 : left > 86400000 ? 86400000L : (long)left; // 0 would mean: no limit
}

/* Options for all requests to this URL. */
static void set_common(struct ol_http_transfer *t, const struct ol_http_client_request *request)
{
    CURL *easy = t->easy;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); // do not wait for a resolver that hangs
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)TRANSFER_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); // not from the environment either
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (request->ca_file) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, request->ca_file);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, t->hooks->close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, t->hooks->engine);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_before_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, t);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
}

static void set_http(struct ol_http_transfer *t, const struct ol_http_client_request *request)
{
    CURL *easy = t->easy;
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    // With TLS the handshake shows whether requests can share the connection, so waiting for it
    // saves many connections. Without TLS only a response would show it, and one slow request would
    // hold up all others.
    bool is_https = strncasecmp(request->url, "https:", 6) == 0;
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                     (long)(is_https ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(easy, CURLOPT_PIPEWAIT, is_https ? 1L : 0L);
    if (t->is_get) {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
        return;
    }
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static bool set_mail(struct ol_http_transfer *t, const struct ol_mail_envelope *mail)
{
    CURL *easy = t->easy;
    for (size_t i = 0; i < mail->to_count; i++) {
        struct curl_slist *longer = curl_slist_append(t->recipients, mail->to[i]);
        if (!longer)
            return false;
        t->recipients = longer;
    }
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
    return true;
}

/* To curl "name:" without a value means not to send that header; "name;" sends it empty. */
static void mark_empty(char *line)
{
    char *colon = strchr(line, ':');
    if (colon[1 + strspn(colon + 1, " ")] == '\0')
        memcpy(colon, ";", 2);
}

/* Make the list that curl reads, in memory of our own: every attempt needs one. */
static bool set_headers(struct ol_http_transfer *t, const struct ol_headers *headers)
{
    static char no_expect[] = "Expect:"; // saves a round trip that many receivers handle wrongly
    ol_buf_reset(&t->head);
    ol_buf_add(&t->head, headers->text.data, headers->text.bytes);
    if (t->head.failed)
        return false;
    t->lines[0] = (struct curl_slist){.data = no_expect};
    for (size_t i = 0; i < headers->count; i++) {
        char *line = t->head.data + headers->lines[i].at;
        mark_empty(line);
        t->lines[i].next = &t->lines[i + 1];
        t->lines[i + 1] = (struct curl_slist){.data = line};
    }
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->lines);
    return true;
}

/* Set the options that differ from those of the last attempt. */
static bool set_options(struct ol_http_transfer *t, const struct ol_http_client_request *request)
{
    bool is_get = !request->mail && request->body_bytes == 0 && strcmp(request->method, "GET") == 0;
    bool is_same = t->url.bytes && strcmp(t->url.data, request->url) == 0 && !request->mail &&
                   t->is_get == is_get && strcmp(t->method, request->method) == 0;
    if (is_same)
        return true;
    t->is_get = is_get;
    set_common(t, request);
    ol_buf_reset(&t->url);
    ol_buf_text(&t->url, request->url);
    snprintf(t->method, sizeof t->method, "%s", request->method ? request->method : "");
    curl_easy_setopt(t->easy, CURLOPT_URL, request->url);
    if (request->mail)
        return set_mail(t, request->mail) && !t->url.failed;
    set_http(t, request);
    return !t->url.failed;
}

void ol_http_transfer_reset(struct ol_http_transfer *t,
                            const struct ol_http_client_request *request)
{
    forget_attempt(t);
    t->started_us = ol_clock_boot_us();
    t->deadline_us = request->deadline_us;
    t->tag = request->tag;
    t->is_plain = false;
    t->is_mail = request->mail != NULL;
    t->allow_private = request->allow_private || t->is_mail; // the operator chooses the mail server
    if (t->body.capacity > TRANSFER_BODY_KEPT)
        ol_buf_clear(&t->body);
    ol_buf_reset(&t->body);
}

bool ol_http_transfer_prepare(struct ol_http_transfer *t,
                              const struct ol_http_client_request *request)
{
    ol_http_transfer_reset(t, request);
    if (!t->easy && !(t->easy = curl_easy_init()))
        return false;
    ol_buf_add(&t->body, request->body, request->body_bytes);
    if (t->body.failed || !set_options(t, request) ||
        (!t->is_mail && !set_headers(t, request->headers))) {
        ol_buf_reset(&t->url); // not all options are set
        return false;
    }
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, limit_ms(t->deadline_us, t->started_us));
    if (!t->is_get && !t->is_mail) {
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body.bytes);
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->body.data ? t->body.data : "");
    }
    return true;
}

/* --- end -------------------------------------------------------------------------------------- */

static enum ol_http_reach find_http_reach(const struct ol_http_transfer *t)
{
    if (t->is_head_done)
        return OL_REACH_ANSWERED; // even if the body was cut off
    return t->is_sent ? OL_REACH_LOST : OL_REACH_NOTHING;
}

static enum ol_http_reach find_mail_reach(const struct ol_http_transfer *t, CURLcode code)
{
    if (code == CURLE_OK)
        return OL_REACH_ANSWERED;
    if (t->status >= 400)
        return OL_REACH_REFUSED;
    return t->is_body_sent ? OL_REACH_LOST : OL_REACH_NOTHING;
}

static const char *describe_error(struct ol_http_transfer *t, CURLcode code, bool is_abandoned)
{
    char *room = t->reason;
    size_t room_bytes = sizeof t->reason;
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
        snprintf(room, room_bytes, "the answer's headers are longer than %d bytes",
                 TRANSFER_HEAD_MAX);
    else
        return t->error[0] ? t->error : curl_easy_strerror(code);
    return room;
}

void ol_http_transfer_end(struct ol_http_transfer *t, CURLcode code, bool is_abandoned)
{
    long status = 0;
    if (t->is_mail) {
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
        t->status = (int)status;
    }
    t->response = (struct ol_http_response){
        .reach = t->is_mail ? find_mail_reach(t, code) : find_http_reach(t),
        .status = t->status,
        .is_timeout = code == CURLE_OPERATION_TIMEDOUT,
        .is_abandoned = is_abandoned,
        .is_before_message = t->is_mail && !t->is_sent,
        .retry_after = t->retry_after,
        .body = t->kept,
        .body_bytes = t->kept_bytes,
        .error = code == CURLE_OK ? "" : describe_error(t, code, is_abandoned),
        .duration_us = ol_clock_boot_us() - t->started_us,
    };
}
