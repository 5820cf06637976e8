/* rooms.h: the sockets of live sessions: who listens to which session, and what each was sent.
 *
 * R1  Effects go to every socket of their session, in order, until a client acknowledges one; what is
 *     not acknowledged after 10 s is sent again, and to a new socket at once.                  (S-5)
 * R2  What clients say goes by talk.h, which keeps S-2.
 * R3  Tokens are for who is there: they are never stored, and a socket that cannot keep up is dropped.
 *
 * The loop's thread only; what comes from others comes through ol_server_post(). */
#ifndef OL_API_ROOMS_H
#define OL_API_ROOMS_H

#include "api/request.h"

struct ol_rooms;

int ol_rooms_open(struct ol_server *server, struct ol_rooms **out, outlog_err *err);

/* Say goodbye to everybody; ol_rooms_close() frees when no thread can post any more. */
void ol_rooms_leave(struct ol_rooms *rooms);
void ol_rooms_end_runner(struct ol_rooms *rooms);
void ol_rooms_close(struct ol_rooms *rooms);

/* The request becomes a socket of this session (request->upgrade). */
void ol_rooms_enter(struct ol_request *request);

/* What the handler found out for it. */
struct ol_entrance {
    const char *org_id, *session_key;
};

/* A few times a second. */
void ol_rooms_sweep(struct ol_rooms *rooms);

/* How many sockets there are. */
size_t ol_rooms_count(const struct ol_rooms *rooms);

#endif
