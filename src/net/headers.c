/* headers.c: checks and collects outgoing headers; H1 to H3 are in headers.h. */
#include "net/headers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

void ol_headers_clear(struct ol_headers *headers)
{
    ol_buf_clear(&headers->text);
    headers->count = 0;
}

void ol_headers_reset(struct ol_headers *headers)
{
    ol_buf_reset(&headers->text);
    headers->count = 0;
}

static bool is_token(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           strchr("!#$%&'*+-.^_`|~", c);
}

bool ol_headers_name_is_valid(const char *name)
{
    size_t bytes = 0;
    while (bytes <= OL_HEADER_NAME && name[bytes] && is_token(name[bytes]))
        bytes++;
    return bytes > 0 && bytes <= OL_HEADER_NAME && !name[bytes];
}

bool ol_headers_value_is_valid(const char *value)
{
    size_t bytes = strlen(value);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)value[i];
        if (c < 0x20 || c == 0x7f)
            return false;
    }
    return bytes <= OL_HEADER_VALUE;
}

const char *ol_headers_escape(const char *value, char out[OL_HEADER_ESCAPED])
{
    size_t at = 0;
    if (!value || ol_headers_value_is_valid(value))
        return value;
    for (; *value && at + 3 < OL_HEADER_ESCAPED; value++) {
        unsigned char c = (unsigned char)*value;
        if (c < 0x20 || c == 0x7f)
            at += (size_t)snprintf(out + at, 4, "%%%02X", c);
        else
            out[at++] = *value;
    }
    out[at] = '\0';
    return out;
}

/* These describe the connection, not the message. */
static bool is_framing(const char *name)
{
    static const char *const names[] = {"host",
                                        "content-length",
                                        "transfer-encoding",
                                        "connection",
                                        "keep-alive",
                                        "upgrade",
                                        "te",
                                        "trailer",
                                        "expect",
                                        "http2-settings"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return strncasecmp(name, "proxy-", 6) == 0;
}

static bool is_ours(const char *name)
{
    return strncasecmp(name, "webhook-", 8) == 0 || strncasecmp(name, "ce-", 3) == 0 ||
           strncasecmp(name, "outlog-", 7) == 0;
}

static bool has_name(const struct ol_headers *headers, const char *name)
{
    return ol_headers_get(headers, name) != NULL;
}

static int add_header(struct ol_headers *headers, const char *name, const char *value,
                      outlog_err *err)
{
    if (!ol_headers_name_is_valid(name)) // the name is not shown: it could break a log line
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/headers",
                          "headers: a name may hold letters, digits and !#$%%&'*+-.^_`|~ only");
    if (!ol_headers_value_is_valid(value))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/headers",
                          "header %s: its value has a control byte or more than %d bytes", name,
                          OL_HEADER_VALUE);
    if (has_name(headers, name))
        return 0;
    if (headers->count == OL_HEADERS_MAX)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/headers", "headers: more than %d",
                          OL_HEADERS_MAX);
    size_t at = headers->text.bytes, name_bytes = strlen(name);
    ol_buf_add(&headers->text, name, name_bytes);
    ol_buf_add(&headers->text, ": ", 2);
    ol_buf_add(&headers->text, value, strlen(value) + 1);
    if (headers->text.failed)
        return ol_no_memory(err);
    headers->lines[headers->count].at = at;
    headers->lines[headers->count].name_bytes = name_bytes;
    headers->count++;
    return 0;
}

int ol_headers_set(struct ol_headers *headers, const char *name, const char *value, outlog_err *err)
{
    return add_header(headers, name, value, err);
}

int ol_headers_offer(struct ol_headers *headers, const char *name, const char *value,
                     outlog_err *err)
{
    if (ol_headers_name_is_valid(name) && is_framing(name))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/headers",
                          "header %s: it belongs to the connection and cannot be set", name);
    if (is_ours(name) && ol_headers_name_is_valid(name) && ol_headers_value_is_valid(value))
        return 0;
    return add_header(headers, name, value, err);
}

int ol_headers_offer_all(struct ol_headers *headers, const struct outlog_header *list, size_t count,
                         outlog_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (ol_headers_offer(headers, list[i].name, list[i].value, err) < 0)
            return -1;
    return 0;
}

const char *ol_headers_line(const struct ol_headers *headers, size_t i)
{
    return headers->text.data + headers->lines[i].at;
}

const char *ol_headers_get(const struct ol_headers *headers, const char *name)
{
    size_t bytes = strlen(name);
    for (size_t i = 0; i < headers->count; i++)
        if (headers->lines[i].name_bytes == bytes &&
            strncasecmp(ol_headers_line(headers, i), name, bytes) == 0)
            return ol_headers_line(headers, i) + bytes + 2;
    return NULL;
}

int ol_headers_read(const struct ol_json *object, struct ol_arena *arena,
                    struct outlog_header **list, size_t *count, outlog_err *err)
{
    size_t room = 0;
    struct ol_json_iter it = {0};

    *list = NULL;
    *count = 0;
    if (object->type == OL_JSON_NONE || object->type == OL_JSON_NULL)
        return 0;
    if (object->type != OL_JSON_OBJECT)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/headers", "headers: an object is wanted");
    while (ol_json_next(object, &it))
        room++;
    if (room > OL_HEADERS_MAX)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/headers", "headers: more than %d",
                          OL_HEADERS_MAX);
    if (room == 0)
        return 0;
    if (!(*list = ol_arena_array(arena, room, sizeof **list)))
        return ol_no_memory(err);
    it = (struct ol_json_iter){0};
    while (ol_json_next(object, &it)) {
        const char *name = ol_json_string(&it.key, arena, NULL);
        const char *value;
        if (it.value.type == OL_JSON_STRING)
            value = ol_json_string(&it.value, arena, NULL);
        else if (it.value.type == OL_JSON_NUMBER || it.value.type == OL_JSON_TRUE ||
                 it.value.type == OL_JSON_FALSE)
            value = ol_arena_copy(arena, it.value.text, it.value.bytes);
        else
            return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/headers",
                              "headers: each value is a string");
        if (!name || !value)
            return ol_no_memory(err);
        (*list)[(*count)++] = (struct outlog_header){name, value};
    }
    return 0;
}

int ol_headers_parse(const char *json, struct ol_arena *arena, struct outlog_header **list,
                     size_t *count, outlog_err *err)
{
    struct ol_json object = {0};
    *list = NULL;
    *count = 0;
    if (!json || !*json)
        return 0;
    if (ol_json_parse(json, strlen(json), &object, err) < 0)
        return -1;
    return ol_headers_read(&object, arena, list, count, err);
}
