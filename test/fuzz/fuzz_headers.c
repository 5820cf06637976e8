/* fuzz_headers.c: H1 of headers.h: whatever is offered, the lines that come out are one header
 * each; and masking never breaks UTF-8 or its bound. Input: name NUL value NUL name NUL value … */
#include "base/json/json.h"
#include "net/headers.h"
#include "publish/mask.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool is_ok)
{
    if (!is_ok)
        abort();
}

static void check_lines(const struct ol_headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        const char *line = ol_headers_line(headers, i), *colon = strchr(line, ':');
        check(colon && colon > line && colon[1] == ' ');
        for (const char *at = line; *at; at++)
            check((unsigned char)*at >= 0x20 && *at != 0x7f);
        for (size_t k = 0; k < i; k++) {
            const char *other = ol_headers_line(headers, k);
            size_t name = (size_t)(colon - line);
            check(strncasecmp(line, other, name + 1) != 0); // each name once
        }
        check(strncasecmp(line, "host:", 5) != 0 && strncasecmp(line, "content-length:", 15) != 0);
        check(strncasecmp(line, "transfer-encoding:", 18) != 0);
        check(strncasecmp(line, "webhook-", 8) != 0);
    }
}

static void check_mask(const char *text, size_t bytes)
{
    static const char *const secrets[] = {"swordfish", NULL};
    struct ol_buf out = {0}, json = {0};
    struct ol_json value;
    ol_mask_add(&out, text, bytes, secrets, 300);
    check(out.bytes <= 300);
    check(out.bytes == 0 || !memmem(out.data, out.bytes, "swordfish", 9));
    ol_buf_json(&json, out.data ? out.data : "", out.bytes);
    check(ol_json_parse(json.data, json.bytes, &value, NULL) == 0); // valid UTF-8 without NUL
    ol_buf_reset(&out);
    ol_mask_line(&out, text, bytes, secrets, 300);
    check(out.bytes <= 300 && (out.bytes == 0 || !memchr(out.data, '\n', out.bytes)));
    ol_buf_clear(&json);
    ol_buf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ol_headers headers = {0};
    outlog_err err;
    char *text = malloc(bytes + 2);

    memcpy(text, data, bytes);
    text[bytes] = text[bytes + 1] = '\0';
    for (size_t at = 0; at < bytes;) {
        const char *name = text + at, *value = name + strlen(name) + 1;
        if (value > text + bytes)
            break;
        if (ol_headers_offer(&headers, name, value, &err) < 0)
            for (const char *c = err.message; *c; c++)
                check((unsigned char)*c >= 0x20); // an error is one line of a log
        at = (size_t)(value - text) + strlen(value) + 1;
    }
    check_lines(&headers);
    check_mask((const char *)data, bytes);
    ol_headers_clear(&headers);
    free(text);
    return 0;
}
