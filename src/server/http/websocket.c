/* websocket.c: WebSocket frames on a client connection, with wslay. */
#include "server/http/websocket.h"

#include "server/http/http1.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <wslay/wslay.h>

enum { WEBSOCKET_PING_MS = 30000 };

struct ol_websocket {
    struct ol_client_conn *conn;
    const struct ol_websocket_handler *handler;
    void *owner;
    wslay_event_context_ptr frames;
    const char *in; /* the chunk that is being read */
    size_t in_bytes;
    struct ol_buf out; /* frames collected for one write */
    bool is_busy;      /* it is used on the stack: on_closed() must not free it */
    bool is_over;      /* the connection is closed */
    bool is_ending;    /* we close: what still arrives is ignored, in the same chunk too */
    bool has_pinged;
    bool is_held, is_backlogged; /* either: nothing is read */
    size_t unsent;               /* bytes unsent at the last deadline, while is_backlogged */
};

/* --- the handshake --- */

static bool has_token(const char *list, const char *word)
{
    size_t bytes = strlen(word);
    for (; list && *list; list += strcspn(list, ",")) {
        list += strspn(list, ", \t");
        if (strncasecmp(list, word, bytes) == 0 && strchr(", \t", list[bytes]))
            return true;
    }
    return false;
}

bool ol_websocket_is_asked(struct ol_request *request)
{
    const char *version = ol_request_header(request, "sec-websocket-version");
    const char *key = ol_request_header(request, "sec-websocket-key");

    if (has_token(ol_request_header(request, "upgrade"), "websocket") &&
        has_token(ol_request_header(request, "connection"), "upgrade") && key &&
        strlen(key) == 24 && version && strcmp(version, "13") == 0)
        return true;
    ol_problem_say(request, 400, "invalid_request",
                   "this path is a WebSocket (RFC 6455, version 13)");
    return false;
}

