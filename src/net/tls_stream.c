/* tls_stream.c: the socket is non-blocking and all waiting is in poll, so that shutdown() by
 * another thread ends every wait. */
#include "net/tls_stream.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Milliseconds until end_us; -1: no limit. */
static int left_ms(int64_t end_us)
{
    if (end_us == INT64_MAX)
        return -1;
    int64_t left = (end_us - ol_clock_boot_us()) / 1000;
    return left > 0 ? (int)left : 0;
}

static bool wait_for(int fd, short events, int64_t end_us)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int ready;
    while ((ready = poll(&poll_fd, 1, left_ms(end_us))) < 0 && errno == EINTR)
        ;
    return ready > 0;
}

static int connect_one(const struct addrinfo *to, int64_t end_us)
{
    int one = 1, failed = 0;
    socklen_t bytes = sizeof failed;
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
        return fd;
    failed = errno;
    if (failed == EINPROGRESS) {
        failed = ETIMEDOUT;
        if (wait_for(fd, POLLOUT, end_us))
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes);
    }
    if (failed == 0)
        return fd;
    close(fd);
    errno = failed;
    return -1;
}

static int open_socket(struct ol_tls_stream *stream, const struct ol_address *address,
                       int64_t end_us, outlog_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[8];

    snprintf(port, sizeof port, "%d", address->port);
    int failed = getaddrinfo(address->host, port, &hints, &list);
    if (failed)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "%s: %s", address->host, gai_strerror(failed));
    for (const struct addrinfo *to = list; to && stream->fd < 0; to = to->ai_next)
        stream->fd = connect_one(to, end_us);
    int why = errno;
    freeaddrinfo(list);
    if (stream->fd < 0)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "connect %s:%d: %s", address->host, address->port,
                       strerror(why));
    return 0;
}

/* --- TLS -------------------------------------------------------------------------------------- */

static int fail_tls(const struct ol_tls_stream *stream, const char *what, outlog_err *err)
{
    char text[160] = "the connection was closed";
    unsigned long code = ERR_get_error();
    long verified = stream->tls ? SSL_get_verify_result(stream->tls) : X509_V_OK;
    if (verified != X509_V_OK)
        snprintf(text, sizeof text, "%s", X509_verify_cert_error_string(verified));
    else if (code)
        ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return ol_fail(err, OUTLOG_UNAVAILABLE, "TLS: %s: %s", what, text);
}

