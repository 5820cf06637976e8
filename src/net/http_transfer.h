/* http_transfer.h: one attempt, through curl or http_plain.c, without the connections it goes over.
 *
 * C1  A transfer is one attempt. Curl repeats a request by itself when a kept connection turns out
 *     to be dead; the second time `before_request` is asked it says no.
 * C2  `is_sent` is set before the first byte of a request leaves (for mail: before MAIL FROM), so a
 *     transfer without it surely did not reach the receiver.
 * C3  The address is checked where the socket is made, and again before each request.
 * C4  No callback of ours calls `done`: transfers end in one place, ol_http_transfer_end().
 * C5  No request leaves after its deadline, however long the process stood still in between: that
 * is looked at in `before_request` too, for a transfer that was added may start much later.
 *
 * A transfer is used again and again, and by one link: most of what curl is told stays as it is. */
#ifndef OL_NET_HTTP_TRANSFER_H
#define OL_NET_HTTP_TRANSFER_H

#include "net/http_client.h"

#include <curl/curl.h>
#include <netinet/in.h>

struct ol_connection;

/* An address that was checked. bytes 0: none. */
struct ol_remote_address {
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address;
    socklen_t bytes;
};

/* From an address as text; false, and none, when it is not one. */
bool ol_remote_address_set(struct ol_remote_address *peer, const char *text, int port);
bool ol_remote_address_equals(const struct ol_remote_address *a, const struct ol_remote_address *b);

/* Whoever waits for the connections is told when they come and go. */
struct ol_http_sockets {
    void (*opened)(void *engine, int fd);
    int (*close)(void *engine, curl_socket_t fd); /* and closes it */
    void *engine;
};

struct ol_http_transfer {
    struct ol_http_transfer *next; /* in a list: of the engine, or of those to be used again */
    struct ol_http_transfer *before, *after; /* in flight, as the owner knows it */
    struct ol_http_transfer *next_end;       /* among those to be given up */
    void *link;                              /* http_client.c's */
    bool is_over, is_ended; /* for the engine; and for the owner, under the engine's lock */
    bool is_direct;         /* it goes by http_plain.c, and curl knows nothing of it */
    struct ol_connection *connection; /* http_plain.c's, while it is under way */
    CURL *easy;                       /* NULL: curl never had to do with it */
    void *tag;
    struct ol_http_response answer; /* once it has ended */
    struct ol_remote_address peer;  /* to whom it goes, or went */

    /* private */
    int64_t started_us, deadline_us;
    const struct ol_http_sockets *sockets;
    struct ol_buf body; /* direct: all of the request */
    struct ol_buf head;
    struct curl_slist lines[OL_HEADERS_MAX + 1]; /* in `head` */
    struct curl_slist *recipients;
    size_t body_sent;
    bool is_mail, is_get, allow_private;
    struct ol_buf url; /* as curl knows it; empty: it knows nothing yet */
    char method[16];

    bool is_sent;      /* C2 */
    bool is_body_sent; /* mail: curl has read the body to its end */
    bool is_repeated;  /* C1 struck */
    bool is_late;      /* C5 struck */
    bool is_head_done; /* the final head is complete */
    bool is_head_long;
    bool is_reply_done; /* mail: the next line begins a new reply */
    const char *denied; /* the range that the guard refused, and the address */
    char denied_address[64];
    int status;
    size_t head_bytes, read_bytes, kept_bytes;
    char retry_after[64];
    char reason[200];
    char error[CURL_ERROR_SIZE];
    char kept[OL_RESPONSE_KEPT];
};

/* `sockets` must outlive the connections. NULL: memory is out. */
struct ol_http_transfer *ol_http_transfer_new(const struct ol_http_sockets *sockets);
void ol_http_transfer_free(struct ol_http_transfer *transfer);

/* Get it ready to be added to a multi handle. False: memory is out. */
bool ol_http_transfer_prepare(struct ol_http_transfer *transfer,
                              const struct ol_http_client_request *request);

/* What both ways have in common. Forget the last attempt, before anything is written down of this
 * one. */
void ol_http_transfer_reset(struct ol_http_transfer *transfer,
                            const struct ol_http_client_request *request);

/* Before the first byte leaves: is it too late (C5), is the address refused (C3)? */
bool ol_http_transfer_is_late(struct ol_http_transfer *transfer);
bool ol_http_transfer_is_denied(struct ol_http_transfer *transfer,
                                const struct ol_remote_address *peer);

/* Has the answer's head grown beyond all measure? */
bool ol_http_transfer_is_head_long(struct ol_http_transfer *transfer);

/* Some of the answer's body. False: that is enough. */
bool ol_http_transfer_hear(struct ol_http_transfer *transfer, const char *data, size_t bytes);

/* It is over, by curl's code or because we gave it up: fill in its answer. */
void ol_http_transfer_end(struct ol_http_transfer *transfer, CURLcode code, bool is_abandoned);

#endif
