/* feed.h: sockets of users: notices as they come (N3).
 *
 * A new socket gets what is unread, the oldest first, then each notice once as it is stored, whoever
 * stored it. The loop's thread only. */
#ifndef OL_API_FEED_H
#define OL_API_FEED_H

#include "api/request.h"

struct ol_feed;

int ol_feed_open(struct ol_server *server, struct ol_feed **out, outlog_err *err);

/* Say goodbye to everybody; ol_feed_close() frees when no clerk works any more. */
void ol_feed_leave(struct ol_feed *feed);
void ol_feed_close(struct ol_feed *feed);

/* What the handler found out for it. */
struct ol_feed_entrance {
    const char *org_id, *user_id;
};

/* The request becomes a socket of this user (request->upgrade). */
void ol_feed_enter(struct ol_request *request);

/* A few times a second. */
void ol_feed_sweep(struct ol_feed *feed);

#endif
