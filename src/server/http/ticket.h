/* ticket.h: who may open a WebSocket: a client with a ticket for it, or with a token of scope
 * append or admin.
 *
 * A ticket opens one socket of one name (the key of a session or of a user), once, within a
 * minute. */
#ifndef OL_SERVER_HTTP_TICKET_H
#define OL_SERVER_HTTP_TICKET_H

#include "server/http/request.h"

/* The org of a socket or a ticket: the token's, else the parameter org_id, else `default`. -1 after
 * having answered. */
int ol_ticket_org(struct ol_request *request, const char **out);

/* Create a ticket and answer with it. */
enum ol_handler_result ol_ticket_answer(struct ol_request *request, const char *name);

/* Whether the request may open a socket of `name`, and in which org; false after having answered.
 * `whose` is a word for the error text: "session", "user". */
bool ol_ticket_admit(struct ol_request *request, const char *name, const char *whose,
                     const char **org_id);

#endif
