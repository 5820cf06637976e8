/* peer.h: what strangers at one address may take, before they show a token (R8).
 *
 * An address is an IPv4 address or the first 64 bits of an IPv6 one: one host has as many of the
 * others as it likes. Behind a proxy all clients are one address, so nothing here concerns a
 * connection that has shown its token. Everything runs in the loop's thread.
 *
 * P1  Memory is bounded: an address is known while it has a connection, and PEERS_IDLE_MAX others
 *     whose wrong tokens are not forgiven yet. */
#ifndef OL_SERVER_HTTP_PEER_H
#define OL_SERVER_HTTP_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

struct ol_client_conn;
TAILQ_HEAD(ol_stranger_list, ol_client_conn);

struct ol_peer {
    struct ol_peer *next; /* in its bucket */
    unsigned char key[16];
    size_t conn_count;
    struct ol_stranger_list strangers; /* connections that showed no token yet, oldest first */
    size_t stranger_count;
    int body_count;    /* large bodies that strangers are sending */
    double tries;      /* unknown tokens it may still send */
    uint64_t tried_at; /* ms: when `tries` was last counted */
};

struct ol_peer_table;

struct ol_peer_table *ol_peer_table_open(void); /* NULL: no memory */
void ol_peer_table_close(struct ol_peer_table *peers);

/* The peer of a new connection; NULL when memory is out. ol_peer_table_release() when it is closed.
 */
struct ol_peer *ol_peer_table_take(struct ol_peer_table *peers, const struct sockaddr *address);
void ol_peer_table_release(struct ol_peer_table *peers, struct ol_peer *peer, uint64_t now_ms);

/* Forget addresses whose wrong tokens are forgiven. */
void ol_peer_table_sweep(struct ol_peer_table *peers, uint64_t now_ms);

/* Count an unknown token; false: it had too many. OL_PEER_TRIES at once, then one per second. */
enum { OL_PEER_TRIES = 50 };
bool ol_peer_try_token(struct ol_peer *peer, uint64_t now_ms);

#endif
