/* buf.h: a growing byte string, for building JSON, SQL and wire formats. */
#ifndef OL_BASE_BUF_H
#define OL_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Start from {0}. After a failed allocation `failed` stays set and further writes do nothing, so
 * that one check at the end is enough. `data` is NUL-terminated once anything was added. */
struct ol_buf {
    char *data;
    size_t bytes, capacity;
    bool failed;
};

void ol_buf_clear(struct ol_buf *buf); /* free it; it can be used again */
void ol_buf_reset(struct ol_buf *buf); /* empty it, keep its memory */

/* Reserve `bytes` more and return where they go; NULL when memory is out. The caller writes there,
 * adds the length to buf->bytes and ends it with a NUL. */
char *ol_buf_reserve(struct ol_buf *buf, size_t bytes);

void ol_buf_add(struct ol_buf *buf, const void *data, size_t bytes);
void ol_buf_text(struct ol_buf *buf, const char *text);
void ol_buf_char(struct ol_buf *buf, char c);
void ol_buf_int(struct ol_buf *buf, int64_t number);
void ol_buf_print(struct ol_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Append text as a JSON string with its quotes. Escapes only what JSON requires. */
void ol_buf_json(struct ol_buf *buf, const char *text, size_t bytes);

/* The same for a NUL-terminated string; NULL becomes null. */
void ol_buf_json_text(struct ol_buf *buf, const char *text);

/* A time as RFC 3339 UTC with microseconds in quotes; 0 becomes null. */
void ol_buf_json_time(struct ol_buf *buf, int64_t time_us);

#endif
