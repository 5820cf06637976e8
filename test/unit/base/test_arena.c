/* test_arena.c: allocation, ceiling and reset of an arena. */
#include "base/arena.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void arena_memory_is_zeroed_and_aligned(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t bytes = 0; bytes < 5000; bytes += 37) {
            unsigned char *at = ol_arena_alloc(&arena, bytes);
            assert_non_null(at);
            assert_int_equal((uintptr_t)at % alignof(max_align_t), 0);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(at[i], 0);
            memset(at, 0xAA, bytes); // what the next round finds unless it is cleared
        }
        ol_arena_reset(&arena);
        assert_int_equal(arena.used, 0);
    }
    ol_arena_clear(&arena);
    ol_arena_clear(&arena);
}

static void arena_pieces_do_not_overlap(void **state)
{
    struct ol_arena arena = {0};
    char *pieces[300];
    (void)state;
    for (size_t i = 0; i < COUNT(pieces); i++) {
        pieces[i] = ol_arena_alloc(&arena, 1000);
        memset(pieces[i], (int)(i % 251), 1000);
    }
    for (size_t i = 0; i < COUNT(pieces); i++)
        for (size_t j = 0; j < 1000; j++)
            assert_int_equal((unsigned char)pieces[i][j], i % 251);
    ol_arena_clear(&arena);
}

static void arena_refuses_beyond_its_ceiling(void **state)
{
    struct ol_arena arena = {.ceiling = 1000};
    (void)state;
    assert_non_null(ol_arena_alloc(&arena, 600));
    assert_null(ol_arena_alloc(&arena, 600));
    assert_non_null(ol_arena_alloc(&arena, 300));
    ol_arena_reset(&arena);
    assert_non_null(ol_arena_alloc(&arena, 900));
    ol_arena_clear(&arena);
}

static void arena_refuses_absurd_sizes(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    assert_null(ol_arena_alloc(&arena, SIZE_MAX));
    assert_null(ol_arena_alloc(&arena, SIZE_MAX - 8));
    assert_null(ol_arena_array(&arena, SIZE_MAX / 2, 4));
    assert_non_null(ol_arena_array(&arena, 10, 4));
    ol_arena_clear(&arena);
}

static void arena_keeps_one_block_but_no_huge_one(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    ol_arena_alloc(&arena, 100);
    ol_arena_reset(&arena);
    assert_non_null(arena.block);
    ol_arena_alloc(&arena, 64 * 1024 * 1024);
    ol_arena_reset(&arena);
    assert_null(arena.block);
    ol_arena_clear(&arena);
}

static void arena_copies_and_prints(void **state)
{
    struct ol_arena arena = {0};
    (void)state;
    assert_string_equal(ol_arena_copy(&arena, "abcdef", 3), "abc");
    assert_string_equal(ol_arena_copy(&arena, NULL, 0), "");
    assert_string_equal(ol_arena_print(&arena, "%d-%s", 7, "x"), "7-x");
    ol_arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_memory_is_zeroed_and_aligned),
        cmocka_unit_test(arena_pieces_do_not_overlap),
        cmocka_unit_test(arena_refuses_beyond_its_ceiling),
        cmocka_unit_test(arena_refuses_absurd_sizes),
        cmocka_unit_test(arena_keeps_one_block_but_no_huge_one),
        cmocka_unit_test(arena_copies_and_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
