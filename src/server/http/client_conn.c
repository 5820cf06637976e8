/* client_conn.c: a client's connection on libuv, with OpenSSL on memory BIOs for TLS. */
#include "server/http/client_conn.h"

#include <netinet/in.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

enum { LINGER_MS = 1000 };

struct pending_write {
    uv_write_t write;
    struct ol_client_conn *conn;
    size_t bytes;
    char *owned; /* malloc'ed, instead of data */
    char data[];
};

static void on_closed(uv_handle_t *handle)
{
    struct ol_client_conn *conn = handle->data;
    if (conn->peer)
        ol_peer_table_release(conn->conns->peers, conn->peer, uv_now(conn->conns->loop));
    SSL_free(conn->ssl); // frees both BIOs
    free(conn);
}

void ol_client_conn_recognize(struct ol_client_conn *conn)
{
    if (conn->is_known)
        return;
    conn->is_known = true;
    TAILQ_REMOVE(&conn->conns->strangers, conn, among_strangers);
    TAILQ_REMOVE(&conn->peer->strangers, conn, among_peers);
    conn->peer->stranger_count--;
}

void ol_client_conn_drop(struct ol_client_conn *conn)
{
    if (conn->is_closing)
        return;
    conn->is_closing = true;
    ol_client_conn_recognize(conn); // leaves the lists of strangers
    *conn->link = conn->next;
    if (conn->next)
        conn->next->link = conn->link;
    conn->conns->count--;
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
}

void ol_client_conn_close(struct ol_client_conn *conn)
{
    if (conn->is_closing)
        return;
    ol_client_conn_drop(conn);
    conn->handler->closed(conn);
}

/* --- out --- */

static void on_shutdown(uv_shutdown_t *shutdown, int status)
{
    (void)status;
    free(shutdown);
}

/* A write failed. The caller may be in the middle of something, so the next sweep closes it. */
static void mark_broken(struct ol_client_conn *conn)
{
    conn->is_broken = true;
    uv_read_stop((uv_stream_t *)&conn->tcp);
}

static bool is_unwritable(const struct ol_client_conn *conn)
{
    return conn->is_closing || conn->is_lingering || conn->is_broken;
}

/* Half close, and read on for a moment: closing at once with unread bytes would reset the
 * connection, and the client might never see the answer. */
static void linger_conn(struct ol_client_conn *conn)
{
    uv_shutdown_t *shutdown = calloc(1, sizeof *shutdown);
    if (!shutdown || uv_shutdown(shutdown, (uv_stream_t *)&conn->tcp, on_shutdown) < 0) {
        free(shutdown);
        mark_broken(conn);
        return;
    }
    conn->is_lingering = true;
    conn->deadline = uv_now(conn->conns->loop) + LINGER_MS;
    ol_client_conn_pause(conn, false);
}

static void finish_write(struct ol_client_conn *conn, int status)
{
    if (is_unwritable(conn))
        return;
    if (status < 0)
        ol_client_conn_close(conn);
    else if (conn->queued == 0 && conn->ends_when_written)
        linger_conn(conn);
    else if (conn->queued == 0)
        conn->handler->drained(conn);
}

static void on_written(uv_write_t *write, int status)
{
    struct pending_write *out = write->data;
    struct ol_client_conn *conn = out->conn;
    conn->queued -= out->bytes;
    free(out->owned);
    free(out);
    finish_write(conn, status);
}

/* How many bytes the socket takes at once, or -1 when the connection is broken. */
static ssize_t try_write(struct ol_client_conn *conn, const uv_buf_t *bufs, unsigned count)
{
    if (conn->queued)
        return 0;
    int sent = uv_try_write((uv_stream_t *)&conn->tcp, bufs, count);
    if (sent >= 0 || sent == UV_EAGAIN)
        return sent < 0 ? 0 : sent;
    mark_broken(conn);
    return -1;
}

/* Write the rest when the socket takes it: `bytes` at `at`, which is in out->data or out->owned. */
static void queue_write(struct ol_client_conn *conn, struct pending_write *out, char *at,
                        size_t bytes)
{
    uv_buf_t rest = uv_buf_init(at, (unsigned)bytes);
    out->conn = conn;
    out->bytes = bytes;
    out->write.data = out;
    conn->queued += bytes;
    if (uv_write(&out->write, (uv_stream_t *)&conn->tcp, &rest, 1, on_written) < 0) {
        conn->queued -= bytes;
        free(out->owned);
        free(out);
        mark_broken(conn);
    }
}

