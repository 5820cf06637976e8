/* http_plain.h: HTTP/1.1 without TLS, over connections of our own.
 *
 * Curl can do all of HTTP, and a small request needs little of it: two thirds of a relay's time
 * went into curl. So requests by http: to a known address are sent here, with one write and one
 * read per request. Names, TLS, HTTP/2 and mail stay with curl. An address is known when the URL
 * contains it, and for a minute after curl has reached the name.
 *
 * C1 to C5 of http_transfer.h hold here too: the transfer is the same. Only the engine's thread
 * touches connections; an origin belongs to the owner's thread. */
#ifndef OL_NET_HTTP_PLAIN_H
#define OL_NET_HTTP_PLAIN_H

#include "net/http_transfer.h"
#include "net/ssrf_guard.h"

struct ol_connection;

/* --- the owner's side ------------------------------------------------------------------------- */

/* Where a pool's requests go. Start from {0}. */
struct ol_http_origin {
    char authority[OL_HOST_TEXT + 10]; /* as the URL spells it */
    struct ol_remote_address peer;
    int64_t good_until;       /* how long `peer` may be used; 0: it is not known */
    struct ol_buf url, start; /* of the last request; the first lines of such a request */
    char method[16];
};

/* Whether this request can be sent without curl. */
bool ol_http_plain_admits(struct ol_http_origin *origin,
                          const struct ol_http_client_request *request);

/* Write the bytes of an admitted request. False: out of memory. */
bool ol_http_plain_prepare(const struct ol_http_origin *origin, struct ol_http_transfer *transfer,
                           const struct ol_http_client_request *request);

/* A transfer of curl's has ended: remember the address that it reached. */
void ol_http_plain_learn(struct ol_http_origin *origin, const struct ol_http_transfer *transfer);

void ol_http_origin_clear(struct ol_http_origin *origin);

/* --- the engine's side ------------------------------------------------------------------------ */

/* The idle connections of a pool. Start from {.max = …}. */
struct ol_idle_conns {
    struct ol_connection *first;
    size_t count, max;
};

struct ol_http_plain {
    int epoll;
    void *engine;
    /* A connection was opened; NULL: it will be closed. Pass its events to ol_http_plain_ready. */
    bool (*on_connection)(void *engine, int fd, struct ol_connection *connection);
    /* A transfer has ended. */
    void (*on_end)(void *engine, struct ol_http_transfer *transfer, CURLcode code);

    size_t busy_count;          /* transfers in flight */
    struct ol_connection *busy; /* private */
    int64_t due_us;             /* when to call ol_http_plain_expire; INT64_MAX: never */
};

void ol_http_plain_begin(struct ol_http_plain *plain, struct ol_idle_conns *idle,
                         struct ol_http_transfer *transfer);
void ol_http_plain_ready(struct ol_http_plain *plain, struct ol_connection *connection,
                         uint32_t events);

/* End the transfers that are past their deadline. */
void ol_http_plain_expire(struct ol_http_plain *plain, int64_t now_us);

/* Drop a transfer that its owner abandons; on_end is not called. */
void ol_http_plain_drop(struct ol_http_plain *plain, struct ol_http_transfer *transfer);

/* Close the idle connections of a pool without transfers in flight. */
void ol_http_plain_close_idle(struct ol_http_plain *plain, struct ol_idle_conns *idle);

#endif
