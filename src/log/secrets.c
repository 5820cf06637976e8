/* secrets.c: finds secrets by their shape, in one pass over the text.
 *
 * Z1  The pass sees the text with its escapes undone, so "\u0067hp_…" does not slip through. A
 *     quote inside a string becomes a NUL byte, which no valid text holds: then a quote always
 *     ends a string, no match reaches beyond its own, and strings need not be cut out first.
 * Z2  Cost is linear: three bytes decide whether a rule is asked at all (`first`, `second`,
 *     `third`), and a rule looks only at bytes that no other question of its own looks at again,
 *     or at a fixed number of them.
 * Z3  Nothing of a secret leaves this file: neither in a message nor in a pointer. */
#include "log/secrets.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A prefix counts where a word begins: "task_live_…" and "folk_song" are no keys. A vendor that
 * fixes no length for its tokens gets eight characters, so that prose about prefixes passes. */
#define WORD "(?:^|[^0-9A-Za-z])"

enum rule {
    PRIVATE_KEY,
    AWS,
    GITHUB,
    GITHUB_PAT,
    STRIPE,
    SLACK,
    GOOGLE,
    GITLAB,
    OUTLOG,
    WEBHOOK_SECRET,
    WEBHOOK_KEY,
    JWT,
    URL,
    NAMED,
    RULE_COUNT
};

const struct ol_secret_rule ol_secret_rules[] = {
    [PRIVATE_KEY] = {.name = "private_key",
                     .mode_default = OL_SECRET_REJECT,
                     .pattern = "(-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----)"},
    [AWS] = {.name = "aws_access_key",
             .mode_default = OL_SECRET_REJECT,
             .pattern = WORD "((?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})",
             .entropy_min = 3.0,
             .except_suffix = "EXAMPLE"},
    [GITHUB] = {.name = "github_token",
                .mode_default = OL_SECRET_REJECT,
                .pattern = WORD "(gh[pousr]_[0-9A-Za-z]{36})"},
    [GITHUB_PAT] = {.name = "github_pat",
                    .mode_default = OL_SECRET_REJECT,
                    .pattern = WORD "(github_pat_[0-9A-Za-z]{8})"},
    [STRIPE] = {.name = "stripe_live_key",
                .mode_default = OL_SECRET_REJECT,
                .pattern = WORD "([sr]k_live_[0-9A-Za-z]{8})"},
    [SLACK] = {.name = "slack_token",
               .mode_default = OL_SECRET_REJECT,
               .pattern = WORD "(xox[baprs]-[0-9A-Za-z-]{8})"},
    [GOOGLE] = {.name = "google_api_key",
                .mode_default = OL_SECRET_REJECT,
                .pattern = WORD "(AIza[0-9A-Za-z_-]{35})"},
    [GITLAB] = {.name = "gitlab_token",
                .mode_default = OL_SECRET_REJECT,
                .pattern = WORD "(glpat-[0-9A-Za-z_-]{8})"},
    [OUTLOG] = {.name = "outlog_token",
                .mode_default = OL_SECRET_REJECT,
                .pattern = WORD "(olk_[0-9A-Za-z_]{8})"},
    [WEBHOOK_SECRET] = {.name = "webhook_secret",
                        .mode_default = OL_SECRET_REJECT,
                        .pattern = WORD "(whsec_[0-9A-Za-z+/]{8})"},
    [WEBHOOK_KEY] = {.name = "webhook_signing_key",
                     .mode_default = OL_SECRET_REJECT,
                     .pattern = WORD "(whsk_[0-9A-Za-z+/]{8})"},
    [JWT] = {.name = "jwt",
             .mode_default = OL_SECRET_WARN,
             .pattern = "(?:^|[^0-9A-Za-z_-])"
                        "(ey[0-9A-Za-z_-]{10,}\\.ey[0-9A-Za-z_-]{10,}\\.)"},
    [URL] = {.name = "url_password",
             .mode_default = OL_SECRET_WARN,
             .pattern = "[0-9A-Za-z+.-](://[^\\u0001-\\u0020\"/:@?#]*:[^\\u0001-\\u0020\"/@?#]+@)"},
    [NAMED] = {.name = "named_secret",
               .mode_default = OL_SECRET_WARN,
               .is_key_name = true,
               .pattern = "(?i)(password|passwd|secret|token|api[_-]?key|private[_-]?key)$",
               .entropy_min = 3.5,
               .bytes_min = 8},
};
const size_t ol_secret_rule_count = RULE_COUNT;

