/* headers.h: every header that is sent is written here, and nowhere else.
 *
 * H1  No name outside the token grammar, no value with a byte below 0x20 or 0x7f: no value can
 *     start a second header or a second request.
 * H2  Names that frame or route the request (Host, Content-Length, …) are never taken from
 *     outside.
 * H3  A name is sent once: the first to set it wins, so our own come first, then those of the
 *     destination, then those of the message. */
#ifndef OL_NET_HEADERS_H
#define OL_NET_HEADERS_H

#include "base/buf.h"
#include "base/json/json.h"
#include "outlog_publisher.h"

enum { OL_HEADERS_MAX = 64, OL_HEADER_NAME = 128, OL_HEADER_VALUE = 8192 };

/* Start from {0}. `text` holds the lines "name: value", each NUL-terminated. */
struct ol_headers {
    struct ol_buf text;
    size_t count;
    struct {
        size_t at, name_bytes;
    } lines[OL_HEADERS_MAX];
};

void ol_headers_clear(struct ol_headers *headers); /* free */
void ol_headers_reset(struct ol_headers *headers); /* empty, keep the memory */

/* Set one of our own. Nothing happens when the name is set already.
 * OUTLOG_INVALID_FIELD: H1 would be broken; the message names the header, never the value. */
int ol_headers_set(struct ol_headers *headers, const char *name, const char *value,
                   outlog_err *err);

/* Add one from outside: the destination's settings or the message. Ignored when the name
 * is set already or is one of ours (webhook-…, ce-…, outlog-…).
 * OUTLOG_INVALID_FIELD: H1 or H2 would be broken. */
int ol_headers_offer(struct ol_headers *headers, const char *name, const char *value,
                     outlog_err *err);

/* ol_headers_offer for each. */
int ol_headers_offer_all(struct ol_headers *headers, const struct outlog_header *list, size_t count,
                         outlog_err *err);

/* The line "name: value" number i. */
const char *ol_headers_line(const struct ol_headers *headers, size_t i);

/* The value of a name, or NULL. */
const char *ol_headers_get(const struct ol_headers *headers, const char *name);

/* H1 alone. */
bool ol_headers_name_is_valid(const char *name);
bool ol_headers_value_is_valid(const char *value);

/* A value of ours that comes from a caller (T1): as it is where H1 allows that, else in `out` with
 * each control byte as %XX and cut to OL_HEADER_ESCAPED. NULL stays NULL. */
enum { OL_HEADER_ESCAPED = 3 * 255 + 1 };
const char *ol_headers_escape(const char *value, char out[OL_HEADER_ESCAPED]);

/* Read stored headers, a JSON object, into a list in `arena`. Values are strings;
 * numbers and booleans count as written. NULL or "" or "null" give no headers.
 * OUTLOG_INVALID_JSON, OUTLOG_INVALID_FIELD: not an object of such values. */
int ol_headers_parse(const char *json, struct ol_arena *arena, struct outlog_header **list,
                     size_t *count, outlog_err *err);

/* The same for a value that is parsed already. */
int ol_headers_read(const struct ol_json *object, struct ol_arena *arena,
                    struct outlog_header **list, size_t *count, outlog_err *err);

#endif
