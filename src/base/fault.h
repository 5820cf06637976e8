/* fault.h: named points where test builds (-Dfaults=true) can be killed, stopped or delayed.
 *
 * OUTLOG_FAULT=point:n:action makes the n-th pass of `point` act: kill (SIGKILL), stop (SIGSTOP),
 * or delay (200 ms). In other builds a point compiles to nothing. */
#ifndef OL_BASE_FAULT_H
#define OL_BASE_FAULT_H

#ifdef OL_FAULTS
void ol_fault(const char *point);
#else
#define ol_fault(point) ((void)0)
#endif

#endif
