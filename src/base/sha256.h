/* sha256.h: SHA-256, as lower-case hex. */
#ifndef OL_BASE_SHA256_H
#define OL_BASE_SHA256_H

#include <stddef.h>

enum { OL_SHA256_TEXT = 65 };

void ol_sha256_hex(const void *data, size_t bytes, char out[OL_SHA256_TEXT]);

#endif
