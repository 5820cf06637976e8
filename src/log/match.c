/* match.c: translating patterns to GLOB or LIKE, and JSON pointers to SQLite's paths. */
#include "log/match.h"

#include <string.h>

const char *ol_match_below(struct ol_arena *arena, const char *pointer, const char *key)
{
    struct ol_buf out = {0};
    ol_buf_text(&out, pointer);
    ol_buf_char(&out, '/');
    for (; *key; key++) {
        if (*key == '~' || *key == '/')
            ol_buf_text(&out, *key == '~' ? "~0" : "~1");
        else
            ol_buf_char(&out, *key);
    }
    const char *copy = out.failed ? NULL : ol_arena_copy(arena, out.data, out.bytes);
    ol_buf_clear(&out);
    return copy ? copy : pointer;
}

bool ol_match_is_path(const char *path)
{
    for (const char *at = path; (at = strchr(at, '~')); at++)
        if (at[1] != '0' && at[1] != '1')
            return false; // an escape that no pointer has
    return path[0] == '/' && path[1] && !strpbrk(path, "\"\\\n") && !strstr(path, "//");
}

int ol_match_check_when(const struct ol_json *when, const char *pointer, struct ol_arena *arena,
                        outlog_err *err)
{
    struct ol_json_iter it = {0};
    if (when->type != OL_JSON_OBJECT)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer,
                          "when: must be a map {\"/path\": value}");
    while (ol_json_next(when, &it)) {
        const char *path = ol_json_string(&it.key, arena, NULL);
        if (!path)
            return ol_no_memory(err);
        const char *at = ol_match_below(arena, pointer, path);
        if (!ol_match_is_path(path))
            return ol_fail_at(err, OUTLOG_INVALID_FIELD, at,
                              "when: a path is like /total or /customer/country");
        if (it.value.type == OL_JSON_ARRAY || it.value.type == OL_JSON_OBJECT)
            return ol_fail_at(err, OUTLOG_INVALID_FIELD, at,
                              "when: must be a text, a number, true, false or null");
    }
    return 0;
}

void ol_match_write(const char *on, bool is_glob, struct ol_buf *out)
{
    for (; *on; on++) {
        if (*on == '*')
            ol_buf_char(out, is_glob ? '*' : '%');
        else if (is_glob && (*on == '?' || *on == '['))
            ol_buf_print(out, "[%c]", *on);
        else if (!is_glob && (*on == '%' || *on == '_' || *on == '\\'))
            ol_buf_print(out, "\\%c", *on);
        else
            ol_buf_char(out, *on);
    }
}

void ol_match_write_path(const char *pointer, struct ol_buf *out)
{
    ol_buf_char(out, '$');
    while (*pointer == '/') {
        const char *token = pointer + 1;
        size_t bytes = strcspn(token, "/");
        pointer = token + bytes;
        bool is_index = bytes > 0 && strspn(token, "0123456789") >= bytes && bytes < 10;
        ol_buf_text(out, is_index ? "[" : ".\"");
        for (size_t i = 0; i < bytes; i++) {
            bool is_escape = token[i] == '~' && i + 1 < bytes;
            ol_buf_char(out, is_escape ? (token[++i] == '1' ? '/' : '~') : token[i]);
        }
        ol_buf_text(out, is_index ? "]" : "\"");
    }
}

void ol_match_write_when(const struct ol_json *when, bool has_paths, struct ol_arena *arena,
                         struct ol_buf *out)
{
    struct ol_json_iter it = {0};
    struct ol_buf path = {0};
    const char *comma = "{";
    while (ol_json_next(when, &it)) {
        const char *pointer = ol_json_string(&it.key, arena, NULL);
        ol_buf_reset(&path);
        if (pointer && has_paths)
            ol_match_write_path(pointer, &path);
        else if (pointer)
            ol_buf_text(&path, pointer);
        ol_buf_text(out, comma);
        ol_buf_json_text(out, path.data);
        ol_buf_print(out, ":%.*s", (int)it.value.bytes, it.value.text);
        comma = ",";
    }
    ol_buf_text(out, *comma == '{' ? "{}" : "}");
    ol_buf_clear(&path);
}
