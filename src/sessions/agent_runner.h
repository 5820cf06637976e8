/* agent_runner.h: threads that have agents answer the sessions of this store.
 *
 * Sessions side by side, one message at a time within each (S-3), also with several daemons: a
 * session belongs to whoever has its lease. */
#ifndef OL_SESSIONS_AGENT_RUNNER_H
#define OL_SESSIONS_AGENT_RUNNER_H

#include "sessions/session.h"

struct ol_agent_runner;

/* What happens, told on the runner's threads; all texts are only lent. */
struct ol_agent_runner_handler {
    void (*token)(void *user, const char *org_id, const char *key, const char *request_id,
                  const char *text, size_t bytes);
    void (*owed)(void *user, const char *org_id, const char *key); /* an answer is stored */
    /* for good: the session goes on without an answer */
    void (*failed)(void *user, const struct ol_session_failure *failure);
    void *user;
};

struct ol_agent_runner_options {
    const char *store;
    int threads;
    int64_t lease_us, poll_us;
};

struct ol_agent_runner_options ol_agent_runner_defaults(const char *store);

int ol_agent_runner_open(const struct ol_agent_runner_options *options,
                         const struct ol_agent_runner_handler *user, struct ol_agent_runner **out,
                         outlog_err *err);

/* Agents that speak are given up: their messages are answered by whoever runs next. NULL: nothing.
 */
void ol_agent_runner_close(struct ol_agent_runner *runner);

/* A message was stored for this session: do not wait for the next look. NULL: nothing. */
void ol_agent_runner_hint(struct ol_agent_runner *runner, const char *org_id, const char *key);

#endif