/* Three bytes in a row that stand in every match of a rule and seldom elsewhere ("b_p" rather
 * than "git", ".ey" rather than "ey"). Their place in the match is known to the rule. */
enum {
    BIT_SSW = 1u << RULE_COUNT,
    BIT_ECR = BIT_SSW << 1,
    BIT_TOK = BIT_SSW << 2,
    BIT_API = BIT_SSW << 3,
    BIT_IVA = BIT_SSW << 4
};
#define BIT(rule) (1u << (rule))

static const uint32_t first[256] = {
    ['-'] = BIT(PRIVATE_KEY),
    ['A'] = BIT(AWS) | BIT(GOOGLE) | BIT_API,
    ['g'] = BIT(GITHUB) | BIT(GITLAB),
    ['b'] = BIT(GITHUB_PAT),
    ['k'] = BIT(STRIPE),
    ['x'] = BIT(SLACK),
    ['o'] = BIT(OUTLOG),
    ['w'] = BIT(WEBHOOK_SECRET) | BIT(WEBHOOK_KEY),
    ['.'] = BIT(JWT),
    [':'] = BIT(URL),
    ['s'] = BIT_SSW,
    ['S'] = BIT_SSW,
    ['e'] = BIT_ECR,
    ['E'] = BIT_ECR,
    ['t'] = BIT_TOK,
    ['T'] = BIT_TOK,
    ['a'] = BIT_API,
    ['i'] = BIT_IVA,
    ['I'] = BIT_IVA,
};
static const uint32_t second[256] = {
    ['-'] = BIT(PRIVATE_KEY),
    ['K'] = BIT(AWS),
    ['S'] = BIT(AWS) | BIT_SSW,
    ['B'] = BIT(AWS),
    ['C'] = BIT(AWS) | BIT_ECR,
    ['3'] = BIT(AWS),
    ['I'] = BIT(GOOGLE),
    ['h'] = BIT(GITHUB) | BIT(WEBHOOK_SECRET) | BIT(WEBHOOK_KEY),
    ['l'] = BIT(GITLAB) | BIT(OUTLOG),
    ['_'] = BIT(GITHUB_PAT) | BIT(STRIPE),
    ['o'] = BIT(SLACK) | BIT_TOK,
    ['O'] = BIT_TOK,
    ['e'] = BIT(JWT),
    ['/'] = BIT(URL),
    ['s'] = BIT_SSW,
    ['c'] = BIT_ECR,
    ['p'] = BIT_API,
    ['P'] = BIT_API,
    ['v'] = BIT_IVA,
    ['V'] = BIT_IVA,
};
static const uint32_t third[256] = {
    ['-'] = BIT(PRIVATE_KEY),
    ['I'] = BIT(AWS) | BIT_API,
    ['C'] = BIT(AWS),
    ['T'] = BIT(AWS),
    ['z'] = BIT(GOOGLE),
    ['p'] = BIT(GITHUB) | BIT(GITLAB) | BIT(GITHUB_PAT),
    ['o'] = BIT(GITHUB),
    ['u'] = BIT(GITHUB),
    ['s'] = BIT(GITHUB) | BIT(WEBHOOK_SECRET) | BIT(WEBHOOK_KEY),
    ['r'] = BIT(GITHUB) | BIT_ECR,
    ['R'] = BIT_ECR,
    ['l'] = BIT(STRIPE),
    ['x'] = BIT(SLACK),
    ['k'] = BIT(OUTLOG) | BIT_TOK,
    ['K'] = BIT_TOK,
    ['y'] = BIT(JWT),
    ['/'] = BIT(URL),
    ['w'] = BIT_SSW,
    ['W'] = BIT_SSW,
    ['i'] = BIT_API,
    ['a'] = BIT_IVA,
    ['A'] = BIT_IVA,
};

