/* http_client.h: the engine for HTTP, and for mail: through curl, or where http_plain.h says so
 * without it.
 *
 * It keeps connections alive, speaks HTTP/2 where offered, and has hundreds of transfers under way
 * in one thread of its own, so that connections go on while their owner is at the store. A transfer
 * is one attempt: curl's own repeat on a connection that died is cut off, for a receiver may have
 * acted on the first copy. */
#ifndef OL_NET_HTTP_CLIENT_H
#define OL_NET_HTTP_CLIENT_H

#include "base/err.h"
#include "net/headers.h"

/* How much of an answer is read, and how much of that is kept (R4). */
enum { OL_RESPONSE_READ = 64 * 1024, OL_RESPONSE_KEPT = 4096 };

struct ol_http_client;
struct ol_http_pool; /* the way to one destination, with connections of its own */

/* How far an exchange came. */
enum ol_http_reach {
    OL_REACH_NOTHING, /* no byte of the request left: resolve, connect, TLS or the guard failed */
    OL_REACH_LOST,    /* the request, or some of it, left; no complete answer came */
    OL_REACH_REFUSED, /* mail: the server said no, so nobody gets it */
    OL_REACH_ANSWERED /* the complete head of an answer is here; mail: 250 after the final dot */
};

/* What came back. Pointers are valid during the callback only. */
struct ol_http_response {
    enum ol_http_reach reach;
    int status;     /* HTTP status, or the last SMTP reply */
    bool is_denied; /* the guard refused the address */
    bool is_timeout;
    bool is_abandoned;       /* we ended it before its deadline */
    bool is_before_message;  /* mail: refused at greeting, TLS or login, not for what it is */
    const char *retry_after; /* the header's value, or "" */
    const char *body;        /* the first OL_RESPONSE_KEPT bytes, raw; mail: the last reply */
    size_t body_bytes;
    const char *error; /* raw text of what went wrong, "" when nothing did */
    int64_t duration_us;
};

typedef void ol_http_client_done(void *owner, void *tag, const struct ol_http_response *answer);

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

/* An engine and its links belong to the thread that opened them: answers arrive there. Opening it
 * blocks SIGPIPE in that thread. The engine's own thread starts with the first link. */
int ol_http_client_open(struct ol_http_client **out, outlog_err *err);

/* Every link is closed. */
void ol_http_client_close(struct ol_http_client *http);

/* Report what has ended; wait up to timeout_ms for that, for a watched descriptor to become
 * readable, or for ol_http_client_wake. */
void ol_http_client_drive(struct ol_http_client *http, int timeout_ms);

/* Let the drive also end its wait when `fd` becomes readable. */
int ol_http_client_watch(struct ol_http_client *http, int fd, outlog_err *err);

/* Let what was started leave now and not with the next drive. */
void ol_http_client_flush(struct ol_http_client *http);

/* Readable when a drive has something to report. */
int ol_http_client_fd(const struct ol_http_client *http);

/* End the drive's wait. The one function that another thread may call. */
void ol_http_client_wake(struct ol_http_client *http);

/* Open a link that keeps up to so many connections (0: as many as there are), and reports to
 * `done`. */
int ol_http_pool_open(struct ol_http_client *http, int connections, ol_http_client_done *done,
                      void *owner, struct ol_http_pool **out, outlog_err *err);

/* Ends what is under way, with an answer for each, then closes its connections. NULL is fine. */
void ol_http_pool_close(struct ol_http_pool *link);

/* Start one transfer; it leaves with the next drive or flush, or before. 0: `done` will be called
 * once, from ol_http_client_drive or one of the functions of a link. -1: it cannot be started
 * (memory), and `done` will not be called. */
int ol_http_pool_start(struct ol_http_pool *link, const struct ol_http_client_request *request,
                       outlog_err *err);

/* End the transfer with this tag now. */
void ol_http_pool_abandon(struct ol_http_pool *link, void *tag);

#endif
