/* fuzz_mustache.c: the first line is the context, the rest the template. What can be checked can be
 * rendered, whatever the values, unless it grows too large; and HTML never holds a bare `<` of a
 * value. */
#include "notify/mustache.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *line = memchr(data, '\n', bytes);
    struct ol_buf out = {0};
    struct ol_json context;
    outlog_err err;
    if (!line || ol_json_parse((const char *)data, (size_t)(line - data), &context, &err) < 0)
        return 0;
    const char *text = (const char *)line + 1;
    size_t size = bytes - (size_t)(text - (const char *)data);
    bool is_right = ol_mustache_check(text, size, &err) == 0;
    int result = ol_mustache_render(text, size, &context, 1, OL_MUSTACHE_HTML, &out, &err);
    if (is_right && result < 0 && err.code != OUTLOG_TOO_LARGE)
        abort();
    if (!is_right && result == 0)
        abort();
    bool has_raw = memchr(text, '<', size) || memmem(text, size, "{{{", 3) ||
                   memmem(text, size, "&", 1);
    if (result == 0 && !has_raw && out.bytes && memchr(out.data, '<', out.bytes))
        abort();
    ol_buf_clear(&out);
    return 0;
}
