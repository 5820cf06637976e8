/* test_json.c: the strict parser, walking over values, and the canonical form. */
#include "base/json/json.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
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

/* A copy without a byte after it, so that ASan sees a read past the end. */
static int parse_exact(const char *text, size_t bytes, outlog_err *err)
{
    struct ol_json value;
    char *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, text, bytes);
    int rc = ol_json_parse(copy, bytes, &value, err);
    free(copy);
    return rc;
}

static void text_is_accepted(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        " { } ",
        "\t\r\n[ ]\n",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "\"\"",
        "10",
        "-1",
        "1.5",
        "0.1000",
        "1E2",
        "1e+2",
        "1E-2",
        "0e0",
        "-0.0e-0",
        "123456789012345678901234567890",
        "1e999999",
        "{\"a\":1,\"b\":[1,2,{\"a\":null}]}",
        "{\"a\":1,\"A\":2,\"\":3,\"aa\":4}",
        "{\"a\":{\"a\":{\"a\":1}}}",
        "[{\"a\":1},{\"a\":2}]",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\"",
        "\"\\ud83d\\ude00\"",
        "\"\\uD83D\\uDE00\"",
        "\"\\u0001\\u001f\"",
        "\"\x7f\"",
        "\"\xc2\x80\"",
        "\"\xdf\xbf\"",
        "\"\xe0\xa0\x80\"",
        "\"\xed\x9f\xbf\"",
        "\"\xee\x80\x80\"",
        "\"\xef\xbf\xbf\"",
        "\"\xf0\x90\x80\x80\"",
        "\"\xf4\x8f\xbf\xbf\"",
        "\"abcdefgh\"",
        "\"abcdefghi\xc3\xa9jklmnopq\"",
        "\"0123456789abcdef\\n0123456789abcdef\"",
        "[1,2,3]",
        "[ 1 , 2 ]",
        "{ \"a\" : 1 , \"b\" : 2 }",
        "[[[[]]]]",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        outlog_err err = {0};
        if (parse_exact(texts[i], strlen(texts[i]), &err) < 0)
            fail_msg("%s: %s", texts[i], err.message);
    }
}