/* The text as the pass sees it (Z1), and what to do with what it finds. */
struct scan {
    const char *text, *end;
    const struct ol_json *value; /* where it came from; NULL: only say whether there is a secret */
    const enum ol_secret_mode *modes;
    struct ol_secret_finding *warning;
    outlog_err *err;
};

static int ask_rules(struct scan *s, const char *at, uint32_t bits);
static char *undo_escapes(const struct ol_json *value, size_t *bytes);

static int pass(struct scan *s)
{
    const unsigned char *at = (const unsigned char *)s->text;
    const unsigned char *end = (const unsigned char *)s->end;

    for (; end - at >= 3; at++) {
        uint32_t bits = first[at[0]] & second[at[1]] & third[at[2]];
        if (bits && ask_rules(s, (const char *)at, bits) < 0)
            return -1;
    }
    return 0;
}

int ol_secrets_check(const struct ol_json *value, const enum ol_secret_mode *modes,
                     struct ol_secret_finding *warning, outlog_err *err)
{
    struct scan s = {.text = value->text,
                     .value = value,
                     .modes = modes,
                     .warning = warning,
                     .err = err};
    size_t bytes = value->bytes;
    char *plain = NULL;

    if (warning)
        *warning = (struct ol_secret_finding){0};
    if (value->type == OL_JSON_NONE)
        return 0;
    if (memchr(value->text, '\\', value->bytes)) {
        plain = undo_escapes(value, &bytes);
        if (!plain)
            return ol_fail(err, OUTLOG_NO_MEMORY, "no memory to look for secrets in %zu bytes",
                           value->bytes);
        s.text = plain;
    }
    s.end = s.text + bytes;
    int rc = pass(&s);
    free(plain);
    return rc;
}

int ol_secret_rule_by_name(const char *name)
{
    for (int rule = 0; rule < RULE_COUNT; rule++)
        if (strcmp(ol_secret_rules[rule].name, name) == 0)
            return rule;
    return -1;
}

/* --- escapes ------------------------------------------------------------------------------ */

/* One character of the text, its escape undone (Z1); returns how many bytes it has. */
static size_t next_plain(const char **at, char out[4])
{
    if (**at != '\\') {
        out[0] = *(*at)++;
        return 1;
    }
    size_t bytes = ol_json_unescape(at, out);
    if (out[0] == '"')
        out[0] = '\0';
    return bytes;
}

static char *undo_escapes(const struct ol_json *value, size_t *bytes)
{
    const char *at = value->text, *end = at + value->bytes;
    char *plain = malloc(value->bytes + 3); // an escape is never shorter than what it stands for

    if (!plain)
        return NULL;
    *bytes = 0;
    while (at < end)
        *bytes += next_plain(&at, plain + *bytes);
    return plain;
}

/* Where in the raw text the byte `at` of the plain one came from. */
static const char *raw_place(const struct scan *s, const char *at)
{
    const char *raw = s->value->text;
    char ignored[4];

    if (s->text == raw)
        return at;
    for (const char *plain = s->text; plain < at;)
        plain += next_plain(&raw, ignored);
    return raw;
}

/* --- what a match looks like -------------------------------------------------------------- */

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Bits a byte, by how often each byte occurs. */
static bool has_entropy(const char *from, const char *to, double least)
{
    size_t counts[256] = {0};
    double total = (double)(to - from), entropy = 0;

    for (const char *at = from; at < to; at++)
        counts[(unsigned char)*at]++;
    for (int i = 0; i < 256; i++)
        if (counts[i])
            entropy -= (double)counts[i] / total * log2((double)counts[i] / total);
    return entropy + 1e-9 >= least; // an exact 3 must not fail by its last bit
}

