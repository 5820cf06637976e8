/* env.c: ${NAME} from the environment. */
#include "base/env.h"

#include <stdlib.h>
#include <string.h>

static int expand_string(const struct ol_json *string, struct ol_arena *arena, struct ol_buf *out,
                         outlog_err *err)
{
    char name[128];
    struct ol_buf text = {0};
    int result = -1;
    const char *at = ol_json_string(string, arena, NULL);

    if (!at)
        return ol_no_memory(err);
    while (*at) {
        if (strncmp(at, "$${", 3) == 0) {
            ol_buf_text(&text, "${");
            at += 3;
            continue;
        }
        if (strncmp(at, "${", 2) != 0) {
            ol_buf_char(&text, *at++);
            continue;
        }
        const char *end = strchr(at, '}');
        size_t bytes = end ? (size_t)(end - at) - 2 : 0;
        if (bytes == 0 || bytes >= sizeof name) {
            ol_fail(err, OUTLOG_INVALID_FIELD,
                    "${ without a name and } (write $${ for a plain ${)");
            goto out;
        }
        memcpy(name, at + 2, bytes);
        name[bytes] = '\0';
        const char *value = getenv(name);
        if (!value) {
            ol_fail(err, OUTLOG_INVALID_FIELD,
                    "the environment variable %s is not set where the delivery runs", name);
            goto out;
        }
        ol_buf_text(&text, value);
        at = end + 1;
    }
    ol_buf_json(out, text.data ? text.data : "", text.bytes);
    result = text.failed ? ol_no_memory(err) : 0;
out:
    ol_buf_clear(&text);
    return result;
}

int ol_env_expand(const struct ol_json *value, struct ol_arena *arena, struct ol_buf *out,
                  outlog_err *err)
{
    struct ol_json_iter it = {0};
    bool is_object = value->type == OL_JSON_OBJECT, is_first = true;

    if (!memmem(value->text, value->bytes, "${", 2)) {
        ol_buf_add(out, value->text, value->bytes);
        return 0;
    }
    if (value->type == OL_JSON_STRING)
        return expand_string(value, arena, out, err);
    ol_buf_char(out, is_object ? '{' : '[');
    for (; ol_json_next(value, &it); is_first = false) {
        if (!is_first)
            ol_buf_char(out, ',');
        if (is_object) {
            ol_buf_add(out, it.key.text, it.key.bytes);
            ol_buf_char(out, ':');
        }
        if (ol_env_expand(&it.value, arena, out, err) < 0) {
            if (is_object)
                ol_err_prefix(err, "%.*s", (int)it.key.bytes - 2, it.key.text + 1);
            return -1;
        }
    }
    ol_buf_char(out, is_object ? '}' : ']');
    return 0;
}
