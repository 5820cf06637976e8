/* child.c: a child by clone(), which shares our memory until it becomes the program, as the child
 * of posix_spawn() does. Between the two it may only make system calls. */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_STACK_BYTES = 256 * 1024 };

struct child_start {
    char *const *argv, *const *env;
    int files[3];
    pid_t parent;
    int error; /* set by the child: why it could not become the program */
};

/* Make `files` the descriptors 0 to 2. First out of the way: one may have the number of another. */
static bool place_files(int files[3])
{
    for (int i = 0; i < 3; i++)
        if ((files[i] = fcntl(files[i], F_DUPFD, 3)) < 0)
            return false;
    for (int i = 0; i < 3; i++)
        if (dup2(files[i], i) < 0)
            return false;
    return close_range(3, ~0U, 0) == 0;
}

static void reset_signals(void)
{
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int i = 1; i < NSIG; i++)
        sigaction(i, &plain, NULL); // those that cannot be changed are at their default
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int run_child(void *argument)
{
    struct child_start *start = argument;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && setpgid(0, 0) == 0 && place_files(start->files)) {
        reset_signals();
        if (getppid() != start->parent) // it died before we could ask for the signal
            _exit(1);
        execvpe(start->argv[0], start->argv, start->env);
    }
    start->error = errno;
    _exit(127);
}

int ol_child_start(char *const *argv, char *const *env, int in, int out, int err, pid_t *pid)
{
    struct child_start start = {.argv = argv,
                                .env = env,
                                .files = {in, out, err},
                                .parent = getpid()};
    sigset_t all, before;
    char *stack = mmap(NULL, CHILD_STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return ENOMEM;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); // no handler of ours may run in the child
    *pid = clone(run_child, stack + CHILD_STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, &start);
    int error = *pid < 0 ? errno : start.error;
    if (start.error)
        waitpid(*pid, NULL, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    munmap(stack, CHILD_STACK_BYTES);
    return error;
}
