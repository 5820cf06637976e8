/* fuzz_request.c: the parser of HTTP requests (server/http/http1.c), however the bytes are cut.
 *
 * The same input is given at once and in pieces; both must give the same requests and responses.
 * What reaches the server is limited and clean: a path, names in lower case, no NUL, a body within
 * its limit. The first byte of the input is the size of the pieces. */
#include "server/http/http1.h"
#include "server/http/request.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MOST_BODY = 4096, MOST_HEAD = 2048 };

static struct ol_buf out;  /* what was answered */
static struct ol_buf seen; /* the requests */
static bool is_over;
static struct ol_client_conn *accepted;
static uv_loop_t loop;
static struct ol_client_conns conns = {.loop = &loop};
static struct ol_peer peer;

static void check(bool is_ok)
{
    if (!is_ok)
        abort();
}

/* --- the connection, without a network --- */

struct ol_client_conn *ol_client_conn_accept(struct ol_client_conns *all, uv_stream_t *listener,
                                             const struct ol_client_conn_handler *handler)
{
    struct ol_client_conn *conn = calloc(1, sizeof *conn);
    (void)listener;
    conn->conns = all;
    conn->peer = &peer;
    conn->handler = handler;
    accepted = conn;
    return conn;
}

void ol_client_conn_write(struct ol_client_conn *conn, const char *text, size_t bytes)
{
    (void)conn;
    ol_buf_add(&out, text, bytes);
}

void ol_client_conn_answer(struct ol_client_conn *conn, const struct ol_buf *head,
                           struct ol_buf *body)
{
    ol_client_conn_write(conn, head->data, head->bytes);
    if (body->bytes)
        ol_client_conn_write(conn, body->data, body->bytes);
}

void ol_client_conn_pause(struct ol_client_conn *conn, bool paused)
{
    conn->is_paused = paused;
}

void ol_client_conn_end(struct ol_client_conn *conn)
{
    (void)conn;
    is_over = true;
}

void ol_client_conn_close(struct ol_client_conn *conn)
{
    if (conn->is_closing)
        return;
    conn->is_closing = is_over = true;
    conn->handler->closed(conn);
}

void ol_client_conn_drop(struct ol_client_conn *conn)
{
    free(conn);
}

void ol_client_conn_recognize(struct ol_client_conn *conn)
{
    conn->is_known = true;
}

/* --- the server --- */

void ol_request_finish(struct ol_request *request)
{
    (void)request;
    abort();
}

static bool is_known(struct ol_server *server, const struct ol_request *request)
{
    (void)server;
    return ol_request_header(request, "x-known") != NULL;
}

static void on_request(struct ol_server *server, struct ol_request *request)
{
    (void)server;
    check(request->path && request->path[0] == '/' && request->method && request->request_id);
    check(request->body.bytes <= MOST_BODY);
    for (size_t i = 0; i < request->header_count; i++)
        for (const char *c = request->headers[i].name; *c; c++)
            check(*c > 0x20 && *c < 0x7f && !(*c >= 'A' && *c <= 'Z'));
    ol_buf_print(&seen, "%s %s %zu\n", request->method, request->path, request->param_count);
    if (request->body.bytes)
        ol_buf_add(&seen, request->body.data, request->body.bytes);
    request->request_id = "";
    ol_request_reply(request, 200);
    ol_http1_answer(request);
}

static void on_gone(struct ol_server *server, struct ol_request *request)
{
    (void)server;
    ol_request_free(request);
}

static void feed(const char *data, size_t bytes, size_t piece)
{
    static struct ol_http1_handler user = {.limits = {.head_bytes = MOST_HEAD,
                                                      .body_bytes = MOST_BODY,
                                                      .bodies_bytes = MOST_BODY,
                                                      .stranger_bodies_bytes = MOST_BODY,
                                                      .head_ms = 1,
                                                      .body_ms = 1,
                                                      .idle_ms = 1,
                                                      .write_ms = 1},
                                           .is_known = is_known,
                                           .request = on_request,
                                           .gone = on_gone};
    ol_buf_reset(&out);
    ol_buf_reset(&seen);
    is_over = false;
    check(ol_http1_accept(&conns, NULL, &user) == 0);
    struct ol_client_conn *conn = accepted;
    while (bytes && !is_over) {
        size_t now = bytes < piece ? bytes : piece;
        conn->handler->data(conn, data, now);
        data += now;
        bytes -= now;
    }
    if (!conn->is_closing)
        ol_client_conn_close(conn);
    free(conn);
    check(peer.body_count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ol_buf first;
    static bool is_ready;
    if (!is_ready)
        uv_loop_init(&loop);
    is_ready = true;
    if (bytes < 2)
        return 0;
    feed((const char *)data + 1, bytes - 1, bytes);
    ol_buf_reset(&first);
    if (seen.bytes)
        ol_buf_add(&first, seen.data, seen.bytes);
    feed((const char *)data + 1, bytes - 1, 1 + data[0] % 37);
    check(first.bytes == seen.bytes &&
          (!seen.bytes || memcmp(first.data, seen.data, seen.bytes) == 0));
    return 0;
}
