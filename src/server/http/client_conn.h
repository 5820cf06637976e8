/* client_conn.h: a client's TCP connection: reads, writes, TLS and a deadline. It knows no HTTP.
 *
 * Everything here runs in the loop's thread. */
#ifndef OL_SERVER_HTTP_CLIENT_CONN_H
#define OL_SERVER_HTTP_CLIENT_CONN_H

#include "base/buf.h"
#include "server/http/peer.h"

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <uv.h>

struct ol_client_conn;

/* The protocol on a connection: HTTP, or WebSocket after an upgrade. */
struct ol_client_conn_handler {
    void (*data)(struct ol_client_conn *conn, const char *data, size_t bytes);
    /* The kernel has taken everything that was written. */
    void (*drained)(struct ol_client_conn *conn);
    /* The deadline passed: set another one, or close. */
    void (*expired)(struct ol_client_conn *conn);
    /* The connection is closed, and its memory is about to be freed. */
    void (*closed)(struct ol_client_conn *conn);
};

/* Why somebody was refused before a handler ran, for /metrics. */
enum ol_refusal {
    OL_REFUSAL_CONNECTION, /* too many: the stranger that waited longest was disconnected */
    OL_REFUSAL_BODY,       /* a large body without a known token */
    OL_REFUSAL_TOKEN,      /* too many unknown tokens */
    OL_REFUSAL_SLOW,       /* the request did not arrive in time */
    OL_REFUSAL_COUNT
};

struct ol_client_conns {
    uv_loop_t *loop;
    SSL_CTX *tls; /* NULL: plain */
    struct ol_client_conn *first;
    size_t count, max;
    struct ol_peer_table *peers;
    struct ol_stranger_list strangers; /* of all peers, oldest first */
    size_t strangers_max;              /* of one peer */
    atomic_llong refused[OL_REFUSAL_COUNT];
    char chunk[64 * 1024]; /* read buffer, shared by all connections */
};

struct ol_client_conn {
    uv_tcp_t tcp;
    struct ol_client_conns *conns;
    struct ol_client_conn *next, **link;
    struct ol_peer *peer;
    TAILQ_ENTRY(ol_client_conn) among_strangers, among_peers; /* unless is_known */
    bool is_known;                                            /* it showed a valid token */
    const struct ol_client_conn_handler *handler;
    void *owner; /* of the handler */
    SSL *ssl;
    BIO *from_wire, *to_wire;
    uint64_t deadline; /* by uv_now(); 0: none */
    size_t queued;     /* bytes that the kernel has not taken yet */
    bool is_closing, is_lingering, ends_when_written, is_paused;
    bool is_broken;   /* a write failed; the next sweep closes it */
    char address[64]; /* for logs */
};

/* Accept the next connection of a listening socket; NULL when there is none or too many. It is a
 * stranger's. When its address has strangers_max of them, or there is no room at all, the stranger
 * that waited longest is disconnected: a client that sends its request at once is not. */
struct ol_client_conn *ol_client_conn_accept(struct ol_client_conns *conns, uv_stream_t *listener,
                                             const struct ol_client_conn_handler *handler);

/* It showed a valid token: from now on it is nobody's to disconnect. */
void ol_client_conn_recognize(struct ol_client_conn *conn);

void ol_client_conn_write(struct ol_client_conn *conn, const char *data, size_t bytes);

/* Write a head and a body. It may take over the body's memory. */
void ol_client_conn_answer(struct ol_client_conn *conn, const struct ol_buf *head,
                           struct ol_buf *body);

/* Stop reading, or resume. */
void ol_client_conn_pause(struct ol_client_conn *conn, bool paused);

/* Close after everything was written; ol_client_conn_close() closes at once. */
void ol_client_conn_end(struct ol_client_conn *conn);
void ol_client_conn_close(struct ol_client_conn *conn);

/* Close at once without calling handler->closed. */
void ol_client_conn_drop(struct ol_client_conn *conn);

/* Call handler->expired of those whose deadline passed, and close the broken ones. */
void ol_client_conns_sweep(struct ol_client_conns *conns);
void ol_client_conns_close_all(struct ol_client_conns *conns);

#endif
