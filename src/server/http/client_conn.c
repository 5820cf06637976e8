/* client_conn.c: a client's connection on the loop. */
#include "server/http/client_conn.h"

#include <netinet/in.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

enum { LINGER_MS = 1000 };

struct outgoing {
    uv_write_t write;
    struct ol_client_conn *peer;
    size_t bytes;
    char *owned; /* malloc'ed, instead of data */
    char data[];
};

static void on_closed(uv_handle_t *handle)
{
    struct ol_client_conn *peer = handle->data;
    SSL_free(peer->ssl); // frees both BIOs
    free(peer);
}

void ol_client_conn_drop(struct ol_client_conn *peer)
{
    if (peer->is_closing)
        return;
    peer->is_closing = true;
    *peer->link = peer->next;
    if (peer->next)
        peer->next->link = peer->link;
    peer->peers->count--;
    uv_close((uv_handle_t *)&peer->tcp, on_closed);
}

void ol_client_conn_close(struct ol_client_conn *peer)
{
    if (peer->is_closing)
        return;
    ol_client_conn_drop(peer);
    peer->user->closed(peer);
}

/* --- out --- */

static void on_shutdown(uv_shutdown_t *shutdown, int status)
{
    (void)status;
    free(shutdown);
}

/* It takes nothing any more. Whoever writes may be in the middle of something: the sweep closes it.
 */
static void give_up(struct ol_client_conn *peer)
{
    peer->is_broken = true;
    uv_read_stop((uv_stream_t *)&peer->tcp);
}

static bool takes_nothing(const struct ol_client_conn *peer)
{
    return peer->is_closing || peer->is_lingering || peer->is_broken;
}

/* Half close, and read on for a moment: closing at once with unread bytes would reset the
 * connection, and the client might never see the answer. */
static void linger(struct ol_client_conn *peer)
{
    uv_shutdown_t *shutdown = calloc(1, sizeof *shutdown);
    if (!shutdown || uv_shutdown(shutdown, (uv_stream_t *)&peer->tcp, on_shutdown) < 0) {
        free(shutdown);
        give_up(peer);
        return;
    }
    peer->is_lingering = true;
    peer->deadline = uv_now(peer->peers->loop) + LINGER_MS;
    ol_client_conn_pause(peer, false);
}

static void written(struct ol_client_conn *peer, int status)
{
    if (takes_nothing(peer))
        return;
    if (status < 0)
        ol_client_conn_close(peer);
    else if (peer->queued == 0 && peer->ends_when_written)
        linger(peer);
    else if (peer->queued == 0)
        peer->user->drained(peer);
}

static void on_written(uv_write_t *write, int status)
{
    struct outgoing *out = write->data;
    struct ol_client_conn *peer = out->peer;
    peer->queued -= out->bytes;
    free(out->owned);
    free(out);
    written(peer, status);
}

/* What the socket takes at once, or -1 when the connection is over. */
static ssize_t try_write(struct ol_client_conn *peer, const uv_buf_t *bufs, unsigned count)
{
    if (peer->queued)
        return 0;
    int sent = uv_try_write((uv_stream_t *)&peer->tcp, bufs, count);
    if (sent >= 0 || sent == UV_EAGAIN)
        return sent < 0 ? 0 : sent;
    give_up(peer);
    return -1;
}

/* Write the rest when the socket takes it: `bytes` at `at`, which is in out->data or out->owned. */
static void queue(struct ol_client_conn *peer, struct outgoing *out, char *at, size_t bytes)
{
    uv_buf_t rest = uv_buf_init(at, (unsigned)bytes);
    out->peer = peer;
    out->bytes = bytes;
    out->write.data = out;
    peer->queued += bytes;
    if (uv_write(&out->write, (uv_stream_t *)&peer->tcp, &rest, 1, on_written) < 0) {
        peer->queued -= bytes;
        free(out->owned);
        free(out);
        give_up(peer);
    }
}

static void write_raw(struct ol_client_conn *peer, const char *data, size_t bytes)
{
    if (takes_nothing(peer) || bytes == 0)
        return;
    uv_buf_t now = uv_buf_init((char *)data, (unsigned)bytes);
    ssize_t sent = try_write(peer, &now, 1);
    if (sent < 0 || (size_t)sent == bytes)
        return;
    struct outgoing *out = malloc(sizeof *out + bytes);
    if (!out) {
        give_up(peer);
        return;
    }
    out->owned = NULL;
    memcpy(out->data, data + sent, bytes - (size_t)sent);
    queue(peer, out, out->data, bytes - (size_t)sent);
}

/* An answer is written from where it was made: pages are large. */
void ol_client_conn_answer(struct ol_client_conn *peer, const struct ol_buf *head,
                           struct ol_buf *body)
{
    struct outgoing *out;
    if (peer->ssl || peer->queued || body->bytes == 0) {
        ol_client_conn_write(peer, head->data, head->bytes);
        ol_client_conn_write(peer, body->data, body->bytes);
        return;
    }
    if (takes_nothing(peer))
        return;
    uv_buf_t both[] = {uv_buf_init(head->data, (unsigned)head->bytes),
                       uv_buf_init(body->data, (unsigned)body->bytes)};
    ssize_t sent = try_write(peer, both, 2);
    if (sent < 0 || (size_t)sent == head->bytes + body->bytes)
        return;
    if ((size_t)sent < head->bytes) {
        write_raw(peer, head->data + sent, head->bytes - (size_t)sent);
        write_raw(peer, body->data, body->bytes);
        return;
    }
    if (!(out = malloc(sizeof *out))) {
        give_up(peer);
        return;
    }
    size_t done = (size_t)sent - head->bytes;
    out->owned = body->data;
    size_t left = body->bytes - done;
    *body = (struct ol_buf){0};
    queue(peer, out, out->owned + done, left);
}

