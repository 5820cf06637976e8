/* test_clock.c: the clocks do not go back. */
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000)

static void clocks_do_not_go_back(void **state)
{
    int64_t boot = ol_clock_boot_us(), wall = ol_clock_wall_us();
    (void)state;
    assert_true(ol_clock_boot_us() >= boot);
    assert_true(wall > INT64_C(1700000000) * SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_do_not_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
