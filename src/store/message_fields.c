/* message_fields.c: the table that scripts/embed_sql.py makes of sql/schema/message.json. */
#include "store/message_fields.h"

const struct ol_field ol_message_fields[OL_MESSAGE_FIELD_ALL] = {OL_MESSAGE_FIELD_ROWS};
