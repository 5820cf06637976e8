/* random.h: cryptographic random bytes. */
#ifndef OL_BASE_RANDOM_H
#define OL_BASE_RANDOM_H

#include <stddef.h>

/* Fills `out` with random bytes from the kernel. */
void ol_random_bytes(void *out, size_t bytes);

#endif
