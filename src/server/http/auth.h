/* auth.h: who asks, and what they may do (X1, X3).
 *
 * All tokens are kept in memory as their hashes and looked at again every two seconds, so that a
 * revoked one ends within seconds; one that is not there is looked up at once, so that a new one
 * works at once. */
#ifndef OL_SERVER_HTTP_AUTH_H
#define OL_SERVER_HTTP_AUTH_H

#include "server/http/request.h"

struct ol_auth;

int ol_auth_open(struct ol_auth **out, outlog_err *err);
void ol_auth_close(struct ol_auth *auth);

/* Fill request->who from its bearer token. False after having answered 401 or 429. */
bool ol_auth_admit(struct ol_auth *auth, struct ol_request *request);

/* The same without asking the store: false when the token is not in memory, or comes too often, and
 * nothing is answered. */
bool ol_auth_knows(struct ol_auth *auth, struct ol_request *request);

/* Whether request->who may call request->route; false after having answered 403. */
bool ol_auth_allows(struct ol_request *request);

/* Read all tokens again, and note which were used. */
int ol_auth_refresh(struct ol_auth *auth, outlog *log, outlog_err *err);

/* Is the token of a long-lived stream still good? */
bool ol_auth_is_valid(struct ol_auth *auth, const struct ol_identity *who);

#endif
