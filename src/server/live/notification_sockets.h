/* notification_sockets.h: sockets of users: notices as they come (N3).
 *
 * A new socket gets what is unread, the oldest first, then each notice once as it is stored,
 * whoever stored it. The loop's thread only. */
#ifndef OL_SERVER_LIVE_NOTIFICATION_SOCKETS_H
#define OL_SERVER_LIVE_NOTIFICATION_SOCKETS_H

#include "server/http/request.h"

struct ol_notification_sockets;

int ol_notification_sockets_open(struct ol_server *server, struct ol_notification_sockets **out,
                                 outlog_err *err);

/* Say goodbye to everybody; ol_notification_sockets_close() frees when no clerk works any more. */
void ol_notification_sockets_close_all(struct ol_notification_sockets *feed);
void ol_notification_sockets_close(struct ol_notification_sockets *feed);

/* What the handler found out for it. */
struct ol_notification_upgrade {
    const char *org_id, *user_id;
};

/* The request becomes a socket of this user (request->upgrade). */
void ol_notification_sockets_subscribe(struct ol_request *request);

/* A few times a second. */
void ol_notification_sockets_sweep(struct ol_notification_sockets *feed);

#endif
