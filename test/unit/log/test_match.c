/* test_match.c: patterns and conditions of routes and rules, for each store. */
#include "log/match.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void only_the_star_is_a_wildcard(void **state)
{
    struct ol_buf out = {0};
    (void)state;
    ol_match_write("order.*", true, &out);
    assert_string_equal(out.data, "order.*");
    ol_buf_reset(&out);
    ol_match_write("a?[b]_%\\*", true, &out);
    assert_string_equal(out.data, "a[?][[]b]_%\\*");
    ol_buf_reset(&out);
    ol_match_write("a?[b]_%\\*", false, &out);
    assert_string_equal(out.data, "a?[b]\\_\\%\\\\%");
    ol_buf_clear(&out);
}

static void pointers_become_paths_of_sqlite(void **state)
{
    static const char *const pairs[][2] = {
        {"/total", "$.\"total\""},
        {"/items/0/sku", "$.\"items\"[0].\"sku\""},
        {"/a~1b/c~0d", "$.\"a/b\".\"c~d\""},
    };
    struct ol_buf out = {0};
    (void)state;
    for (size_t i = 0; i < COUNT(pairs); i++) {
        ol_buf_reset(&out);
        ol_match_write_path(pairs[i][0], &out);
        assert_string_equal(out.data, pairs[i][1]);
    }
    ol_buf_clear(&out);
}

static int check_when(const char *text, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_json when;
    assert_int_equal(ol_json_parse(text, strlen(text), &when, NULL), 0);
    int result = ol_match_check_when(&when, "/routes/0/when", &arena, err);
    ol_arena_clear(&arena);
    return result;
}

static void conditions_have_paths_and_scalar_values(void **state)
{
    outlog_err err;
    (void)state;
    assert_int_equal(check_when("{\"/total\":1,\"/a/b\":null,\"/c\":\"x\",\"/d\":false}", &err), 0);
    assert_int_equal(check_when("[]", &err), -1);
    assert_string_equal(err.pointer, "/routes/0/when");
    assert_int_equal(check_when("{\"total\":1}", &err), -1);
    assert_string_equal(err.pointer, "/routes/0/when/total");
    assert_int_equal(check_when("{\"/a/b\":[1]}", &err), -1);
    assert_string_equal(err.pointer, "/routes/0/when/~1a~1b");
    assert_int_equal(check_when("{\"/~\u00e9\":1}", &err), -1); // R7: half an escape
    assert_int_equal(check_when("{\"/a~\":1}", &err), -1);
}

static void conditions_are_written_for_each_store(void **state)
{
    static const char text[] = "{\"/a/0\":1,\"/b\":\"x\"}";
    struct ol_arena arena = {0};
    struct ol_buf out = {0};
    struct ol_json when;
    (void)state;
    assert_int_equal(ol_json_parse(text, strlen(text), &when, NULL), 0);
    ol_match_write_when(&when, false, &arena, &out);
    assert_string_equal(out.data, text);
    ol_buf_reset(&out);
    ol_match_write_when(&when, true, &arena, &out);
    assert_string_equal(out.data, "{\"$.\\\"a\\\"[0]\":1,\"$.\\\"b\\\"\":\"x\"}");
    ol_buf_clear(&out);
    ol_arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_star_is_a_wildcard),
        cmocka_unit_test(pointers_become_paths_of_sqlite),
        cmocka_unit_test(conditions_have_paths_and_scalar_values),
        cmocka_unit_test(conditions_are_written_for_each_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
