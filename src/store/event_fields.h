/* event_fields.h: the fields of an event, in the order of sql/schema/event.json. */
#ifndef OL_STORE_EVENT_FIELDS_H
#define OL_STORE_EVENT_FIELDS_H

#include "base/field.h"
#include "fields.h"

/* First the columns (OL_EVENT_FIELD_COUNT), in the order in which queries read them; then what only
 * a caller gives (up to OL_EVENT_FIELD_ALL). A set of columns is a mask, 1 << index. */
extern const struct ol_field ol_event_fields[OL_EVENT_FIELD_ALL];

#endif
