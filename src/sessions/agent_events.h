/* agent_events.h: what the agent runner's threads report to the thread that owns the sockets.
 *
 * A queue with a file descriptor to poll. Frames are written by the thread that reports, so the
 * sockets' thread only sends them. */
#ifndef OL_SESSIONS_AGENT_EVENTS_H
#define OL_SESSIONS_AGENT_EVENTS_H

#include "base/arena.h"
#include "base/buf.h"
#include "sessions/session.h"

struct ol_agent_events;

enum ol_agent_event_type {
    OL_AGENT_EVENT_TOKEN,    /* `frame`: a piece of an answer */
    OL_AGENT_EVENT_ANSWERED, /* an answer is stored; `page` is what the session has pending now */
    OL_AGENT_EVENT_FAILED,   /* `frame`: message `seq` gets no answer, the session continues */
};

struct ol_agent_event {
    struct ol_agent_event *next;
    enum ol_agent_event_type type;
    const char *org_id, *session_key;
    struct ol_buf frame;
    int64_t seq;
    bool has_page;   /* false: it could not be read, the receiver has to load it */
    int64_t read_at; /* boot clock: the page is not older than this */
    struct ol_effect_page page;
    struct ol_arena arena; /* holds the page */
    char names[];
};

int ol_agent_events_open(struct ol_agent_events **out, outlog_err *err);

/* No thread may report any more. NULL: nothing. */
void ol_agent_events_close(struct ol_agent_events *events);

/* Readable while events wait. */
int ol_agent_events_fd(const struct ol_agent_events *events);

/* From any thread. Without memory nothing is reported: tokens are a preview, and pending effects
 * and failures are also found in the store. `events` NULL: nobody receives. */
void ol_agent_events_add_token(struct ol_agent_events *events, const struct ol_session_work *work,
                               const char *text, size_t bytes);
void ol_agent_events_add_failure(struct ol_agent_events *events, const struct ol_session_work *work,
                                 const char *why);

/* The answer to `work` is stored. Reads the session's first page of pending effects from `log`, so
 * the receiver can send them in the order of the log without a load of its own. */
void ol_agent_events_add_answer(struct ol_agent_events *events, const struct ol_session_work *work,
                                outlog *log);

/* All that wait, oldest first, for the caller to free; NULL: none. */
struct ol_agent_event *ol_agent_events_take(struct ol_agent_events *events);
void ol_agent_event_free(struct ol_agent_event *event);

#endif
