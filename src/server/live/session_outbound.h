/* session_outbound.h: what the sockets of a session are sent.
 *
 * R1  Effects go to every socket of their session, in the order of the log, until a client
 *     acknowledges them. What is not acknowledged after 10 s is sent again. A new socket gets all
 *     that are pending at once.                                                              (S-5)
 * R2  An effect's attempts grow by one each time it is sent, to however many sockets. They are
 *     counted in the store with its acknowledgement, else within a quarter of a second.      (S-6)
 * R3  Tokens go only to sockets that are open. They are never stored, and a socket that cannot keep
 *     up is dropped.
 *
 * Only for the loop's thread. */
#ifndef OL_SERVER_LIVE_SESSION_OUTBOUND_H
#define OL_SERVER_LIVE_SESSION_OUTBOUND_H

#include "server/live/session_sockets.h"

/* --- answers to one client --- */

void ol_session_outbound_send_accepted(struct ol_subscriber *subscriber, const char *request_id,
                                       int64_t seq);

/* What was wrong with a frame; a client that sends many bad ones is disconnected. */
void ol_session_outbound_send_error(struct ol_subscriber *subscriber, const char *code,
                                    const char *request_id, const char *detail);

/* --- effects --- */

/* ol_channels_handler.start_load; and the finished OL_JOB_SESSION_LOAD. */
bool ol_session_outbound_start_load(struct ol_channel *channel);
void ol_session_outbound_on_loaded(struct ol_job *job);
void ol_session_outbound_on_drained(struct ol_websocket *socket);

/* Send all pending effects now, even if they were sent a moment ago. */
void ol_session_outbound_redeliver(struct ol_session_channel *channel);

/* An ack could not be stored: send the effect again as soon as the store is back. */
void ol_session_outbound_resend(struct ol_session_channel *channel, const char *effect_id);

/* --- agents --- */

/* Agent events wait: handle->data is the struct ol_session_sockets. */
void ol_session_outbound_on_agent_events(uv_poll_t *handle, int status, int readable);

/* Message `seq` gets no answer. Each failure is sent once, found by the runner or by a poll. */
void ol_session_outbound_send_failure(struct ol_session_channel *channel, int64_t seq,
                                      const char *frame, size_t bytes);

/* --- attempts (R2) --- */

void ol_session_outbound_add_attempts(struct ol_session_channel *channel, const char *effect_id,
                                      int count);

/* How often this effect was sent and not yet counted: the caller counts it. */
int ol_session_outbound_take_attempts(struct ol_session_channel *channel, const char *effect_id);

/* Start a job that counts all of them; and the finished OL_JOB_SESSION_ATTEMPTS. */
void ol_session_outbound_count_attempts(struct ol_session_sockets *sockets);
void ol_session_outbound_on_counted(struct ol_job *job);
void ol_session_outbound_free_attempts(struct ol_effect_attempts **attempts);

/* The channel is freed; its attempts stay until they are counted. */
void ol_session_outbound_clear(struct ol_session_channel *channel);

#endif
