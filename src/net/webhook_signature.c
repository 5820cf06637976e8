/* webhook_signature.c: HMAC-SHA256 over id.timestamp.body. Each secret keeps its keyed context,
 * which is twice as fast as HMAC() with its key setup each time. */
#include "net/webhook_signature.h"

#include "base/base64.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIGNATURE_SECRETS_MAX = 8, SIGNATURE_SECRET_BYTES = 512, SIGNATURE_MAC_BYTES = 32 };

struct ol_webhook_signature {
    size_t count;
    EVP_MAC_CTX *keys[SIGNATURE_SECRETS_MAX];
};

static int read_key(const char *secret, unsigned char key[SIGNATURE_SECRET_BYTES], size_t *bytes,
                    outlog_err *err)
{
    size_t length = strlen(secret);
    if (length == 0 || length > SIGNATURE_SECRET_BYTES)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/secret", "secret: 1 to %d bytes wanted",
                          SIGNATURE_SECRET_BYTES);
    if (strncmp(secret, "whsec_", 6) != 0) {
        memcpy(key, secret, length);
        *bytes = length;
        return 0;
    }
    long decoded = ol_base64_decode(secret + 6, length - 6, key);
    if (decoded < 1)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/secret",
                          "secret: what follows whsec_ is not base64");
    *bytes = (size_t)decoded;
    return 0;
}

static EVP_MAC_CTX *make_context(EVP_MAC *hmac, const unsigned char *key, size_t bytes)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(hmac);
    if (context && !EVP_MAC_init(context, key, bytes, params)) {
        EVP_MAC_CTX_free(context);
        context = NULL;
    }
    return context;
}

int ol_webhook_signature_open(const char *const *secrets, size_t count,
                              struct ol_webhook_signature **out, outlog_err *err)
{
    unsigned char key[SIGNATURE_SECRET_BYTES + 3];
    struct ol_webhook_signature *sign = NULL;
    EVP_MAC *hmac = NULL;
    int result = -1;

    if (count > SIGNATURE_SECRETS_MAX) {
        ol_fail_at(err, OUTLOG_INVALID_FIELD, "/secrets", "secrets: at most %d",
                   SIGNATURE_SECRETS_MAX);
        goto out;
    }
    if (!(sign = calloc(1, sizeof *sign)) || !(hmac = EVP_MAC_fetch(NULL, "HMAC", NULL))) {
        ol_no_memory(err);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        if (read_key(secrets[i], key, &bytes, err) < 0)
            goto out;
        if (!(sign->keys[sign->count] = make_context(hmac, key, bytes))) {
            ol_fail(err, OUTLOG_NO_MEMORY, "HMAC-SHA256 is not available");
            goto out;
        }
        sign->count++;
    }
    *out = sign;
    sign = NULL;
    result = 0;
out:
    OPENSSL_cleanse(key, sizeof key);
    EVP_MAC_free(hmac);
    ol_webhook_signature_close(sign);
    return result;
}

void ol_webhook_signature_close(struct ol_webhook_signature *sign)
{
    if (!sign)
        return;
    for (size_t i = 0; i < sign->count; i++)
        EVP_MAC_CTX_free(sign->keys[i]);
    free(sign);
}

int ol_webhook_signature_add(struct ol_webhook_signature *sign, const char *id, int64_t timestamp_s,
                             const void *body, size_t body_bytes, struct ol_buf *out)
{
    unsigned char mac[SIGNATURE_MAC_BYTES];
    size_t mac_bytes;
    char stamp[32];
    int stamp_bytes = snprintf(stamp, sizeof stamp, ".%lld.", (long long)timestamp_s);

    for (size_t i = 0; i < sign->count; i++) {
        EVP_MAC_CTX *key = sign->keys[i];
        if (!EVP_MAC_init(key, NULL, 0, NULL) || // the key stays
            !EVP_MAC_update(key, (const unsigned char *)id, strlen(id)) ||
            !EVP_MAC_update(key, (const unsigned char *)stamp, (size_t)stamp_bytes) ||
            (body_bytes && !EVP_MAC_update(key, body, body_bytes)) ||
            !EVP_MAC_final(key, mac, &mac_bytes, sizeof mac))
            return -1;
        ol_buf_text(out, i ? " v1," : "v1,");
        ol_base64_encode(out, mac, mac_bytes, 0);
    }
    return out->failed ? -1 : 0;
}
