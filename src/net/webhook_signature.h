/* webhook_signature.h: Standard Webhooks signatures (D1). */
#ifndef OL_NET_WEBHOOK_SIGNATURE_H
#define OL_NET_WEBHOOK_SIGNATURE_H

#include "base/buf.h"
#include "base/err.h"

struct ol_webhook_signature; /* the keys of one destination in one thread */

/* Prepare the keys, the newest first. During a rotation each secret signs, so that the receiver may
 * know either. "whsec_" + base64 means the decoded bytes, anything else its own bytes.
 *
 * OUTLOG_INVALID_FIELD: a secret is empty or not base64 after whsec_; the message never
 * shows it. */
int ol_webhook_signature_open(const char *const *secrets, size_t count,
                              struct ol_webhook_signature **out, outlog_err *err);
void ol_webhook_signature_close(struct ol_webhook_signature *sign);

/* Append "v1,<base64>" for each secret, separated by a space: the value of webhook-signature for
 * the text `id.timestamp.body`. Returns 0, or -1 when OpenSSL or memory fails. */
int ol_webhook_signature_add(struct ol_webhook_signature *sign, const char *id, int64_t timestamp_s,
                             const void *body, size_t body_bytes, struct ol_buf *out);

#endif
