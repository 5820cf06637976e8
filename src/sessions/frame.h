/* frame.h: the JSON text frames that a session's socket sends. Pure: it only writes text. */
#ifndef OL_SESSIONS_FRAME_H
#define OL_SESSIONS_FRAME_H

#include "base/buf.h"
#include "sessions/session.h"

/* {"type":"accepted","requestId":…,"seq":…} */
void ol_session_frame_accepted(const char *request_id, int64_t seq, struct ol_buf *out);

/* {"type":"token","requestId":…,"text":…} */
void ol_session_frame_token(const char *request_id, const char *text, size_t bytes,
                            struct ol_buf *out);

/* {"type":"error","code":…,"requestId":…,"detail":…}; request_id may be NULL. */
void ol_session_frame_error(const char *code, const char *request_id, const char *detail,
                            struct ol_buf *out);

/* {"type":effect_type,"effect_id":…, the members of the effect's spec}: content, requestId and
 * isFinal for a send_message, whatever the spec has for other types (S-7). */
void ol_session_frame_effect(const struct ol_pending_effect *effect, struct ol_buf *out);

#endif
