/* ticket.h: who may open a socket: whoever has a ticket for it, or a token of those who append.
 *
 * A ticket opens one socket of one name (a session's key, or that of a user), once, within a
 * minute. */
#ifndef OL_SERVER_HTTP_TICKET_H
#define OL_SERVER_HTTP_TICKET_H

#include "server/http/request.h"

/* The org a socket or a ticket is about: of the token, else as asked for, else `default`. -1 after
 * having answered. */
int ol_ticket_org(struct ol_request *request, const char **out);

/* Make one and answer with it. */
enum ol_handler_result ol_ticket_answer(struct ol_request *request, const char *name);

/* Let the request in to `name`, and say whose org it is; false after having answered. `whose` is a
 * word for the refusal: "session", "user". */
bool ol_ticket_admit(struct ol_request *request, const char *name, const char *whose,
                     const char **org_id);

#endif
