/* payload_shape.c: compares a payload with the shape of its event type. */
#include "log/payload_shape.h"

#include <string.h>

enum { NULL_BIT = 1u << OL_JSON_NULL, BOOLEAN_BITS = 1u << OL_JSON_FALSE | 1u << OL_JSON_TRUE };

/* The JSON types that a type of a shape allows, one bit each. */
static const struct {
    const char *name;
    unsigned allowed;
} types[] = {
    {"string", 1u << OL_JSON_STRING},
    {"number", 1u << OL_JSON_NUMBER},
    {"boolean", BOOLEAN_BITS},
    {"object", 1u << OL_JSON_OBJECT},
    {"array", 1u << OL_JSON_ARRAY},
    {"any", NULL_BIT | BOOLEAN_BITS | 1u << OL_JSON_NUMBER | 1u << OL_JSON_STRING |
                1u << OL_JSON_ARRAY | 1u << OL_JSON_OBJECT},
};

/* "string?" as bits, with that of OL_JSON_NONE for a member that may be absent; 0: not a type. */
static unsigned read_type(const struct ol_json *type)
{
    if (type->type != OL_JSON_STRING)
        return 0;
    const char *name = type->text + 1;
    size_t bytes = type->bytes - 2;
    bool is_optional = bytes > 0 && name[bytes - 1] == '?';

    bytes -= is_optional;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == bytes && memcmp(types[i].name, name, bytes) == 0)
            return types[i].allowed | (is_optional ? NULL_BIT | 1u << OL_JSON_NONE : 0);
    return 0;
}

int ol_payload_shape_valid(const struct ol_json *shape, outlog_err *err)
{
    struct ol_json_iter it = {0};
    char pointer[sizeof err->pointer];

    if (shape->type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "a shape is an object from member to type, such as {\"id\": \"string\"}");
    while (ol_json_next(shape, &it))
        if (!read_type(&it.value)) {
            ol_json_pointer(shape, it.value.text, pointer, sizeof pointer);
            return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer,
                              "%s in the shape must be string, number, boolean, object, array or "
                              "any, with ? when optional",
                              pointer);
        }
    return 0;
}

static int check_member(const struct ol_json *shape, const struct ol_json *type,
                        const struct ol_json *value, outlog_err *err)
{
    char pointer[sizeof err->pointer];

    if (read_type(type) & 1u << value->type)
        return 0;
    ol_json_pointer(shape, type->text, pointer, sizeof pointer);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s %s: this event type needs %.*s",
                      pointer, value->type == OL_JSON_NONE ? "is missing" : "has another type",
                      (int)type->bytes, type->text);
}

int ol_payload_shape_check(const struct ol_json *shape, const struct ol_json *payload,
                           outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_json_iter it = {0};
    int rc = -1;

    if (ol_payload_shape_valid(shape, err) < 0)
        return -1;
    if (payload->type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "the payload must be an object");
    while (ol_json_next(shape, &it)) {
        char *name = ol_json_string(&it.key, &arena, NULL);
        if (!name) {
            ol_fail(err, OUTLOG_NO_MEMORY, "no memory for a member's name");
            goto out;
        }
        struct ol_json value = ol_json_get(payload, name);
        if (check_member(shape, &it.value, &value, err) < 0)
            goto out;
    }
    rc = 0;
out:
    ol_arena_clear(&arena);
    return rc;
}
