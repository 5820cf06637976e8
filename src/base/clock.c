/* clock.c: the two clocks of the machine, which a test may set by hand. */
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#ifdef OL_FAULTS
static int64_t turned_us; // 0: the clocks are the machine's

void ol_clock_turn(int64_t now_us)
{
    turned_us = now_us;
}

static int64_t read_wall(void)
{
    const char *skew = getenv("OUTLOG_SKEW");
    return turned_us ? turned_us
                     : read_clock(CLOCK_REALTIME) + (skew ? strtoll(skew, NULL, 10) * 1000000 : 0);
}

static int64_t read_boot(void)
{
    return turned_us ? turned_us : read_clock(CLOCK_BOOTTIME);
}
#else
#define read_wall() read_clock(CLOCK_REALTIME)
#define read_boot() read_clock(CLOCK_BOOTTIME)
#endif

int64_t ol_clock_wall_us(void)
{
    return read_wall();
}

int64_t ol_clock_boot_us(void)
{
    return read_boot();
}

void ol_clock_sleep_us(int64_t us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}
