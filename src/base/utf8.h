/* utf8.h: checking and repairing UTF-8. */
#ifndef OL_BASE_UTF8_H
#define OL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Strict: no overlong forms, no surrogates, nothing above U+10FFFF, no NUL. */
bool ol_utf8_is_valid(const char *text, size_t bytes);

/* Replace each byte that is not part of a valid character by `?`. The length stays as it is. */
void ol_utf8_repair(char *text, size_t bytes);

#endif
