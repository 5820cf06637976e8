/* secrets.c: finds secrets by their shape, in one pass over the text. The shapes are data: they
 * come from sql/schema/secret_rules.json, from which PostgreSQL's patterns and SQLite's triggers
 * are made too.
 *
 * Z1  The pass sees the text with its escapes undone, so "\u0067hp_…" does not slip through. A
 *     quote inside a string becomes a NUL byte, which no valid text has. So a quote always ends a
 *     string, no match crosses the end of its string, and strings need not be cut out first.
 * Z2  Cost is linear. Three bytes, the anchor, decide whether a matcher runs at all, and a matcher
 *     reads each byte at most a fixed number of times.
 * Z3  Nothing of a secret leaves this file: neither in an error text nor in a pointer. */
#include "log/secrets.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One byte of a match, or a run of bytes: `byte`, or any of secret_sets[set] where set is not 0. */
struct secret_step {
    unsigned char byte;
    uint8_t set;
    uint16_t min, max; /* max 0 ends the steps; UINT16_MAX: no limit */
};

/* One way to match a rule. Its anchor, three bytes that are rare elsewhere ("b_p" of "github_pat_",
 * ".ey" of a JWT), is at a known place of every match. */
struct secret_matcher {
    uint8_t rule;   /* an index into ol_secret_rules */
    uint8_t skip;   /* bytes of the match before the anchor */
    uint8_t back;   /* not 0: the match begins where the bytes of this set before the anchor do */
    uint8_t before; /* the set of the byte before the match; 0: any */
    bool is_before_needed; /* it must be of the set; else it must not */
    const struct secret_step *steps;
};

/* The rules and matchers, the sets, and secret_first, secret_second, secret_third: for each byte
 * the matchers, as bits, that have it as the first, second or third byte of their anchor. */
#include "secret_rules.h"

/* The text with its escapes undone (Z1), and where to report findings. */
struct secret_scan {
    const char *text, *end;
    const struct ol_json *value; /* the original; NULL: only find out whether there is a secret */
    const enum ol_secret_mode *modes;
    struct ol_secret_finding *warning;
    outlog_err *err;
    const char *from, *to; /* without `value`: the secret that was found */
};

static int run_matchers(struct secret_scan *s, const char *at, uint32_t bits);
static char *unescape_text(const struct ol_json *value, size_t *bytes);

static int scan_text(struct secret_scan *s)
{
    const unsigned char *at = (const unsigned char *)s->text;
    const unsigned char *end = (const unsigned char *)s->end;

    for (; end - at >= 3; at++) {
        uint32_t bits = secret_first[at[0]] & secret_second[at[1]] & secret_third[at[2]];
        if (bits && run_matchers(s, (const char *)at, bits) < 0)
            return -1;
    }
    return 0;
}

int ol_secrets_check(const struct ol_json *value, const enum ol_secret_mode *modes,
                     struct ol_secret_finding *warning, outlog_err *err)
{
    struct secret_scan s = {.text = value->text,
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
        plain = unescape_text(value, &bytes);
        if (!plain)
            return ol_fail(err, OUTLOG_NO_MEMORY, "no memory to look for secrets in %zu bytes",
                           value->bytes);
        s.text = plain;
    }
    s.end = s.text + bytes;
    int rc = scan_text(&s);
    free(plain);
    return rc;
}

const char *ol_secrets_find(const char *text, size_t bytes, const char **to)
{
    struct secret_scan s = {.text = text, .end = text + bytes};
    scan_text(&s);
    *to = s.to;
    return s.from;
}

int ol_secret_rule_by_name(const char *name)
{
    for (size_t rule = 0; rule < ol_secret_rule_count; rule++)
        if (strcmp(ol_secret_rules[rule].name, name) == 0)
            return (int)rule;
    return -1;
}

/* --- escapes ------------------------------------------------------------------------------ */

/* Copy one character of the text, its escape undone (Z1). Returns its count of bytes. */
static size_t next_byte(const char **at, char out[4])
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

static char *unescape_text(const struct ol_json *value, size_t *bytes)
{
    const char *at = value->text, *end = at + value->bytes;
    char *plain = malloc(value->bytes + 3); // no escape is shorter than its character

    if (!plain)
        return NULL;
    *bytes = 0;
    while (at < end)
        *bytes += next_byte(&at, plain + *bytes);
    return plain;
}

/* The place in the original text of the byte `at` of the unescaped one. */
static const char *find_raw(const struct secret_scan *s, const char *at)
{
    const char *raw = s->value->text;
    char ignored[4];

    if (s->text == raw)
        return at;
    for (const char *plain = s->text; plain < at;)
        plain += next_byte(&raw, ignored);
    return raw;
}

/* --- matching ----------------------------------------------------------------------------- */

static bool is_in_set(uint8_t set, char byte)
{
    unsigned char code = (unsigned char)byte;
    return secret_sets[set][code >> 5] >> (code & 31) & 1;
}

static bool is_of_step(const struct secret_step *step, char byte)
{
    return step->set ? is_in_set(step->set, byte) : step->byte == (unsigned char)byte;
}

/* Match the steps at `at`, each run with as few bytes as possible. Returns the byte after the
 * match, or NULL. The byte that ends a run is in most rules not of the run's set, and the label of
 * a private key has at most 100 bytes: so no byte is looked at more than a fixed number of times
 * (Z2). */