static void text_is_refused_with_its_reason(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "unexpected end at byte 0"},
        {"  ", "unexpected end at byte 2"},
        {"{", "unexpected end at byte 1"},
        {"[", "unexpected end at byte 1"},
        {"[1", "unexpected end at byte 2"},
        {"[1,", "unexpected end at byte 3"},
        {"{\"a\"", "unexpected end at byte 4"},
        {"{\"a\":", "unexpected end at byte 5"},
        {"{\"a\":1", "unexpected end at byte 6"},
        {"{\"a\":1,", "unexpected end at byte 7"},
        {"\"abc", "string without end at byte 0"},
        {"\"abcdefgh", "string without end at byte 0"},
        {"\"\\", "unexpected end at byte 2"},
        {"{} {}", "more text after the value at byte 3"},
        {"1 2", "more text after the value at byte 2"},
        {"{}x", "more text after the value at byte 2"},
        {"[1,]", "value missing at byte 3"},
        {"[,1]", "value missing at byte 1"},
        {"{\"a\":1,}", "key missing at byte 7"},
        {"{,}", "key missing at byte 1"},
        {"{a:1}", "key missing at byte 1"},
        {"{'a':1}", "key missing at byte 1"},
        {"{1:1}", "key missing at byte 1"},
        {"{\"a\" 1}", "':' missing at byte 5"},
        {"{\"a\":1 \"b\":2}", "',' or '}' missing at byte 7"},
        {"[1 2]", "',' or ']' missing at byte 3"},
        {"[1}", "',' or ']' missing at byte 2"},
        {"{\"a\":1]", "',' or '}' missing at byte 6"},
        {"]", "value missing at byte 0"},
        {"NaN", "value missing at byte 0"},
        {"Infinity", "value missing at byte 0"},
        {"nul", "unknown word at byte 0"},
        {"True", "value missing at byte 0"},
        {"nullx", "more text after the value at byte 4"},
        {"01", "number with a leading zero at byte 0"},
        {"-01", "number with a leading zero at byte 0"},
        {"00", "number with a leading zero at byte 0"},
        {"-", "invalid number at byte 0"},
        {"+1", "value missing at byte 0"},
        {".5", "value missing at byte 0"},
        {"1.", "invalid number at byte 0"},
        {"1.e1", "invalid number at byte 0"},
        {"1e", "invalid number at byte 0"},
        {"1e+", "invalid number at byte 0"},
        {"0x10", "more text after the value at byte 1"},
        {"'a'", "value missing at byte 0"},
        {"// no\n1", "value missing at byte 0"},
        {"\xef\xbb\xbf{}", "value missing at byte 0"},
        {"\"a\nb\"", "control character at byte 2"},
        {"\"a\x1f\"", "control character at byte 2"},
        {"\"0123456789\tb\"", "control character at byte 11"},
        {"\"\\x\"", "unknown escape at byte 1"},
        {"\"\\'\"", "unknown escape at byte 1"},
        {"\"\\u12\"", "\\u without four hex digits at byte 1"},
        {"\"\\u12g4\"", "\\u without four hex digits at byte 1"},
        {"\"\\U0041\"", "unknown escape at byte 1"},
        {"\"\\u0000\"", "U+0000 at byte 1"},
        {"\"\\ud800\"", "lone surrogate at byte 1"},
        {"\"\\udc00\"", "lone surrogate at byte 1"},
        {"\"\\ud800\\ud800\"", "lone surrogate at byte 1"},
        {"\"\\ud800x\"", "lone surrogate at byte 1"},
        {"\"\\ud800\\u0041\"", "lone surrogate at byte 1"},
        {"\"\\ud800\\", "lone surrogate at byte 1"},
        {"\"\xff\"", "invalid UTF-8 at byte 1"},
        {"\"\x80\"", "invalid UTF-8 at byte 1"},
        {"\"\xc0\xaf\"", "invalid UTF-8 at byte 1"}, // overlong /
        {"\"\xc1\xbf\"", "invalid UTF-8 at byte 1"},
        {"\"\xe0\x80\xaf\"", "invalid UTF-8 at byte 1"},
        {"\"\xe0\x9f\xbf\"", "invalid UTF-8 at byte 1"},
        {"\"\xf0\x80\x80\xaf\"", "invalid UTF-8 at byte 1"},
        {"\"\xf0\x8f\xbf\xbf\"", "invalid UTF-8 at byte 1"},
        {"\"\xed\xa0\x80\"", "invalid UTF-8 at byte 1"}, // surrogate D800
        {"\"\xed\xbf\xbf\"", "invalid UTF-8 at byte 1"},
        {"\"\xf4\x90\x80\x80\"", "invalid UTF-8 at byte 1"}, // U+110000
        {"\"\xf5\x80\x80\x80\"", "invalid UTF-8 at byte 1"},
        {"\"\xc3\"", "invalid UTF-8 at byte 1"},
        {"\"\xe2\x82\"", "invalid UTF-8 at byte 1"},
        {"\"\xe2\x82", "invalid UTF-8 at byte 1"},
        {"{\"\xff\":1}", "invalid UTF-8 at byte 2"},
        {"{\"a\":1,\"a\":2}", "duplicate key at byte 7"},
        {"{\"a\":1,\"\\u0061\":2}", "duplicate key at byte 7"},
        {"{\"\\u0061\":1,\"a\":2}", "duplicate key at byte 12"},
        {"{\"\":1,\"\":2}", "duplicate key at byte 6"},
        {"{\"/\":1,\"\\/\":2}", "duplicate key at byte 7"},
        {"{\"\xc3\xa9\":1,\"\\u00E9\":2}", "duplicate key at byte 8"},
        {"{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\ude00\":2}", "duplicate key at byte 10"},
        {"{\"long_common_prefix_1\":1,\"long_common_prefix_1\":2}", "duplicate key at byte 26"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        outlog_err err = {0};
        if (parse_exact(cases[i].text, strlen(cases[i].text), &err) == 0)
            fail_msg("accepted: %s", cases[i].text);
        assert_int_equal(err.code, OUTLOG_INVALID_JSON);
        assert_string_equal(err.message, cases[i].message);
    }
}

static void raw_nul_is_refused(void **state)
{
    outlog_err err;
    (void)state;
    assert_int_equal(parse_exact("\"a\0b\"", 5, &err), -1);
    assert_string_equal(err.message, "control character at byte 2");
    assert_int_equal(parse_exact("{}\0", 3, &err), -1);
    assert_int_equal(parse_exact("\"\\\0\"", 4, &err), -1);
}

