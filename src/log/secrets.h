/* secrets.h: no secret material in an event (E13). Events are never deleted, so a key that gets
 * into the log stays there. */
#ifndef OL_LOG_SECRETS_H
#define OL_LOG_SECRETS_H

#include "base/json/json.h"

enum ol_secret_mode { OL_SECRET_OFF, OL_SECRET_WARN, OL_SECRET_REJECT };

/* A rule of sql/schema/secret_rules.json. `pattern` is for PostgreSQL's functions and matches what
 * the C code matches: a regular expression over one decoded string or key. Its group is the secret.
 * Entropy is in bits per byte of UTF-8; it and the last two conditions are about the group.
 *
 * With is_key_name the pattern is about a key, and the secret is the string under that key. */
struct ol_secret_rule {
    const char *name; /* stable: settings and errors contain it */
    enum ol_secret_mode mode_default;
    bool is_key_name;
    const char *pattern;
    double entropy_min;
    size_t bytes_min;
    const char *except_suffix; /* of the examples in manuals; NULL: no exception */
};

extern const struct ol_secret_rule ol_secret_rules[];
extern const size_t ol_secret_rule_count;

struct ol_secret_finding {
    const char *rule;  /* NULL: nothing was found */
    char pointer[160]; /* of the string; of the object when a key is the secret */
};

/* Check every string and every key of `value`, escaped or not.
 *
 * `modes` has ol_secret_rule_count entries; NULL: the defaults. `warning` (may be NULL) gets the
 * first finding of a rule that only warns.
 * OUTLOG_SECRET_MATERIAL: a rule that rejects matched; err names rule and pointer, never the
 * value, and no key that looks like a secret either.
 * OUTLOG_NO_MEMORY: the text has escapes and there was no memory to undo them. */
int ol_secrets_check(const struct ol_json *value, const enum ol_secret_mode *modes,
                     struct ol_secret_finding *warning, outlog_err *err);

/* The first secret in plain text, by any rule and whatever its mode, up to *to; or NULL. */
const char *ol_secrets_find(const char *text, size_t bytes, const char **to);

/* Write the value with "***" for each member that is named like a secret (authorization, cookie,
 * token, …). Listings use it. */
void ol_secrets_mask(const struct ol_json *value, struct ol_buf *out);

/* The rule with this name, as an index into ol_secret_rules, or -1. */
int ol_secret_rule_by_name(const char *name);

#endif
