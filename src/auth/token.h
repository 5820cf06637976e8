/* token.h: tokens of the API: the secret is shown once and stored hashed (X1). */
#ifndef OL_AUTH_TOKEN_H
#define OL_AUTH_TOKEN_H

#include "base/buf.h"
#include "base/err.h"

enum { OL_TOKEN_TEXT = 64 };

enum ol_token_scope { OL_TOKEN_READ = 1, OL_TOKEN_APPEND, OL_TOKEN_ADMIN };

struct ol_token {
    char id[37];
    char hash[65];
    int scope; /* enum ol_token_scope */
    bool has_org;
    char org_id[256];
    double rate; /* requests per second; 0: no limit */
    int64_t created_at, last_used_at, revoked_at;
};

/* SHA-256 of the secret text, as it is stored. */
void ol_token_hash(const char *secret, char hash[65]);

/* The scope with this name; 0 if there is none. */
int ol_token_scope(const char *name);

/* Create a token and append an audit event. `secret` gets the text of the token, which cannot be
 * read again.
 *
 * OUTLOG_INVALID_FIELD: the scope or the org_id is not valid; err->pointer names which. */
int ol_token_create(outlog *log, const char *scope, const char *org_id, double rate,
                    const struct outlog_operator *by, struct ol_token *out,
                    char secret[OL_TOKEN_TEXT], outlog_err *err);

/* Revoke a token and append an audit event. Revoking it again does nothing.
 *
 * OUTLOG_NOT_FOUND: there is no token with this id. */
int ol_token_revoke(outlog *log, const char *id, const struct outlog_operator *by, outlog_err *err);

/* Call `each` for each token, the oldest first; `only_valid` leaves out revoked ones. */
int ol_token_each(outlog *log, bool only_valid,
                  void (*each)(void *user, const struct ol_token *token), void *user,
                  outlog_err *err);

/* Whether there is a valid token with this hash. */
int ol_token_find(outlog *log, const char *hash, bool *found, outlog_err *err);

/* Record that the token was used now. */
int ol_token_used(outlog *log, const char *id, outlog_err *err);

/* Add the token as a JSON object of the API; `secret` is NULL except at creation. */
void ol_token_json(const struct ol_token *token, const char *secret, struct ol_buf *out);

#endif
