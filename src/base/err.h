/* err.h: filling in an error. */
#ifndef OL_BASE_ERR_H
#define OL_BASE_ERR_H

#include "outlog.h"

/* Fill `err` and return -1, so that `return ol_fail(err, …)` does both. Never allocates. `err`
 * may be NULL. Message and pointer are valid UTF-8, whatever is formatted: a name cut by %.*s, the
 * bytes of another encoding. */
int ol_fail(outlog_err *err, enum outlog_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, with the JSON pointer of the field. */
int ol_fail_at(outlog_err *err, enum outlog_code code, const char *pointer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* OUTLOG_NO_MEMORY with the same text everywhere; always returns -1. */
int ol_no_memory(outlog_err *err);

/* Put `prefix: ` before the message: for a layer that knows something new. */
void ol_err_prefix(outlog_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put `base` before the pointer of the field. What does not fit loses whole tokens at its end. */
void ol_err_point_below(outlog_err *err, const char *base);

/* The HTTP status of a code. */
int ol_err_http_status(enum outlog_code code);

/* The code with this public name, or OUTLOG_OK when there is none. */
enum outlog_code ol_err_code_by_name(const char *name, size_t bytes);

#endif
