/* duration.h: durations as text, for settings and flags. */
#ifndef OL_BASE_DURATION_H
#define OL_BASE_DURATION_H

#include <stdint.h>

/* Parse a duration like "250ms", "5s", "1m", "24h", "7d" into microseconds. Returns 0 or -1. */
int ol_duration_parse(const char *text, int64_t *out_us);

#endif
