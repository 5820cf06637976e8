/* agent_runner.h: threads that run agents and store their answers.
 *
 * Sessions are answered in parallel, each one message at a time (S-3). This also holds with several
 * daemons: the daemon that has a session's lease answers it. */
#ifndef OL_SESSIONS_AGENT_RUNNER_H
#define OL_SESSIONS_AGENT_RUNNER_H

#include "sessions/agent_events.h"
#include "sessions/session.h"

struct ol_agent_runner;

struct ol_agent_runner_options {
    const char *store;
    int threads;
    int64_t lease_us, poll_us;
};

struct ol_agent_runner_options ol_agent_runner_defaults(const char *store);

/* `events` gets tokens, stored answers and failures until the runner is closed. */
int ol_agent_runner_open(const struct ol_agent_runner_options *options,
                         struct ol_agent_events *events, struct ol_agent_runner **out,
                         outlog_err *err);

/* Agents that still answer are stopped; another daemon answers their messages. NULL: nothing. */
void ol_agent_runner_close(struct ol_agent_runner *runner);

/* A message was stored for this session: answer it before the next poll. NULL: nothing. */
void ol_agent_runner_hint(struct ol_agent_runner *runner, const char *org_id, const char *key);

#endif
