/* child.h: starting a program that does not outlive us.
 *
 * posix_spawn() cannot do that: the child must ask the kernel for a signal at our death before it
 * becomes the program. */
#ifndef OL_BASE_CHILD_H
#define OL_BASE_CHILD_H

#include <sys/types.h>

/* Start argv[0], found by PATH, in a process group of its own, with these three descriptors, no
 * others, and the signals' defaults. `err` may equal `out`. The kernel kills it when the thread
 * that calls this ends, so also when the process is killed. Returns 0, or an errno value. */
int ol_child_start(char *const *argv, char *const *env, int in, int out, int err, pid_t *pid);

#endif
