/* client_conn.h: one client's connection: bytes in, bytes out, TLS, a deadline. It knows no HTTP.
 *
 * All of it belongs to the loop's thread. */
#ifndef OL_SERVER_HTTP_CLIENT_CONN_H
#define OL_SERVER_HTTP_CLIENT_CONN_H

#include "base/buf.h"

#include <openssl/ssl.h>
#include <uv.h>

struct ol_client_conn;

/* Who reads from a peer: HTTP, later perhaps a WebSocket. */
struct ol_client_conn_handler {
    void (*data)(struct ol_client_conn *peer, const char *data, size_t bytes);
    void (*drained)(struct ol_client_conn *peer); /* everything written has left this process */
    void (*expired)(
        struct ol_client_conn *peer); /* the deadline passed; set another one, or close */
    void (*closed)(struct ol_client_conn *peer); /* the connection is over: forget it */
};

struct ol_client_conns {
    uv_loop_t *loop;
    SSL_CTX *tls; /* NULL: plain */
    struct ol_client_conn *first;
    size_t count, most;
    char chunk[64 * 1024]; /* one read at a time, for all of them */
};

struct ol_client_conn {
    uv_tcp_t tcp;
    struct ol_client_conns *peers;
    struct ol_client_conn *next, **link;
    const struct ol_client_conn_handler *user;
    void *owner;
    SSL *ssl;
    BIO *from_wire, *to_wire;
    uint64_t deadline; /* by uv_now(); 0: none */
    size_t queued;     /* bytes handed over and not written yet */
    bool is_closing, is_lingering, ends_when_written, is_paused;
    bool is_broken;   /* nothing can be written any more; the next sweep closes it */
    char address[64]; /* for logs */
};

/* Take the next connection of a listening socket; NULL when there is none or too many. */
struct ol_client_conn *ol_client_conn_accept(struct ol_client_conns *peers, uv_stream_t *listener,
                                             const struct ol_client_conn_handler *user);

void ol_client_conn_write(struct ol_client_conn *peer, const char *data, size_t bytes);

/* The same for a head and a body, whose memory it may take. */
void ol_client_conn_answer(struct ol_client_conn *peer, const struct ol_buf *head,
                           struct ol_buf *body);

/* No more data to the user until it is resumed. */
void ol_client_conn_pause(struct ol_client_conn *peer, bool paused);

/* Close after what was written has left; ol_client_conn_close() at once. */
void ol_client_conn_end(struct ol_client_conn *peer);
void ol_client_conn_close(struct ol_client_conn *peer);

/* The same without telling the user. */
void ol_client_conn_drop(struct ol_client_conn *peer);

/* Expire those whose deadline passed. */
void ol_client_conns_sweep(struct ol_client_conns *peers);
void ol_client_conns_close_all(struct ol_client_conns *peers);

#endif
