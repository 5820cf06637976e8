/* mustache.h: a text with {{names}} in it, filled in from JSON. Pure: it writes bytes, no more.
 *
 *     {{name}} {{a.b.0}} {{.}}        a value; escaped for HTML where that is asked for
 *     {{{name}}} {{&name}}            the same, never escaped
 *     {{#name}} … {{/name}}           once for each element of a list, once for anything else that
 * is there; an object is looked into first
 *     {{^name}} … {{/name}}           when it is absent, null, false, "" or an empty list
 *     {{! remark }}
 *
 * A section's tag or a remark that stands alone on its line takes the line with it. A name that
 * leads nowhere is empty. There are no partials, no lambdas and no other delimiters. */
#ifndef OL_NOTIFY_MUSTACHE_H
#define OL_NOTIFY_MUSTACHE_H

#include "base/json/json.h"

enum ol_mustache_escape { OL_MUSTACHE_TEXT, OL_MUSTACHE_HTML };

enum { OL_MUSTACHE_DEPTH = 32, OL_MUSTACHE_MOST = 256 * 1024, OL_MUSTACHE_STEPS = 1000000 };

/* Whether it can be read. OUTLOG_INVALID_FIELD: the message says what is wrong, and at which byte.
 */
int ol_mustache_check(const char *text, size_t bytes, outlog_err *err);

/* Write it to `out`, with names looked up in contexts[count - 1], then in the one before, and so
 * on.
 *
 * OUTLOG_INVALID_FIELD: as above, or sections nest deeper than OL_MUSTACHE_DEPTH.
 * OUTLOG_TOO_LARGE: more than OL_MUSTACHE_MOST bytes, or OL_MUSTACHE_STEPS tags. */
int ol_mustache_render(const char *text, size_t bytes, const struct ol_json *contexts, size_t count,
                       enum ol_mustache_escape escape, struct ol_buf *out, outlog_err *err);

#endif
