/* uuid.c: UUIDv7 (RFC 9562): 48 bits of milliseconds, then a counter that keeps ids of one process
 * in order, then random bits. */
#include "base/uuid.h"

#include "base/clock.h"
#include "base/random.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The pool saves one system call per UUID. A forked child does not share it (see on_fork). */
static struct {
    pthread_mutex_t lock;
    uint8_t pool[512];
    size_t left;
    uint64_t last_ms;
    uint32_t counter; // 26 bits: the 12 of rand_a and the first 14 of rand_b
} generator = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_fork(void)
{
    pthread_mutex_init(&generator.lock, NULL);
    generator.left = 0;
    generator.last_ms = 0;
}

static void register_fork(void)
{
    pthread_atfork(NULL, NULL, on_fork);
}

static void draw_random(uint8_t *out, size_t bytes)
{
    if (generator.left < bytes) {
        ol_random_bytes(generator.pool, sizeof generator.pool);
        generator.left = sizeof generator.pool;
    }
    generator.left -= bytes;
    memcpy(out, generator.pool + generator.left, bytes);
}

void ol_uuid_make(char out[OL_UUID_TEXT])
{
    static pthread_once_t registered = PTHREAD_ONCE_INIT;
    uint8_t bytes[16];
    uint32_t seed;

    pthread_once(&registered, register_fork);
    pthread_mutex_lock(&generator.lock);
    uint64_t ms = (uint64_t)ol_clock_wall_us() / 1000;
    if (ms > generator.last_ms) {
        draw_random((uint8_t *)&seed, sizeof seed);
        generator.counter = seed & 0x1FFFFFF; // the top bit is 0, so that the counter can grow
        generator.last_ms = ms;
    } else if (++generator.counter > 0x3FFFFFF) { // the clock has not moved, or went back
        generator.counter = 0;
        generator.last_ms++;
    }
    ms = generator.last_ms;
    uint32_t counter = generator.counter;
    draw_random(bytes + 10, 6);
    pthread_mutex_unlock(&generator.lock);

    for (int i = 0; i < 6; i++)
        bytes[i] = (uint8_t)(ms >> (40 - 8 * i));
    bytes[6] = (uint8_t)(0x70 | counter >> 22);
    bytes[7] = (uint8_t)(counter >> 14);
    bytes[8] = (uint8_t)(0x80 | (counter >> 8 & 0x3F));
    bytes[9] = (uint8_t)counter;
    ol_uuid_from_bytes(bytes, out);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Hex digits in lower case, 0 for other characters. A table, because comparing ranges of random
 * digits makes the processor mispredict branches. */
static const char digits[256] = {
    ['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4', ['5'] = '5',
    ['6'] = '6', ['7'] = '7', ['8'] = '8', ['9'] = '9', ['a'] = 'a', ['b'] = 'b',
    ['c'] = 'c', ['d'] = 'd', ['e'] = 'e', ['f'] = 'f', ['A'] = 'a', ['B'] = 'b',
    ['C'] = 'c', ['D'] = 'd', ['E'] = 'e', ['F'] = 'f',
};

bool ol_uuid_parse(const char *text, char out[OL_UUID_TEXT])
{
    for (int i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        out[i] = dash ? '-' : digits[(unsigned char)text[i]];
        if (dash ? text[i] != '-' : !out[i])
            return false;
    }
    out[36] = '\0';
    return text[36] == '\0';
}

void ol_uuid_to_bytes(const char text[OL_UUID_TEXT], uint8_t out[16])
{
    for (int i = 0, at = 0; i < 16; i++, at += 2) {
        if (text[at] == '-')
            at++;
        out[i] = (uint8_t)(hex_value(text[at]) * 16 + hex_value(text[at + 1]));
    }
}

void ol_uuid_from_bytes(const uint8_t bytes[16], char out[OL_UUID_TEXT])
{
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        *out++ = hex[bytes[i] >> 4];
        *out++ = hex[bytes[i] & 15];
    }
    *out = '\0';
}
