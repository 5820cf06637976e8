/* http_transfer.h: one attempt, through curl or http_plain.c; connections are kept elsewhere.
 *
 * C1  A transfer is one attempt. Curl repeats a request by itself when a kept connection turns out
 *     to be dead; `before_request` refuses the second time.
 * C2  `is_sent` is set before the first byte of a request leaves (for mail: before MAIL FROM), so a
 *     transfer without it surely did not reach the receiver.
 * C3  The address is checked where the socket is made, and again before each request.
 * C4  No callback of ours calls `done`: transfers end in one place, ol_http_transfer_end().
 * C5  No request leaves after its deadline, even when the process was suspended in between.
 *     `before_request` checks that too, because a transfer may start long after it was added.
 *
 * A pool uses its transfers again, so most of curl's options need not be set each time. */
#ifndef OL_NET_HTTP_TRANSFER_H
#define OL_NET_HTTP_TRANSFER_H

#include "net/http_client.h"

#include <curl/curl.h>
#include <netinet/in.h>

struct ol_connection;

/* An address that was checked. bytes is 0: none. */
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

/* Called when curl opens a connection, and to close one. */
struct ol_http_socket_hooks {
    void (*on_opened)(void *engine, int fd);
    int (*close)(void *engine, curl_socket_t fd);
    void *engine;
};

struct ol_http_transfer {
    struct ol_http_transfer *next; /* in a list: of the engine, or of those to be used again */
    struct ol_http_transfer *before, *after; /* in flight, in the owner's list */
    struct ol_http_transfer *next_abandoned; /* among those that the owner ends */
    struct ol_http_pool *pool;
    bool is_over;                     /* for the engine */
    bool is_ended;                    /* for the owner; under the client's lock */
    bool is_plain;                    /* http_plain.c sends it, and curl does not know it */
    struct ol_connection *connection; /* http_plain.c's, while in flight */
    CURL *easy;                       /* NULL: curl never sent it */
    void *tag;
    struct ol_http_response response; /* once it has ended */
    struct ol_remote_address peer;    /* where it goes, or went */

    /* private */
    int64_t started_us, deadline_us;
    const struct ol_http_socket_hooks *hooks;
    struct ol_buf body; /* plain: the whole request */
    struct ol_buf head;
    struct curl_slist lines[OL_HEADERS_MAX + 1]; /* in `head` */
    struct curl_slist *recipients;
    size_t body_sent;
    bool is_mail, is_get, allow_private;
    struct ol_buf url; /* that curl's options are for; empty: none are set */
    char method[16];

    bool is_sent;      /* C2 */
    bool is_body_sent; /* mail: curl has read the body to its end */
    bool is_repeated;  /* refused by C1 */
    bool is_late;      /* refused by C5 */
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

/* `hooks` must outlive the connections. NULL: out of memory. */
struct ol_http_transfer *ol_http_transfer_new(const struct ol_http_socket_hooks *hooks);
void ol_http_transfer_free(struct ol_http_transfer *transfer);

/* Prepare it for a multi handle. False: out of memory. */
bool ol_http_transfer_prepare(struct ol_http_transfer *transfer,
                              const struct ol_http_client_request *request);

/* Forget the last attempt and begin a new one. For curl and http_plain.c alike. */
void ol_http_transfer_reset(struct ol_http_transfer *transfer,
                            const struct ol_http_client_request *request);

/* To be checked before the first byte leaves: is it too late (C5), is the address refused (C3)? */
bool ol_http_transfer_is_late(struct ol_http_transfer *transfer);
bool ol_http_transfer_is_denied(struct ol_http_transfer *transfer,
                                const struct ol_remote_address *peer);

/* Is the response's head longer than allowed? */
bool ol_http_transfer_is_head_long(struct ol_http_transfer *transfer);

/* Take a part of the response's body. False: no more is wanted. */
bool ol_http_transfer_receive(struct ol_http_transfer *transfer, const char *data, size_t bytes);

/* It has ended with curl's code, or was abandoned: fill in its response. */
void ol_http_transfer_end(struct ol_http_transfer *transfer, CURLcode code, bool is_abandoned);

#endif
