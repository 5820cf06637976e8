/* buf.c: a byte string that doubles its capacity as it grows. */
#include "base/buf.h"

#include "base/timestamp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ol_buf_clear(struct ol_buf *buf)
{
    free(buf->data);
    *buf = (struct ol_buf){0};
}

void ol_buf_reset(struct ol_buf *buf)
{
    buf->bytes = 0;
    buf->failed = false;
    if (buf->data)
        buf->data[0] = '\0';
}

static bool grow_buf(struct ol_buf *buf, size_t more)
{
    if (buf->failed)
        return false;
    size_t capacity = buf->capacity ? buf->capacity : 256;
    while (capacity - buf->bytes <= more) {
        if (capacity > SIZE_MAX / 4) {
            buf->failed = true;
            return false;
        }
        capacity *= 2;
    }
    char *data = realloc(buf->data, capacity);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

static inline bool reserve_bytes(struct ol_buf *buf, size_t more)
{
    bool is_enough = !buf->failed &&
                     buf->capacity - buf->bytes > more; // one byte is left for the NUL
    return is_enough || grow_buf(buf, more);
}

char *ol_buf_reserve(struct ol_buf *buf, size_t bytes)
{
    return reserve_bytes(buf, bytes) ? buf->data + buf->bytes : NULL;
}

void ol_buf_add(struct ol_buf *buf, const void *data, size_t bytes)
{
    if (!reserve_bytes(buf, bytes))
        return;
    if (bytes)
        memcpy(buf->data + buf->bytes, data, bytes);
    buf->bytes += bytes;
    buf->data[buf->bytes] = '\0';
}

void ol_buf_text(struct ol_buf *buf, const char *text)
{
    ol_buf_add(buf, text, strlen(text));
}

void ol_buf_char(struct ol_buf *buf, char c)
{
    if (!reserve_bytes(buf, 1))
        return;
    buf->data[buf->bytes++] = c;
    buf->data[buf->bytes] = '\0';
}

void ol_buf_int(struct ol_buf *buf, int64_t number)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *--at = '-';
    ol_buf_add(buf, at, (size_t)(digits + sizeof digits - at));
}

void ol_buf_print(struct ol_buf *buf, const char *format, ...)
{
    enum { PRINT_GUESS = 120 }; // most formatted texts are shorter
    va_list args;
    if (!reserve_bytes(buf, PRINT_GUESS))
        return;
    va_start(args, format);
    int bytes = vsnprintf(buf->data + buf->bytes, buf->capacity - buf->bytes, format, args);
    va_end(args);
    if (bytes >= 0 && (size_t)bytes < buf->capacity - buf->bytes) {
        buf->bytes += (size_t)bytes;
        return;
    }
    buf->data[buf->bytes] = '\0';
    if (bytes < 0 || !reserve_bytes(buf, (size_t)bytes))
        return;
    va_start(args, format);
    vsnprintf(buf->data + buf->bytes, (size_t)bytes + 1, format, args);
    va_end(args);
    buf->bytes += (size_t)bytes;
}

static bool needs_escape(char c)
{
    return (unsigned char)c < 0x20 || c == '"' || c == '\\';
}

/* Whether none of eight bytes needs an escape. May miss some that do not. */
static bool is_plain_word(const char *text)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return !((((word - ones * 0x20) & ~word) | ((word ^ (ones * '"')) - ones) |
              ((word ^ (ones * '\\')) - ones)) &
             tops);
}

/* How many bytes at the beginning need no escape. */
static size_t count_plain(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        if (bytes - at >= 8 && is_plain_word(text + at))
            at += 8;
        else if (needs_escape(text[at]))
            break;
        else
            at++;
    }
    return at;
}

/* The same escapes as PostgreSQL's to_json, so that both stores have the same canonical form. */
void ol_buf_json(struct ol_buf *buf, const char *text, size_t bytes)
{
    static const char letters[32] =
        {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    size_t from = 0;

    if (!reserve_bytes(buf, bytes + 2)) // enough in most cases
        return;
    ol_buf_char(buf, '"');
    for (size_t i = 0; bytes && (i += count_plain(text + i, bytes - i)) < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        ol_buf_add(buf, text + from, i - from);
        from = i + 1;
        char pair[2] = {'\\', c >= 0x20 ? (char)c : letters[c]};
        if (pair[1])
            ol_buf_add(buf, pair, sizeof pair);
        else
            ol_buf_print(buf, "\\u%04x", c);
    }
    if (bytes > from)
        ol_buf_add(buf, text + from, bytes - from);
    ol_buf_char(buf, '"');
}

void ol_buf_json_text(struct ol_buf *buf, const char *text)
{
    if (text)
        ol_buf_json(buf, text, strlen(text));
    else
        ol_buf_text(buf, "null");
}

void ol_buf_json_time(struct ol_buf *buf, int64_t time_us)
{
    char text[OL_TIMESTAMP_TEXT];
    if (!time_us) {
        ol_buf_text(buf, "null");
        return;
    }
    ol_buf_char(buf, '"');
    ol_buf_text(buf, ol_timestamp_format(time_us, text));
    ol_buf_char(buf, '"');
}
