/* hash.c: SHA-256 from OpenSSL. */
#include "base/hash.h"

#include <openssl/sha.h>

void ol_sha256_hex(const void *data, size_t bytes, char out[OL_SHA256_TEXT])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    SHA256(data, bytes, digest);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[OL_SHA256_TEXT - 1] = '\0';
}
