/* arena.c: a list of blocks; the newest is filled from its start. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Much work is small (a chat message), and thousands of arenas live at a time: a large first block
 * would spread the used memory thinly. The first block is the largest that malloc serves from its
 * per-thread cache. */
enum { FIRST_BLOCK = 992, SECOND_BLOCK = 16 * 1024, KEEP_BLOCK = 4 * 1024 * 1024 };

struct ol_arena_block {
    struct ol_arena_block *next;
    size_t size, used;
    alignas(max_align_t) unsigned char bytes[];
};

void ol_arena_clear(struct ol_arena *arena)
{
    struct ol_arena_block *block = arena->block;
    while (block) {
        struct ol_arena_block *next = block->next;
        free(block);
        block = next;
    }
    arena->block = NULL;
    arena->used = 0;
}

void ol_arena_reset(struct ol_arena *arena)
{
    struct ol_arena_block *keep = arena->block;
    if (!keep || keep->size > KEEP_BLOCK) { // the memory of one huge batch must not be held forever
        ol_arena_clear(arena);
        return;
    }
    arena->block = keep->next;
    ol_arena_clear(arena);
    keep->next = NULL;
    keep->used = 0;
    arena->block = keep;
}

static size_t choose_size(const struct ol_arena *arena, size_t bytes)
{
    size_t size = arena->block ? arena->block->size * 2 : FIRST_BLOCK;
    if ((arena->block || size < bytes) && size < SECOND_BLOCK)
        size = SECOND_BLOCK;
    if (size > KEEP_BLOCK)
        size = KEEP_BLOCK;
    return size < bytes ? bytes : size;
}

static struct ol_arena_block *add_block(struct ol_arena *arena, size_t bytes)
{
    size_t size = choose_size(arena, bytes);
    struct ol_arena_block *block = malloc(sizeof *block + size);
    if (!block)
        return NULL;
    block->next = arena->block;
    block->size = size;
    block->used = 0;
    arena->block = block;
    return block;
}

static void *take_bytes(struct ol_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (arena->ceiling && arena->used + bytes > arena->ceiling)
        return NULL;
    struct ol_arena_block *block = arena->block;
    if ((!block || block->size - block->used < bytes) && !(block = add_block(arena, bytes)))
        return NULL;
    void *at = block->bytes + block->used;
    block->used += bytes;
    arena->used += bytes;
    return at;
}

void *ol_arena_alloc(struct ol_arena *arena, size_t bytes)
{
    void *at = take_bytes(arena, bytes);
    return at ? memset(at, 0, bytes) : NULL;
}

void *ol_arena_array(struct ol_arena *arena, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return NULL;
    return ol_arena_alloc(arena, total);
}

char *ol_arena_copy(struct ol_arena *arena, const void *from, size_t bytes)
{
    char *to = take_bytes(arena, bytes + 1);
    if (!to)
        return NULL;
    if (bytes)
        memcpy(to, from, bytes);
    to[bytes] = '\0';
    return to;
}

char *ol_arena_print(struct ol_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *to = bytes < 0 ? NULL : take_bytes(arena, (size_t)bytes + 1);
    if (!to)
        return NULL;
    va_start(args, format);
    vsnprintf(to, (size_t)bytes + 1, format, args);
    va_end(args);
    return to;
}
