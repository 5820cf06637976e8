/* YAML to JSON: scalars as JSON has them, what is refused, and the line of each value. */
#include "cli/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_json(const char *text, const char *expected)
{
    struct ol_arena arena = {0};
    struct ol_yaml yaml;
    outlog_err err;
    if (ol_yaml_read(text, strlen(text), &arena, &yaml, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    assert_string_equal(yaml.json, expected);
    assert_int_equal(yaml.bytes, strlen(expected));
    ol_arena_clear(&arena);
}

static void assert_refused(const char *text, const char *message)
{
    struct ol_arena arena = {0};
    struct ol_yaml yaml;
    outlog_err err;
    assert_int_equal(ol_yaml_read(text, strlen(text), &arena, &yaml, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    if (!strstr(err.message, message))
        fail_msg("%s: %s", message, err.message);
    ol_arena_clear(&arena);
}

static void plain_scalars_mean_what_they_mean_in_json(void **state)
{
    (void)state;
    assert_json("a: 1\nb: -1.5e3\nc: true\nd: null\ne: ~\nf:\n",
                "{\"a\":1,\"b\":-1.5e3,\"c\":true,\"d\":null,\"e\":null,\"f\":null}");
    assert_json("a: yes\nb: on\nc: 007\nd: 1h\ne: True\n",
                "{\"a\":\"yes\",\"b\":\"on\",\"c\":\"007\",\"d\":\"1h\",\"e\":\"True\"}");
    assert_json("a: '1'\nb: \"true\"\n", "{\"a\":\"1\",\"b\":\"true\"}");
    assert_json("type: null\n", "{\"type\":\"null\"}"); // the name of a type
}

static void maps_and_lists_nest(void **state)
{
    (void)state;
    assert_json("routes:\n  - {on: \"order.*\", to: [a, b]}\n  - on: x\n",
                "{\"routes\":[{\"on\":\"order.*\",\"to\":[\"a\",\"b\"]},{\"on\":\"x\"}]}");
}

static void an_empty_file_is_an_empty_object(void **state)
{
    (void)state;
    assert_json("", "{}");
    assert_json("# only a comment\n", "{}");
}

static void what_json_has_not_is_refused_with_its_line(void **state)
{
    (void)state;
    assert_refused("a: 1\nb: &x 2\n", "line 2: anchors");
    assert_refused("a: *x\n", "line 1: aliases");
    assert_refused("a: 1\nb: !!str 2\n", "line 2: tags");
    assert_refused("a: {<<: 1}\n", "line 1: merge keys");
    assert_refused("a: 1\nb: 2\na: 3\n", "line 3: a: this key is on line 1 already");
    assert_refused("a: 1\n---\nb: 2\n", "line 2: ");
    assert_refused("a: [1\n", "line ");
    assert_refused("a: 1\nb: \xff\n", "line 2: ");
}

static void a_json_pointer_has_a_line(void **state)
{
    static const char text[] = "store: x\n"
                               "destinations:\n"
                               "  a/b~c:\n"
                               "    type: webhook\n"
                               "routes:\n"
                               "  - on: x\n"
                               "  - on: y\n"
                               "    to: z\n";
    struct ol_arena arena = {0};
    struct ol_yaml yaml;
    outlog_err err;
    (void)state;
    assert_int_equal(ol_yaml_read(text, strlen(text), &arena, &yaml, &err), 0);
    assert_int_equal(ol_yaml_line(&yaml, "/store"), 1);
    assert_int_equal(ol_yaml_line(&yaml, "/destinations/a~1b~0c/type"), 4);
    assert_int_equal(ol_yaml_line(&yaml, "/routes/1/to"), 8);
    assert_int_equal(ol_yaml_line(&yaml, "/routes/1/missing"), 7);
    assert_int_equal(ol_yaml_line(&yaml, "/missing"), 1);
    ol_arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_scalars_mean_what_they_mean_in_json),
        cmocka_unit_test(maps_and_lists_nest),
        cmocka_unit_test(an_empty_file_is_an_empty_object),
        cmocka_unit_test(what_json_has_not_is_refused_with_its_line),
        cmocka_unit_test(a_json_pointer_has_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