static void write_raw(struct ol_client_conn *conn, const char *data, size_t bytes)
{
    if (is_unwritable(conn) || bytes == 0)
        return;
    uv_buf_t now = uv_buf_init((char *)data, (unsigned)bytes);
    ssize_t sent = try_write(conn, &now, 1);
    if (sent < 0 || (size_t)sent == bytes)
        return;
    struct pending_write *out = malloc(sizeof *out + bytes);
    if (!out) {
        mark_broken(conn);
        return;
    }
    out->owned = NULL;
    memcpy(out->data, data + sent, bytes - (size_t)sent);
    queue_write(conn, out, out->data, bytes - (size_t)sent);
}

/* The body is written without a copy: pages are large. */
void ol_client_conn_answer(struct ol_client_conn *conn, const struct ol_buf *head,
                           struct ol_buf *body)
{
    struct pending_write *out;
    if (conn->ssl || conn->queued || body->bytes == 0) {
        ol_client_conn_write(conn, head->data, head->bytes);
        ol_client_conn_write(conn, body->data, body->bytes);
        return;
    }
    if (is_unwritable(conn))
        return;
    uv_buf_t both[] = {uv_buf_init(head->data, (unsigned)head->bytes),
                       uv_buf_init(body->data, (unsigned)body->bytes)};
    ssize_t sent = try_write(conn, both, 2);
    if (sent < 0 || (size_t)sent == head->bytes + body->bytes)
        return;
    if ((size_t)sent < head->bytes) {
        write_raw(conn, head->data + sent, head->bytes - (size_t)sent);
        write_raw(conn, body->data, body->bytes);
        return;
    }
    if (!(out = malloc(sizeof *out))) {
        mark_broken(conn);
        return;
    }
    size_t done = (size_t)sent - head->bytes;
    out->owned = body->data;
    size_t left = body->bytes - done;
    *body = (struct ol_buf){0};
    queue_write(conn, out, out->owned + done, left);
}

static void flush_tls(struct ol_client_conn *conn)
{
    char *data;
    long bytes = BIO_get_mem_data(conn->to_wire, &data);
    if (bytes > 0) {
        write_raw(conn, data, (size_t)bytes);
        if (!conn->is_closing)
            (void)BIO_reset(conn->to_wire);
    }
}

void ol_client_conn_write(struct ol_client_conn *conn, const char *data, size_t bytes)
{
    if (is_unwritable(conn) || bytes == 0)
        return;
    if (!conn->ssl) {
        write_raw(conn, data, bytes);
        return;
    }
    ERR_clear_error();
    if (SSL_write(conn->ssl, data, (int)bytes) <= 0)
        mark_broken(conn);
    else
        flush_tls(conn);
}

void ol_client_conn_end(struct ol_client_conn *conn)
{
    if (conn->is_closing || conn->is_broken)
        return;
    if (conn->ssl) {
        SSL_shutdown(conn->ssl);
        flush_tls(conn);
    }
    conn->ends_when_written = true;
    if (!is_unwritable(conn) && conn->queued == 0)
        linger_conn(conn);
}

/* --- in --- */

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    struct ol_client_conn *conn = handle->data;
    (void)wanted;
    *out = uv_buf_init(conn->conns->chunk, sizeof conn->conns->chunk);
}

static void read_tls(struct ol_client_conn *conn, const char *data, size_t bytes)
{
    char plain[16 * 1024];
    BIO_write(conn->from_wire, data, (int)bytes);
    while (!conn->is_closing && !conn->is_broken) {
        ERR_clear_error(); // an error of another connection would be taken for this one's
        int got = SSL_read(conn->ssl, plain, sizeof plain);
        flush_tls(conn); // handshake and alerts
        if (got > 0) {
            conn->handler->data(conn, plain, (size_t)got);
            continue;
        }
        int why = SSL_get_error(conn->ssl, got);
        if (!conn->is_closing && why != SSL_ERROR_WANT_READ)
            ol_client_conn_end(conn);
        return;
    }
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *chunk)
{
    struct ol_client_conn *conn = stream->data;
    if (got < 0)
        ol_client_conn_close(conn);
    else if (conn->is_lingering || conn->ends_when_written)
        return; // discarded: the answer was the last one
    else if (got > 0 && conn->ssl)
        read_tls(conn, chunk->base, (size_t)got);
    else if (got > 0)
        conn->handler->data(conn, chunk->base, (size_t)got);
}

