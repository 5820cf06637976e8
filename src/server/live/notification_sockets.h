/* notification_sockets.h: the sockets of users, which get notifications as they are stored (N3).
 *
 * A new socket gets the unread notifications, the oldest first, then each new one once, no matter
 * which process stored it. Only for the loop's thread. */
#ifndef OL_SERVER_LIVE_NOTIFICATION_SOCKETS_H
#define OL_SERVER_LIVE_NOTIFICATION_SOCKETS_H

#include "server/http/request.h"

struct ol_notification_sockets;

int ol_notification_sockets_open(struct ol_server *server, struct ol_notification_sockets **out,
                                 outlog_err *err);

/* Close all sockets. ol_notification_sockets_close() frees, when no worker runs any more. */
void ol_notification_sockets_close_all(struct ol_notification_sockets *sockets);
void ol_notification_sockets_close(struct ol_notification_sockets *sockets);

/* Set by the handler as the request's owner. */
struct ol_notification_upgrade {
    const char *org_id, *user_id;
};

/* The request becomes a socket of this user (request->upgrade). */
void ol_notification_sockets_subscribe(struct ol_request *request);

/* A few times a second. */
void ol_notification_sockets_sweep(struct ol_notification_sockets *sockets);

/* Finished jobs of the types OL_JOB_NOTIFICATION_…. */
void ol_notification_sockets_on_loaded(struct ol_job *job);
void ol_notification_sockets_on_polled(struct ol_job *job);
void ol_notification_sockets_on_read(struct ol_job *job);

#endif
