/* fuzz_websocket.c: the frames of a WebSocket client (server/http/websocket.c), however they are
 * cut.
 *
 * The same bytes are given at once and in pieces; both must give the same texts. A text is valid
 * UTF-8 within its limit. What is answered is whole frames of a server. Input: one byte for the
 * size of the pieces, then the frames. */
#include "fuzz.h"

#include "server/http/http1.h"
#include "server/http/websocket.h"

static struct ol_buf out;  /* what was written */
static struct ol_buf seen; /* the texts */
static uv_loop_t loop;
static struct ol_client_conns conns = {.loop = &loop};
static struct ol_client_conn *conn;
static bool is_ended;

/* --- the connection, without a network --- */

void ol_client_conn_write(struct ol_client_conn *to, const char *text, size_t bytes)
{
    check(!to->is_closing);
    ol_buf_add(&out, text, bytes);
}

void ol_client_conn_pause(struct ol_client_conn *to, bool paused)
{
    to->is_paused = paused;
}

void ol_client_conn_end(struct ol_client_conn *to)
{
    (void)to;
    is_ended = true;
}

void ol_client_conn_close(struct ol_client_conn *to)
{
    if (to->is_closing)
        return;
    to->is_closing = is_ended = true;
    to->handler->closed(to);
}

void ol_http1_answer(struct ol_request *request)
{
    (void)request;
    abort();
}

void ol_request_finish(struct ol_request *request)
{
    (void)request;
    abort();
}

struct ol_client_conn *ol_http1_release(struct ol_request *request, struct ol_buf *early)
{
    request->http = NULL;
    *early = (struct ol_buf){0};
    return conn;
}

/* --- the server --- */

static void on_text(struct ol_websocket *socket, const char *text, size_t bytes)
{
    check(bytes <= OL_WEBSOCKET_MESSAGE_BYTES);
    check(bytes == 0 || ol_utf8_is_valid(text, bytes) || memchr(text, '\0', bytes));
    ol_buf_print(&seen, "%zu:", bytes);
    if (bytes)
        ol_buf_add(&seen, text, bytes);
    if (bytes == 4 && memcmp(text, "quit", 4) == 0)
        ol_websocket_close(socket, 1000, "bye");
    else if (bytes < 100)
        ol_websocket_send(socket, text, bytes);
}

static void on_closed(struct ol_websocket *socket)
{
    (void)socket;
}

/* Whole frames, none masked, none continued. */
static void check_frames(const unsigned char *at, const unsigned char *end)
{
    while (at < end) {
        check(end - at >= 2 && (at[0] & 0xf0) == 0x80 && at[1] < 127);
        size_t head = at[1] == 126 ? 4 : 2, bytes = at[1];
        check((size_t)(end - at) >= head);
        if (head == 4)
            bytes = (size_t)at[2] << 8 | at[3];
        check((size_t)(end - at) >= head + bytes);
        at += head + bytes;
    }
}

static void feed(const char *data, size_t bytes, size_t piece)
{
    static const struct ol_websocket_handler handler = {.text = on_text, .closed = on_closed};
    static struct ol_server *no_server;
    struct ol_pair key = {"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="};
    struct ol_request *request = ol_request_new(no_server);
    struct ol_websocket *socket;

    ol_buf_reset(&out);
    ol_buf_reset(&seen);
    is_ended = false;
    conn = calloc(1, sizeof *conn);
    conn->conns = &conns;
    request->http = (void *)conn;
    request->headers = ol_arena_alloc(&request->arena, sizeof key);
    request->headers[0] = key;
    request->header_count = 1;
    check(ol_websocket_open(request, &handler, NULL, &socket) == 1);
    for (size_t at = 0; at < bytes && !is_ended; at += piece)
        conn->handler->data(conn, data + at, bytes - at < piece ? bytes - at : piece);
    ol_client_conn_close(conn);
    free(conn);
    const char *frames = strstr(out.data, "\r\n\r\n") + 4;
    check_frames((const unsigned char *)frames, (const unsigned char *)out.data + out.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ol_buf first;
    if (!loop.data)
        check(uv_loop_init(&loop) == 0);
    loop.data = &loop;
    if (bytes < 2)
        return 0;
    char *text = copy_text(data + 1, bytes - 1);
    feed(text, bytes - 1, bytes);
    ol_buf_reset(&first);
    ol_buf_add(&first, seen.data, seen.bytes);
    feed(text, bytes - 1, 1 + data[0] % 37);
    check(first.bytes == seen.bytes && (!seen.bytes || !memcmp(first.data, seen.data, seen.bytes)));
    free(text);
    return 0;
}
