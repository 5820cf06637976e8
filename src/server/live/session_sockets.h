/* session_sockets.h: the sockets of live sessions: who listens to which session, and what each was
 * sent.
 *
 * R1  Effects go to every socket of their session, in order, until a client acknowledges one; what
 * is not acknowledged after 10 s is sent again, and to a new socket at once.                  (S-5)
 * R2  What clients say goes by session_inbound.h, which keeps S-2.
 * R3  Tokens are for who is there: they are never stored, and a socket that cannot keep up is
 * dropped.
 *
 * The loop's thread only; what comes from others comes through ol_server_post(). */
#ifndef OL_SERVER_LIVE_SESSION_SOCKETS_H
#define OL_SERVER_LIVE_SESSION_SOCKETS_H

#include "server/http/request.h"

struct ol_session_sockets;

int ol_session_sockets_open(struct ol_server *server, struct ol_session_sockets **out,
                            outlog_err *err);

/* Say goodbye to everybody; ol_session_sockets_close() frees when no thread can post any more. */
void ol_session_sockets_close_all(struct ol_session_sockets *rooms);
void ol_session_sockets_end_runner(struct ol_session_sockets *rooms);
void ol_session_sockets_close(struct ol_session_sockets *rooms);

/* The request becomes a socket of this session (request->upgrade). */
void ol_session_sockets_subscribe(struct ol_request *request);

/* What the handler found out for it. */
struct ol_session_upgrade {
    const char *org_id, *session_key;
};

/* A few times a second. */
void ol_session_sockets_sweep(struct ol_session_sockets *rooms);

/* How many sockets there are. */
size_t ol_session_sockets_count(const struct ol_session_sockets *rooms);

#endif
