/* token.c: reads and writes the rows of `tokens`. */
#include "auth/token.h"

#include "base/random.h"
#include "base/sha256.h"
#include "log/audit.h"
#include "log/log.h"
#include "own_tokens.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static const char *const scopes[] = {"", "read", "append", "admin"};

int ol_token_scope(const char *name)
{
    for (int i = OL_TOKEN_READ; i <= OL_TOKEN_ADMIN; i++)
        if (strcmp(scopes[i], name) == 0)
            return i;
    return 0;
}

void ol_token_hash(const char *secret, char hash[65])
{
    ol_sha256_hex(secret, strlen(secret), hash);
}

/* The prefix and 256 random bits. The prefix lets secret scanners recognise a leaked token. */
static void make_secret(char out[OL_TOKEN_TEXT])
{
    unsigned char random[32], text[48];
    ol_random_bytes(random, sizeof random);
    int bytes = EVP_EncodeBlock(text, random, sizeof random);
    for (int i = 0; i < bytes; i++)
        text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i] == '=' ? '\0' : text[i];
    snprintf(out, OL_TOKEN_TEXT, OL_API_TOKEN_PREFIX "%s", (const char *)text);
}

static void put_token_fields(const struct ol_token *token, struct ol_buf *out)
{
    ol_buf_print(out, "{\"id\":\"%s\",\"scope\":\"%s\",\"org_id\":", token->id,
                 scopes[token->scope]);
    ol_buf_json_text(out, token->has_org ? token->org_id : NULL);
    if (token->rate > 0)
        ol_buf_print(out, ",\"rate\":%g", token->rate);
    else
        ol_buf_text(out, ",\"rate\":null");
}

void ol_token_json(const struct ol_token *token, const char *secret, struct ol_buf *out)
{
    put_token_fields(token, out);
    ol_buf_text(out, ",\"created_at\":");
    ol_buf_json_time(out, token->created_at);
    ol_buf_text(out, ",\"last_used_at\":");
    ol_buf_json_time(out, token->last_used_at);
    ol_buf_text(out, ",\"revoked_at\":");
    ol_buf_json_time(out, token->revoked_at);
    if (secret) {
        ol_buf_text(out, ",\"token\":");
        ol_buf_json_text(out, secret);
    }
    ol_buf_char(out, '}');
}

static int append_audit(outlog_tx *tx, const struct outlog_operator *by, const char *event_type,
                        const struct ol_token *token, outlog_err *err)
{
    struct ol_buf payload = {0};
    put_token_fields(token, &payload);
    ol_buf_char(&payload, '}');
    int result = payload.failed ? ol_no_memory(err)
                                : ol_audit_append(tx, by, event_type, "outlog.token", token->id,
                                                  payload.data, err);
    ol_buf_clear(&payload);
    return result;
}

static void read_row(const struct ol_rows *rows, struct ol_token *out)
{
    *out = (struct ol_token){0};
    ol_rows_uuid(rows, 0, out->id);
    const char *scope = ol_rows_text(rows, 1, NULL);
    out->scope = ol_token_scope(scope ? scope : "");
    const char *org = ol_rows_text(rows, 2, NULL);
    out->has_org = org != NULL;
    snprintf(out->org_id, sizeof out->org_id, "%s", org ? org : "");
    const char *hash = ol_rows_text(rows, 3, NULL);
    snprintf(out->hash, sizeof out->hash, "%s", hash ? hash : "");
    out->rate = (double)ol_rows_int(rows, 4) / 1000;
    out->created_at = ol_rows_time(rows, 5);
    out->last_used_at = ol_rows_time(rows, 6);
    out->revoked_at = ol_rows_time(rows, 7);
}

int ol_token_create(outlog *log, const char *scope, const char *org_id, double rate,
                    const struct outlog_operator *by, struct ol_token *out,
                    char secret[OL_TOKEN_TEXT], outlog_err *err)
{
    struct ol_rows rows = {0};
    outlog_tx *tx;

    *out = (struct ol_token){.scope = ol_token_scope(scope), .rate = rate};
    if (!out->scope)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/scope", "scope is read, append or admin");
    if (org_id && (!*org_id || strlen(org_id) >= sizeof out->org_id))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/org_id", "org_id has 1 to 255 bytes");
    make_secret(secret);
    ol_token_hash(secret, out->hash);
    ol_uuid_make(out->id);
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int got = ol_store_query(log->conn, OL_Q_TOKEN_ADD,
                             OL_PARAMS(ol_value_text(out->id), ol_value_text(scope),
                                       ol_value_text(org_id), ol_value_text(out->hash),
                                       ol_value_int((int64_t)(rate * 1000))),
                             &rows, err);
    if (got == 0 && (got = ol_rows_next(&rows, err)) > 0)
        read_row(&rows, out);
    ol_rows_end(&rows);
    if (got < 0 || append_audit(tx, by, "outlog.token.created", out, err) < 0) {
        outlog_rollback(tx);
        return -1;
    }
    return outlog_commit(tx, err);
}

int ol_token_revoke(outlog *log, const char *id, const struct outlog_operator *by, outlog_err *err)
{
    char uuid[OL_UUID_TEXT];
    struct ol_rows rows = {0};
    struct ol_token token = {0};
    int64_t changed = 0;
    outlog_tx *tx;

    if (!ol_uuid_parse(id, uuid))
        return ol_fail(err, OUTLOG_NOT_FOUND, "there is no token %.60s", id);
    if (outlog_begin(log, &tx, err) < 0)
        return -1;
    int got =
        ol_store_exec(log->conn, OL_Q_TOKEN_REVOKE, OL_PARAMS(ol_value_text(uuid)), &changed, err);
    if (got == 0 && (got = ol_store_query(log->conn, OL_Q_TOKEN_GET, OL_PARAMS(ol_value_text(uuid)),
                                          &rows, err)) == 0) {
        got = ol_rows_next(&rows, err);
        if (got > 0)
            read_row(&rows, &token);
        else if (got == 0)
            got = ol_fail(err, OUTLOG_NOT_FOUND, "there is no token %s", uuid);
        ol_rows_end(&rows);
    }
    if (got < 0 || (changed && append_audit(tx, by, "outlog.token.revoked", &token, err) < 0)) {
        outlog_rollback(tx);
        return -1;
    }
    return outlog_commit(tx, err);
}

int ol_token_each(outlog *log, bool only_valid,
                  void (*each)(void *user, const struct ol_token *token), void *user,
                  outlog_err *err)
{
    struct ol_rows rows;
    struct ol_token token = {0};
    int more;

    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_TOKEN_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        read_row(&rows, &token);
        if (!only_valid || !token.revoked_at)
            each(user, &token);
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

int ol_token_find(outlog *log, const char *hash, bool *found, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_TOKEN_FIND, OL_PARAMS(ol_value_text(hash)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    ol_rows_end(&rows);
    *found = got > 0;
    return got < 0 ? -1 : 0;
}

int ol_token_used(outlog *log, const char *id, outlog_err *err)
{
    return ol_log_ready(log, err) < 0
               ? -1
               : ol_store_exec(log->conn, OL_Q_TOKEN_USED, OL_PARAMS(ol_value_text(id)), NULL, err);
}
