/* http.h: the engine of one thread for everything that goes through curl: HTTP, and mail.
 *
 * It keeps connections alive, speaks HTTP/2 where offered, and has hundreds of transfers under way
 * in one thread. A transfer is one attempt: curl's own repeat on a connection that died is cut off,
 * for a receiver may have acted on the first copy. */
#ifndef OL_PUBLISH_HTTP_H
#define OL_PUBLISH_HTTP_H

#include "base/err.h"
#include "publish/headers.h"

struct ol_http;

/* How far an exchange came. */
enum ol_reach {
    OL_REACH_NOTHING, /* no byte of the request left: resolve, connect, TLS or the guard failed */
    OL_REACH_LOST,    /* the request, or some of it, left; no complete answer came */
    OL_REACH_REFUSED, /* mail: the server said no, so nobody gets it */
    OL_REACH_ANSWERED /* the complete head of an answer is here; mail: 250 after the final dot */
};

/* What came back. Pointers are valid during the callback only. */
struct ol_answer {
    enum ol_reach reach;
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

typedef void ol_http_done(void *owner, void *tag, const struct ol_answer *answer);

/* A mail's envelope. */
struct ol_mail_envelope {
    const char *from;
    const char *const *to;
    size_t to_count;
    const char *user, *password; /* NULL: no login */
    bool is_plain;               /* no TLS at all; else it is required */
};

/* Everything is copied by ol_http_start. */
struct ol_http_request {
    const char *url; /* passed ol_guard_url; for mail smtp://host:port or smtps://… */
    const char *method;
    const struct ol_headers *headers;
    const char *body;
    size_t body_bytes;
    bool allow_private;
    const char *ca_file; /* trust these certificates instead of the system's; NULL: the system's */
    const struct ol_mail_envelope *mail; /* NULL: HTTP */
    int64_t deadline_us;                 /* CLOCK_BOOTTIME */
    ol_http_done *done;
    void *owner, *tag;
};

/* An engine belongs to one thread. Opening it blocks SIGPIPE in that thread: TLS libraries write
 * to sockets whose other end is gone. */
int ol_http_open(struct ol_http **out, outlog_err *err);

/* Abandons what is under way, then closes every connection. */
void ol_http_close(struct ol_http *http);

/* Start one transfer. 0: `done` will be called once, from ol_http_drive or one of the functions
 * below. -1: it cannot be started (memory), and `done` will not be called. */
int ol_http_start(struct ol_http *http, const struct ol_http_request *request, outlog_err *err);

/* Move every transfer on; wait up to timeout_ms for one of them, for a watched descriptor to become
 * readable, or for ol_http_wake. Transfers that only hang cost nothing here. */
void ol_http_drive(struct ol_http *http, int timeout_ms);

/* Let the drive also end its wait when `fd` becomes readable. */
int ol_http_watch(struct ol_http *http, int fd, outlog_err *err);

/* End the drive's wait. The one function that another thread may call. */
void ol_http_wake(struct ol_http *http);

/* End transfers now: the one with this tag, or all of an owner. `done` is called for each. */
void ol_http_abandon(struct ol_http *http, void *owner, void *tag);
void ol_http_abandon_all(struct ol_http *http, void *owner);

size_t ol_http_in_flight(const struct ol_http *http);

#endif
