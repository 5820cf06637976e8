/* websocket.h: a WebSocket: text frames in, text frames out. The loop's thread only. */
#ifndef OL_SERVER_HTTP_WEBSOCKET_H
#define OL_SERVER_HTTP_WEBSOCKET_H

#include "server/http/request.h"

struct ol_websocket;

enum { OL_WEBSOCKET_MESSAGE_BYTES = 64 * 1024, OL_WEBSOCKET_QUEUE_BYTES = 1024 * 1024 };

struct ol_websocket_handler {
    void (*text)(struct ol_websocket *socket, const char *text, size_t bytes);
    void (*closed)(struct ol_websocket *socket);  /* it is over: forget it */
    void (*drained)(struct ol_websocket *socket); /* nothing waits any more; may be NULL */
};

/* Whether the request asks for a WebSocket as RFC 6455 wants it; false after having answered 400.
 * For handlers, before they return OL_HANDLER_UPGRADING. */
bool ol_websocket_is_asked(struct ol_request *request);

/* Turn the request's connection into a WebSocket; the request is freed. *out is set before the
 * first frame, which may have come with the request, is given to the user. 1; 0 when it is over
 * already, and `closed` was called; -1 when there is none. */
int ol_websocket_open(struct ol_request *request, const struct ol_websocket_handler *user,
                      void *owner, struct ol_websocket **out);
void *ol_websocket_owner(const struct ol_websocket *socket);

/* Send one text frame. A reader so slow that more than OL_WEBSOCKET_QUEUE_BYTES wait is dropped:
 * false, and `closed` was called. */
bool ol_websocket_send(struct ol_websocket *socket, const char *text, size_t bytes);

/* Whether so much waits that whoever can wait should; `drained` tells when it is over. */
bool ol_websocket_is_full(const struct ol_websocket *socket);

/* Whether nothing more is read for now: what came is not done with yet. A reader that leaves our
 * answers to its frames (pongs) lying is not read from either. */
void ol_websocket_hold(struct ol_websocket *socket, bool is_held);

/* Say goodbye with a code of RFC 6455 (1000: done, 1001: we go, 1008: not allowed) and close. */
void ol_websocket_close(struct ol_websocket *socket, int code, const char *why);

#endif
