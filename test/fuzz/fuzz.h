/* fuzz.h: what most fuzzers need: a check that stays on, and the input as text of exactly its
 * size. */
#ifndef OL_TEST_FUZZ_H
#define OL_TEST_FUZZ_H

#include "base/utf8.h"
#include "outlog.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static inline void check(bool is_ok)
{
    if (!is_ok)
        abort();
}

/* An error has a code and can be written as JSON. */
static inline void check_err(const outlog_err *err)
{
    check(err->code != OUTLOG_OK && err->message[0]);
    check(ol_utf8_is_valid(err->message, strlen(err->message)));
    check(ol_utf8_is_valid(err->pointer, strlen(err->pointer)));
}

/* A copy with a NUL behind it, so that the sanitizer sees a byte too far; free() it. */
static inline char *copy_text(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    check(text != NULL);
    if (bytes)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    return text;
}

#endif
