/* session_sockets.h: the sockets of live sessions.
 *
 *   session_inbound   what clients send: user_message, ack
 *   session_outbound  what they are sent: effects, tokens, accepted, errors
 *
 * Only for the loop's thread. Other threads come in by finished jobs and by agent events. */
#ifndef OL_SERVER_LIVE_SESSION_SOCKETS_H
#define OL_SERVER_LIVE_SESSION_SOCKETS_H

#include "server/http/request.h"
#include "server/live/channel.h"
#include "sessions/agent_runner.h"

#include <uv.h>

/* How often an effect was sent and not yet counted in the store. */
struct ol_effect_attempts {
    struct ol_effect_attempts *next;
    char effect_id[37];
    int count;
};

struct ol_session_sockets {
    struct ol_channels channels;
    struct ol_agent_runner *runner;
    struct ol_agent_events *events;
    uv_poll_t events_poll;
    size_t first_batches;                /* first batches of channels that workers have */
    struct ol_effect_attempts *attempts; /* of channels that are gone */
};

/* The sockets of one session. */
struct ol_session_channel {
    struct ol_channel channel;           /* first */
    struct ol_session_inbound *inbound;  /* NULL until the first message */
    struct ol_effect_attempts *attempts; /* session_outbound.c, like all below */
    int64_t page_after;                  /* where the next page of effects begins */
    size_t paged;                        /* effects in the pages since the beginning */
    bool from_start;                     /* the next load begins with the first page */
    bool has_more;                       /* there are more effects than one pass sends */
    int64_t stale_before; /* boot clock: an older page may have acknowledged effects */
    int64_t failed_seq;   /* the last message whose failure was sent */
};

int ol_session_sockets_open(struct ol_server *server, struct ol_session_sockets **out,
                            outlog_err *err);

/* Close all sockets. Then end the runner, and free everything when no thread works for it. */
void ol_session_sockets_close_all(struct ol_session_sockets *sockets);
void ol_session_sockets_end_runner(struct ol_session_sockets *sockets);
void ol_session_sockets_close(struct ol_session_sockets *sockets);

/* Set by the handler as the request's owner. */
struct ol_session_upgrade {
    const char *org_id, *session_key;
};

/* The request becomes a socket of this session (request->upgrade). */
void ol_session_sockets_subscribe(struct ol_request *request);

/* A few times a second. */
void ol_session_sockets_sweep(struct ol_session_sockets *sockets);

/* A finished OL_JOB_SESSION_POLL. */
void ol_session_sockets_on_polled(struct ol_job *job);

#endif
