/* mask.c: one pass over the text that checks at the start of each word whether a secret begins.
 * When in doubt it masks: the text only has to help a person find the reason of a failure. */
#include "publish/mask.h"

#include "log/secrets.h"
#include "own_tokens.h"

#include <string.h>
#include <strings.h>

enum { MASK_SECRET_MIN = 6 }; // a shorter "secret" would mask ordinary words

struct mask_cursor {
    const char *at, *end;
    const char *start;
};

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Bytes that tokens, base64 and signatures are made of. */
static bool is_token_byte(char c)
{
    return is_alnum(c) || (c != '\0' && strchr("-_.~+/=", c) != NULL);
}

static size_t bytes_left(const struct mask_cursor *c)
{
    return (size_t)(c->end - c->at);
}

static bool starts_with(const struct mask_cursor *c, const char *text)
{
    size_t bytes = strlen(text);
    return bytes_left(c) >= bytes && strncasecmp(c->at, text, bytes) == 0;
}

static size_t token_bytes(const struct mask_cursor *c, size_t from)
{
    size_t at = from;
    while (at < bytes_left(c) && is_token_byte(c->at[at]))
        at++;
    return at - from;
}

/* --- secrets of known shapes: how many bytes to keep before the *** --------------------------- */

struct mask_shape {
    const char *prefix; /* kept, so that a reader sees what kind of secret it was */
    size_t min;         /* token bytes that must follow */
};

static const struct mask_shape shapes[] = {
    {"bearer ", 1},
    {"basic ", 8},
    {"whsec_", 8},
    {"whsk_", 8},
    {OL_API_TOKEN_PREFIX, 8},
    {OL_TICKET_PREFIX, 8},
    {"ghp_", 20},
    {"gho_", 20},
    {"ghu_", 20},
    {"ghs_", 20},
    {"ghr_", 20},
    {"github_pat_", 20},
    {"sk_live_", 8},
    {"rk_live_", 8},
    {"glpat-", 10},
    {"xoxb-", 8},
    {"xoxa-", 8},
    {"xoxp-", 8},
    {"xoxr-", 8},
    {"xoxs-", 8},
    {"akia", 12},
    {"asia", 16},
    {"aiza", 30},
    {"v1,", 20},
    {"v1a,", 20},
    {"eyj", 20},
};

/* Returns how many bytes of the input the secret takes, prefix included, or 0. */
static size_t find_shape(const struct mask_cursor *c, size_t *kept)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t prefix = strlen(shapes[i].prefix);
        if (!starts_with(c, shapes[i].prefix))
            continue;
        size_t rest = token_bytes(c, prefix);
        if (rest < shapes[i].min)
            continue;
        *kept = prefix;
        return prefix + rest;
    }
    return 0;
}

/* --- names whose value is secret -------------------------------------------------------------- */

/* The value is secret up to the end of the line. */
static const char *const line_names[] = {"authorization", "proxy-authorization", "cookie",
                                         "set-cookie",    "webhook-signature",   "x-api-key"};

/* The next value is secret when the name ends with one of these: "x_access_token". */
static const char *const value_names[] = {"password",   "passwd",        "secret",
                                          "token",      "api_key",       "apikey",
                                          "api-key",    "signature",     "auth",
                                          "cookie",     "authorization", "private_key",
                                          "access_key", "credential",    "credentials",
                                          "session_id", "sessionid"};

static bool is_name_byte(char c)
{
    return is_alnum(c) || c == '_' || c == '-' || c == '.';
}

static bool ends_with(const char *name, size_t bytes, const char *suffix)
{
    size_t length = strlen(suffix);
    return bytes >= length && strncasecmp(name + bytes - length, suffix, length) == 0;
}

/* Where the value begins that follows a name and its separator (": ", "\":\"", "="); 0: none. */
static size_t skip_separator(const struct mask_cursor *c, size_t name)
{
    size_t at = name;
    while (at < bytes_left(c) && (c->at[at] == '"' || c->at[at] == '\'' || c->at[at] == '\\'))
        at++;
    while (at < bytes_left(c) && (c->at[at] == ' ' || c->at[at] == '\t'))
        at++;
    if (at >= bytes_left(c) || (c->at[at] != ':' && c->at[at] != '='))
        return 0;
    at++;
    while (at < bytes_left(c) && strchr(" \t\r\n", c->at[at]) && c->at[at])
        at++;
    return at;
}

static size_t rest_of_line(const struct mask_cursor *c, size_t at)
{
    while (at < bytes_left(c) && c->at[at] != '\n' && c->at[at] != '\r')
        at++;
    return at;
}