/* `prefix` where a word begins, then `count` letters, digits or bytes of `also`. `at` is `skip`
 * bytes into the prefix. Returns the first byte of the word, or NULL. */
static const char *word(const struct scan *s, const char *at, size_t skip, const char *prefix,
                        size_t count, const char *also)
{
    size_t bytes = strlen(prefix);

    if ((size_t)(at - s->text) < skip + 1) // the quote before the string is always there
        return NULL;
    at -= skip;
    if ((size_t)(s->end - at) < bytes + count || is_alnum(at[-1]) || memcmp(at, prefix, bytes) != 0)
        return NULL;
    for (size_t i = bytes; i < bytes + count; i++)
        if (!is_alnum(at[i]) && (at[i] == '\0' || !strchr(also, at[i])))
            return NULL;
    return at;
}

/* As word(), for prefixes that differ in the byte at `place`. */
static const char *word_like(const struct scan *s, const char *at, size_t skip, const char *prefix,
                             size_t place, const char *variants, size_t count, const char *also)
{
    char exact[16];

    if ((size_t)(at - s->text) < skip || (size_t)(s->end - at) < place + 1)
        return NULL;
    char c = at[(ptrdiff_t)place - (ptrdiff_t)skip];
    if (c == '\0' || !strchr(variants, c))
        return NULL;
    memcpy(exact, prefix, strlen(prefix) + 1);
    exact[place] = c;
    return word(s, at, skip, exact, count, also);
}

