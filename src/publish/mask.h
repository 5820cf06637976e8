/* mask.h: removes secrets from text that others sent, before it is stored or shown (E13, R4).
 *
 * Responses and error texts may repeat what we sent (an echo, a debug page) or hold secrets of
 * their own. Before they are stored: secrets become ***, bytes that are not UTF-8 or not text
 * become U+FFFD, and the length is limited. */
#ifndef OL_PUBLISH_MASK_H
#define OL_PUBLISH_MASK_H

#include "base/buf.h"

/* Append `text`, masked. Masked are: the values of Authorization, Cookie, Set-Cookie and
 * webhook-signature lines; of names like password, secret, token, api_key in JSON, forms and
 * queries; "Bearer …" and "Basic …"; user info in URLs; PEM private keys; tokens of known shapes;
 * and each of `secrets` (this destination's own, NULL-terminated; may be NULL).
 *
 * Appends at most `limit` bytes and ends at a whole character. */
void ol_mask_add(struct ol_buf *out, const char *text, size_t bytes, const char *const *secrets,
                 size_t limit);

/* The same on one line: runs of white space and control bytes become one space. */
void ol_mask_line(struct ol_buf *out, const char *text, size_t bytes, const char *const *secrets,
                  size_t limit);

#endif
