/* fault.c: reads OUTLOG_FAULT at each point, in test builds only. */
#include "base/fault.h"

#ifdef OL_FAULTS
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void ol_fault(const char *point)
{
    static atomic_int passes;
    const char *setting = getenv("OUTLOG_FAULT");
    size_t bytes = strlen(point);

    if (!setting || strncmp(setting, point, bytes) != 0 || setting[bytes] != ':')
        return;
    char *action;
    long nth = strtol(setting + bytes + 1, &action, 10);
    if (atomic_fetch_add(&passes, 1) + 1 != nth || *action != ':')
        return;
    // raise, not kill: another thread may receive a signal to the process while this one continues
    if (strcmp(action, ":kill") == 0)
        raise(SIGKILL);
    else if (strcmp(action, ":stop") == 0)
        raise(SIGSTOP);
    else if (strcmp(action, ":delay") == 0)
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
}
#else
typedef int ol_fault_is_off; /* ISO C forbids an empty file */
#endif