static const char *match_steps(const struct secret_step *step, const char *at, const char *end)
{
    for (; step->max; step++) {
        size_t count = 0;
        for (; count < step->min; count++, at++)
            if (at == end || !is_of_step(step, *at))
                return NULL;
        if (step->min == step->max)
            continue;
        for (;; count++, at++) {
            const char *after = match_steps(step + 1, at, end);
            if (after)
                return after;
            bool is_full = step->max != UINT16_MAX && count == step->max;
            if (is_full || at == end || !is_of_step(step, *at))
                return NULL;
        }
    }
    return at;
}

/* Bits per byte, by how often each byte occurs. */
static bool has_entropy(const char *from, const char *to, double min)
{
    size_t counts[256] = {0};
    double total = (double)(to - from), entropy = 0;

    for (const char *at = from; at < to; at++)
        counts[(unsigned char)*at]++;
    for (int i = 0; i < 256; i++)
        if (counts[i])
            entropy -= (double)counts[i] / total * log2((double)counts[i] / total);
    return entropy + 1e-9 >= min; // an exact 3 must not fail by its last bit
}

/* The conditions that a rule has beside its pattern. */
static bool is_secret(const struct ol_secret_rule *rule, const char *from, const char *to)
{
    size_t bytes = (size_t)(to - from);
    size_t suffix = rule->except_suffix ? strlen(rule->except_suffix) : 0;

    if (bytes < rule->bytes_min)
        return false;
    if (suffix && bytes >= suffix && memcmp(to - suffix, rule->except_suffix, suffix) == 0)
        return false;
    return rule->entropy_min <= 0 || has_entropy(from, to, rule->entropy_min);
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* `at` is behind the name that a key ends in. Finds the string under that key, or returns NULL.
 * Only a key has a colon after its quote, so there is no need to know where the string began. */
static const char *find_value(const struct secret_scan *s, const char *at, const char **to)
{
    if (at == s->end || *at != '"')
        return NULL;
    at = skip_space(at + 1, s->end);
    if (at == s->end || *at != ':')
        return NULL;
    at = skip_space(at + 1, s->end);
    if (at == s->end || *at != '"')
        return NULL;
    at++;
    *to = memchr(at, '"', (size_t)(s->end - at));
    return *to ? at : NULL;
}

/* The first byte of the match whose anchor is at `at`, or NULL. JSON begins with the quote of a
 * string or a bracket; before plain text we assume one. */
static const char *find_start(const struct secret_scan *s, const struct secret_matcher *matcher,
                              const char *at)
{
    if (matcher->back)
        while (at > s->text && is_in_set(matcher->back, at[-1]))
            at--;
    if (at - s->text < matcher->skip)
        return NULL;
    at -= matcher->skip;
    char before = at > s->text ? at[-1] : '"';
    if (matcher->before && is_in_set(matcher->before, before) != matcher->is_before_needed)
        return NULL;
    return at;
}

/* The secret that this matcher finds around the anchor at `at`, up to *to; or NULL. */
static const char *find_secret(const struct secret_scan *s, const struct secret_matcher *matcher,
                               const char *at, const char **to)
{
    const struct ol_secret_rule *rule = &ol_secret_rules[matcher->rule];
    const char *from = find_start(s, matcher, at);

    *to = from ? match_steps(matcher->steps, from, s->end) : NULL;
    if (*to && rule->is_key_name)
        from = find_value(s, *to, to);
    return *to && from && is_secret(rule, from, *to) ? from : NULL;
}

/* --- findings ----------------------------------------------------------------------------- */

/* Whether a pointer contains a secret: a key in it may be one, under a rule that is off. */
static bool has_secret(const char *pointer)
{
    char text[1 + sizeof((struct ol_secret_finding *)0)->pointer] = "\""; // as before a string
    size_t bytes = 1;

    for (; *pointer; pointer++) {
        bool is_slash = pointer[0] == '~' && pointer[1] == '1';
        text[bytes++] = is_slash ? '/' : *pointer;
        pointer += is_slash;
    }
    struct secret_scan s = {.text = text, .end = text + bytes};
    return scan_text(&s) < 0;
}

static int report_secret(struct secret_scan *s, uint8_t rule, const char *at, const char *to)
{
    const char *name = ol_secret_rules[rule].name;
    struct ol_secret_finding finding = {.rule = name};

    if (!s->value) {
        s->from = at;
        s->to = to;
        return -1;
    }
    enum ol_secret_mode mode = s->modes ? s->modes[rule] : ol_secret_rules[rule].mode_default;
    if (mode == OL_SECRET_OFF || (mode == OL_SECRET_WARN && (!s->warning || s->warning->rule)))
        return 0;
    ol_json_pointer(s->value, find_raw(s, at), finding.pointer, sizeof finding.pointer);
    while (has_secret(finding.pointer)) // Z3: name an ancestor instead
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

static int run_matchers(struct secret_scan *s, const char *at, uint32_t bits)
{
    for (int i = 0; i < SECRET_MATCHER_COUNT; i++) {
        if (!(bits >> i & 1))
            continue;
        const char *to, *secret = find_secret(s, &secret_matchers[i], at, &to);
        if (secret && report_secret(s, secret_matchers[i].rule, secret, to) < 0)
            return -1;
    }
    return 0;
}

/* --- masking (E13, X5) --- */

static bool is_secret_name(const struct ol_json *key)
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
        if (is_object && is_secret_name(&it.key))
            ol_buf_text(out, "\"***\"");
        else
            ol_secrets_mask(&it.value, out);
    }
    ol_buf_char(out, is_object ? '}' : ']');
}