/* The value of Sec-WebSocket-Accept. */
static void accept_key(const char *key, char out[32])
{
    unsigned char digest[SHA_DIGEST_LENGTH];
    struct ol_buf text = {0};
    ol_buf_print(&text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    SHA1((const unsigned char *)text.data, text.bytes, digest);
    EVP_EncodeBlock((unsigned char *)out, digest, sizeof digest);
    ol_buf_clear(&text);
}

/* --- frames --- */

static ssize_t on_receive(wslay_event_context_ptr frames, uint8_t *into, size_t capacity, int flags,
                          void *user)
{
    struct ol_websocket *socket = user;
    (void)flags;
    if (socket->in_bytes == 0) {
        wslay_event_set_error(frames, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    size_t bytes = socket->in_bytes < capacity ? socket->in_bytes : capacity;
    memcpy(into, socket->in, bytes);
    socket->in += bytes;
    socket->in_bytes -= bytes;
    return (ssize_t)bytes;
}

static ssize_t on_send(wslay_event_context_ptr frames, const uint8_t *data, size_t bytes, int flags,
                       void *user)
{
    struct ol_websocket *socket = user;
    (void)frames;
    (void)flags;
    ol_buf_add(&socket->out, data, bytes);
    return (ssize_t)bytes;
}

static void on_message(wslay_event_context_ptr frames,
                       const struct wslay_event_on_msg_recv_arg *message, void *user)
{
    struct ol_websocket *socket = user;
    if (socket->is_over || socket->is_ending)
        return;
    if (message->opcode == WSLAY_TEXT_FRAME)
        socket->handler->text(socket, (const char *)message->msg, message->msg_length);
    else if (message->opcode == WSLAY_BINARY_FRAME) {
        socket->is_ending = true;
        wslay_event_queue_close(frames, WSLAY_CODE_UNSUPPORTED_DATA, NULL, 0);
    }
}

static const struct wslay_event_callbacks callbacks = {
    .recv_callback = on_receive,
    .send_callback = on_send,
    .on_msg_recv_callback = on_message,
};

/* --- text frames out --- */

/* A text frame is encoded and written at once, so all sockets share one writer and no socket keeps
 * a buffer. */
static struct {
    wslay_frame_context_ptr frames;
    struct ol_buf out;
} frame_writer;

static ssize_t on_frame_bytes(const uint8_t *data, size_t bytes, int flags, void *user)
{
    (void)flags;
    (void)user;
    ol_buf_add(&frame_writer.out, data, bytes);
    return (ssize_t)bytes;
}

static bool encode_frame(const char *text, size_t bytes)
{
    static const struct wslay_frame_callbacks writer_callbacks = {.send_callback = on_frame_bytes};
    struct wslay_frame_iocb frame = {.fin = 1,
                                     .opcode = WSLAY_TEXT_FRAME,
                                     .payload_length = bytes,
                                     .data = (const uint8_t *)text,
                                     .data_length = bytes};
    if (!frame_writer.frames &&
        wslay_frame_context_init(&frame_writer.frames, &writer_callbacks, NULL) != 0)
        return false;
    ol_buf_reset(&frame_writer.out);
    return wslay_frame_send(frame_writer.frames, &frame) == (ssize_t)bytes &&
           !frame_writer.out.failed;
}

/* The buffer is taken out while it is written: the write may close this socket, and its handler may
 * then send to others. */
static void write_frame(struct ol_websocket *socket)
{
    struct ol_buf out = frame_writer.out;
    frame_writer.out = (struct ol_buf){0};
    ol_client_conn_write(socket->conn, out.data, out.bytes);
    if (!frame_writer.out.data && out.capacity <= OL_WEBSOCKET_MESSAGE_BYTES)
        frame_writer.out = out;
    else
        ol_buf_clear(&out);
}

/* --- the life of a socket --- */

static void set_ping_deadline(struct ol_websocket *socket)
{
    socket->conn->deadline = uv_now(socket->conn->conns->loop) + WEBSOCKET_PING_MS;
}

static void update_pause(struct ol_websocket *socket)
{
    ol_client_conn_pause(socket->conn, socket->is_held || socket->is_backlogged);
}

/* Write the queued frames with one write. */
static void flush_frames(struct ol_websocket *socket)
{
    if (socket->is_over)
        return;
    wslay_event_send(socket->frames);
    if (socket->out.bytes) {
        struct ol_buf out = socket->out;
        socket->out = (struct ol_buf){0};
        ol_client_conn_write(socket->conn, out.data, out.bytes);
        ol_buf_clear(&out);
    }
    if (!socket->is_over && wslay_event_get_close_sent(socket->frames))
        ol_client_conn_end(socket->conn);
}

static void free_socket(struct ol_websocket *socket)
{
    wslay_event_context_free(socket->frames);
    ol_buf_clear(&socket->out);
    free(socket);
}

static void on_data(struct ol_client_conn *conn, const char *data, size_t bytes)
{
    struct ol_websocket *socket = conn->owner;
    bool was_busy = socket->is_busy;
    socket->in = data;
    socket->in_bytes = bytes;
    socket->has_pinged = false;
    socket->is_busy = true;
    set_ping_deadline(socket);
    int result = wslay_event_recv(socket->frames);
    if (!socket->is_over)
        flush_frames(socket);
    if (!socket->is_over && (result != 0 || !wslay_event_want_read(socket->frames)))
        ol_client_conn_end(conn);
    if (!socket->is_over && conn->queued > OL_WEBSOCKET_QUEUE_BYTES) {
        socket->is_backlogged = true;
        socket->unsent = uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp);
        update_pause(socket);
    }
    socket->is_busy = was_busy;
    if (socket->is_over && !was_busy)
        free_socket(socket);
}

static void on_drained(struct ol_client_conn *conn)
{
    struct ol_websocket *socket = conn->owner;
    if (socket->is_backlogged) {
        socket->is_backlogged = false;
        set_ping_deadline(socket);
        update_pause(socket);
    }
    if (socket->handler->drained)
        socket->handler->drained(socket);
}

/* We are not reading, so silence proves nothing: did the client take any of what we wrote? */
static bool makes_progress(struct ol_websocket *socket)
{
    size_t unsent = uv_stream_get_write_queue_size((uv_stream_t *)&socket->conn->tcp);
    bool is_less = unsent < socket->unsent;
    socket->unsent = unsent;
    return socket->is_held || is_less;
}

/* The client was silent: send a ping, or close when the last one was not answered. */
static void on_expired(struct ol_client_conn *conn)
{
    struct ol_websocket *socket = conn->owner;
    const struct wslay_event_msg ping = {.opcode = WSLAY_PING};
    bool is_paused = socket->is_held || socket->is_backlogged;
    if (is_paused && makes_progress(socket)) {
        set_ping_deadline(socket);
        return;
    }
    if (is_paused || socket->has_pinged) {
        ol_client_conn_close(conn);
        return;
    }
    socket->has_pinged = true;
    set_ping_deadline(socket);
    wslay_event_queue_msg(socket->frames, &ping);
    flush_frames(socket);
}

static void on_closed(struct ol_client_conn *conn)
{
    struct ol_websocket *socket = conn->owner;
    socket->is_over = true;
    socket->handler->closed(socket);
    if (!socket->is_busy)
        free_socket(socket);
}

static const struct ol_client_conn_handler websocket_handler = {on_data, on_drained, on_expired,
                                                                on_closed};

static void write_handshake(struct ol_websocket *socket, const char *key)
{
    char accept[32];
    struct ol_buf head = {0};
    accept_key(key, accept);
    ol_buf_print(&head,
                 "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n"
                 "connection: Upgrade\r\nsec-websocket-accept: %s\r\n\r\n",
                 accept);
    ol_client_conn_write(socket->conn, head.data, head.bytes);
    ol_buf_clear(&head);
}

int ol_websocket_open(struct ol_request *request, const struct ol_websocket_handler *handler,
                      void *owner, struct ol_websocket **out)
{
    struct ol_websocket *socket = request->http ? calloc(1, sizeof *socket) : NULL;
    struct ol_buf early;

    if (!socket || wslay_event_context_server_init(&socket->frames, &callbacks, socket) != 0) {
        free(socket);
        ol_problem_say(request, 503, "no_memory", "out of memory");
        ol_http1_answer(request);
        return -1;
    }
    *out = socket;
    wslay_event_config_set_max_recv_msg_length(socket->frames, OL_WEBSOCKET_MESSAGE_BYTES);
    socket->handler = handler;
    socket->owner = owner;
    socket->conn = ol_http1_release(request, &early);
    socket->conn->handler = &websocket_handler;
    socket->conn->owner = socket;
    set_ping_deadline(socket);
    socket->is_busy = true;
    write_handshake(socket, ol_request_header(request, "sec-websocket-key"));
    ol_request_free(request);
    if (early.bytes && !socket->is_over)
        on_data(socket->conn, early.data, early.bytes);
    ol_buf_clear(&early);
    socket->is_busy = false;
    if (!socket->is_over)
        return 1;
    free_socket(socket);
    return 0;
}

void *ol_websocket_owner(const struct ol_websocket *socket)
{
    return socket->owner;
}

bool ol_websocket_send(struct ol_websocket *socket, const char *text, size_t bytes)
{
    if (socket->is_over)
        return false;
    if (socket->conn->queued > OL_WEBSOCKET_QUEUE_BYTES) {
        ol_client_conn_close(socket->conn);
        return false;
    }
    if (!wslay_event_get_write_enabled(socket->frames)) // a close frame was sent
        return true;
    bool was_busy = socket->is_busy;
    socket->is_busy = true;
    if (encode_frame(text, bytes))
        write_frame(socket);
    else
        ol_client_conn_close(socket->conn);
    socket->is_busy = was_busy;
    bool is_open = !socket->is_over;
    if (!is_open && !was_busy)
        free_socket(socket);
    return is_open;
}

bool ol_websocket_is_full(const struct ol_websocket *socket)
{
    return socket->conn->queued > OL_WEBSOCKET_QUEUE_BYTES / 4;
}

void ol_websocket_hold(struct ol_websocket *socket, bool is_held)
{
    if (socket->is_over || socket->is_held == is_held)
        return;
    socket->is_held = is_held;
    set_ping_deadline(socket);
    update_pause(socket);
}

void ol_websocket_close(struct ol_websocket *socket, int code, const char *why)
{
    if (socket->is_over)
        return;
    socket->is_ending = true;
    wslay_event_queue_close(socket->frames, (uint16_t)code, (const uint8_t *)why, strlen(why));
    bool was_busy = socket->is_busy;
    socket->is_busy = true;
    flush_frames(socket);
    socket->is_busy = was_busy;
    if (socket->is_over && !was_busy)
        free_socket(socket);
}
