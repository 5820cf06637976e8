/* message_fields.h: the fields of a message, in the order of sql/schema/message.json. */
#ifndef OL_STORE_MESSAGE_FIELDS_H
#define OL_STORE_MESSAGE_FIELDS_H

#include "base/field.h"
#include "fields.h"

/* First the columns of the outbox (OL_MESSAGE_FIELD_COUNT), then what only a caller gives and what
 * only the state of a message has (up to OL_MESSAGE_FIELD_ALL). */
extern const struct ol_field ol_message_fields[OL_MESSAGE_FIELD_ALL];

#endif