void ol_client_conn_pause(struct ol_client_conn *conn, bool paused)
{
    if (conn->is_closing || conn->is_broken || conn->is_paused == paused)
        return;
    conn->is_paused = paused;
    if (paused)
        uv_read_stop((uv_stream_t *)&conn->tcp);
    else
        uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read);
}

/* --- life --- */

static int begin_tls(struct ol_client_conn *conn)
{
    if (!(conn->ssl = SSL_new(conn->conns->tls)))
        return -1;
    conn->from_wire = BIO_new(BIO_s_mem());
    conn->to_wire = BIO_new(BIO_s_mem());
    SSL_set_bio(conn->ssl, conn->from_wire, conn->to_wire);
    SSL_set_accept_state(conn->ssl);
    return conn->from_wire && conn->to_wire ? 0 : -1;
}

/* Make room for one more stranger of this peer; false when only known clients are left. */
static bool make_room(struct ol_client_conns *conns, struct ol_peer *peer)
{
    struct ol_client_conn *oldest = NULL;
    if (peer->stranger_count >= conns->strangers_max)
        oldest = TAILQ_FIRST(&peer->strangers);
    else if (conns->count >= conns->max)
        oldest = TAILQ_FIRST(&conns->strangers);
    if (oldest) {
        atomic_fetch_add(&conns->refused[OL_REFUSAL_CONNECTION], 1);
        ol_client_conn_close(oldest);
    }
    return conns->count < conns->max;
}

static bool read_peer(struct ol_client_conn *conn)
{
    struct sockaddr_storage from = {0};
    int bytes = sizeof from;
    if (uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&from, &bytes) == 0)
        uv_ip_name((struct sockaddr *)&from, conn->address, sizeof conn->address);
    conn->peer = ol_peer_table_take(conn->conns->peers, (struct sockaddr *)&from);
    return conn->peer != NULL;
}

static void add_conn(struct ol_client_conns *conns, struct ol_client_conn *conn)
{
    conn->next = conns->first;
    conn->link = &conns->first;
    if (conn->next)
        conn->next->link = &conn->next;
    conns->first = conn;
    conns->count++;
    TAILQ_INSERT_TAIL(&conns->strangers, conn, among_strangers);
    TAILQ_INSERT_TAIL(&conn->peer->strangers, conn, among_peers);
    conn->peer->stranger_count++;
}

struct ol_client_conn *ol_client_conn_accept(struct ol_client_conns *conns, uv_stream_t *listener,
                                             const struct ol_client_conn_handler *handler)
{
    struct ol_client_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    uv_tcp_init(conns->loop, &conn->tcp);
    conn->tcp.data = conn;
    conn->conns = conns;
    conn->handler = handler;
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) < 0 || !read_peer(conn) ||
        !make_room(conns, conn->peer) || (conns->tls && begin_tls(conn) < 0) ||
        uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read) < 0) {
        uv_close((uv_handle_t *)&conn->tcp, on_closed);
        return NULL;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    add_conn(conns, conn);
    return conn;
}

void ol_client_conns_sweep(struct ol_client_conns *conns)
{
    uint64_t now = uv_now(conns->loop);
    ol_peer_table_sweep(conns->peers, now);
    for (struct ol_client_conn *conn = conns->first, *next; conn; conn = next) {
        next = conn->next;
        if (conn->is_broken || (conn->deadline && now >= conn->deadline)) {
            conn->deadline = 0;
            if (conn->is_lingering || conn->is_broken)
                ol_client_conn_close(conn);
            else
                conn->handler->expired(conn);
        }
    }
}

void ol_client_conns_close_all(struct ol_client_conns *conns)
{
    while (conns->first)
        ol_client_conn_close(conns->first);
}
