/* http1.h: HTTP/1.1 on a peer, strictly: one request at a time, bounded in bytes and in time.
 *
 * Refused with 400 beside what llhttp refuses: folded headers, no Host or two of them, a target
 * that is not a path. The loop's thread only. */
#ifndef OL_SERVER_HTTP_HTTP1_H
#define OL_SERVER_HTTP_HTTP1_H

#include "server/http/client_conn.h"
#include "server/http/request.h"

struct ol_http1;

struct ol_http1_limits {
    size_t head_bytes, body_bytes;
    size_t bodies_bytes; /* of all requests together */
    int head_ms, body_ms, idle_ms, write_ms;
};

/* What the server gives: where requests go, and when nobody waits for an answer any more. */
struct ol_http1_handler {
    struct ol_server *server;
    struct ol_http1_limits limits;
    atomic_size_t held_bytes; /* by bodies */
    void (*request)(struct ol_server *server, struct ol_request *request);
    void (*gone)(struct ol_server *server, struct ol_request *request); /* request->http is NULL */
    void (*drained)(struct ol_server *server, struct ol_request *request); /* streams only */
};

/* Serve a new connection. */
int ol_http1_accept(struct ol_client_conns *peers, uv_stream_t *listener,
                    struct ol_http1_handler *user);

/* Write the answer, and free the request. */
void ol_http1_answer(struct ol_request *request);

/* Begin an answer without end: the head is written now; the request lives until it is gone. */
void ol_http1_stream(struct ol_request *request);
void ol_http1_push(struct ol_request *request, const char *data, size_t bytes);

/* Bytes pushed and not yet taken by the client. */
size_t ol_http1_queued(const struct ol_request *request);

/* End a stream. The request is gone afterwards. */
void ol_http1_end(struct ol_request *request);

/* Give the connection away after an upgrade: the peer, with what it had sent already in *early. The
 * request's http is NULL afterwards. */
struct ol_client_conn *ol_http1_release(struct ol_request *request, struct ol_buf *early);

/* Connections that wait for a request close at once, the others after their answer. */
void ol_http1_finish_all(struct ol_client_conns *peers);

#endif
