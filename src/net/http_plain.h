/* http_plain.h: HTTP/1.1 without TLS, over connections of our own.
 *
 * Curl can do all of HTTP, and for a small request most of what it does is not needed: two thirds
 * of a relay's time went there. So what goes by http: to an address that is known goes this way,
 * one write and one read a request; names, TLS, HTTP/2 and mail stay curl's. An address is known
 * when the URL has it, or for a minute after curl has reached the name.
 *
 * C1 to C5 of http_transfer.h hold here too: the same transfer, whoever carries it. Only the
 * engine's thread touches connections; an origin is its owner's. */
#ifndef OL_NET_HTTP_PLAIN_H
#define OL_NET_HTTP_PLAIN_H

#include "net/http_transfer.h"
#include "net/ssrf_guard.h"

struct ol_connection;

/* --- the owner's side: is it for us? --- */

/* Where a link's requests go. Start from {0}. */
struct ol_http_origin {
    char authority[OL_HOST_TEXT + 10]; /* as the URL spells it */
    struct ol_remote_address peer;
    int64_t good_until;       /* of the peer; 0: not known */
    struct ol_buf url, start; /* of the last request, and how such a request begins */
    char method[16];
};

/* May this request go here? */
bool ol_http_plain_admits(struct ol_http_origin *origin,
                          const struct ol_http_client_request *request);

/* Write down a request that was admitted. False: memory is out. */
bool ol_http_plain_prepare(const struct ol_http_origin *origin, struct ol_http_transfer *transfer,
                           const struct ol_http_client_request *request);

/* A transfer of curl's has ended: learn where it got through. */
void ol_http_plain_learn(struct ol_http_origin *origin, const struct ol_http_transfer *transfer);

void ol_http_origin_clear(struct ol_http_origin *origin);

/* --- the engine's side --- */

/* Connections of a link that rest. Start from {.most = …}. */
struct ol_idle_conns {
    struct ol_connection *resting;
    size_t count, most;
};

struct ol_http_plain {
    int epoll;
    void *engine;
    /* A connection came, or NULL: it goes. Its events are to be told to ol_http_plain_ready. */
    bool (*assign)(void *engine, int fd, struct ol_connection *connection);
    /* A transfer is over. */
    void (*ended)(void *engine, struct ol_http_transfer *transfer, CURLcode code);

    size_t busy_count;          /* transfers under way */
    struct ol_connection *busy; /* private */
    int64_t due_us;             /* when to call ol_http_plain_expire; INT64_MAX: never */
};

void ol_http_plain_begin(struct ol_http_plain *direct, struct ol_idle_conns *line,
                         struct ol_http_transfer *transfer);
void ol_http_plain_ready(struct ol_http_plain *direct, struct ol_connection *connection,
                         uint32_t events);

/* End what is past its deadline. */
void ol_http_plain_expire(struct ol_http_plain *direct, int64_t now_us);

/* Let go of a transfer that its owner gives up; `ended` is not called. */
void ol_http_plain_drop(struct ol_http_plain *direct, struct ol_http_transfer *transfer);

/* Close what rests. Nothing of the line is under way. */
void ol_http_plain_hang_up(struct ol_http_plain *direct, struct ol_idle_conns *line);

#endif
