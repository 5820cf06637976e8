/* request.h: a request on its way through the server, and its answer.
 *
 * The loop reads it, a clerk (worker_pool.h) works on it, the loop writes the answer: it belongs to
 * one of them at a time. Handlers see nothing of connections. */
#ifndef OL_SERVER_HTTP_REQUEST_H
#define OL_SERVER_HTTP_REQUEST_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/json/json.h"
#include "outlog.h"

#include <stdatomic.h>

struct ol_server;
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

/* What a handler says. */
enum ol_handler_result {
    OL_HANDLER_ANSWERED,  /* status and body are set */
    OL_HANDLER_WAITING,   /* nothing yet: ask again when the log has moved past `after`, or time is
                             over */
    OL_HANDLER_LATER,     /* somebody else calls ol_request_finish() */
    OL_HANDLER_STREAMING, /* from now on events that match `filter`, as they come (stream.h) */
    OL_HANDLER_UPGRADING, /* the connection becomes a WebSocket (websocket.h) */
};

struct ol_request {
    struct ol_request *next; /* in whatever queue it stands */
    struct ol_server *server;
    struct ol_http1 *http; /* the loop's alone; NULL: the client went away */
    struct ol_arena arena;

    /* what was asked */
    const char *method, *path;
    struct ol_pair *headers, *params;
    size_t header_count, param_count;
    struct ol_buf body;
    atomic_size_t *held_in; /* where its room is counted; NULL: nowhere */
    size_t held_bytes;
    const struct ol_route *route;
    const char *args[OL_ROUTE_ARGS]; /* the {…} of the route's path, decoded */
    const char *request_id;
    int64_t began_at; /* boot clock */

    struct {                        /* request_span.h */
        char traceparent[56];       /* what its events and messages keep; "": nothing */
        char parent_id[17];         /* the caller's span, or "" */
        const char *correlation_id; /* as far as it was said */
        bool is_told;               /* the collector hears of it */
    } span;

    /* while a handler runs */
    struct ol_identity who;
    outlog *log;
    void *desk; /* the clerk's */

    /* the answer */
    enum ol_handler_result answer;
    int status;
    const char *content_type;
    struct ol_buf extra; /* more header lines */
    struct ol_buf reply;
    struct ol_buf kept; /* what a repeat with the same key is answered, if not the same: a secret is
                         * shown once */
    void *owner;        /* of whoever finishes it later */

    /* OL_HANDLER_UPGRADING: what the loop calls; it owns the request then (websocket.h) */
    void (*upgrade)(struct ol_request *request);

    /* OL_HANDLER_WAITING, OL_HANDLER_STREAMING: for what, from where, until when (boot clock) */
    struct outlog_filter filter;
    int64_t after, wait_until;

    /* the loop's and the clerks' own */
    enum ol_handler_result (*job)(struct ol_request *request); /* instead of the route's handler */
    void (*done)(struct ol_request *request); /* in the loop, instead of an answer; owns it */
    bool is_admitted, is_working, is_streaming;
    bool is_polling;   /* OL_HANDLER_WAITING for something else than the log: ask again soon */
    uint64_t beat_at;  /* of a stream: when to say that we live */
    size_t page_limit; /* of a stream that lags: how many events it reads next; 0: the first */
    struct ol_request *next_follower, **follower_link;
};

struct ol_request *ol_request_new(struct ol_server *server);
void ol_request_free(struct ol_request *request);

/* From any thread: the answer is complete. */
void ol_request_finish(struct ol_request *request);

/* --- what was asked --- */

/* A header by its lower-case name; NULL when it is not there. */
const char *ol_request_header(const struct ol_request *request, const char *name);

/* A parameter of the query; NULL when it is not there. */
const char *ol_request_param(const struct ol_request *request, const char *name);

/* A whole number from `least` to `most`, or the default. -1 after having answered. */
int ol_request_number(struct ol_request *request, const char *name, int64_t least, int64_t most,
                      int64_t fallback, int64_t *out);

/* How long to wait: "5" or "0.5" seconds, or "200ms"; at most `most_s`. -1 after having answered.
 */
int ol_request_wait(struct ol_request *request, const char *name, int64_t most_s,
                    int64_t fallback_s, int64_t *out_us);

/* A time (RFC 3339, or how long ago: "1h"); 0 when it is not there. -1 after having answered. */
int ol_request_time(struct ol_request *request, const char *name, int64_t *out);

/* The body as a JSON object whose members are all among `allowed` (NULL: any); an empty body counts
 * as {}. -1 after having answered. */
int ol_request_object(struct ol_request *request, const char *const *allowed, struct ol_json *out);

/* A member that is text; *out = NULL when absent or null. -1 after having answered. */
int ol_request_text(struct ol_request *request, const struct ol_json *object, const char *name,
                    const char **out);
int ol_request_flag(struct ol_request *request, const struct ol_json *object, const char *name,
                    bool *out);

/* A member that is a time, as ol_request_time() takes them; 0 when absent. -1 after having
 * answered. */
int ol_request_member_time(struct ol_request *request, const struct ol_json *object,
                           const char *name, int64_t *out);

/* Who does it, for audit events and as the default actor. */
struct outlog_operator ol_request_operator(struct ol_request *request);

/* The org a reader may see: its own; or the one it asks for, if that is allowed. -1 after having
 * answered 403. */
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

/* The library knows no tokens: an error of code OUTLOG_OK says that this token may not do that. */
#define OL_FORBIDDEN OUTLOG_OK

/* An error as a problem object, for answers of many parts; returns its status. */
int ol_problem_json(const struct ol_request *request, const outlog_err *err, struct ol_buf *out);

/* Set status and headers of a problem whose body was written elsewhere. */
void ol_problem_head(struct ol_request *request, int status);

#endif
