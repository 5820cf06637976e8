/* fuzz_secrets.c: escaping a text never changes the result, and no report shows the secret.
 *
 * Input that is not JSON is a list of instructions: each byte adds a piece of a secret, a character
 * or the next string, so that the rules are reached often. */
#include "log/secrets.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(what) \
    do {              \
        if (!(what))  \
            abort();  \
    } while (0)

static const char *const pieces[] = {
    "-----BEGIN",
    " RSA ",
    "PRIVATE KEY",
    "-----",
    " BLOCK-----",
    "AKIA",
    "A3T",
    "EXAMPLE",
    "Q7Z3XB5KJ2MW9RTC",
    "ghp_",
    "ghr_",
    "github_pat_",
    "sk_live_",
    "rk_live_",
    "xoxb-",
    "AIza",
    "glpat-",
    "olk_",
    "whsec_",
    "whsk_",
    "eyJhbGciOiJI",
    ".eyJzdWIiOiIx",
    ".",
    "://",
    "user",
    ":",
    "@",
    "/",
    "0123456789abcdefghijABCDEFGHIJ012345",
    "kX9#mQ2v!Lp7Rz",
    "\"",
    "\\",
    "\xc3\xa9",
    "\xf0\x9f\x98\x80",
    "\n",
    "\x1f",
};
static const char *const names[] = {"password", "api_key", "Token", "x", "secret", "private-key"};

/* The notes as an object: {"name": "…", "name2": "…"}. */
static void play(const uint8_t *data, size_t bytes, struct ol_buf *out)
{
    struct ol_buf string = {0};
    int member = 0;

    ol_buf_char(out, '{');
    for (size_t i = 0; i <= bytes; i++) {
        uint8_t note = i < bytes ? data[i] : 0xFF;
        if (note < sizeof pieces / sizeof *pieces) {
            ol_buf_text(&string, pieces[note]);
        } else if (note < 0x80) {
            ol_buf_char(&string, (char)note);
        } else {
            ol_buf_print(out, "%s\"%d%s\":", member ? "," : "", member, names[note % 6]);
            ol_buf_json(out, string.data, string.bytes);
            ol_buf_print(out, ",\"%d_", member++);
            ol_buf_reset(&string);
            ol_buf_print(out, "\":[]");
        }
    }
    ol_buf_char(out, '}');
    ol_buf_clear(&string);
}

/* The same value with every ASCII character of every string as an escape. */
static void escape_all(const struct ol_json *value, struct ol_buf *out)
{
    bool in_string = false;
    char c[4];

    for (const char *at = value->text, *end = at + value->bytes; at < end;) {
        if (*at == '"') {
            in_string = !in_string;
            ol_buf_char(out, *at++);
        } else if (*at == '\\') {
            const char *from = at;
            if (ol_json_unescape(&at, c) == 1)
                ol_buf_print(out, "\\u%04X", (unsigned)c[0]);
            else
                ol_buf_add(out, from, (size_t)(at - from));
        } else if (in_string && !(*at & 0x80)) {
            ol_buf_print(out, "\\u%04x", (unsigned)*at++);
        } else {
            ol_buf_char(out, *at++);
        }
    }
}

static void check(const char *text, size_t bytes)
{
    enum ol_secret_mode all[64];
    struct ol_json value, other;
    struct ol_secret_finding warning;
    struct ol_buf escaped = {0}, normal = {0};
    outlog_err err = {0}, err2 = {0};

    for (size_t i = 0; i < ol_secret_rule_count; i++)
        all[i] = OL_SECRET_REJECT;
    REQUIRE(ol_json_parse(text, bytes, &value, &err) == 0);
    int defaults = ol_secrets_check(&value, NULL, &warning, &err);
    int strict = ol_secrets_check(&value, all, NULL, &err);
    REQUIRE(strict == (defaults < 0 || warning.rule ? -1 : 0));
    if (strict < 0)
        REQUIRE(err.code == OUTLOG_SECRET_MATERIAL &&
                ol_json_at(&value, err.pointer).type != OL_JSON_NONE);

    escape_all(&value, &escaped);
    REQUIRE(ol_json_parse(escaped.data, escaped.bytes, &other, &err2) == 0);
    REQUIRE(ol_secrets_check(&other, all, NULL, &err2) == strict);
    if (strict < 0)
        REQUIRE(strcmp(err.message, err2.message) == 0 && strcmp(err.pointer, err2.pointer) == 0);

    REQUIRE(ol_json_canonical(&value, &normal) == 0);
    REQUIRE(ol_json_parse(normal.data, normal.bytes, &other, &err2) == 0);
    REQUIRE(ol_secrets_check(&other, all, NULL, &err2) == strict);
    ol_buf_clear(&escaped);
    ol_buf_clear(&normal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ol_json value;
    struct ol_buf text = {0};

    if (bytes == 0)
        return 0;
    if (ol_json_parse((const char *)data, bytes, &value, NULL) == 0) {
        check((const char *)data, bytes);
        return 0;
    }
    play(data, bytes, &text);
    check(text.data, text.bytes);
    ol_buf_clear(&text);
    return 0;
}
