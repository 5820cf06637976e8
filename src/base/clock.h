/* clock.h: what time it is. */
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

#endif
