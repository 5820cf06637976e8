/* auth.h: authentication by bearer token, and what each token may do (X1, X3).
 *
 * All tokens are cached in memory by their hashes. The cache is read again every two seconds, so a
 * revoked token stops working within seconds. A token that is not in the cache is looked up in the
 * store, so a new one works at once. */
#ifndef OL_SERVER_HTTP_AUTH_H
#define OL_SERVER_HTTP_AUTH_H

#include "server/http/request.h"

struct ol_auth;

int ol_auth_open(struct ol_auth **out, outlog_err *err);
void ol_auth_close(struct ol_auth *auth);

/* Fill request->who from its bearer token. False after having answered 401 or 429. */
bool ol_auth_admit(struct ol_auth *auth, struct ol_request *request);

/* The same from the cache alone: false, without an answer, when the token is not in the cache or is
 * over its rate. */
bool ol_auth_knows(struct ol_auth *auth, struct ol_request *request);

/* Whether its token is in the cache. Counts nothing. */
bool ol_auth_recognizes(struct ol_auth *auth, const struct ol_request *request);

/* Whether request->who may call request->route; false after having answered 403. */
bool ol_auth_allows(struct ol_request *request);

/* Read all tokens again, and store which were used. */
int ol_auth_refresh(struct ol_auth *auth, outlog *log, outlog_err *err);

/* Whether the token of a long-lived stream is still valid. */
bool ol_auth_is_valid(struct ol_auth *auth, const struct ol_identity *who);

#endif
