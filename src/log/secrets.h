/* secrets.h: no secret material in an event (E13). The log is for ever; a key in it is too. */
#ifndef OL_LOG_SECRETS_H
#define OL_LOG_SECRETS_H

#include "base/json/json.h"

enum ol_secret_mode { OL_SECRET_OFF, OL_SECRET_WARN, OL_SECRET_REJECT };

/* What counts as a secret. The pattern says the same as the C code, for the door that is SQL: a
 * PostgreSQL regular expression over one decoded string or key. Its group is the secret; entropy
 * is in bits a byte of its UTF-8, and the last two conditions hold for the group.
 *
 * With is_key_name the pattern is about a key, and the secret is the string that the key names. */
struct ol_secret_rule {
    const char *name; /* stable: settings and errors show it */
    enum ol_secret_mode mode_default;
    bool is_key_name;
    const char *pattern;
    double entropy_min;
    size_t bytes_min;
    const char *except_suffix; /* how the manuals end their examples; NULL: no exception */
};

extern const struct ol_secret_rule ol_secret_rules[];
extern const size_t ol_secret_rule_count;

struct ol_secret_finding {
    const char *rule;  /* NULL: nothing was found */
    char pointer[160]; /* of the string, or of the object when it stands in a key */
};

/* Look at every string and every key of `value`, escaped or not.
 *
 * `modes` has ol_secret_rule_count entries; NULL: the defaults. `warning` (may be NULL) gets the
 * first finding of a rule that only warns.
 * OUTLOG_SECRET_MATERIAL: a rule that rejects matched; err names rule and pointer, never the
 * value, and no key that looks like a secret either.
 * OUTLOG_NO_MEMORY: the text has escapes and there was no room to undo them. */
int ol_secrets_check(const struct ol_json *value, const enum ol_secret_mode *modes,
                     struct ol_secret_finding *warning, outlog_err *err);

/* The value with the strings of members that are named like a secret (authorization, cookie, token,
 * …) replaced by "***": for whoever looks at what was stored. */
void ol_secrets_mask(const struct ol_json *value, struct ol_buf *out);

/* The rule with this name, as an index into ol_secret_rules, or -1. */
int ol_secret_rule_by_name(const char *name);

#endif
