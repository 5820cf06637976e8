/* clock.h: what time it is, and how times are written. */
#ifndef OL_BASE_CLOCK_H
#define OL_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Microseconds since 1970 by the wall clock: for people and records, never for waiting. */
int64_t ol_clock_wall_us(void);

/* Microseconds by CLOCK_BOOTTIME, which counts on while the machine sleeps: for leases, waits. */
int64_t ol_clock_boot_us(void);

/* Let that much time pass, by the machine's clock. */
void ol_clock_sleep_us(int64_t us);

#ifdef OL_FAULTS
/* Test builds: from now on both clocks say this, until it is turned on (0: the machine's clocks
 * again). Not for several threads. OUTLOG_SKEW=seconds makes the wall clock alone wrong. */
void ol_clock_turn(int64_t now_us);
#endif

enum { OL_TIME_TEXT = 32 };

/* "2026-01-04T12:05:00.000001Z" into `out`; returns `out`. */
char *ol_time_format(int64_t time_us, char out[OL_TIME_TEXT]);

/* Parse RFC 3339 ("2026-01-04T12:05:00.5+02:00", "2026-01-04", a space for the T) into *out.
 * Returns 0, or -1 when it is not a time. */
int ol_time_parse(const char *text, size_t bytes, int64_t *out);

/* Parse a span like "250ms", "5s", "1m", "24h", "7d" into microseconds. Returns 0 or -1. */
int ol_span_parse(const char *text, int64_t *out_us);

#endif
