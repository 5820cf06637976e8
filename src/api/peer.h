/* peer.h: one client's connection: bytes in, bytes out, TLS, a deadline. It knows no HTTP.
 *
 * All of it belongs to the loop's thread. */
#ifndef OL_API_PEER_H
#define OL_API_PEER_H

#include "base/buf.h"

#include <openssl/ssl.h>
#include <uv.h>

struct ol_peer;

/* Who reads from a peer: HTTP, later perhaps a WebSocket. */
struct ol_peer_user {
    void (*data)(struct ol_peer *peer, const char *data, size_t bytes);
    void (*drained)(struct ol_peer *peer); /* everything written has left this process */
    void (*expired)(struct ol_peer *peer); /* the deadline passed; set another one, or close */
    void (*closed)(struct ol_peer *peer);  /* the connection is over: forget it */
};

struct ol_peers {
    uv_loop_t *loop;
    SSL_CTX *tls; /* NULL: plain */
    struct ol_peer *first;
    size_t count, most;
    char chunk[64 * 1024]; /* one read at a time, for all of them */
};

struct ol_peer {
    uv_tcp_t tcp;
    struct ol_peers *peers;
    struct ol_peer *next, **link;
    const struct ol_peer_user *user;
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
struct ol_peer *ol_peer_accept(struct ol_peers *peers, uv_stream_t *listener,
                               const struct ol_peer_user *user);

void ol_peer_write(struct ol_peer *peer, const char *data, size_t bytes);

/* The same for a head and a body, whose memory it may take. */
void ol_peer_answer(struct ol_peer *peer, const struct ol_buf *head, struct ol_buf *body);

/* No more data to the user until it is resumed. */
void ol_peer_pause(struct ol_peer *peer, bool paused);

/* Close after what was written has left; ol_peer_close() at once. */
void ol_peer_end(struct ol_peer *peer);
void ol_peer_close(struct ol_peer *peer);

/* The same without telling the user. */
void ol_peer_drop(struct ol_peer *peer);

/* Expire those whose deadline passed. */
void ol_peers_sweep(struct ol_peers *peers);
void ol_peers_close_all(struct ol_peers *peers);

#endif
