/* arena.h: memory for one unit of work, freed all at once. */
#ifndef OL_BASE_ARENA_H
#define OL_BASE_ARENA_H

#include <stddef.h>

struct ol_arena_block;

/* Start from {0}: no ceiling, nothing allocated yet. */
struct ol_arena {
    struct ol_arena_block *block; /* the one being filled; older ones follow it */
    size_t used;                  /* bytes handed out since the last reset */
    size_t ceiling;               /* refuse beyond this; 0: no ceiling */
};

/* Free everything. The arena can be used again. */
void ol_arena_clear(struct ol_arena *arena);

/* Empty it, but keep one block, so that steady work does not call malloc. */
void ol_arena_reset(struct ol_arena *arena);

/* `bytes` of zeroed memory aligned for any type, or NULL when memory is out or the ceiling is
 * reached. */
void *ol_arena_alloc(struct ol_arena *arena, size_t bytes);

/* `count` items of `bytes` each, zeroed; NULL also when the product overflows. */
void *ol_arena_array(struct ol_arena *arena, size_t count, size_t bytes);

/* A NUL-terminated copy of `bytes` bytes, or NULL. */
char *ol_arena_copy(struct ol_arena *arena, const void *from, size_t bytes);

/* Formatted text, or NULL. */
char *ol_arena_print(struct ol_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
