/* base64.h: base64 with the usual alphabet and padding. */
#ifndef OL_BASE_BASE64_H
#define OL_BASE_BASE64_H

#include "base/buf.h"

/* Append `bytes` bytes as base64. With line_chars > 0 it is broken into lines of that many
 * characters, each with CRLF at its end (mail needs 76). */
void ol_base64_encode(struct ol_buf *out, const void *data, size_t bytes, size_t line_chars);

/* Decode into `out`, which holds at least bytes / 4 * 3 + 3. Padding is optional; any other
 * character is refused. Returns the length, or -1. */
long ol_base64_decode(const char *text, size_t bytes, unsigned char *out);

#endif
