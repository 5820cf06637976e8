/* session_sockets.c: opens and closes the sockets of sessions, and finds what changed elsewhere. */
#include "server/live/session_sockets.h"

#include "base/clock.h"
#include "base/err.h"
#include "server/live/session_inbound.h"
#include "server/live/session_outbound.h"
#include "server/server.h"
#include "sessions/frame.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

enum { SESSION_POLL_BACK_US = 5 * 1000000 };

/* --- what other processes stored --- */

static void add_changed(void *user, const char *org_id, const char *key, int64_t asked_at)
{
    ol_channel_poll_add(user, org_id, key, asked_at, NULL);
}

static void add_failure(void *user, const struct ol_session_failure *failure)
{
    struct ol_buf frame = {0};
    ol_session_frame_error("agent_failed", failure->request_id, failure->why, &frame);
    if (!frame.failed)
        ol_channel_poll_add(user, failure->org_id, failure->session_key, failure->seq, frame.data);
    ol_buf_clear(&frame);
}

/* On a worker. Two polls return an effect above the settled position, which costs one more load. */
static bool poll_sessions(struct ol_job *job)
{
    struct ol_channel_poll *poll = (struct ol_channel_poll *)job;
    int64_t back_us = ol_clock_boot_us() - poll->since + SESSION_POLL_BACK_US, settled;

    job->result = outlog_settled(job->log, &settled, &job->err);
    if (job->result < 0)
        return true;
    if (poll->position < 0) {
        poll->is_everything = true;
        poll->position = settled;
    }
    job->result =
        ol_session_effect_changed(job->log, poll->position, back_us, add_changed, poll, &job->err);
    if (job->result == 0)
        job->result = ol_session_list_failures(job->log, back_us, add_failure, poll, &job->err);
    if (job->result == 0)
        poll->position = settled;
    return true;
}

static void load_channel(struct ol_channel *channel)
{
    if (channel->subscribers)
        ol_channel_load(channel);
}

/* A change with a frame is a failure, one with a version is a request to send again (L6), any other
 * is a new effect. */
void ol_session_sockets_on_polled(struct ol_job *job)
{
    struct ol_channel_poll *poll = (struct ol_channel_poll *)job;
    struct ol_channel_change change;

    while (ol_channel_poll_next(poll, &change)) {
        struct ol_session_channel *channel = (struct ol_session_channel *)change.channel;
        if (change.frame) {
            ol_session_outbound_send_failure(channel, change.version, change.frame,
                                             strlen(change.frame));
        } else if (!change.version) {
            ol_channel_load(&channel->channel);
        } else if (channel->channel.last_change != change.version) {
            channel->channel.last_change = change.version;
            ol_session_outbound_redeliver(channel);
        }
    }
    if (poll->is_everything)
        ol_channels_each(poll->channels, load_channel);
    ol_channel_poll_end(poll);
}

/* --- life cycle --- */

static void clear_channel(struct ol_channel *channel)
{
    ol_session_inbound_clear((struct ol_session_channel *)channel);
    ol_session_outbound_clear((struct ol_session_channel *)channel);
}

static int open_runner(struct ol_session_sockets *sockets, struct ol_server *server,
                       outlog_err *err)
{
    struct ol_agent_runner_options options = ol_agent_runner_defaults(server->options.store);
    if (server->options.lease_us)
        options.lease_us = server->options.lease_us;
    if (server->options.answers)
        options.threads = server->options.answers;
    if (ol_agent_events_open(&sockets->events, err) < 0)
        return -1;
    uv_poll_init(&server->loop, &sockets->events_poll, ol_agent_events_fd(sockets->events));
    sockets->events_poll.data = sockets;
    uv_poll_start(&sockets->events_poll, UV_READABLE, ol_session_outbound_on_agent_events);
    return ol_agent_runner_open(&options, sockets->events, &sockets->runner, err);
}

int ol_session_sockets_open(struct ol_server *server, struct ol_session_sockets **out,
                            outlog_err *err)
{
    static const struct ol_channels_handler handler = {
        .socket = {ol_session_inbound_on_text, ol_channels_on_close,
                   ol_session_outbound_on_drained},
        .channel_bytes = sizeof(struct ol_session_channel),
        .start_load = ol_session_outbound_start_load,
        .poll = poll_sessions,
        .poll_type = OL_JOB_SESSION_POLL,
        .clear = clear_channel,
    };
    struct ol_session_sockets *sockets = calloc(1, sizeof *sockets);
    if (!sockets)
        return ol_no_memory(err);
    ol_channels_init(&sockets->channels, server, &handler);
    *out = sockets;
    return open_runner(sockets, server, err);
}

void ol_session_sockets_subscribe(struct ol_request *request)
{
    const struct ol_session_upgrade *upgrade = request->owner;
    ol_channels_subscribe(&request->server->sessions->channels, request, upgrade->org_id,
                          upgrade->session_key);
}

void ol_session_sockets_sweep(struct ol_session_sockets *sockets)
{
    ol_session_outbound_count_attempts(sockets);
    ol_channels_sweep(&sockets->channels);
}

void ol_session_sockets_close_all(struct ol_session_sockets *sockets)
{
    ol_channels_close_all(&sockets->channels);
    ol_session_outbound_count_attempts(sockets);
}

void ol_session_sockets_end_runner(struct ol_session_sockets *sockets)
{
    ol_agent_runner_close(sockets ? sockets->runner : NULL);
    if (sockets)
        sockets->runner = NULL;
}

void ol_session_sockets_close(struct ol_session_sockets *sockets)
{
    if (!sockets)
        return;
    ol_channels_clear(&sockets->channels);
    ol_session_outbound_free_attempts(&sockets->attempts);
    ol_agent_events_close(sockets->events);
    free(sockets);
}
