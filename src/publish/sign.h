/* sign.h: Standard Webhooks signatures (D1). */
#ifndef OL_PUBLISH_SIGN_H
#define OL_PUBLISH_SIGN_H

#include "base/buf.h"
#include "base/err.h"

struct ol_sign; /* the keys of one destination in one thread */

/* Take the secrets, the newest first: during a rotation each of them signs, so that the receiver
 * may know either. "whsec_" + base64 means the decoded bytes, anything else its own bytes.
 *
 * OUTLOG_INVALID_FIELD: a secret is empty or not base64 after whsec_; the message never shows it. */
int ol_sign_open(const char *const *secrets, size_t count, struct ol_sign **out, outlog_err *err);
void ol_sign_close(struct ol_sign *sign);

/* Append "v1,<base64>" for each secret, separated by a space: the value of webhook-signature for
 * the text `id.timestamp.body`. Returns 0, or -1 when OpenSSL or memory fails. */
int ol_sign_add(struct ol_sign *sign, const char *id, int64_t timestamp_s, const void *body,
                size_t body_bytes, struct ol_buf *out);

#endif
