/* base64.c: encoding three bytes, and decoding four characters, at a time. */
#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void ol_base64_encode(struct ol_buf *out, const void *data, size_t bytes, size_t line_chars)
{
    const unsigned char *from = data;
    size_t column = 0;

    for (size_t i = 0; i < bytes; i += 3) {
        size_t left = bytes - i;
        unsigned long group = (unsigned long)from[i] << 16 |
                              (left > 1 ? (unsigned long)from[i + 1] << 8 : 0) |
                              (left > 2 ? (unsigned long)from[i + 2] : 0);
        char four[4] = {alphabet[group >> 18], alphabet[group >> 12 & 63],
                        left > 1 ? alphabet[group >> 6 & 63] : '=',
                        left > 2 ? alphabet[group & 63] : '='};
        if (line_chars && column + 4 > line_chars) {
            ol_buf_add(out, "\r\n", 2);
            column = 0;
        }
        ol_buf_add(out, four, 4);
        column += 4;
    }
    if (line_chars && column)
        ol_buf_add(out, "\r\n", 2);
}

static int decode_char(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

long ol_base64_decode(const char *text, size_t bytes, unsigned char *out)
{
    unsigned long group = 0;
    int bits = 0;
    long length = 0;

    for (int padding = 0; padding < 2 && bytes > 0 && text[bytes - 1] == '='; padding++)
        bytes--;
    if (bytes % 4 == 1)
        return -1;
    for (size_t i = 0; i < bytes; i++) {
        int value = decode_char(text[i]);
        if (value < 0)
            return -1;
        group = group << 6 | (unsigned long)value;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[length++] = (unsigned char)(group >> bits);
        }
    }
    return length;
}
