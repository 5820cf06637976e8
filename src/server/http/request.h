/* request.h: an HTTP request and its answer.
 *
 * The loop reads it, a worker (worker_pool.h) runs its handler, the loop writes the answer. It
 * belongs to one of them at a time. Handlers see nothing of connections. */
#ifndef OL_SERVER_HTTP_REQUEST_H
#define OL_SERVER_HTTP_REQUEST_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/json/json.h"
#include "outlog.h"
#include "server/job.h"

#include <stdatomic.h>

struct ol_http1;
struct ol_route;
struct ol_request;

enum { OL_ROUTE_ARGS = 3 };

/* What a token may do. */
enum ol_scope { OL_SCOPE_NONE, OL_SCOPE_READ, OL_SCOPE_APPEND, OL_SCOPE_ADMIN };

struct ol_identity {
    char token_id[37]; /* "" in dev mode */
    enum ol_scope scope;
    bool is_dev;
    const char *org_id; /* NULL: every org, and infrastructure */
};

struct ol_pair {
    const char *name, *value;
};

/* What a handler returns. */
enum ol_handler_result {
    OL_HANDLER_ANSWERED,  /* status and body are set */
    OL_HANDLER_WAITING,   /* nothing yet: run it again when the log has moved past `after`, or at
                             `wait_until` */
    OL_HANDLER_LATER,     /* another thread calls ol_request_finish() */
    OL_HANDLER_STREAMING, /* from now on send events that match `filter` (followers.h) */
    OL_HANDLER_UPGRADING, /* the connection becomes a WebSocket (websocket.h) */
};

/* The place of a waiting request or a stream among the followers (followers.c only). */
struct ol_follower {
    struct ol_request *next, **link; /* link NULL: it is not among them */
    bool is_streaming;
    uint64_t due_at;   /* loop time: a stream's next heartbeat; a wait's next try, 0: none */
    size_t page_limit; /* how many events a stream that lags reads next; 0: it has read none */
};

struct ol_request {
    struct ol_job job; /* first */
    struct ol_server *server;
    struct ol_http1 *http; /* only for the loop; NULL: the client has gone */
    struct ol_arena arena;

    /* What is asked. */
    const char *method, *path;
    struct ol_pair *headers, *params;
    size_t header_count, param_count;
    struct ol_buf body;
    struct { /* the memory of the body counts in a total of all connections; NULL: it does not */
        atomic_size_t *total;
        size_t bytes;
    } body_memory;
    const struct ol_route *route;
    const char *args[OL_ROUTE_ARGS]; /* the {…} of the route's path, decoded */
    const char *request_id;
    int64_t began_at; /* boot clock */

    struct {                        /* request_span.h */
        char traceparent[56];       /* stored with its events and messages; "": none */
        char parent_id[17];         /* the caller's span, or "" */
        const char *correlation_id; /* as sent by the caller; may be NULL */
        bool is_exported;           /* a collector gets the span */
    } span;

    /* Who asks, and the store as far as the asker may see it. */
    struct ol_identity who;
    bool is_admitted;
    bool is_tried; /* its token was unknown and counts against its address */
    outlog *log;   /* while the handler runs */

    /* The answer. */
    enum ol_handler_result answer;
    int status;
    const char *content_type;
    struct ol_buf extra; /* more header lines */
    struct ol_buf reply;
    struct ol_buf kept; /* stored for a repeat with the same key instead of `reply`, because a
                         * secret is shown once; empty: `reply` is */
    void *owner;        /* the handler's own, after OL_HANDLER_LATER and OL_HANDLER_UPGRADING */
    /* OL_HANDLER_UPGRADING: the loop calls it; it owns the request. */
    void (*upgrade)(struct ol_request *request);

    /* Waiting and streaming: for what, from where, until when (boot clock). */
    struct outlog_filter filter;
    char log_id[37]; /* of the last page; filter.log_id points to it then */
    int64_t after, wait_until;
    bool is_polling; /* OL_HANDLER_WAITING for something other than the log: run it again soon */
    bool is_working; /* a worker has it, or it is held */
    uint64_t held_until; /* loop time: a refusal that is sent later */
    struct ol_follower follower;
};

struct ol_request *ol_request_new(struct ol_server *server);
void ol_request_free(struct ol_request *request);

/* From now on the request's cursor is of the log of this page (R3). */
void ol_request_keep_log(struct ol_request *request, const struct outlog_page *page);

/* From any thread: the answer is complete, the loop sends it. */
void ol_request_finish(struct ol_request *request);

/* --- what was asked --- */

/* A header by its lower-case name; NULL when it is not there. */
const char *ol_request_header(const struct ol_request *request, const char *name);

/* A parameter of the query; NULL when it is not there. */
const char *ol_request_param(const struct ol_request *request, const char *name);

/* A whole number from `min` to `max`, or the fallback. -1 after having answered. */
int ol_request_number(struct ol_request *request, const char *name, int64_t min, int64_t max,
                      int64_t fallback, int64_t *out);

/* A duration: "5" or "0.5" seconds, or "200ms"; at most `max_s`. -1 after having answered. */
int ol_request_wait(struct ol_request *request, const char *name, int64_t max_s, int64_t fallback_s,
                    int64_t *out_us);

/* A time (RFC 3339, or a duration before now: "1h"); 0: absent. -1 after having answered. */
int ol_request_time(struct ol_request *request, const char *name, int64_t *out);

/* The body as a JSON object whose members are all among `allowed` (NULL: any); an empty body counts
 * as {}. -1 after having answered. */
int ol_request_object(struct ol_request *request, const char *const *allowed, struct ol_json *out);

/* A member that is text; *out = NULL when absent or null. -1 after having answered. */
int ol_request_text(struct ol_request *request, const struct ol_json *object, const char *name,
                    const char **out);
int ol_request_flag(struct ol_request *request, const struct ol_json *object, const char *name,
                    bool *out);

/* A member that is a time as in ol_request_time(); 0: absent. -1 after having answered. */
int ol_request_member_time(struct ol_request *request, const struct ol_json *object,
                           const char *name, int64_t *out);

/* The asker as the actor of audit events, and the default actor of others. */
struct outlog_operator ol_request_operator(struct ol_request *request);

/* The org to read: the asker's own, or the one asked for. -1 after having answered 403. */
int ol_request_org(struct ol_request *request, const char *asked, const char **out);

/* --- the answer --- */

/* The body's buffer, emptied; JSON unless content_type is set afterwards. */
struct ol_buf *ol_request_reply(struct ol_request *request, int status);

/* Add a header line. */
void ol_request_add(struct ol_request *request, const char *name, const char *value);

/* Answer with a problem (RFC 9457); returns OL_HANDLER_ANSWERED. */
enum ol_handler_result ol_problem(struct ol_request *request, const outlog_err *err);
enum ol_handler_result ol_problem_say(struct ol_request *request, int status, const char *code,
                                      const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The library knows no tokens: an error of code OUTLOG_OK means that the token may not do that. */
#define OL_FORBIDDEN OUTLOG_OK

/* Write an error as a problem object into an answer of many parts; returns its status. */
int ol_problem_json(const struct ol_request *request, const outlog_err *err, struct ol_buf *out);

/* Set status and headers of a problem whose body was written elsewhere. */
void ol_problem_head(struct ol_request *request, int status);

#endif