/* A JSON string to its closing quote, escapes included; a bare value to its delimiter. */
static size_t end_of_value(const struct mask_cursor *c, size_t at, size_t *kept)
{
    bool is_escaped = at + 1 < bytes_left(c) && c->at[at] == '\\' && c->at[at + 1] == '"';
    if (is_escaped) { // JSON inside JSON: \"token\":\"…\"
        *kept = at += 2;
        while (at < bytes_left(c) && c->at[at] != '\\' && c->at[at] != '"')
            at++;
        return at;
    }
    if (at < bytes_left(c) && (c->at[at] == '"' || c->at[at] == '\'')) {
        char quote = c->at[at];
        *kept = ++at;
        while (at < bytes_left(c) && c->at[at] != quote)
            at += c->at[at] == '\\' && at + 1 < bytes_left(c) ? 2 : 1;
        return at;
    }
    *kept = at;
    if (at < bytes_left(c) && (c->at[at] == '{' || c->at[at] == '['))
        return at; // a container: its members are checked one by one
    while (at < bytes_left(c) && !strchr(" \t\r\n,;&<>}])\"'", c->at[at]))
        at++;
    return at;
}

static size_t find_named(const struct mask_cursor *c, size_t *kept)
{
    size_t name = 0;
    while (name < bytes_left(c) && name < 64 && is_name_byte(c->at[name]))
        name++;
    if (name == 0)
        return 0;
    bool is_quoted = name < bytes_left(c) && (c->at[name] == '"' || c->at[name] == '\\');
    size_t value = skip_separator(c, name);
    if (value == 0)
        return 0;
    for (size_t i = 0; i < sizeof line_names / sizeof *line_names && !is_quoted; i++)
        if (strlen(line_names[i]) == name && strncasecmp(c->at, line_names[i], name) == 0) {
            *kept = value;
            return rest_of_line(c, value);
        }
    for (size_t i = 0; i < sizeof value_names / sizeof *value_names; i++)
        if (ends_with(c->at, name, value_names[i])) {
            size_t end = end_of_value(c, value, kept);
            return end > *kept ? end : 0;
        }
    return 0;
}

/* --- keys, logins, own secrets ---------------------------------------------------------------- */

/* The end of the line that begins a private key in PEM or PGP armour; NULL: there is none. */
static const char *find_armour(const struct mask_cursor *c, size_t *kept)
{
    static const char *const ends[] = {"PRIVATE KEY-----", "PRIVATE KEY BLOCK-----"};
    enum { ARMOUR_MAX = 140, DASHES = 5 };
    size_t bytes = bytes_left(c) < ARMOUR_MAX ? bytes_left(c) : ARMOUR_MAX;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *end = memmem(c->at, bytes, ends[i], strlen(ends[i]));
        if (!end)
            continue;
        *kept = (size_t)(end - c->at) + strlen(ends[i]) - DASHES; // with them it would be refused
        return end + strlen(ends[i]);
    }
    return NULL;
}

static size_t find_pem(const struct mask_cursor *c, size_t *kept)
{
    if (!starts_with(c, "-----BEGIN"))
        return 0;
    const char *body = find_armour(c, kept);
    if (!body)
        return 0;
    const char *tail = memmem(body, (size_t)(c->end - body), "-----END", 8);
    return tail ? (size_t)(tail - c->at) : bytes_left(c);
}

/* scheme://user:password@host, with c at "://". */
static size_t find_userinfo(const struct mask_cursor *c, size_t *kept)
{
    if (!starts_with(c, "://"))
        return 0;
    for (size_t at = 3; at < bytes_left(c) && at < 300; at++) {
        if (c->at[at] == '@') {
            *kept = 3;
            return at > 3 ? at : 0;
        }
        if (strchr("/ \t\r\n\"'<>?#", c->at[at]))
            return 0;
    }
    return 0;
}

static size_t find_own(const struct mask_cursor *c, const char *const *secrets, size_t *kept)
{
    *kept = 0;
    for (; secrets && *secrets; secrets++) {
        size_t bytes = strlen(*secrets);
        if (bytes >= MASK_SECRET_MIN && bytes_left(c) >= bytes &&
            memcmp(c->at, *secrets, bytes) == 0)
            return bytes;
    }
    return 0;
}

static size_t find_secret(const struct mask_cursor *c, const char *const *secrets, size_t *kept)
{
    size_t bytes = find_own(c, secrets, kept);
    if (bytes)
        return bytes;
    if (*c->at == ':')
        return find_userinfo(c, kept);
    if (*c->at == '-')
        return find_pem(c, kept);
    if (!is_alnum(*c->at) || (c->at > c->start && is_name_byte(c->at[-1])))
        return 0; // inside a word
    bytes = find_named(c, kept);
    return bytes ? bytes : find_shape(c, kept);
}

