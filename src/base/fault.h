/* fault.h: named points where test builds can be made to die (-Dfaults=true).
 *
 * OUTLOG_FAULT=point:n:action makes the n-th pass of `point` act: kill (SIGKILL), stop (SIGSTOP),
 * or delay (200 ms). In other builds a point is nothing at all. */
#ifndef OL_BASE_FAULT_H
#define OL_BASE_FAULT_H

#ifdef OL_FAULTS
void ol_fault(const char *point);
#else
#define ol_fault(point) ((void)0)
#endif

#endif
