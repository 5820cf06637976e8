/* http1.h: HTTP/1.1 on a client connection: one request at a time, limited in bytes and in time.
 *
 * It is strict: beyond what llhttp rejects, it answers 400 to folded headers, to a missing or
 * second Host, and to a target that is not a path. The loop's thread only. */
#ifndef OL_SERVER_HTTP_HTTP1_H
#define OL_SERVER_HTTP_HTTP1_H

#include "server/http/client_conn.h"
#include "server/http/request.h"

struct ol_http1;

struct ol_http1_limits {
    size_t head_bytes, body_bytes;
    size_t bodies_bytes;          /* of all requests together that have a known token */
    size_t stranger_bodies_bytes; /* of all others */
    int head_ms, body_ms, idle_ms, write_ms;
};

/* What the server does with requests. */
struct ol_http1_handler {
    struct ol_server *server;
    struct ol_http1_limits limits;
    atomic_size_t held_bytes, stranger_held_bytes; /* memory of large bodies */
    /* Whether the request's token is known, by its head alone. */
    bool (*is_known)(struct ol_server *server, const struct ol_request *request);
    void (*request)(struct ol_server *server, struct ol_request *request);
    /* The client closed the connection; request->http is NULL. */
    void (*gone)(struct ol_server *server, struct ol_request *request);
    /* Everything that was pushed to a stream is written. */
    void (*drained)(struct ol_server *server, struct ol_request *request);
};

/* Accept a new connection and serve it. */
int ol_http1_accept(struct ol_client_conns *conns, uv_stream_t *listener,
                    struct ol_http1_handler *handler);

/* The request showed a valid token: its connection is no stranger's any more. */
void ol_http1_recognize(struct ol_request *request);

/* Count an unknown token of the request's address; false: it had too many. */
bool ol_http1_try_token(struct ol_request *request);

/* Write the answer, and free the request. */
void ol_http1_answer(struct ol_request *request);

/* Begin a streamed answer: the head is written now. The request lives until handler->gone. */
void ol_http1_stream(struct ol_request *request);
void ol_http1_push(struct ol_request *request, const char *data, size_t bytes);

/* Bytes that were pushed and are not written yet. */
size_t ol_http1_queued(const struct ol_request *request);

/* End a stream; handler->gone follows. */
void ol_http1_end(struct ol_request *request);

/* Release the connection for an upgrade. *early gets the bytes that followed the request.
 * request->http is NULL afterwards. */
struct ol_client_conn *ol_http1_release(struct ol_request *request, struct ol_buf *early);

/* Close connections that wait for a request at once, the others after their answer. */
void ol_http1_finish_all(struct ol_client_conns *conns);

#endif
