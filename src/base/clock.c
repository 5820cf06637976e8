/* clock.c: the two clocks of the machine, which a test build can set by hand. */
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#ifdef OL_FAULTS
static int64_t set_us; // 0: use the machine's clocks

void ol_clock_set(int64_t now_us)
{
    set_us = now_us;
}

static int64_t read_skew_us(void)
{
    const char *skew = getenv("OUTLOG_SKEW");
    char seconds[32] = "";
    FILE *file = skew && *skew == '@' ? fopen(skew + 1, "re") : NULL;
    if (file) {
        skew = fgets(seconds, sizeof seconds, file);
        fclose(file);
    }
    return skew && *skew != '@' ? strtoll(skew, NULL, 10) * 1000000 : 0;
}

static int64_t read_wall(void)
{
    return set_us ? set_us : read_clock(CLOCK_REALTIME) + read_skew_us();
}

static int64_t read_boot(void)
{
    return set_us ? set_us : read_clock(CLOCK_BOOTTIME);
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
