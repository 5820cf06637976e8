/* mustache.c: renders a text in one pass, without a parse tree. A section that repeats is rendered
 * again, and a hidden one is read without writing, so that the same code checks every tag. */
#include "notify/mustache.h"

#include <string.h>

struct mustache_writer {
    const char *text, *end;
    enum ol_mustache_escape escape;
    struct ol_json stack[OL_MUSTACHE_DEPTH + 4];
    size_t depth;
    size_t start; /* where our output begins in `out` */
    long tag_count;
    struct ol_buf *out;
    outlog_err *err;
};

struct mustache_tag {
    char kind; /* # ^ / ! & or 'v' */
    const char *at, *name, *after;
    size_t bytes;
};

static int fail_at(struct mustache_writer *m, const char *at, const char *what)
{
    return ol_fail(m->err, OUTLOG_INVALID_FIELD, "%s at byte %zu", what, (size_t)(at - m->text));
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* --- tags --- */

/* The next tag from `at`: 1, or 0 when there is none, or -1. */
static int next_tag(struct mustache_writer *m, const char *at, struct mustache_tag *tag)
{
    const char *open = memmem(at, (size_t)(m->end - at), "{{", 2);
    if (!open)
        return 0;
    const char *name = open + 2, *closing = "}}";
    *tag = (struct mustache_tag){.kind = 'v', .at = open};
    if (name < m->end && *name == '{') {
        tag->kind = '&';
        closing = "}}}";
        name++;
    } else if (name < m->end && *name && strchr("#^/!&", *name)) {
        tag->kind = *name++;
    } else if (name < m->end && *name && strchr("><=$", *name)) {
        return fail_at(m, open, "partials, blocks and other delimiters are not known");
    }
    const char *close = memmem(name, (size_t)(m->end - name), closing, strlen(closing));
    if (!close)
        return fail_at(m, open, "a tag without its end");
    tag->after = close + strlen(closing);
    while (name < close && is_space(*name))
        name++;
    while (close > name && is_space(close[-1]))
        close--;
    tag->name = name;
    tag->bytes = (size_t)(close - name);
    if (tag->kind == '!')
        return 1;
    if (!tag->bytes)
        return fail_at(m, open, "a tag without a name");
    for (size_t i = 0; i < tag->bytes; i++)
        if (is_space(name[i]) || name[i] == '{' || name[i] == '}')
            return fail_at(m, open, "a name has no space and no brace");
    return 1;
}

/* If a tag that writes nothing is alone on its line, *from and *to include the whole line. */
static void extend_to_line(const struct mustache_writer *m, const struct mustache_tag *tag,
                           const char **from, const char **to)
{
    const char *start = tag->at, *end = tag->after;
    *from = start;
    *to = end;
    if (tag->kind == 'v' || tag->kind == '&')
        return;
    while (start > m->text && (start[-1] == ' ' || start[-1] == '\t'))
        start--;
    while (end < m->end && (*end == ' ' || *end == '\t' || *end == '\r'))
        end++;
    if ((start > m->text && start[-1] != '\n') || (end < m->end && *end != '\n'))
        return;
    *from = start;
    *to = end < m->end ? end + 1 : end;
}

/* --- values --- */

static struct ol_json step_into(const struct ol_json *value, const char *key, size_t bytes)
{
    char text[256];
    if (bytes >= sizeof text)
        return (struct ol_json){0};
    memcpy(text, key, bytes);
    text[bytes] = '\0';
    if (value->type == OL_JSON_OBJECT)
        return ol_json_get(value, text);
    if (value->type != OL_JSON_ARRAY || bytes > 9 || strspn(text, "0123456789") != bytes)
        return (struct ol_json){0};
    char pointer[16] = "/";
    memcpy(pointer + 1, text, bytes + 1);
    return ol_json_at(value, pointer);
}

/* The first part of a name is searched from the innermost context outwards, the others only in its
 * value. */
static struct ol_json find_value(const struct mustache_writer *m, const struct mustache_tag *tag)
{
    const char *at = tag->name, *end = tag->name + tag->bytes;
    struct ol_json value = {0};
    if (tag->bytes == 1 && *at == '.')
        return m->stack[m->depth - 1];
    const char *dot = memchr(at, '.', tag->bytes);
    size_t bytes = (size_t)((dot ? dot : end) - at);
    for (size_t i = m->depth; i > 0 && value.type == OL_JSON_NONE; i--)
        value = step_into(&m->stack[i - 1], at, bytes);
    while (dot && value.type != OL_JSON_NONE) {
        at = dot + 1;
        dot = memchr(at, '.', (size_t)(end - at));
        value = step_into(&value, at, (size_t)((dot ? dot : end) - at));
    }
    return value;
}

static bool is_truthy(const struct ol_json *value)
{
    struct ol_json_iter it = {0};
    switch (value->type) {
    case OL_JSON_NONE:
    case OL_JSON_NULL:
    case OL_JSON_FALSE:
        return false;
    case OL_JSON_STRING:
        return value->bytes > 2;
    case OL_JSON_ARRAY:
        return ol_json_next(value, &it);
    default:
        return true;
    }
}

static void write_char(struct ol_buf *out, char c, bool is_html)
{
    const char *word = !is_html    ? NULL
                       : c == '&'  ? "&amp;"
                       : c == '<'  ? "&lt;"
                       : c == '>'  ? "&gt;"
                       : c == '"'  ? "&quot;"
                       : c == '\'' ? "&#39;"
                                   : NULL;
    if (word)
        ol_buf_text(out, word);
    else
        ol_buf_char(out, c);
}

/* Strings without quotes, lists and objects as JSON, nothing for null. */
static void write_value(struct mustache_writer *m, const struct ol_json *value, bool is_html)
{
    if (value->type == OL_JSON_NONE || value->type == OL_JSON_NULL)
        return;
    const char *at = value->text, *end = at + value->bytes;
    bool is_string = value->type == OL_JSON_STRING;
    if (is_string) {
        at++;
        end--;
    }
    while (at < end) {
        char piece[4] = {*at};
        size_t bytes = 1;
        if (is_string && *at == '\\')
            bytes = ol_json_unescape(&at, piece);
        else
            at++;
        for (size_t i = 0; i < bytes; i++)
            write_char(m->out, piece[i], is_html);
    }
}

/* --- rendering --- */

static int render_until(struct mustache_writer *m, const char *at, const struct mustache_tag *open,
                        bool is_shown, const char **after);

/* One section: its content is rendered for each value, or read once without writing. */
static int render_section(struct mustache_writer *m, const struct mustache_tag *tag, bool is_shown,
                          const char *inside, const char **after)
{
    struct ol_json value = is_shown ? find_value(m, tag) : (struct ol_json){0};
    bool shows = is_shown && is_truthy(&value) == (tag->kind == '#');
    if (m->depth == OL_MUSTACHE_DEPTH + 3)
        return fail_at(m, tag->at, "sections nest too deep");
    if (!shows || tag->kind == '^') {
        m->stack[m->depth] = m->depth ? m->stack[m->depth - 1] : (struct ol_json){0};
        m->depth++;
        int result = render_until(m, inside, tag, shows, after);
        m->depth--;
        return result;
    }
    struct ol_json_iter it = {0};
    bool is_list = value.type == OL_JSON_ARRAY;
    int result = 0;
    m->depth++;
    do {
        if (is_list && !ol_json_next(&value, &it))
            break;
        m->stack[m->depth - 1] = is_list ? it.value : value;
        result = render_until(m, inside, tag, true, after);
    } while (is_list && result == 0);
    m->depth--;
    return result;
}

/* Render from `at` to the end of the section `open`, or of the text. */
static int render_until(struct mustache_writer *m, const char *at, const struct mustache_tag *open,
                        bool is_shown, const char **after)
{
    struct mustache_tag tag;
    const char *from, *to;
    for (int got; (got = next_tag(m, at, &tag)) != 0; at = to) {
        if (got < 0)
            return -1;
        extend_to_line(m, &tag, &from, &to);
        if (from < at)
            from = at;
        if (is_shown)
            ol_buf_add(m->out, at, (size_t)(from - at));
        if (++m->tag_count > OL_MUSTACHE_TAGS_MAX ||
            m->out->bytes - m->start > OL_MUSTACHE_BYTES_MAX)
            return ol_fail(m->err, OUTLOG_TOO_LARGE, "over %d bytes or %d tags",
                           OL_MUSTACHE_BYTES_MAX, OL_MUSTACHE_TAGS_MAX);
        if (tag.kind == '/') {
            if (!open || open->bytes != tag.bytes || memcmp(open->name, tag.name, tag.bytes) != 0)
                return fail_at(m, tag.at, "the end of a section that is not open");
            *after = to;
            return 0;
        }
        if (tag.kind == '#' || tag.kind == '^') {
            if (render_section(m, &tag, is_shown, to, &to) < 0)
                return -1;
        } else if (is_shown && tag.kind != '!') {
            struct ol_json value = find_value(m, &tag);
            write_value(m, &value, tag.kind == 'v' && m->escape == OL_MUSTACHE_HTML);
        }
    }
    if (open)
        return fail_at(m, open->at, "a section without its end");
    if (is_shown)
        ol_buf_add(m->out, at, (size_t)(m->end - at));
    return 0;
}

int ol_mustache_render(const char *text, size_t bytes, const struct ol_json *contexts, size_t count,
                       enum ol_mustache_escape escape, struct ol_buf *out, outlog_err *err)
{
    struct mustache_writer m = {.text = text,
                                .end = text + bytes,
                                .escape = escape,
                                .start = out->bytes,
                                .out = out,
                                .err = err};
    if (count > 3)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "at most 3 contexts");
    for (; m.depth < count; m.depth++)
        m.stack[m.depth] = contexts[m.depth];
    if (m.depth == 0)
        m.depth = 1; // no context
    if (render_until(&m, text, NULL, true, &text) < 0)
        return -1;
    if (out->bytes - m.start > OL_MUSTACHE_BYTES_MAX)
        return ol_fail(err, OUTLOG_TOO_LARGE, "over %d bytes", OL_MUSTACHE_BYTES_MAX);
    return out->failed ? ol_no_memory(err) : 0;
}

int ol_mustache_check(const char *text, size_t bytes, outlog_err *err)
{
    struct ol_buf out = {0};
    struct ol_json nothing = {OL_JSON_OBJECT, "{}", 2};
    int result = ol_mustache_render(text, bytes, &nothing, 1, OL_MUSTACHE_TEXT, &out, err);
    ol_buf_clear(&out);
    return result;
}
