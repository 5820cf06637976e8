/* session_inbound.h: what clients say: from a frame to a stored event, and `accepted` to who said
 * it.
 *
 * T1  Nothing is said to be accepted before it is stored, and a request that is known is not stored
 * again. (S-2) T2  What is said to a room is stored in the order in which it came. T3  A room stays
 * as long as something said to it is on the way.
 *
 * The loop's thread only. */
#ifndef OL_SERVER_LIVE_SESSION_INBOUND_H
#define OL_SERVER_LIVE_SESSION_INBOUND_H

#include "base/json/json.h"
#include "server/live/channel.h"

/* A user_message; `stored` is called for each that became an event. */
void ol_session_inbound_receive(struct ol_subscriber *seat, const struct ol_json *frame,
                                void (*stored)(const struct ol_channel *room));

/* Tell a client what was wrong with a frame; who goes on like that is shown out. */
void ol_session_inbound_refuse(struct ol_subscriber *seat, const char *code, const char *request_id,
                               const char *detail);

/* {"type":"error",…} */
void ol_session_inbound_put_error(struct ol_buf *out, const char *code, const char *request_id,
                                  const char *detail);

/* The room goes. */
void ol_session_inbound_forget(struct ol_channel *room);

#endif
