/* random.c: random bytes from the kernel. */
#include "base/random.h"

#include <stdint.h>
#include <sys/random.h>

void ol_random_bytes(void *out, size_t bytes)
{
    uint8_t *at = out;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got <= 0)
            continue; // only EINTR is possible here
        at += got;
        bytes -= (size_t)got;
    }
}
