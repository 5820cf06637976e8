/* message.h: messages and attempts as the JSON objects of the contract. */
#ifndef OL_VIEWS_MESSAGE_H
#define OL_VIEWS_MESSAGE_H

#include "base/buf.h"
#include "outlog.h"

/* A message; `alone` adds payload (or payload_base64), is_replay, held and attempts_log. Values of
 * headers and metadata whose names speak of secrets are shown as ***. */
void ol_message_json(const struct outlog_message_view *message, bool alone, struct ol_buf *out);

/* "messages":[…] */
void ol_messages_json(const struct outlog_message_page *page, struct ol_buf *out);

void ol_attempt_json(const struct outlog_attempt *attempt, struct ol_buf *out);

#endif