static void flush_tls(struct ol_client_conn *peer)
{
    char *data;
    long bytes = BIO_get_mem_data(peer->to_wire, &data);
    if (bytes > 0) {
        write_raw(peer, data, (size_t)bytes);
        if (!peer->is_closing)
            (void)BIO_reset(peer->to_wire);
    }
}

void ol_client_conn_write(struct ol_client_conn *peer, const char *data, size_t bytes)
{
    if (takes_nothing(peer) || bytes == 0)
        return;
    if (!peer->ssl) {
        write_raw(peer, data, bytes);
        return;
    }
    ERR_clear_error();
    if (SSL_write(peer->ssl, data, (int)bytes) <= 0)
        give_up(peer);
    else
        flush_tls(peer);
}

void ol_client_conn_end(struct ol_client_conn *peer)
{
    if (peer->is_closing || peer->is_broken)
        return;
    if (peer->ssl) {
        SSL_shutdown(peer->ssl);
        flush_tls(peer);
    }
    peer->ends_when_written = true;
    if (!takes_nothing(peer) && peer->queued == 0)
        linger(peer);
}

/* --- in --- */

static void give_chunk(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    struct ol_client_conn *peer = handle->data;
    (void)wanted;
    *out = uv_buf_init(peer->peers->chunk, sizeof peer->peers->chunk);
}

static void read_tls(struct ol_client_conn *peer, const char *data, size_t bytes)
{
    char plain[16 * 1024];
    BIO_write(peer->from_wire, data, (int)bytes);
    while (!peer->is_closing && !peer->is_broken) {
        ERR_clear_error(); // of another connection: it would be taken for this one's
        int got = SSL_read(peer->ssl, plain, sizeof plain);
        flush_tls(peer); // handshake and alerts
        if (got > 0) {
            peer->user->data(peer, plain, (size_t)got);
            continue;
        }
        int why = SSL_get_error(peer->ssl, got);
        if (!peer->is_closing && why != SSL_ERROR_WANT_READ)
            ol_client_conn_end(peer);
        return;
    }
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *chunk)
{
    struct ol_client_conn *peer = stream->data;
    if (got < 0)
        ol_client_conn_close(peer);
    else if (peer->is_lingering || peer->ends_when_written)
        return; // nobody listens any more
    else if (got > 0 && peer->ssl)
        read_tls(peer, chunk->base, (size_t)got);
    else if (got > 0)
        peer->user->data(peer, chunk->base, (size_t)got);
}

void ol_client_conn_pause(struct ol_client_conn *peer, bool paused)
{
    if (peer->is_closing || peer->is_broken || peer->is_paused == paused)
        return;
    peer->is_paused = paused;
    if (paused)
        uv_read_stop((uv_stream_t *)&peer->tcp);
    else
        uv_read_start((uv_stream_t *)&peer->tcp, give_chunk, on_read);
}

/* --- life --- */

static int begin_tls(struct ol_client_conn *peer)
{
    if (!(peer->ssl = SSL_new(peer->peers->tls)))
        return -1;
    peer->from_wire = BIO_new(BIO_s_mem());
    peer->to_wire = BIO_new(BIO_s_mem());
    SSL_set_bio(peer->ssl, peer->from_wire, peer->to_wire);
    SSL_set_accept_state(peer->ssl);
    return peer->from_wire && peer->to_wire ? 0 : -1;
}

static void name_peer(struct ol_client_conn *peer)
{
    struct sockaddr_storage from;
    int bytes = sizeof from;
    if (uv_tcp_getpeername(&peer->tcp, (struct sockaddr *)&from, &bytes) == 0)
        uv_ip_name((struct sockaddr *)&from, peer->address, sizeof peer->address);
}

struct ol_client_conn *ol_client_conn_accept(struct ol_client_conns *peers, uv_stream_t *listener,
                                             const struct ol_client_conn_handler *user)
{
    struct ol_client_conn *peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    uv_tcp_init(peers->loop, &peer->tcp);
    peer->tcp.data = peer;
    peer->peers = peers;
    peer->user = user;
    if (uv_accept(listener, (uv_stream_t *)&peer->tcp) < 0 || peers->count >= peers->most ||
        (peers->tls && begin_tls(peer) < 0) ||
        uv_read_start((uv_stream_t *)&peer->tcp, give_chunk, on_read) < 0) {
        uv_close((uv_handle_t *)&peer->tcp, on_closed);
        return NULL;
    }
    uv_tcp_nodelay(&peer->tcp, 1);
    name_peer(peer);
    peer->next = peers->first;
    peer->link = &peers->first;
    if (peer->next)
        peer->next->link = &peer->next;
    peers->first = peer;
    peers->count++;
    return peer;
}

void ol_client_conns_sweep(struct ol_client_conns *peers)
{
    uint64_t now = uv_now(peers->loop);
    for (struct ol_client_conn *peer = peers->first, *next; peer; peer = next) {
        next = peer->next;
        if (peer->is_broken || (peer->deadline && now >= peer->deadline)) {
            peer->deadline = 0;
            if (peer->is_lingering || peer->is_broken)
                ol_client_conn_close(peer);
            else
                peer->user->expired(peer);
        }
    }
}

void ol_client_conns_close_all(struct ol_client_conns *peers)
{
    while (peers->first)
        ol_client_conn_close(peers->first);
}
