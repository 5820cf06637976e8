/* mustache.h: a text with {{names}} in it, filled in from JSON. Pure: it only writes bytes.
 *
 *     {{name}} {{a.b.0}} {{.}}        a value; escaped for HTML if that is asked for
 *     {{{name}}} {{&name}}            the same, never escaped
 *     {{#name}} … {{/name}}           once per element of a list, once for any other value that is
 *                                     not empty; names are searched in an object first
 *     {{^name}} … {{/name}}           if it is absent, null, false, "" or an empty list
 *     {{! comment }}
 *
 * If a section's tag or a comment is alone on its line, the whole line is dropped. A name without a
 * value is empty. There are no partials, no lambdas and no other delimiters. */
#ifndef OL_NOTIFY_MUSTACHE_H
#define OL_NOTIFY_MUSTACHE_H

#include "base/json/json.h"

enum ol_mustache_escape { OL_MUSTACHE_TEXT, OL_MUSTACHE_HTML };

enum { OL_MUSTACHE_DEPTH = 32, OL_MUSTACHE_BYTES_MAX = 256 * 1024, OL_MUSTACHE_TAGS_MAX = 1000000 };

/* Check the syntax. OUTLOG_INVALID_FIELD: the message names the error and its byte. */
int ol_mustache_check(const char *text, size_t bytes, outlog_err *err);

/* Write it to `out`, with names searched in contexts[count - 1], then in the one before, and so on.
 *
 * OUTLOG_INVALID_FIELD: as above, or sections nest deeper than OL_MUSTACHE_DEPTH.
 * OUTLOG_TOO_LARGE: more than OL_MUSTACHE_BYTES_MAX bytes, or OL_MUSTACHE_TAGS_MAX tags. */
int ol_mustache_render(const char *text, size_t bytes, const struct ol_json *contexts, size_t count,
                       enum ol_mustache_escape escape, struct ol_buf *out, outlog_err *err);

#endif
