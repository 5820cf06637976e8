/* http_client.h: HTTP and mail, through curl or (see http_plain.h) without it.
 *
 * The client keeps connections alive, speaks HTTP/2 where the server offers it, and has hundreds of
 * transfers in flight on one thread of its own, so that they go on while the owner uses the store.
 * A transfer is one attempt: when a connection dies, curl's own repeat is cut off, because the
 * receiver may have acted on the first copy. */
#ifndef OL_NET_HTTP_CLIENT_H
#define OL_NET_HTTP_CLIENT_H

#include "base/err.h"
#include "net/headers.h"

/* How many bytes of a response are read, and how many of those are kept (R4). */
enum { OL_RESPONSE_READ = 64 * 1024, OL_RESPONSE_KEPT = 4096 };

struct ol_http_client;

/* How far an exchange came. */
enum ol_http_reach {
    OL_REACH_NOTHING, /* no byte of the request left: resolve, connect, TLS or the guard failed */
    OL_REACH_LOST,    /* the request, or some of it, left; no complete response came */
    OL_REACH_REFUSED, /* mail: the server refused it, so no recipient gets it */
    OL_REACH_ANSWERED /* the complete head of a response is here; mail: 250 after the final dot */
};

/* What came back. Pointers are valid during the callback only. */
struct ol_http_response {
    enum ol_http_reach reach;
    int status; /* HTTP status, or the last SMTP reply */
    bool is_timeout;
    bool is_abandoned;       /* the owner ended it before its deadline */
    bool is_before_message;  /* mail: refused at greeting, TLS or login */
    const char *retry_after; /* the header's value, or "" */
    const char *body;        /* the first OL_RESPONSE_KEPT bytes, raw; mail: the last reply */
    size_t body_bytes;
    const char *error; /* raw text of what went wrong, or "" */
    int64_t duration_us;
};

typedef void ol_http_client_done(void *owner, void *tag, const struct ol_http_response *response);

/* A mail's envelope. */
struct ol_mail_envelope {
    const char *from;
    const char *const *to;
    size_t to_count;
    const char *user, *password; /* NULL: no login */
    bool is_plain;               /* no TLS at all; else it is required */
};

/* Everything is copied by ol_http_pool_start. */
struct ol_http_client_request {
    const char *url; /* passed ol_ssrf_guard_url; for mail smtp://host:port or smtps://… */
    const char *method;
    const struct ol_headers *headers;
    const char *body;
    size_t body_bytes;
    bool allow_private;
    const char *ca_file; /* trust these certificates instead of the system's; NULL: the system's */
    const struct ol_mail_envelope *mail; /* NULL: HTTP */
    int64_t deadline_us;                 /* CLOCK_BOOTTIME */
    void *tag;
};

/* A client and its pools belong to the thread that opened them; responses arrive there. Opening it
 * blocks SIGPIPE in that thread. The client's own thread starts with the first pool. */
int ol_http_client_open(struct ol_http_client **out, outlog_err *err);

/* All pools must be closed before. */
void ol_http_client_close(struct ol_http_client *http);

/* Report the transfers that have ended. Waits up to timeout_ms for one, or until a watched
 * descriptor becomes readable. */
void ol_http_client_drive(struct ol_http_client *http, int timeout_ms);

/* Let a drive also end its wait when `fd` becomes readable. */
int ol_http_client_watch(struct ol_http_client *http, int fd, outlog_err *err);

/* Let the started transfers leave now, not with the next drive. */
void ol_http_client_flush(struct ol_http_client *http);

/* Readable when a drive has something to report, or a watched descriptor is readable. */
int ol_http_client_fd(const struct ol_http_client *http);

#endif
