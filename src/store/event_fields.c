/* event_fields.c: the table that scripts/embed_sql.py makes of sql/schema/event.json. */
#include "store/event_fields.h"

const struct ol_field ol_event_fields[OL_EVENT_FIELD_ALL] = {OL_EVENT_FIELD_ROWS};
