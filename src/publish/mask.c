/* mask.c: one pass over the text; at the start of each word we ask whether a secret begins. It errs
 * on the side of masking too much: what is kept here is for a person who looks for a reason. */
#include "publish/mask.h"

#include <string.h>
#include <strings.h>

enum { SECRET_MIN = 6 }; // a shorter "secret" would blank ordinary words

struct cursor {
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

static size_t left(const struct cursor *c)
{
    return (size_t)(c->end - c->at);
}

static bool starts_with(const struct cursor *c, const char *text)
{
    size_t bytes = strlen(text);
    return left(c) >= bytes && strncasecmp(c->at, text, bytes) == 0;
}

static size_t token_bytes(const struct cursor *c, size_t from)
{
    size_t at = from;
    while (at < left(c) && is_token_byte(c->at[at]))
        at++;
    return at - from;
}

/* --- secrets of known shapes: how many bytes to keep before the *** -------------------------- */

struct shape {
    const char *prefix; /* kept, so that a reader sees what kind of secret it was */
    size_t min;         /* token bytes that must follow */
};

static const struct shape shapes[] = {
    {"bearer ", 1},      {"basic ", 8},   {"whsec_", 8},   {"whsk_", 8},   {"olk_", 8},
    {"ghp_", 20},        {"gho_", 20},    {"ghu_", 20},    {"ghs_", 20},   {"ghr_", 20},
    {"github_pat_", 20}, {"sk_live_", 8}, {"rk_live_", 8}, {"glpat-", 10}, {"xoxb-", 8},
    {"xoxa-", 8},        {"xoxp-", 8},    {"xoxr-", 8},    {"xoxs-", 8},   {"akia", 12},
    {"asia", 16},        {"aiza", 30},    {"v1,", 20},     {"v1a,", 20},   {"eyj", 20},
};

/* Returns how many bytes of the input the secret takes, prefix included, or 0. */
static size_t find_shape(const struct cursor *c, size_t *kept)
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

/* The whole rest of the line is secret. */
static const char *const line_names[] = {"authorization", "proxy-authorization", "cookie",
                                         "set-cookie",    "webhook-signature",   "x-api-key"};

/* The next value is secret; a name counts when it ends so: "x_access_token", "clientSecret". */
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

/* From a name: what stands between it and its value (": ", "\":\"", "="), or 0 when no value. */
static size_t separator(const struct cursor *c, size_t name)
{
    size_t at = name;
    while (at < left(c) && (c->at[at] == '"' || c->at[at] == '\'' || c->at[at] == '\\'))
        at++;
    while (at < left(c) && (c->at[at] == ' ' || c->at[at] == '\t'))
        at++;
    if (at >= left(c) || (c->at[at] != ':' && c->at[at] != '='))
        return 0;
    at++;
    while (at < left(c) && strchr(" \t\r\n", c->at[at]) && c->at[at])
        at++;
    return at;
}

static size_t rest_of_line(const struct cursor *c, size_t at)
{
    while (at < left(c) && c->at[at] != '\n' && c->at[at] != '\r')
        at++;
    return at;
}

/* A JSON string to its closing quote, escapes included; a bare value to its delimiter. */
static size_t end_of_value(const struct cursor *c, size_t at, size_t *kept)
{
    bool is_escaped = at + 1 < left(c) && c->at[at] == '\\' && c->at[at + 1] == '"';
    if (is_escaped) { // JSON inside JSON: \"token\":\"…\"
        *kept = at += 2;
        while (at < left(c) && c->at[at] != '\\' && c->at[at] != '"')
            at++;
        return at;
    }
    if (at < left(c) && (c->at[at] == '"' || c->at[at] == '\'')) {
        char quote = c->at[at];
        *kept = ++at;
        while (at < left(c) && c->at[at] != quote)
            at += c->at[at] == '\\' && at + 1 < left(c) ? 2 : 1;
        return at;
    }
    *kept = at;
    if (at < left(c) && (c->at[at] == '{' || c->at[at] == '['))
        return at; // a container: its members are looked at in their turn
    while (at < left(c) && !strchr(" \t\r\n,;&<>}])\"'", c->at[at]))
        at++;
    return at;
}

static size_t find_named(const struct cursor *c, size_t *kept)
{
    size_t name = 0;
    while (name < left(c) && name < 64 && is_name_byte(c->at[name]))
        name++;
    if (name == 0)
        return 0;
    bool is_quoted = name < left(c) && (c->at[name] == '"' || c->at[name] == '\\');
    size_t value = separator(c, name);
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

/* --- the rest --------------------------------------------------------------------------------- */

static size_t find_pem(const struct cursor *c, size_t *kept)
{
    static const char end[] = "PRIVATE KEY-----";
    if (!starts_with(c, "-----BEGIN ") || left(c) < 40)
        return 0;
    const char *head = memmem(c->at, left(c) < 80 ? left(c) : 80, end, sizeof end - 1);
    if (!head)
        return 0;
    const char *body = head + sizeof end - 1;
    const char *tail = memmem(body, (size_t)(c->end - body), "-----END", 8);
    *kept = (size_t)(body - c->at);
    return tail ? (size_t)(tail - c->at) : left(c);
}

/* scheme://user:password@host: c stands on "://". */
static size_t find_userinfo(const struct cursor *c, size_t *kept)
{
    if (!starts_with(c, "://"))
        return 0;
    for (size_t at = 3; at < left(c) && at < 300; at++) {
        if (c->at[at] == '@') {
            *kept = 3;
            return at > 3 ? at : 0;
        }
        if (strchr("/ \t\r\n\"'<>?#", c->at[at]))
            return 0;
    }
    return 0;
}

static size_t find_own(const struct cursor *c, const char *const *secrets, size_t *kept)
{
    *kept = 0;
    for (; secrets && *secrets; secrets++) {
        size_t bytes = strlen(*secrets);
        if (bytes >= SECRET_MIN && left(c) >= bytes && memcmp(c->at, *secrets, bytes) == 0)
            return bytes;
    }
    return 0;
}

static size_t find_secret(const struct cursor *c, const char *const *secrets, size_t *kept)
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
static size_t character(const struct cursor *c)
{
    const unsigned char *at = (const unsigned char *)c->at;
    if (at[0] < 0x80)
        return at[0] ? 1 : 0;
    size_t bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || left(c) < bytes)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || // overlong, surrogate
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return bytes;
}

struct sink {
    struct ol_buf *out;
    size_t room;
    bool is_line, is_after_space, is_full;
};

static void put(struct sink *sink, const char *text, size_t bytes)
{
    if (sink->is_full || bytes > sink->room) {
        sink->is_full = true; // nothing after a piece that did not fit
        return;
    }
    ol_buf_add(sink->out, text, bytes);
    sink->room -= bytes;
    sink->is_after_space = false;
}

static void put_character(struct sink *sink, struct cursor *c)
{
    static const char replacement[] = "\xef\xbf\xbd";
    unsigned char byte = (unsigned char)*c->at;
    size_t bytes = character(c);
    bool is_space = byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';

    if (is_space && sink->is_line) {
        if (!sink->is_after_space)
            put(sink, " ", 1);
        sink->is_after_space = true;
    } else if (bytes == 0 || (byte < 0x20 && !is_space) || byte == 0x7f ||
               (byte == 0xc2 && (unsigned char)c->at[1] < 0xa0)) { // C1: terminals obey them
        put(sink, replacement, 3);
    } else {
        put(sink, c->at, bytes);
    }
    c->at += bytes ? bytes : 1;
}

/* Copy up to `stop`, masking only the destination's own secrets. */
static void put_until(struct sink *sink, struct cursor *c, const char *stop,
                      const char *const *secrets)
{
    size_t kept;
    while (c->at < stop) {
        size_t secret = find_own(c, secrets, &kept);
        if (secret == 0) {
            put_character(sink, c);
            continue;
        }
        put(sink, "***", 3);
        c->at += secret;
    }
}

/* Where the masking ends: an own secret that begins in what is masked is masked to its own end. */
static const char *end_of_secrets(const struct cursor *c, size_t from, size_t to,
                                  const char *const *secrets)
{
    struct cursor at = {c->at + from, c->end, c->start};
    const char *end = c->at + to;
    size_t kept;
    for (; secrets && *secrets && at.at < end; at.at++) {
        size_t bytes = find_own(&at, secrets, &kept);
        if (at.at + bytes > end)
            end = at.at + bytes;
    }
    return end;
}

static void mask(struct sink *sink, const char *text, size_t bytes, const char *const *secrets)
{
    struct cursor c = {text, text + bytes, text};
    while (c.at < c.end && !sink->is_full) {
        size_t kept = 0, secret = find_secret(&c, secrets, &kept);
        if (secret == 0) {
            put_character(sink, &c);
            continue;
        }
        const char *end = end_of_secrets(&c, kept, secret, secrets);
        put_until(sink, &c, c.at + kept, secrets);
        put(sink, "***", 3);
        if (c.at < end)
            c.at = end;
    }
}

void ol_mask_add(struct ol_buf *out, const char *text, size_t bytes, const char *const *secrets,
                 size_t limit)
{
    struct sink sink = {.out = out, .room = limit};
    mask(&sink, text, bytes, secrets);
}

void ol_mask_line(struct ol_buf *out, const char *text, size_t bytes, const char *const *secrets,
                  size_t limit)
{
    struct sink sink = {.out = out, .room = limit, .is_line = true, .is_after_space = true};
    size_t from = out->bytes;
    mask(&sink, text, bytes, secrets);
    if (out->bytes > from && out->data[out->bytes - 1] == ' ')
        out->data[--out->bytes] = '\0';
}
