/* field.h: one field of an event or a message, as sql/schema describes it. The tables are
 * store/event_fields.h and store/message_fields.h; whatever treats all fields alike goes over them.
 */
#ifndef OL_BASE_FIELD_H
#define OL_BASE_FIELD_H

#include "base/err.h"

#include <stddef.h>
#include <string.h>

enum ol_field_kind {
    OL_FIELD_TEXT,
    OL_FIELD_UUID,     /* stored: char[37]; given: a text */
    OL_FIELD_NUMBER,   /* int64_t */
    OL_FIELD_VERSION,  /* int; 0 is none */
    OL_FIELD_COUNT,    /* the same */
    OL_FIELD_TIME,     /* int64_t, microseconds */
    OL_FIELD_JSON,     /* the text of an object */
    OL_FIELD_SEQUENCE, /* const int64_t *; NULL is none */
    OL_FIELD_BYTES,    /* any bytes */
    OL_FIELD_BASE64,   /* the same, as JSON gives them */
    OL_FIELD_SPAN,     /* int64_t, microseconds from now */
    OL_FIELD_FLAG,
    OL_FIELD_STATE
};

#define OL_FIELD_NONE SIZE_MAX /* the struct does not have this field */

struct ol_field {
    const char *name;
    const char *member; /* `,"name":`, as JSON writes it */
    size_t member_bytes;
    const char *flag;   /* the option of the command line, or NULL */
    const char *values; /* the only values, with a space between; NULL: any */
    enum ol_field_kind kind;
    size_t max_bytes; /* 0: no limit */
    int min;          /* of a number; -1: none */
    size_t stored;    /* offset in struct outlog_event or outlog_message */
    size_t given;     /* offset in struct outlog_new_event or outlog_new_message */
    size_t filter;    /* offset in struct outlog_filter */
    bool is_required; /* the caller must give it */
    bool is_hashed;   /* part of the request that an idempotency key stands for */
    bool is_always_read;
};

/* The text that a struct holds at this offset. */
static inline const char *ol_field_text(const void *object, size_t offset)
{
    const char *text;
    memcpy(&text, (const char *)object + offset, sizeof text);
    return text;
}

static inline void ol_field_set_text(void *object, size_t offset, const char *text)
{
    memcpy((char *)object + offset, &text, sizeof text);
}

/* Check a text against the limits of its field (E16); NULL is none.
 * OUTLOG_INVALID_FIELD: err names the field and its pointer. */
int ol_field_check_text(const struct ol_field *field, const char *text, outlog_err *err);

/* Refuse a value: "NAME must be WANTED". Always -1. */
int ol_field_refuse(const struct ol_field *field, const char *wanted, outlog_err *err);

#endif
