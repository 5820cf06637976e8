/* websocket.c: WebSocket frames by wslay, on a peer. */
#include "server/http/websocket.h"

#include "server/http/http1.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <wslay/wslay.h>

enum { PING_MS = 30000 };

struct ol_websocket {
    struct ol_client_conn *peer;
    const struct ol_websocket_handler *user;
    void *owner;
    wslay_event_context_ptr frames;
    const char *in; /* the chunk being read */
    size_t in_bytes;
    struct ol_buf out; /* gathered for one write */
    bool is_busy, is_over, has_pinged;
    bool is_held, is_clogged; /* either: nothing is read */
    size_t left;              /* of what clogs it, when last looked at */
};

/* --- the handshake --- */

static bool has_word(const char *list, const char *word)
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

    if (has_word(ol_request_header(request, "upgrade"), "websocket") &&
        has_word(ol_request_header(request, "connection"), "upgrade") && key && strlen(key) == 24 &&
        version && strcmp(version, "13") == 0)
        return true;
    ol_problem_say(request, 400, "invalid_request",
                   "this path is a WebSocket (RFC 6455, version 13)");
    return false;
}

/* What the client wants to see to know that we speak WebSocket. */
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

static ssize_t give(wslay_event_context_ptr frames, uint8_t *into, size_t room, int flags,
                    void *user)
{
    struct ol_websocket *socket = user;
    (void)flags;
    if (socket->in_bytes == 0) {
        wslay_event_set_error(frames, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    size_t bytes = socket->in_bytes < room ? socket->in_bytes : room;
    memcpy(into, socket->in, bytes);
    socket->in += bytes;
    socket->in_bytes -= bytes;
    return (ssize_t)bytes;
}

static ssize_t take(wslay_event_context_ptr frames, const uint8_t *data, size_t bytes, int flags,
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
    if (message->opcode == WSLAY_TEXT_FRAME && !socket->is_over)
        socket->user->text(socket, (const char *)message->msg, message->msg_length);
    else if (message->opcode == WSLAY_BINARY_FRAME)
        wslay_event_queue_close(frames, WSLAY_CODE_UNSUPPORTED_DATA, NULL, 0);
}

static const struct wslay_event_callbacks callbacks = {
    .recv_callback = give,
    .send_callback = take,
    .on_msg_recv_callback = on_message,
};

/* --- text frames out --- */

/* A text is written whole, and nothing of it is kept for its socket: one press makes the frames of
 * all. */
static struct {
    wslay_frame_context_ptr frames;
    struct ol_buf out;
} press;

static ssize_t print(const uint8_t *data, size_t bytes, int flags, void *user)
{
    (void)flags;
    (void)user;
    ol_buf_add(&press.out, data, bytes);
    return (ssize_t)bytes;
}

static bool press_frame(const char *text, size_t bytes)
{
    static const struct wslay_frame_callbacks printing = {.send_callback = print};
    struct wslay_frame_iocb frame = {.fin = 1,
                                     .opcode = WSLAY_TEXT_FRAME,
                                     .payload_length = bytes,
                                     .data = (const uint8_t *)text,
                                     .data_length = bytes};
    if (!press.frames && wslay_frame_context_init(&press.frames, &printing, NULL) != 0)
        return false;
    ol_buf_reset(&press.out);
    return wslay_frame_send(press.frames, &frame) == (ssize_t)bytes && !press.out.failed;
}

/* Whoever is told of its end while this is written may send to others. */
static void write_frame(struct ol_websocket *socket)
{
    struct ol_buf out = press.out;
    press.out = (struct ol_buf){0};
    ol_client_conn_write(socket->peer, out.data, out.bytes);
    if (!press.out.data && out.capacity <= OL_WEBSOCKET_MESSAGE_BYTES)
        press.out = out;
    else
        ol_buf_clear(&out);
}

/* --- the life of a socket --- */

static void arm(struct ol_websocket *socket)
{
    socket->peer->deadline = uv_now(socket->peer->peers->loop) + PING_MS;
}

static void pause_if_so(struct ol_websocket *socket)
{
    ol_client_conn_pause(socket->peer, socket->is_held || socket->is_clogged);
}

/* Frames that were queued become one write. */
static void flush(struct ol_websocket *socket)
{
    if (socket->is_over)
        return;
    wslay_event_send(socket->frames);
    if (socket->out.bytes) {
        struct ol_buf out = socket->out;
        socket->out = (struct ol_buf){0};
        ol_client_conn_write(socket->peer, out.data, out.bytes);
        ol_buf_clear(&out);
    }
    if (!socket->is_over && wslay_event_get_close_sent(socket->frames))
        ol_client_conn_end(socket->peer);
}

static void end(struct ol_websocket *socket)
{
    wslay_event_context_free(socket->frames);
    ol_buf_clear(&socket->out);
    free(socket);
}

static void on_data(struct ol_client_conn *peer, const char *data, size_t bytes)
{
    struct ol_websocket *socket = peer->owner;
    bool was_busy = socket->is_busy;
    socket->in = data;
    socket->in_bytes = bytes;
    socket->has_pinged = false;
    socket->is_busy = true;
    arm(socket);
    int result = wslay_event_recv(socket->frames);
    if (!socket->is_over)
        flush(socket);
    if (!socket->is_over && (result != 0 || !wslay_event_want_read(socket->frames)))
        ol_client_conn_end(peer);
    if (!socket->is_over && peer->queued > OL_WEBSOCKET_QUEUE_BYTES) {
        socket->is_clogged = true;
        socket->left = uv_stream_get_write_queue_size((uv_stream_t *)&peer->tcp);
        pause_if_so(socket);
    }
    socket->is_busy = was_busy;
    if (socket->is_over && !was_busy)
        end(socket);
}

static void on_drained(struct ol_client_conn *peer)
{
    struct ol_websocket *socket = peer->owner;
    if (socket->is_clogged) {
        socket->is_clogged = false;
        arm(socket);
        pause_if_so(socket);
    }
    if (socket->user->drained)
        socket->user->drained(socket);
}

/* We do not listen, so silence says nothing: does it take what we wrote? */
static bool moves(struct ol_websocket *socket)
{
    size_t left = uv_stream_get_write_queue_size((uv_stream_t *)&socket->peer->tcp);
    bool is_less = left < socket->left;
    socket->left = left;
    return socket->is_held || is_less;
}

/* Silence: ask whether somebody is there, and give up when there was no answer. */
static void on_expired(struct ol_client_conn *peer)
{
    struct ol_websocket *socket = peer->owner;
    const struct wslay_event_msg ping = {.opcode = WSLAY_PING};
    bool is_deaf = socket->is_held || socket->is_clogged;
    if (is_deaf && moves(socket)) {
        arm(socket);
        return;
    }
    if (is_deaf || socket->has_pinged) {
        ol_client_conn_close(peer);
        return;
    }
    socket->has_pinged = true;
    arm(socket);
    wslay_event_queue_msg(socket->frames, &ping);
    flush(socket);
}

static void on_closed(struct ol_client_conn *peer)
{
    struct ol_websocket *socket = peer->owner;
    socket->is_over = true;
    socket->user->closed(socket);
    if (!socket->is_busy)
        end(socket);
}

static const struct ol_client_conn_handler peer_user = {on_data, on_drained, on_expired, on_closed};

static void greet(struct ol_websocket *socket, const char *key)
{
    char accept[32];
    struct ol_buf head = {0};
    accept_key(key, accept);
    ol_buf_print(&head,
                 "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n"
                 "connection: Upgrade\r\nsec-websocket-accept: %s\r\n\r\n",
                 accept);
    ol_client_conn_write(socket->peer, head.data, head.bytes);
    ol_buf_clear(&head);
}

int ol_websocket_open(struct ol_request *request, const struct ol_websocket_handler *user,
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
    socket->user = user;
    socket->owner = owner;
    socket->peer = ol_http1_release(request, &early);
    socket->peer->user = &peer_user;
    socket->peer->owner = socket;
    arm(socket);
    socket->is_busy = true;
    greet(socket, ol_request_header(request, "sec-websocket-key"));
    ol_request_free(request);
    if (early.bytes && !socket->is_over)
        on_data(socket->peer, early.data, early.bytes);
    ol_buf_clear(&early);
    socket->is_busy = false;
    if (!socket->is_over)
        return 1;
    end(socket);
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
    if (socket->peer->queued > OL_WEBSOCKET_QUEUE_BYTES) {
        ol_client_conn_close(socket->peer);
        return false;
    }
    if (!wslay_event_get_write_enabled(socket->frames)) // it is being closed
        return true;
    bool was_busy = socket->is_busy;
    socket->is_busy = true;
    if (press_frame(text, bytes))
        write_frame(socket);
    else
        ol_client_conn_close(socket->peer);
    socket->is_busy = was_busy;
    bool is_open = !socket->is_over;
    if (!is_open && !was_busy)
        end(socket);
    return is_open;
}

bool ol_websocket_is_full(const struct ol_websocket *socket)
{
    return socket->peer->queued > OL_WEBSOCKET_QUEUE_BYTES / 4;
}

void ol_websocket_hold(struct ol_websocket *socket, bool is_held)
{
    if (socket->is_over || socket->is_held == is_held)
        return;
    socket->is_held = is_held;
    arm(socket);
    pause_if_so(socket);
}

void ol_websocket_close(struct ol_websocket *socket, int code, const char *why)
{
    if (socket->is_over)
        return;
    wslay_event_queue_close(socket->frames, (uint16_t)code, (const uint8_t *)why, strlen(why));
    bool was_busy = socket->is_busy;
    socket->is_busy = true;
    flush(socket);
    socket->is_busy = was_busy;
    if (socket->is_over && !was_busy)
        end(socket);
}