static void error_has_a_pointer_to_its_position(void **state)
{
    static const struct {
        const char *text, *pointer;
    } cases[] = {
        {"{\"a\":{\"b\":[1,{\"c\":nope}]}}", "/a/b/1/c"},
        {"{\"a\":{\"b\":1,\"b\":2}}", "/a/b"},
        {"{\"a\":[0,0,01]}", "/a/2"},
        {"{\"x/y~z\":\"\\u0000\"}", "/x~1y~0z"},
        {"{\"\\u00e9\":\xff}", "/\xc3\xa9"},
        {"nope", ""},
        {"{\"a\":{\"b\":1 \"c\":2}}", "/a"},
    };
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(parse_exact(cases[i].text, strlen(cases[i].text), &err), -1);
        assert_string_equal(err.pointer, cases[i].pointer);
    }
}

/* A pointer that does not fit names an ancestor: whole tokens, never half of one. */
static void error_pointer_is_cut_at_a_token(void **state)
{
    struct ol_buf text = {0};
    outlog_err err;
    (void)state;
    for (int i = 0; i < 30; i++)
        ol_buf_print(&text, "{\"level%02d\":", i);
    assert_int_equal(parse_exact(text.data, text.bytes, &err), -1);
    assert_memory_equal(err.pointer, "/level00/level01/", 17);
    assert_true(strlen(err.pointer) < sizeof err.pointer);
    assert_int_equal(strlen(err.pointer) % 8, 0);

    ol_buf_reset(&text);
    ol_buf_text(&text, "{\"a\":{\"");
    for (int i = 0; i < 300; i++)
        ol_buf_char(&text, 'k');
    ol_buf_text(&text, "\":{\"b\":x}}}");
    assert_int_equal(parse_exact(text.data, text.bytes, &err), -1);
    assert_string_equal(err.pointer, "/a");
    ol_buf_clear(&text);
}

static void nesting_ends_at_64(void **state)
{
    char text[256];
    outlog_err err;
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (size_t depth = 64; depth <= 65; depth++) {
            size_t at = 0;
            for (size_t i = 0; i < depth; i++)
                text[at++] = '[';
            if (kind)
                memcpy(text + at - 1, "{}", 2);
            else
                text[at] = ']';
            for (size_t i = at + (kind ? 1 : 0); i < at + depth; i++)
                text[i] = ']';
            assert_int_equal(parse_exact(text, at + depth, &err), depth == 64 ? 0 : -1);
        }
    assert_string_equal(err.message, "nesting too deep at byte 64");
    assert_int_equal(parse_exact("[[],[],{}]", 10, &err), 0);
}

static void write_many_keys(struct ol_buf *text, int count, int twice, const char *key_format)
{
    ol_buf_reset(text);
    for (int i = 0; i < count; i++) {
        ol_buf_text(text, i ? ",\"" : "{\"");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        ol_buf_print(text, key_format, i == twice ? 7 : i);
#pragma GCC diagnostic pop
        ol_buf_text(text, "\":1");
    }
    ol_buf_char(text, '}');
}

static void duplicate_is_found_in_large_objects(void **state)
{
    static const int counts[] = {16, 17, 63, 64, 65, 66, 200, 5000};
    static const char *const formats[] = {"k%d", "a_long_common_prefix_%d", "\\u006b%d"};
    struct ol_buf text = {0};
    outlog_err err;
    (void)state;
    for (size_t f = 0; f < COUNT(formats); f++)
        for (size_t i = 0; i < COUNT(counts); i++) {
            write_many_keys(&text, counts[i], -1, formats[f]);
            assert_int_equal(parse_exact(text.data, text.bytes, &err), 0);
            write_many_keys(&text, counts[i], counts[i] - 1, formats[f]);
            assert_int_equal(parse_exact(text.data, text.bytes, &err), -1);
            assert_memory_equal(err.message, "duplicate key at byte ", 22);
            char *last = strrchr(text.data, '{');
            for (char *c = text.data; (c = strstr(c, ",\"")); c++)
                last = c;
            assert_int_equal(strtol(err.message + 22, NULL, 10), last + 1 - text.data);
        }
    ol_buf_clear(&text);
}

