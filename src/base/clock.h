/* clock.h: the time, and sleeping. */
#ifndef OL_BASE_CLOCK_H
#define OL_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Microseconds since 1970 by the wall clock: for people and records, never for waiting. */
int64_t ol_clock_wall_us(void);

/* Microseconds by CLOCK_BOOTTIME, which keeps counting while the machine is suspended: for leases
 * and timeouts. */
int64_t ol_clock_boot_us(void);

/* Sleep, by the machine's clock. */
void ol_clock_sleep_us(int64_t us);

#ifdef OL_FAULTS
/* Test builds: from now on both clocks return this time (0: use the machine's clocks again). Not
 * thread-safe. OUTLOG_SKEW=seconds shifts the wall clock only; OUTLOG_SKEW=@FILE by the seconds
 * that the file holds at that moment. */
void ol_clock_set(int64_t now_us);
#endif

#endif
