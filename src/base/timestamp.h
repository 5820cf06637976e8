/* timestamp.h: times as RFC 3339 text. */
#ifndef OL_BASE_TIMESTAMP_H
#define OL_BASE_TIMESTAMP_H

#include <stddef.h>
#include <stdint.h>

enum { OL_TIMESTAMP_TEXT = 32 };

/* "2026-01-04T12:05:00.000001Z" into `out`; returns `out`. */
char *ol_timestamp_format(int64_t time_us, char out[OL_TIMESTAMP_TEXT]);

/* Parse RFC 3339 ("2026-01-04T12:05:00.5+02:00", "2026-01-04", a space for the T) into *out.
 * Returns 0, or -1 when it is not a time. */
int ol_timestamp_parse(const char *text, size_t bytes, int64_t *out);

#endif
