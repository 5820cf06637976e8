/* test_map.c: counts by name, through growth and removal. */
#include "base/counter_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void counts_are_added_by_name(void **state)
{
    struct ol_counter_map map = {0};
    char key[] = "orders";
    (void)state;
    assert_int_equal(ol_counter_map_get(&map, "orders"), 0);
    assert_true(ol_counter_map_add(&map, key, 2));
    assert_true(ol_counter_map_add(&map, key, 3));
    key[0] = 'x'; // the name was copied
    assert_int_equal(ol_counter_map_get(&map, "orders"), 5);
    assert_int_equal(ol_counter_map_get(&map, key), 0);
    ol_counter_map_clear(&map);
    assert_int_equal(ol_counter_map_get(&map, "orders"), 0);
}

static void growth_keeps_counts_and_drops_zeros(void **state)
{
    enum { NAMES = 5000 };
    struct ol_counter_map map = {0};
    char key[16];
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        snprintf(key, sizeof key, "name-%d", i);
        assert_true(ol_counter_map_add(&map, key, i + 1));
        if (i % 2)
            assert_true(ol_counter_map_add(&map, key, -(i + 1)));
    }
    assert_true(map.capacity < 2 * NAMES * 4);
    assert_true(map.used < NAMES); // some of the zeros are gone
    for (int i = 0; i < NAMES; i++) {
        snprintf(key, sizeof key, "name-%d", i);
        assert_int_equal(ol_counter_map_get(&map, key), i % 2 ? 0 : i + 1);
    }
    ol_counter_map_clear(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_added_by_name),
        cmocka_unit_test(growth_keeps_counts_and_drops_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
