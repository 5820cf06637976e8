/* test_upcast.c: old payloads are converted to the current version (E11). */
#include "log/upcast.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct ol_json parsed(const char *text)
{
    struct ol_json value;
    outlog_err err;
    if (ol_json_parse(text, strlen(text), &value, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return value;
}

static void assert_upcast(const char *upcasters, int from, int to, const char *payload,
                          const char *expect)
{
    struct ol_json steps = parsed(upcasters), value = parsed(payload);
    struct ol_buf out = {0};
    outlog_err err = {0};
    if (ol_upcast_check(&steps, to, &err) < 0 ||
        ol_upcast_apply(&steps, from, to, &value, &out, &err) < 0)
        fail_msg("%s: %s", upcasters, err.message);
    assert_string_equal(out.data, expect);
    ol_buf_clear(&out);
}

/* One step, from version 1 to 2. */
static void assert_step(const char *step, const char *payload, const char *expect)
{
    char upcasters[256];
    snprintf(upcasters, sizeof upcasters, "{\"1\":[%s]}", step);
    assert_upcast(upcasters, 1, 2, payload, expect);
}

static void e11_rename_keeps_order_and_bytes(void **state)
{
    static const char *const sum = "{\"rename\":[\"/sum\",\"/total\"]}";
    (void)state;
    assert_step(sum, "{ \"a\":1.50, \"sum\" : 1E2 ,\"z\":\"\\u0041\"}",
                "{ \"a\":1.50, \"total\" : 1E2 ,\"z\":\"\\u0041\"}");
    assert_step(sum, "{\"\\u0073um\":1}", "{\"total\":1}");
    assert_step("{\"rename\":[\"/a/b\",\"/a/c\"]}", "{\"a\":{\"b\":[1, 2]}}",
                "{\"a\":{\"c\":[1, 2]}}");
    assert_step("{\"rename\":[\"/items/1/n\",\"/items/1/name\"]}",
                "{\"items\":[{\"n\":1},{\"n\":2}]}", "{\"items\":[{\"n\":1},{\"name\":2}]}");
    assert_step("{\"rename\":[\"/x~1y\",\"/p~0q\\\"\"]}", "{\"x/y\":1}", "{\"p~q\\\"\":1}");
}

static void e11_missing_from_changes_nothing(void **state)
{
    (void)state;
    assert_step("{\"rename\":[\"/sum\",\"/total\"]}", "{\"a\":1}", "{\"a\":1}");
    assert_step("{\"rename\":[\"/sum\",\"/total\"]}", "{ }", "{ }");
    assert_step("{\"move\":[\"/a/b\",\"/c/d\"]}", "{\"a\":{}}", "{\"a\":{}}");
    assert_step("{\"move\":[\"/a/b\",\"/c/d\"]}", "{\"a\":7}", "{\"a\":7}");
    assert_step("{\"move\":[\"/a/0\",\"/c\"]}", "{\"a\":[1]}", "{\"a\":[1]}");
}

static void e11_existing_to_changes_nothing(void **state)
{
    (void)state;
    assert_step("{\"rename\":[\"/sum\",\"/total\"]}", "{\"sum\":1,\"total\":2}",
                "{\"sum\":1,\"total\":2}");
    assert_step("{\"move\":[\"/a\",\"/b/c\"]}", "{\"a\":1,\"b\":{\"c\":null}}",
                "{\"a\":1,\"b\":{\"c\":null}}");
    assert_step("{\"move\":[\"/a\",\"/b/c\"]}", "{\"a\":1,\"b\":\"text\"}",
                "{\"a\":1,\"b\":\"text\"}");
    assert_step("{\"default\":[\"/a\",1]}", "{\"a\":null}", "{\"a\":null}");
    assert_step("{\"default\":[\"/a/b\",1]}", "{\"a\":[]}", "{\"a\":[]}");
}

static void e11_move_creates_missing_parents(void **state)
{
    (void)state;
    assert_step("{\"move\":[\"/a/b\",\"/c/d\"]}", "{\"a\":{\"b\":1}}",
                "{\"a\":{},\"c\":{\"d\":1}}");
    assert_step("{\"move\":[\"/a/b\",\"/c/d\"]}", "{\"c\":{\"x\":1},\"a\":{\"b\":2,\"y\":3}}",
                "{\"c\":{\"x\":1,\"d\":2},\"a\":{\"y\":3}}");
    assert_step("{\"move\":[\"/a\",\"/p/q/r~1s\"]}", "{ \"a\" : [1] }",
                "{\"p\":{\"q\":{\"r/s\":[1]}}  }");
    assert_step("{\"move\":[\"/a\",\"/a/b/c\"]}", "{\"a\":1,\"z\":2}",
                "{\"z\":2,\"a\":{\"b\":{\"c\":1}}}");
    assert_step("{\"move\":[\"/a\",\"/list/0/a\"]}", "{\"a\":1,\"list\":[{}]}",
                "{\"list\":[{\"a\":1}]}");
}

static void e11_removal_leaves_the_commas_right(void **state)
{
    static const char *const move = "{\"move\":[\"/m\",\"/x/m\"]}";
    (void)state;
    assert_step(move, "{\"m\":1,\"x\":{}}", "{\"x\":{\"m\":1}}");
    assert_step(move, "{\"x\":{} , \"m\":1}", "{\"x\":{\"m\":1}}");
    assert_step(move, "{\"a\":0, \"m\":1, \"x\":{}}", "{\"a\":0, \"x\":{\"m\":1}}");
    assert_step(move, "{\"m\":1}", "{\"x\":{\"m\":1}}");
}

static void e11_default_fills_only_what_is_absent(void **state)
{
    (void)state;
    assert_step("{\"default\":[\"/currency\",\"EUR\"]}", "{}", "{\"currency\":\"EUR\"}");
    assert_step("{\"default\":[\"/currency\",\"EUR\"]}", "{\"total\": 1 }",
                "{\"total\": 1,\"currency\":\"EUR\" }");
    assert_step("{\"default\":[\"/currency\",\"EUR\"]}", "{\"currency\":\"USD\"}",
                "{\"currency\":\"USD\"}");
    assert_step("{\"default\":[\"/a/b\",{\"x\": [1]}]}", "{\"a\":{}}",
                "{\"a\":{\"b\":{\"x\": [1]}}}");
    assert_step("{\"default\":[\"/a/b\",null]}", "{}", "{\"a\":{\"b\":null}}");
}

static void e11_versions_are_applied_in_order(void **state)
{
    static const char *const steps =
        "{\"3\":[{\"rename\":[\"/c\",\"/d\"]}],"
        "\"1\":[{\"rename\":[\"/a\",\"/b\"]},{\"default\":[\"/n\",1]}],"
        "\"2\":[{\"rename\":[\"/b\",\"/c\"]}]}";
    (void)state;
    assert_upcast(steps, 1, 4, "{\"a\":0}", "{\"d\":0,\"n\":1}");
    assert_upcast(steps, 2, 4, "{\"b\":0}", "{\"d\":0}");
    assert_upcast(steps, 3, 4, "{\"c\":0}", "{\"d\":0}");
    assert_upcast(steps, 4, 4, "{ \"a\":0}", "{ \"a\":0}");
    assert_upcast(steps, 5, 4, "{\"a\":0}", "{\"a\":0}");
}

static void e11_version_without_steps_passes(void **state)
{
    (void)state;
    assert_upcast("{}", 1, 9, "{ \"a\" : 1 }", "{ \"a\" : 1 }");
    assert_upcast("{\"5\":[]}", 1, 9, "{\"a\":1}", "{\"a\":1}");
    assert_upcast("{\"1\":[{\"rename\":[\"/a\",\"/b\"]}]}", 1, 2000000000, "{\"a\":1}",
                  "{\"b\":1}");
}

static void e11_no_upcasters_pass_the_payload(void **state)
{
    struct ol_json none = {0}, payload = parsed("{\"a\":1}");
    struct ol_buf out = {0};
    outlog_err err;
    (void)state;
    ol_buf_text(&out, "x");
    assert_int_equal(ol_upcast_apply(&none, 1, 2, &payload, &out, &err), 0);
    assert_string_equal(out.data, "x{\"a\":1}");
    ol_buf_clear(&out);
}

static void e11_result_that_nests_too_deep_is_refused(void **state)
{
    struct ol_json steps = parsed("{\"1\":[{\"move\":[\"/a\",\"/b/c/d\"]}]}");
    struct ol_buf out = {0}, text = {0};
    struct ol_json payload;
    outlog_err err;
    (void)state;
    ol_buf_text(&text, "{\"a\":");
    for (int i = 0; i < 63; i++)
        ol_buf_char(&text, '[');
    for (int i = 0; i < 63; i++)
        ol_buf_char(&text, ']');
    ol_buf_char(&text, '}');
    assert_int_equal(ol_json_parse(text.data, text.bytes, &payload, &err), 0);
    assert_int_equal(ol_upcast_apply(&steps, 1, 2, &payload, &out, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_JSON);
    assert_int_equal(out.bytes, 0);
    ol_buf_clear(&text);
    ol_buf_clear(&out);
}

static void e11_wrong_declaration_names_its_step(void **state)
{
    static const struct {
        const char *text, *pointer, *message;
    } cases[] = {
        {"[]", "", "must be an object from version"},
        {"{\"one\":[]}", "/one", "must be a version below the current one"},
        {"{\"0\":[]}", "/0", "must be a version below"},
        {"{\"01\":[]}", "/01", "must be a version below"},
        {"{\"-1\":[]}", "/-1", "must be a version below"},
        {"{\"\":[]}", "/", "must be a version below"},
        {"{\"3\":[]}", "/3", "must be a version below"},
        {"{\"99999999999\":[]}", "/99999999999", "must be a version below"},
        {"{\"1\":{}}", "/1", "must be a list of steps"},
        {"{\"2\":[7]}", "/2/0", "version 2, step 1: a step is"},
        {"{\"1\":[{}]}", "/1/0", "version 1, step 1: a step is"},
        {"{\"1\":[{\"drop\":[\"/a\",\"/b\"]}]}", "/1/0", "one of rename, move, default"},
        {"{\"1\":[{\"move\":[\"/a\",\"/b\"],\"rename\":[\"/a\",\"/b\"]}]}", "/1/0",
         "a step is one"},
        {"{\"1\":[{\"move\":[\"/a\",\"/b\"]},{\"rename\":[\"/a\"]}]}", "/1/1",
         "version 1, step 2: rename needs [from, to]"},
        {"{\"1\":[{\"default\":[\"/a\"]}]}", "/1/0", "default needs [pointer, value]"},
        {"{\"1\":[{\"default\":[\"/a\",1,2]}]}", "/1/0", "default needs [pointer, value]"},
        {"{\"1\":[{\"default\":{\"/a\":1,\"/b\":2}}]}", "/1/0", "default needs [pointer, value]"},
        {"{\"1\":[{\"move\":[1,\"/a\"]}]}", "/1/0", "a JSON pointer such as"},
        {"{\"1\":[{\"move\":[\"a\",\"/b\"]}]}", "/1/0", "\"a\" is not a JSON pointer"},
        {"{\"1\":[{\"move\":[\"\",\"/b\"]}]}", "/1/0", "\"\" is not a JSON pointer"},
        {"{\"1\":[{\"move\":[\"/a~\",\"/b\"]}]}", "/1/0", "\"/a~\" is not a JSON pointer"},
        {"{\"1\":[{\"move\":[\"/a\",\"/a\"]}]}", "/1/0", "/a is both from and to"},
        {"{\"1\":[{\"rename\":[\"/a/b\",\"/c/b\"]}]}", "/1/0", "rename stays in one parent"},
        {"{\"1\":[{\"move\":[\"/a/b\",\"/a\"]}]}", "/1/0", "/a/b is inside /a"},
    };
    struct ol_json payload = parsed("{\"a\":{\"b\":1}}");
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ol_json steps = parsed(cases[i].text);
        struct ol_buf out = {0};
        outlog_err err = {0};
        if (ol_upcast_check(&steps, 3, &err) == 0)
            fail_msg("accepted: %s", cases[i].text);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        assert_string_equal(err.pointer, cases[i].pointer);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].text, err.message);
        if (strstr(err.message, "step")) // applying it gives the same error, or does nothing
            ol_upcast_apply(&steps, 1, 3, &payload, &out, &err);
        ol_buf_clear(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e11_rename_keeps_order_and_bytes),
        cmocka_unit_test(e11_missing_from_changes_nothing),
        cmocka_unit_test(e11_existing_to_changes_nothing),
        cmocka_unit_test(e11_move_creates_missing_parents),
        cmocka_unit_test(e11_removal_leaves_the_commas_right),
        cmocka_unit_test(e11_default_fills_only_what_is_absent),
        cmocka_unit_test(e11_versions_are_applied_in_order),
        cmocka_unit_test(e11_version_without_steps_passes),
        cmocka_unit_test(e11_no_upcasters_pass_the_payload),
        cmocka_unit_test(e11_result_that_nests_too_deep_is_refused),
        cmocka_unit_test(e11_wrong_declaration_names_its_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