/* An object inside an object must not disturb the keys of the outer one. */
static void duplicate_is_found_around_nested_objects(void **state)
{
    outlog_err err;
    const char *text = "{\"a\":{\"x\":1,\"y\":{\"a\":1}},\"b\":[{\"a\":1},{\"b\":2}],\"a\":0}";
    (void)state;
    assert_int_equal(parse_exact(text, strlen(text), &err), -1);
    assert_string_equal(err.pointer, "/a");
}

static void hundred_thousand_keys_are_not_quadratic(void **state)
{
    struct ol_buf text = {0};
    outlog_err err;
    (void)state;
    write_many_keys(&text, 100000, -1, "the_same_first_bytes_%d");
    int64_t start = ol_clock_boot_us();
    assert_int_equal(parse_exact(text.data, text.bytes, &err), 0);
    assert_true(ol_clock_boot_us() - start < 2000000); // comparing each pair would take minutes
    ol_buf_clear(&text);
}

static void value_is_the_slice_without_white_space(void **state)
{
    struct ol_json value = parsed("  { \"a\" : [ 1 ] }\n");
    (void)state;
    assert_int_equal(value.type, OL_JSON_OBJECT);
    assert_int_equal(value.bytes, strlen("{ \"a\" : [ 1 ] }"));
    assert_memory_equal(value.text, "{ \"a\" : [ 1 ] }", value.bytes);
    assert_int_equal(parsed("null").type, OL_JSON_NULL);
    assert_int_equal(parsed("true").type, OL_JSON_TRUE);
    assert_int_equal(parsed("false").type, OL_JSON_FALSE);
    assert_int_equal(parsed("-1").type, OL_JSON_NUMBER);
    assert_int_equal(parsed("\"\"").type, OL_JSON_STRING);
    assert_int_equal(parsed("[]").type, OL_JSON_ARRAY);
}

static void assert_slice(const struct ol_json *value, const char *text)
{
    assert_int_equal(value->bytes, strlen(text));
    assert_memory_equal(value->text, text, value->bytes);
}

static void members_come_in_order_as_raw_slices(void **state)
{
    struct ol_json value =
        parsed("{ \"a\" : 1 ,\"b\\n\":\"x\\\"]}\" , \"c\":{\"d\":[\"}\"]},\"e\":[ ] }");
    static const char *const keys[] = {"\"a\"", "\"b\\n\"", "\"c\"", "\"e\""};
    static const char *const values[] = {"1", "\"x\\\"]}\"", "{\"d\":[\"}\"]}", "[ ]"};
    struct ol_json_iter it = {0};
    size_t i = 0;
    (void)state;
    for (; ol_json_next(&value, &it); i++) {
        assert_slice(&it.key, keys[i]);
        assert_slice(&it.value, values[i]);
    }
    assert_int_equal(i, 4);
    assert_false(ol_json_next(&value, &it));
}

static void elements_come_in_order(void **state)
{
    struct ol_json value = parsed("[ 1,[2 , 3] ,\"\xe2\x82\xac,\\\\\",null, {} ]");
    static const char *const values[] = {"1", "[2 , 3]", "\"\xe2\x82\xac,\\\\\"", "null", "{}"};
    struct ol_json_iter it = {0};
    size_t i = 0;
    (void)state;
    for (; ol_json_next(&value, &it); i++)
        assert_slice(&it.value, values[i]);
    assert_int_equal(i, 5);
    struct ol_json scalar = parsed("1"), empty = parsed("[ ]"), none = {0};
    it = (struct ol_json_iter){0};
    assert_false(ol_json_next(&scalar, &it));
    assert_false(ol_json_next(&empty, &it));
    it = (struct ol_json_iter){0};
    assert_false(ol_json_next(&none, &it));
}

static void member_is_found_by_unescaped_name(void **state)
{
    struct ol_json value = parsed("{\"a\":1,\"\\u0062\":2,\"\":3,\"x\\/y\":4,\"ab\":5}");
    struct ol_json found;
    (void)state;
    found = ol_json_get(&value, "a");
    assert_slice(&found, "1");
    found = ol_json_get(&value, "b");
    assert_slice(&found, "2");
    found = ol_json_get(&value, "");
    assert_slice(&found, "3");
    found = ol_json_get(&value, "x/y");
    assert_slice(&found, "4");
    assert_int_equal(ol_json_get(&value, "abc").type, OL_JSON_NONE);
    value = parsed("[1]");
    assert_int_equal(ol_json_get(&value, "0").type, OL_JSON_NONE);
}

