/* agent_exec.c: runs an agent that is a program. */
#include "sessions/agent.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXEC_POLL_MS = 100 };

extern char **environ;

struct agent_process {
    pid_t pid;
    int in, out; /* our ends of its standard input and output */
};

static void close_pair(const int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

/* In its own process group, so that its children can be killed with it; and it ends with us, else
 * two would work on one answer. */
static int start_process(const struct ol_agent *agent, struct agent_process *child, outlog_err *err)
{
    int in[2], out[2];

    if (pipe2(in, O_CLOEXEC) < 0)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "no pipe: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) < 0) {
        close_pair(in);
        return ol_fail(err, OUTLOG_UNAVAILABLE, "no pipe: %s", strerror(errno));
    }
    int result = ol_child_start((char *const *)(uintptr_t)agent->argv, environ, in[0], out[1],
                                STDERR_FILENO, &child->pid);
    close(in[0]);
    close(out[1]);
    child->in = in[1];
    child->out = out[0];
    if (result == 0)
        return 0;
    close(child->in);
    close(child->out);
    return ol_fail(err, OUTLOG_UNAVAILABLE, "cannot start the agent %.80s: %s", agent->argv[0],
                   strerror(result));
}

/* Write the line and read the output. */
static int read_output(struct agent_process *child, const char *line, size_t bytes, int64_t until,
                       struct ol_agent_stream *stream, outlog_err *err)
{
    char chunk[4096];
    fcntl(child->in, F_SETFL, O_NONBLOCK);
    for (;;) {
        struct pollfd ends[] = {{child->out, POLLIN, 0}, {child->in, POLLOUT, 0}};
        poll(ends, child->in >= 0 ? 2 : 1, EXEC_POLL_MS);
        if (child->in >= 0 && ends[1].revents) {
            ssize_t done = write(child->in, line, bytes);
            if (done > 0) {
                line += done;
                bytes -= (size_t)done;
            }
            if (bytes == 0 || (done < 0 && errno != EAGAIN)) { // it need not read its input
                close(child->in);
                child->in = -1;
            }
        }
        if (ends[0].revents) {
            ssize_t got = read(child->out, chunk, sizeof chunk);
            if (got == 0)
                return ol_agent_stream_end(stream) ? 0 : (*err = stream->err, -1);
            if (got > 0 && !ol_agent_stream_feed(stream, chunk, (size_t)got))
                return *err = stream->err, -1;
        }
        if (!stream->may_continue(stream->user))
            return ol_fail(err, OUTLOG_UNAVAILABLE, "given up");
        if (ol_clock_boot_us() >= until)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent did not end in time");
    }
}

/* The output has ended: the process should exit soon. */
static int wait_for_exit(const struct agent_process *child, int64_t until,
                         struct ol_agent_stream *stream, bool *has_ended, outlog_err *err)
{
    int status = 0;
    for (int64_t pause = 1000; waitpid(child->pid, &status, WNOHANG) == 0; pause *= 2) {
        if (!stream->may_continue(stream->user))
            return ol_fail(err, OUTLOG_UNAVAILABLE, "given up");
        if (ol_clock_boot_us() >= until)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent did not end in time");
        if (pause > EXEC_POLL_MS * INT64_C(1000))
            pause = EXEC_POLL_MS * INT64_C(1000);
        ol_clock_sleep_us(pause);
    }
    *has_ended = true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return WIFEXITED(status) ? ol_fail(err, OUTLOG_UNAVAILABLE, "the agent ended with exit code %d",
                                       WEXITSTATUS(status))
                             : ol_fail(err, OUTLOG_UNAVAILABLE, "the agent was killed by signal %d",
                                       WTERMSIG(status));
}

int ol_agent_exec(const struct ol_agent *agent, const char *line, size_t bytes,
                  struct ol_agent_stream *stream, outlog_err *err)
{
    struct agent_process child;
    int64_t until = ol_clock_boot_us() + agent->timeout_us;

    if (start_process(agent, &child, err) < 0)
        return -1;
    int result = read_output(&child, line, bytes, until, stream, err);
    if (child.in >= 0)
        close(child.in);
    close(child.out);
    bool has_ended = false;
    if (result == 0)
        result = wait_for_exit(&child, until, stream, &has_ended, err);
    if (has_ended)
        return result;
    kill(-child.pid, SIGKILL);
    while (waitpid(child.pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return result;
}
