/* field.h: the fields of an event by name. */
#ifndef OL_LOG_FIELD_H
#define OL_LOG_FIELD_H

#include "base/err.h"

enum ol_field_kind {
    OL_FIELD_TEXT,
    OL_FIELD_NUMBER,
    OL_FIELD_VERSION,
    OL_FIELD_TIME,
    OL_FIELD_UUID,
    OL_FIELD_JSON
};

struct ol_field {
    const char *name;
    enum ol_field_kind kind;
    size_t offset; /* in struct outlog_record */
};

/* First those that every reader of some fields gets (ol_read_some), then those it asks for: a set of
 * them is a mask, 1 << index. */
enum { OL_FIELD_ALWAYS = 4, OL_FIELD_COUNT = 20 };
extern const struct ol_field ol_fields[OL_FIELD_COUNT];

#endif
