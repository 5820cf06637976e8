/* token.h: tokens of the API: shown once, stored hashed (X1). */
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
    double rate; /* requests a second; 0: no limit */
    int64_t created_at, last_used_at, revoked_at;
};

/* SHA-256 of the secret text, as it is stored. */
void ol_token_hash(const char *secret, char hash[65]);

/* The scope of this name; 0 when there is none. */
int ol_token_scope(const char *name);

/* Make a token; `secret` is shown once and never again. Leaves an audit event. */
int ol_token_create(outlog *log, const char *scope, const char *org_id, double rate,
                    const struct outlog_operator *by, struct ol_token *out,
                    char secret[OL_TOKEN_TEXT], outlog_err *err);

/* Revoke it, with an audit event. OUTLOG_NOT_FOUND; revoking twice is no error. */
int ol_token_revoke(outlog *log, const char *id, const struct outlog_operator *by, outlog_err *err);

/* Each token, the oldest first; `only_valid` leaves out the revoked. */
int ol_token_each(outlog *log, bool only_valid,
                  void (*each)(void *user, const struct ol_token *token), void *user,
                  outlog_err *err);

/* Is there a valid token with this hash? */
int ol_token_find(outlog *log, const char *hash, bool *found, outlog_err *err);

/* Note that it was used now. */
int ol_token_used(outlog *log, const char *id, outlog_err *err);

/* The object of the contract; `secret` (may be NULL) only at creation. */
void ol_token_json(const struct ol_token *token, const char *secret, struct ol_buf *out);

#endif