/* How many bytes the character at c takes; 0 when it is no UTF-8, or NUL. */
static size_t measure_character(const struct mask_cursor *c)
{
    const unsigned char *at = (const unsigned char *)c->at;
    if (at[0] < 0x80)
        return at[0] ? 1 : 0;
    size_t bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || bytes_left(c) < bytes)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || // overlong, surrogate
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return bytes;
}

struct mask_output {
    struct ol_buf *buf;
    size_t room;
    bool is_line, is_after_space, is_full;
};

static void put_bytes(struct mask_output *out, const char *text, size_t bytes)
{
    if (out->is_full || bytes > out->room) {
        out->is_full = true; // add nothing after a piece that did not fit
        return;
    }
    ol_buf_add(out->buf, text, bytes);
    out->room -= bytes;
    out->is_after_space = false;
}

static void put_character(struct mask_output *out, struct mask_cursor *c)
{
    static const char replacement[] = "\xef\xbf\xbd";
    unsigned char byte = (unsigned char)*c->at;
    size_t bytes = measure_character(c);
    bool is_space = byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';

    if (is_space && out->is_line) {
        if (!out->is_after_space)
            put_bytes(out, " ", 1);
        out->is_after_space = true;
    } else if (bytes == 0 || (byte < 0x20 && !is_space) || byte == 0x7f ||
               (byte == 0xc2 &&
                (unsigned char)c->at[1] < 0xa0)) { // C1 controls, which terminals execute
        put_bytes(out, replacement, 3);
    } else {
        put_bytes(out, c->at, bytes);
    }
    c->at += bytes ? bytes : 1;
}

/* Copy up to `stop`, masking only the destination's own secrets. */
static void put_until(struct mask_output *out, struct mask_cursor *c, const char *stop,
                      const char *const *secrets)
{
    size_t kept;
    while (c->at < stop) {
        size_t secret = find_own(c, secrets, &kept);
        if (secret == 0) {
            put_character(out, c);
            continue;
        }
        put_bytes(out, "***", 3);
        c->at += secret;
    }
}

/* The end of the masked part: one of `secrets` that begins inside it is masked to its own end. */
static const char *end_of_secrets(const struct mask_cursor *c, size_t from, size_t to,
                                  const char *const *secrets)
{
    struct mask_cursor at = {c->at + from, c->end, c->start};
    const char *end = c->at + to;
    size_t kept;
    for (; secrets && *secrets && at.at < end; at.at++) {
        size_t bytes = find_own(&at, secrets, &kept);
        if (at.at + bytes > end)
            end = at.at + bytes;
    }
    return end;
}

static void mask_text(struct mask_output *out, const char *text, size_t bytes,
                      const char *const *secrets)
{
    struct mask_cursor c = {text, text + bytes, text};
    while (c.at < c.end && !out->is_full) {
        size_t kept = 0, secret = find_secret(&c, secrets, &kept);
        if (secret == 0) {
            put_character(out, &c);
            continue;
        }
        const char *end = end_of_secrets(&c, kept, secret, secrets);
        put_until(out, &c, c.at + kept, secrets);
        put_bytes(out, "***", 3);
        if (c.at < end)
            c.at = end;
    }
}

/* What an event may not hold is not in a masked text either: the rules of the log have the last
 * word, whatever their mode. They look at the result, in which white space may have changed. */
static void mask_by_rules(struct ol_buf *out, size_t from)
{
    static const char stars[] = "***";
    const char *to, *secret;
    while (!out->failed && out->bytes > from &&
           (secret = ol_secrets_find(out->data + from, out->bytes - from, &to))) {
        char *at = out->data + (secret - out->data);
        size_t rest = (size_t)(out->data + out->bytes - to);
        memmove(at + sizeof stars - 1, to, rest + 1); // every secret is longer
        memcpy(at, stars, sizeof stars - 1);
        out->bytes = (size_t)(at - out->data) + sizeof stars - 1 + rest;
    }
}

void ol_mask_add(struct ol_buf *out, const char *text, size_t bytes, const char *const *secrets,
                 size_t limit)
{
    struct mask_output masked = {.buf = out, .room = limit};
    size_t from = out->bytes;
    mask_text(&masked, text, bytes, secrets);
    mask_by_rules(out, from);
}

void ol_mask_line(struct ol_buf *out, const char *text, size_t bytes, const char *const *secrets,
                  size_t limit)
{
    struct mask_output masked = {.buf = out,
                                 .room = limit,
                                 .is_line = true,
                                 .is_after_space = true};
    size_t from = out->bytes;
    mask_text(&masked, text, bytes, secrets);
    mask_by_rules(out, from);
    if (out->bytes > from && out->data[out->bytes - 1] == ' ')
        out->data[--out->bytes] = '\0';
}