/* The examples of RFC 6901, and invalid pointers. */
static void pointer_finds_its_value(void **state)
{
    struct ol_json value = parsed("{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,"
                                  "\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" \":7,\"m~n\":8}");
    static const char *const found[][2] = {
        {"/foo", "[\"bar\",\"baz\"]"},
        {"/foo/0", "\"bar\""},
        {"/foo/1", "\"baz\""},
        {"/", "0"},
        {"/a~1b", "1"},
        {"/c%d", "2"},
        {"/e^f", "3"},
        {"/g|h", "4"},
        {"/i\\j", "5"},
        {"/k\"l", "6"},
        {"/ ", "7"},
        {"/m~0n", "8"},
    };
    static const char *const absent[] = {"foo",
                                         "/foo/2",
                                         "/foo/00",
                                         "/foo/-1",
                                         "/foo/-",
                                         "/foo/",
                                         "/foo/0/x",
                                         "/m~n",
                                         "/m~",
                                         "/m~2n",
                                         "/nope",
                                         "/foo/1e0",
                                         "/foo/99999999999999999999"};
    (void)state;
    for (size_t i = 0; i < COUNT(found); i++) {
        struct ol_json at = ol_json_at(&value, found[i][0]);
        assert_slice(&at, found[i][1]);
    }
    for (size_t i = 0; i < COUNT(absent); i++)
        assert_int_equal(ol_json_at(&value, absent[i]).type, OL_JSON_NONE);
    assert_ptr_equal(ol_json_at(&value, "").text, value.text);
}

static void pointer_of_a_position_is_found(void **state)
{
    struct ol_json value = parsed("{\"a\":[10,{\"b/~\":\"here\"}],\"key\":1}");
    char pointer[64];
    (void)state;
#define POINTER(what) ol_json_pointer(&value, strstr(value.text, what), pointer, sizeof pointer)
    assert_string_equal(POINTER("here"), "/a/1/b~1~0");
    assert_string_equal(POINTER("10"), "/a/0");
    assert_string_equal(POINTER("b/~"), "/a/1");
    assert_string_equal(POINTER("key"), "");
    assert_string_equal(POINTER("1}"), "/key");
    assert_string_equal(ol_json_pointer(&value, strstr(value.text, "here"), pointer, 6), "/a/1");
    assert_string_equal(ol_json_pointer(&value, strstr(value.text, "here"), pointer, 4), "/a");
    assert_string_equal(ol_json_pointer(&value, strstr(value.text, "here"), pointer, 1), "");
}

static void string_is_unescaped(void **state)
{
    struct ol_arena arena = {0};
    struct ol_json value =
        parsed("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20ac\\ud83d\\ude00\\u0041z\"");
    size_t bytes;
    (void)state;
    const char *expect = "a\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
                         "Az";
    assert_string_equal(ol_json_string(&value, &arena, &bytes), expect);
    assert_int_equal(bytes, strlen(expect));
    assert_true(ol_json_equals(&value, expect));
    assert_false(ol_json_equals(&value, "a\""));
    assert_false(ol_json_equals(&value, "a\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
                                        "Az!"));
    value = parsed("\"\"");
    assert_string_equal(ol_json_string(&value, &arena, &bytes), "");
    assert_int_equal(bytes, 0);
    value = parsed("1");
    assert_null(ol_json_string(&value, &arena, NULL));
    assert_false(ol_json_equals(&value, "1"));
    ol_arena_clear(&arena);
}

static void whole_numbers_are_read_in_range_only(void **state)
{
    static const struct {
        const char *text;
        bool is_int;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"42", true, 42},
        {"-42", true, -42},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"99999999999999999999999999", false, 0},
        {"1.0", false, 0},
        {"1e2", false, 0},
        {"\"1\"", false, 0},
        {"null", false, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ol_json value = parsed(cases[i].text);
        int64_t number = 0;
        assert_int_equal(ol_json_int(&value, &number), cases[i].is_int);
        assert_int_equal(number, cases[i].value);
    }
}

