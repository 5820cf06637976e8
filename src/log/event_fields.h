/* event_fields.h: the fields of an event by name. */
#ifndef OL_LOG_EVENT_FIELDS_H
#define OL_LOG_EVENT_FIELDS_H

#include "base/err.h"

enum ol_event_field_kind {
    OL_EVENT_FIELD_TEXT,
    OL_EVENT_FIELD_NUMBER,
    OL_EVENT_FIELD_VERSION,
    OL_EVENT_FIELD_TIME,
    OL_EVENT_FIELD_UUID,
    OL_EVENT_FIELD_JSON
};

struct ol_event_field {
    const char *name;
    enum ol_event_field_kind kind;
    size_t offset; /* in struct outlog_event */
};

/* First those that every reader of some fields gets (ol_read_some), then those it asks for: a set
 * of them is a mask, 1 << index. */
enum { OL_EVENT_FIELD_ALWAYS = 4, OL_EVENT_FIELD_COUNT = 20 };
extern const struct ol_event_field ol_fields[OL_EVENT_FIELD_COUNT];

#endif