static int make_context(struct ol_tls_stream *stream, const struct ol_tls_files *files,
                        outlog_err *err)
{
    stream->context = SSL_CTX_new(TLS_client_method());
    if (!stream->context)
        return fail_tls(stream, "no context", err);
    SSL_CTX_set_min_proto_version(stream->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(stream->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(stream->context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (files->ca_file ? SSL_CTX_load_verify_file(stream->context, files->ca_file) != 1
                       : SSL_CTX_set_default_verify_paths(stream->context) != 1)
        return fail_tls(stream, "ca_file", err);
    if (files->cert_file &&
        (SSL_CTX_use_certificate_chain_file(stream->context, files->cert_file) != 1 ||
         SSL_CTX_use_PrivateKey_file(stream->context, files->key_file, SSL_FILETYPE_PEM) != 1))
        return fail_tls(stream, "cert_file and key_file", err);
    return 0;
}

/* Wait for what OpenSSL wants. False: an error, or too late. */
static bool wait_tls(struct ol_tls_stream *stream, int result, int64_t end_us)
{
    switch (SSL_get_error(stream->tls, result)) {
    case SSL_ERROR_WANT_READ:
        return wait_for(stream->fd, POLLIN, end_us);
    case SSL_ERROR_WANT_WRITE:
        return wait_for(stream->fd, POLLOUT, end_us);
    default:
        return false;
    }
}

static int start_tls(struct ol_tls_stream *stream, const struct ol_address *address,
                     const struct ol_tls_files *files, int64_t end_us, outlog_err *err)
{
    unsigned char binary[sizeof(struct in6_addr)];
    int result;

    if (make_context(stream, files, err) < 0)
        return -1;
    stream->tls = SSL_new(stream->context);
    if (!stream->tls || SSL_set_fd(stream->tls, stream->fd) != 1)
        return fail_tls(stream, "no session", err);
    X509_VERIFY_PARAM *checks = SSL_get0_param(stream->tls);
    bool is_address = inet_pton(AF_INET, address->host, binary) == 1 ||
                      inet_pton(AF_INET6, address->host, binary) == 1;
    if (is_address ? X509_VERIFY_PARAM_set1_ip_asc(checks, address->host) != 1
                   : SSL_set1_host(stream->tls, address->host) != 1 ||
                         SSL_set_tlsext_host_name(stream->tls, address->host) != 1)
        return fail_tls(stream, "the host's name", err);
    ERR_clear_error();
    while ((result = SSL_connect(stream->tls)) != 1)
        if (!wait_tls(stream, result, end_us))
            return fail_tls(stream, address->host, err);
    return 0;
}

/* --- the stream ------------------------------------------------------------------------------- */

int ol_tls_stream_open(struct ol_tls_stream *stream, const struct ol_address *address,
                       const struct ol_tls_files *files, int timeout_ms, outlog_err *err)
{
    int64_t end_us = ol_clock_boot_us() + timeout_ms * INT64_C(1000);
    if (open_socket(stream, address, end_us, err) == 0 &&
        (!address->is_tls || start_tls(stream, address, files, end_us, err) == 0))
        return 0;
    ol_tls_stream_close(stream);
    return -1;
}

void ol_tls_stream_close(struct ol_tls_stream *stream)
{
    SSL_free(stream->tls);
    SSL_CTX_free(stream->context);
    if (stream->fd >= 0)
        close(stream->fd);
    *stream = (struct ol_tls_stream){.fd = -1};
}

int ol_tls_stream_write(struct ol_tls_stream *stream, const char *data, size_t bytes,
                        outlog_err *err)
{
    while (bytes > 0) {
        ssize_t sent;
        if (stream->tls) {
            ERR_clear_error();
            sent = SSL_write(stream->tls, data, bytes < 1 << 20 ? (int)bytes : 1 << 20);
            if (sent <= 0 && wait_tls(stream, (int)sent, INT64_MAX))
                continue;
        } else {
            sent = send(stream->fd, data, bytes, MSG_NOSIGNAL);
            if (sent < 0 && (errno == EAGAIN || errno == EINTR) &&
                wait_for(stream->fd, POLLOUT, INT64_MAX))
                continue;
        }
        if (sent <= 0)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "the connection was lost while writing");
        data += sent;
        bytes -= (size_t)sent;
    }
    return 0;
}

static ssize_t read_once(struct ol_tls_stream *stream, char *data, size_t room, bool *is_over)
{
    ssize_t got;
    if (stream->tls) {
        ERR_clear_error();
        got = SSL_read(stream->tls, data, room < 1 << 20 ? (int)room : 1 << 20);
        int why = got > 0 ? SSL_ERROR_NONE : SSL_get_error(stream->tls, (int)got);
        *is_over = got <= 0 && why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
    } else {
        got = recv(stream->fd, data, room, 0);
        *is_over = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    }
    return got > 0 ? got : 0;
}

ssize_t ol_tls_stream_read(struct ol_tls_stream *stream, char *data, size_t room, int timeout_ms,
                           outlog_err *err)
{
    int64_t end_us = ol_clock_boot_us() + timeout_ms * INT64_C(1000);
    bool is_over = false;
    ssize_t got;
    while ((got = read_once(stream, data, room, &is_over)) == 0 && !is_over && timeout_ms > 0)
        if (!wait_for(stream->fd, POLLIN, end_us))
            break;
    return is_over ? ol_fail(err, OUTLOG_UNAVAILABLE, "the server closed the connection") : got;
}
