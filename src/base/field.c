/* field.c: the limits of texts, checked the same way for events and messages. */
#include "base/field.h"

#include "base/utf8.h"

#include <stdio.h>

static bool is_value(const struct ol_field *field, const char *text, size_t bytes)
{
    for (const char *at = field->values; at && *at; at += *at == ' ') {
        size_t length = strcspn(at, " ");
        if (length == bytes && memcmp(at, text, bytes) == 0)
            return true;
        at += length;
    }
    return false;
}

static bool is_within(const struct ol_field *field, const char *text)
{
    if (!text)
        return !field->is_required;
    size_t bytes = strlen(text);
    if (field->values)
        return is_value(field, text, bytes);
    return bytes >= 1 && (!field->max_bytes || bytes <= field->max_bytes) &&
           ol_utf8_is_valid(text, bytes);
}

/* "user, service_principal or system" */
static void write_values(const char *values, char *out, size_t room)
{
    size_t used = 0;
    for (const char *at = values; *at && used < room;) {
        size_t length = strcspn(at, " ");
        const char *next = at + length + (at[length] == ' ');
        const char *before = at == values ? "" : *next ? ", " : " or ";
        used += (size_t)snprintf(out + used, room - used, "%s%.*s", before, (int)length, at);
        at = next;
    }
}

int ol_field_refuse(const struct ol_field *field, const char *wanted, outlog_err *err)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s", field->name);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s must be %s", field->name, wanted);
}

/* The limit that a text breaks is looked for here, after it is known that it breaks one. */
static int refuse_text(const struct ol_field *field, const char *text, outlog_err *err)
{
    char pointer[64], values[128];
    snprintf(pointer, sizeof pointer, "/%s", field->name);
    if (!text)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is required", field->name);
    if (field->values) {
        write_values(field->values, values, sizeof values);
        return ol_field_refuse(field, values, err);
    }
    size_t bytes = strlen(text);
    if (bytes < 1 || bytes > field->max_bytes)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer,
                          "%s must have 1 to %zu bytes, it has %zu", field->name, field->max_bytes,
                          bytes);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is not UTF-8", field->name);
}

int ol_field_check_text(const struct ol_field *field, const char *text, outlog_err *err)
{
    return is_within(field, text) ? 0 : refuse_text(field, text, err);
}
