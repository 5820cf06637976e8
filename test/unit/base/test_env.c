/* test_env.c: ${NAME} in settings. */
#include "base/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int expand(const char *text, struct ol_buf *out, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_json value;
    assert_int_equal(ol_json_parse(text, strlen(text), &value, NULL), 0);
    ol_buf_reset(out);
    int result = ol_env_expand(&value, &arena, out, err);
    ol_arena_clear(&arena);
    return result;
}

static void variables_are_expanded_in_strings_only(void **state)
{
    struct ol_buf out = {0};
    outlog_err err;
    (void)state;
    setenv("OUTLOG_TEST_VALUE", "a\"b", 1);
    assert_int_equal(expand("{\"url\": \"x/${OUTLOG_TEST_VALUE}/y\", \"n\": [1, \"$${z}\"],"
                            " \"${k}\": true}",
                            &out, &err),
                     0);
    assert_string_equal(out.data, "{\"url\":\"x/a\\\"b/y\",\"n\":[1,\"${z}\"],\"${k}\":true}");
    assert_int_equal(expand("{ \"a\" : 1 }", &out, &err), 0);
    assert_string_equal(out.data, "{ \"a\" : 1 }"); // nothing to expand: the same bytes
    ol_buf_clear(&out);
}

static void an_unset_variable_is_named_with_its_key(void **state)
{
    struct ol_buf out = {0};
    outlog_err err;
    (void)state;
    unsetenv("OUTLOG_TEST_UNSET");
    assert_int_equal(expand("{\"tls\":{\"key\":\"${OUTLOG_TEST_UNSET}\"}}", &out, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    assert_non_null(strstr(err.message, "tls: key: "));
    assert_non_null(strstr(err.message, "OUTLOG_TEST_UNSET"));
    assert_int_equal(expand("\"${}\"", &out, &err), -1);
    assert_int_equal(expand("\"${abc\"", &out, &err), -1);
    ol_buf_clear(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_are_expanded_in_strings_only),
        cmocka_unit_test(an_unset_variable_is_named_with_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
