/* talk.h: what clients say: from a frame to a stored event, and `accepted` to who said it.
 *
 * T1  Nothing is said to be accepted before it is stored, and a request that is known is not stored again. (S-2)
 * T2  What is said to a room is stored in the order in which it came.
 * T3  A room stays as long as something said to it is on the way.
 *
 * The loop's thread only. */
#ifndef OL_API_TALK_H
#define OL_API_TALK_H

#include "api/hall.h"
#include "base/json.h"

/* A user_message; `stored` is called for each that became an event. */
void ol_talk_take(struct ol_seat *seat, const struct ol_json *frame,
                  void (*stored)(const struct ol_room *room));

/* Tell a client what was wrong with a frame; who goes on like that is shown out. */
void ol_talk_refuse(struct ol_seat *seat, const char *code, const char *request_id,
                    const char *detail);

/* {"type":"error",…} */
void ol_talk_put_error(struct ol_buf *out, const char *code, const char *request_id,
                       const char *detail);

/* The room goes. */
void ol_talk_forget(struct ol_room *room);

#endif