static bool is_upper_or_digit(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static const char *find_aws(const struct scan *s, const char *at)
{
    enum { BYTES = 20 };
    static const char kinds[][5] = {"AKIA", "ASIA", "ABIA", "ACCA"};
    bool is_known = memcmp(at, "A3T", 3) == 0;

    if (at == s->text || s->end - at < BYTES || is_alnum(at[-1]))
        return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        is_known = is_known || memcmp(at, kinds[i], 4) == 0;
    for (size_t i = 3; i < BYTES; i++)
        is_known = is_known && is_upper_or_digit(at[i]);
    if (!is_known || memcmp(at + BYTES - 7, "EXAMPLE", 7) == 0)
        return NULL;
    return has_entropy(at, at + BYTES, ol_secret_rules[AWS].entropy_min) ? at : NULL;
}

static bool starts_with(const char *at, const char *end, const char *what)
{
    size_t bytes = strlen(what);
    return (size_t)(end - at) >= bytes && memcmp(at, what, bytes) == 0;
}

static const char *find_private_key(const struct scan *s, const char *at)
{
    const char *from = at;

    if (!starts_with(at, s->end, "-----BEGIN"))
        return NULL;
    at += strlen("-----BEGIN");
    for (int label = 0; label <= 100; label++, at++) { // "RSA", "OPENSSH", "PGP" …
        if (starts_with(at, s->end, "PRIVATE KEY-----") ||
            starts_with(at, s->end, "PRIVATE KEY BLOCK-----"))
            return from;
        if (at == s->end || (!is_upper_or_digit(*at) && *at != ' ' && *at != '_' && *at != '-'))
            return NULL;
    }
    return NULL;
}

static const char *skip_base64url(const char *at, const char *end)
{
    while (at < end && (is_alnum(*at) || *at == '_' || *at == '-'))
        at++;
    return at;
}

/* `at` is the first dot, which starts_with ".ey": the header lies before it, the claims after. */
static const char *find_jwt(const struct scan *s, const char *at)
{
    enum { PART = 12 };
    const char *from = at;

    while (from > s->text && (is_alnum(from[-1]) || from[-1] == '_' || from[-1] == '-'))
        from--;
    if (at - from < PART || !starts_with(from, s->end, "ey"))
        return NULL;
    const char *to = skip_base64url(at + 1, s->end);
    return to - (at + 1) >= PART && to < s->end && *to == '.' ? from : NULL;
}

/* A run of what a URL's authority may hold before the @. */
static const char *skip_userinfo(const char *at, const char *end, char stop)
{
    while (at < end && (unsigned char)*at > 0x20 && *at != '"' && *at != '/' && *at != '@' &&
           *at != '?' && *at != '#' && *at != stop)
        at++;
    return at;
}

/* `at` is "://". An empty user is common: redis://:password@host. */
static const char *find_url(const struct scan *s, const char *at)
{
    if (at == s->text || (!is_alnum(at[-1]) && at[-1] != '+' && at[-1] != '.' && at[-1] != '-'))
        return NULL;
    const char *colon = skip_userinfo(at + 3, s->end, ':');
    if (colon == s->end || *colon != ':')
        return NULL;
    const char *to = skip_userinfo(colon + 1, s->end, '@');
    return to > colon + 1 && to < s->end && *to == '@' ? at : NULL;
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* The bytes of `name` at `at` without regard to case; '_' may be absent or a dash. Returns the
 * byte after it, or NULL. */
static const char *match_name(const char *at, const char *end, const char *name)
{
    for (; *name; name++) {
        if (*name == '_') {
            at += at < end && (*at == '_' || *at == '-');
            continue;
        }
        if (at == end || (*at | 0x20) != *name)
            return NULL;
        at++;
    }
    return at;
}

/* A key that ends in a telling name, and the string it names. Only a key has a colon after its
 * quote, so there is no need to know where the string began. */
static const char *find_named(const struct scan *s, const char *at, uint32_t bits)
{
    static const struct {
        uint32_t bit;
        ptrdiff_t skip;
        const char *name;
    } names[] = {
        {BIT_SSW, 2, "password"}, {BIT_SSW, 2, "passwd"},  {BIT_ECR, 1, "secret"},
        {BIT_TOK, 0, "token"},    {BIT_API, 0, "api_key"}, {BIT_IVA, 2, "private_key"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!(bits & names[i].bit) || at - s->text < names[i].skip)
            continue;
        const char *after = match_name(at - names[i].skip, s->end, names[i].name);
        if (!after || after == s->end || *after != '"')
            continue;
        after = skip_space(after + 1, s->end);
        if (after == s->end || *after != ':')
            continue;
        after = skip_space(after + 1, s->end);
        if (after == s->end || *after != '"')
            continue;
        after++;
        const char *to = memchr(after, '"', (size_t)(s->end - after));
        if (to && (size_t)(to - after) >= ol_secret_rules[NAMED].bytes_min &&
            has_entropy(after, to, ol_secret_rules[NAMED].entropy_min))
            return after;
    }
    return NULL;
}

static const char *find(const struct scan *s, const char *at, enum rule rule, uint32_t bits)
{
    switch (rule) {
    case PRIVATE_KEY:
        return find_private_key(s, at);
    case AWS:
        return find_aws(s, at);
    case GITHUB:
        return word_like(s, at, 0, "gh?_", 2, "pousr", 36, "");
    case GITHUB_PAT:
        return word(s, at, 5, "github_pat_", 8, "");
    case STRIPE:
        return word_like(s, at, 1, "?k_live_", 0, "sr", 8, "");
    case SLACK:
        return word_like(s, at, 0, "xox?-", 3, "baprs", 8, "-");
    case GOOGLE:
        return word(s, at, 0, "AIza", 35, "_-");
    case GITLAB:
        return word(s, at, 0, "glpat-", 8, "_-");
    case OUTLOG:
        return word(s, at, 0, "olk_", 8, "_");
    case WEBHOOK_SECRET:
        return word(s, at, 0, "whsec_", 8, "+/");
    case WEBHOOK_KEY:
        return word(s, at, 0, "whsk_", 8, "+/");
    case JWT:
        return find_jwt(s, at);
    case URL:
        return find_url(s, at);
    case NAMED:
        return find_named(s, at, bits);
    case RULE_COUNT:
        break;
    }
    return NULL;
}

/* --- findings ----------------------------------------------------------------------------- */

/* Whether a pointer shows a secret: a key on the way may be one, under a rule that is off. */
static bool shows_secret(const char *pointer)
{
    char text[1 + sizeof((struct ol_secret_finding *)0)->pointer] = "\""; // begins as strings do
    size_t bytes = 1;

    for (; *pointer; pointer++) {
        bool is_slash = pointer[0] == '~' && pointer[1] == '1';
        text[bytes++] = is_slash ? '/' : *pointer;
        pointer += is_slash;
    }
    struct scan s = {.text = text, .end = text + bytes};
    return pass(&s) < 0;
}

static int report(struct scan *s, enum rule rule, const char *at)
{
    const char *name = ol_secret_rules[rule].name;
    struct ol_secret_finding finding = {.rule = name};

    if (!s->value)
        return -1;
    enum ol_secret_mode mode = s->modes ? s->modes[rule] : ol_secret_rules[rule].mode_default;
    if (mode == OL_SECRET_OFF || (mode == OL_SECRET_WARN && (!s->warning || s->warning->rule)))
        return 0;
    ol_json_pointer(s->value, raw_place(s, at), finding.pointer, sizeof finding.pointer);
    while (shows_secret(finding.pointer)) // Z3: rather name an ancestor
        *strrchr(finding.pointer, '/') = '\0';
    if (mode == OL_SECRET_WARN) {
        *s->warning = finding;
        return 0;
    }
    return ol_fail_at(s->err, OUTLOG_SECRET_MATERIAL, finding.pointer,
                      "%s holds what looks like secret material (rule %s): keep it in a secret "
                      "store and write its version id here",
                      finding.pointer[0] ? finding.pointer : "the top level", name);
}

static int ask_rules(struct scan *s, const char *at, uint32_t bits)
{
    for (enum rule rule = 0; rule < RULE_COUNT; rule++) {
        if (rule == NAMED ? bits < BIT_SSW : !(bits & BIT(rule)))
            continue;
        const char *secret = find(s, at, rule, bits);
        if (secret && report(s, rule, secret) < 0)
            return -1;
    }
    return 0;
}

/* --- masking (E13, X5) --- */

static bool names_a_secret(const struct ol_json *key)
{
    static const char *const words[] = {"authorization", "cookie",  "token",     "secret",
                                        "password",      "api-key", "api_key",   "apikey",
                                        "signature",     "private", "credential"};
    char name[128];
    size_t bytes = key->bytes < sizeof name ? key->bytes : sizeof name - 1;
    for (size_t i = 0; i < bytes; i++)
        name[i] = (char)tolower((unsigned char)key->text[i]);
    name[bytes] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return true;
    return false;
}

void ol_secrets_mask(const struct ol_json *value, struct ol_buf *out)
{
    struct ol_json_iter it = {0};
    if (value->type != OL_JSON_OBJECT && value->type != OL_JSON_ARRAY) {
        ol_buf_add(out, value->text, value->bytes);
        return;
    }
    bool is_object = value->type == OL_JSON_OBJECT;
    ol_buf_char(out, is_object ? '{' : '[');
    for (bool is_first = true; ol_json_next(value, &it); is_first = false) {
        if (!is_first)
            ol_buf_char(out, ',');
        if (is_object) {
            ol_buf_add(out, it.key.text, it.key.bytes);
            ol_buf_char(out, ':');
        }
        if (is_object && names_a_secret(&it.key))
            ol_buf_text(out, "\"***\"");
        else
            ol_secrets_mask(&it.value, out);
    }
    ol_buf_char(out, is_object ? '}' : ']');
}
