/* session_inbound.h: what clients send: frames become stored events, and acknowledgements.
 *
 * T1  A message is accepted only after it is stored, and a repeated requestId is not stored again,
 * on any daemon.                                                                            (S-2)
 * T2  The messages of a channel are stored in the order in which they arrived.
 * T3  A channel stays as long as one of its messages is being stored.
 *
 *   frame ▶ queue of the channel ▶ batch ▶ store ▶ accepted
 *
 * The first batch of a channel is a job: a worker reads the session's request ids and appends the
 * messages that are new. After that the ids are known (dedupe.h), and batches go to the batcher.
 *
 * Only for the loop's thread. */
#ifndef OL_SERVER_LIVE_SESSION_INBOUND_H
#define OL_SERVER_LIVE_SESSION_INBOUND_H

#include "server/live/session_sockets.h"

/* A frame of a client: user_message or ack. */
void ol_session_inbound_on_text(struct ol_websocket *socket, const char *text, size_t bytes);

/* A finished OL_JOB_SESSION_BATCH, and a finished OL_JOB_SESSION_ACK. */
void ol_session_inbound_on_stored(struct ol_job *job);
void ol_session_inbound_on_acked(struct ol_job *job);

/* The channel is freed. */
void ol_session_inbound_clear(struct ol_session_channel *channel);

#endif
