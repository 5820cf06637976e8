/* sha256.c: SHA-256 from OpenSSL. */
#include "base/sha256.h"

#include <assert.h>
#include <openssl/evp.h>
#include <pthread.h>

enum { SHA256_BYTES = 32 };

/* Fetched once: OpenSSL's own SHA256() looks up its providers each time, under a lock that all
 * threads share, and that costs more than the hash of a short text. */
static EVP_MD *sha256;

static void fetch_sha256(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
}

void ol_sha256_hex(const void *data, size_t bytes, char out[OL_SHA256_TEXT])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned char digest[SHA256_BYTES];

    pthread_once(&once, fetch_sha256);
    int is_made = EVP_Digest(data, bytes, digest, NULL, sha256, NULL);
    assert(is_made);
    for (int i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[OL_SHA256_TEXT - 1] = '\0';
}
