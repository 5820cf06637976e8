/* websocket.h: a WebSocket: text frames in, text frames out. The loop's thread only. */
#ifndef OL_SERVER_HTTP_WEBSOCKET_H
#define OL_SERVER_HTTP_WEBSOCKET_H

#include "server/http/request.h"

struct ol_websocket;

enum { OL_WEBSOCKET_MESSAGE_BYTES = 64 * 1024, OL_WEBSOCKET_QUEUE_BYTES = 1024 * 1024 };

struct ol_websocket_handler {
    void (*text)(struct ol_websocket *socket, const char *text, size_t bytes);
    void (*closed)(struct ol_websocket *socket);  /* its memory is about to be freed */
    void (*drained)(struct ol_websocket *socket); /* everything is written; may be NULL */
};

/* Whether the request is a WebSocket handshake of RFC 6455; false after having answered 400. For
 * handlers, before they return OL_HANDLER_UPGRADING. */
bool ol_websocket_is_asked(struct ol_request *request);

/* Turn the request's connection into a WebSocket; the request is freed. *out is set before the
 * handler gets the first frame, which may have come with the request. Returns 1; 0 when it is
 * closed already, and `closed` was called; -1 when none was opened. */
int ol_websocket_open(struct ol_request *request, const struct ol_websocket_handler *handler,
                      void *owner, struct ol_websocket **out);
void *ol_websocket_owner(const struct ol_websocket *socket);

/* Send one text frame. A client so slow that more than OL_WEBSOCKET_QUEUE_BYTES are queued is
 * disconnected: false, and `closed` was called. */
bool ol_websocket_send(struct ol_websocket *socket, const char *text, size_t bytes);

/* Whether so much is queued that a sender should wait; `drained` is called when it is written. */
bool ol_websocket_is_full(const struct ol_websocket *socket);

/* Stop reading while earlier frames are processed, or resume. Reading also stops by itself while a
 * client does not read our answers to its frames (pongs). */
void ol_websocket_hold(struct ol_websocket *socket, bool is_held);

/* Send a close frame with a code of RFC 6455 (1000: done, 1001: going away, 1008: not allowed). */
void ol_websocket_close(struct ol_websocket *socket, int code, const char *why);

#endif