static void i1_canonical_form_has_sorted_keys_and_no_space(void **state)
{
    static const char *const cases[][2] = {
        {" { } ", "{}"},
        {" [ ] ", "[]"},
        {"{\"b\":1,\"a\":2}", "{\"a\":2,\"b\":1}"},
        {"{ \"b\" : [ 1 , 2 ] , \"a\" : { \"d\" : null , \"c\" : true } }",
         "{\"a\":{\"c\":true,\"d\":null},\"b\":[1,2]}"},
        {"[ 1.0 , 1E2 , -0 , 123456789012345678901234567890 ]",
         "[1.0,1E2,-0,123456789012345678901234567890]"},
        {"\"\\u0041\\/\\u00e9\\u001F\\u000a\"", "\"A/\xc3\xa9\\u001f\\n\""},
        {"\"\\\"\\\\\"", "\"\\\"\\\\\""},
        {"{\"\\u0062\":1,\"a\":2}", "{\"a\":2,\"b\":1}"},
        {"{\"a\\u0062\":1,\"a\":2,\"\":3}", "{\"\":3,\"a\":2,\"ab\":1}"},
        {"{\"a_long_key_2\":1,\"a_long_key_1\":2,\"a_long_key\":3}",
         "{\"a_long_key\":3,\"a_long_key_1\":2,\"a_long_key_2\":1}"},
        /* by UTF-8 bytes, not by UTF-16 units: U+FFFD sorts before U+1F600 */
        {"{\"\\ud83d\\ude00\":1,\"\xef\xbf\xbd\":2}",
         "{\"\xef\xbf\xbd\":2,\"\xf0\x9f\x98\x80\":1}"},
        {"{\"\xc3\xa9\":1,\"z\":2,\"Z\":3}", "{\"Z\":3,\"z\":2,\"\xc3\xa9\":1}"},
        {"{\"b\":{\"z\":1,\"y\":{\"q\":1,\"p\":2}},\"a\":[{\"d\":1,\"c\":2}]}",
         "{\"a\":[{\"c\":2,\"d\":1}],\"b\":{\"y\":{\"p\":2,\"q\":1},\"z\":1}}"},
        {"{\"\\\"\":1,\"!\":2,\"#\":3}", "{\"!\":2,\"\\\"\":1,\"#\":3}"},
    };
    struct ol_buf out = {0};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ol_json value = parsed(cases[i][0]);
        ol_buf_reset(&out);
        assert_int_equal(ol_json_canonical(&value, &out), 0);
        assert_string_equal(out.data, cases[i][1]);
    }
    ol_buf_clear(&out);
}

static void canonical_form_is_appended(void **state)
{
    struct ol_buf out = {0};
    struct ol_json value = parsed("{\"b\":1,\"a\":2}");
    (void)state;
    ol_buf_text(&out, "x=");
    assert_int_equal(ol_json_canonical(&value, &out), 0);
    assert_string_equal(out.data, "x={\"a\":2,\"b\":1}");
    ol_buf_clear(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_accepted),
        cmocka_unit_test(text_is_refused_with_its_reason),
        cmocka_unit_test(raw_nul_is_refused),
        cmocka_unit_test(error_has_a_pointer_to_its_position),
        cmocka_unit_test(error_pointer_is_cut_at_a_token),
        cmocka_unit_test(nesting_ends_at_64),
        cmocka_unit_test(duplicate_is_found_in_large_objects),
        cmocka_unit_test(duplicate_is_found_around_nested_objects),
        cmocka_unit_test(hundred_thousand_keys_are_not_quadratic),
        cmocka_unit_test(value_is_the_slice_without_white_space),
        cmocka_unit_test(members_come_in_order_as_raw_slices),
        cmocka_unit_test(elements_come_in_order),
        cmocka_unit_test(member_is_found_by_unescaped_name),
        cmocka_unit_test(pointer_finds_its_value),
        cmocka_unit_test(pointer_of_a_position_is_found),
        cmocka_unit_test(string_is_unescaped),
        cmocka_unit_test(whole_numbers_are_read_in_range_only),
        cmocka_unit_test(i1_canonical_form_has_sorted_keys_and_no_space),
        cmocka_unit_test(canonical_form_is_appended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
