/* message_view.h: messages and attempts as the JSON objects that the API and the CLI return. */
#ifndef OL_OUTBOX_MESSAGE_VIEW_H
#define OL_OUTBOX_MESSAGE_VIEW_H

#include "base/buf.h"
#include "outlog.h"

/* A message; `alone` adds payload (or payload_base64), is_replay, held and attempts_log. Values of
 * headers and metadata whose names suggest secrets are shown as ***. */
void ol_message_view_json(const struct outlog_message *message, bool alone, struct ol_buf *out);

/* "messages":[…] */
void ol_message_view_list_json(const struct outlog_message_page *page, struct ol_buf *out);

void ol_message_view_attempt_json(const struct outlog_attempt *attempt, struct ol_buf *out);

#endif
