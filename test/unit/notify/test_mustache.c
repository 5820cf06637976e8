/* Templates, by their bytes (N1). */
#include "notify/mustache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct ol_buf out;
static outlog_err err;

static const char event[] = "{\"id\":\"e-1\",\"title\":\"outer\"}";
static const char payload[] =
    "{\"title\":\"Tom & <Jerry> \\\"x\\\" 'y'\",\"n\":1.50,\"yes\":true,\"no\":false,\"nil\":null,"
    "\"empty\":\"\",\"none\":[],\"list\":[\"a\",\"b\"],\"deep\":{\"er\":{\"x\":\"\\u00e4\\n\"}},"
    "\"rows\":[{\"k\":1},{\"k\":2,\"title\":\"inner\"}]}";

static int render(const char *text, enum ol_mustache_escape escape)
{
    struct ol_json contexts[2];
    assert_int_equal(ol_json_parse(event, strlen(event), &contexts[0], &err), 0);
    assert_int_equal(ol_json_parse(payload, strlen(payload), &contexts[1], &err), 0);
    ol_buf_reset(&out);
    return ol_mustache_render(text, strlen(text), contexts, 2, escape, &out, &err);
}

static void is(const char *text, const char *expected)
{
    assert_int_equal(render(text, OL_MUSTACHE_TEXT), 0);
    assert_string_equal(out.data ? out.data : "", expected);
}

static void n1_names_lead_to_values(void **state)
{
    (void)state;
    is("plain", "plain");
    is("{{id}}", "e-1");
    is("{{ deep.er.x }}", "\xc3\xa4\n");
    is("{{n}} {{yes}} {{no}}", "1.50 true false");
    is("{{list.1}} {{rows.1.k}} {{list.2}}", "b 2 ");
    is("[{{nil}}{{absent}}{{deep.absent.x}}{{title.x}}]", "[]");
    is("{{list}}", "[\"a\",\"b\"]");
    is("a{{! a remark }}b", "ab");
}

static void n1_only_html_is_escaped(void **state)
{
    (void)state;
    is("{{title}}", "Tom & <Jerry> \"x\" 'y'");
    assert_int_equal(render("<b>{{title}}</b>", OL_MUSTACHE_HTML), 0);
    assert_string_equal(out.data, "<b>Tom &amp; &lt;Jerry&gt; &quot;x&quot; &#39;y&#39;</b>");
    assert_int_equal(render("{{{title}}}{{&title}}", OL_MUSTACHE_HTML), 0);
    assert_string_equal(out.data, "Tom & <Jerry> \"x\" 'y'Tom & <Jerry> \"x\" 'y'");
}

static void n1_sections(void **state)
{
    (void)state;
    is("{{#list}}<{{.}}>{{/list}}", "<a><b>");
    is("{{#rows}}{{k}}{{title}};{{/rows}}", "1Tom & <Jerry> \"x\" 'y';2inner;");
    is("{{#deep}}{{#er}}{{x}}{{/er}}{{/deep}}", "\xc3\xa4\n");
    is("{{#yes}}y{{/yes}}{{#n}}n{{/n}}{{#title}}t{{/title}}", "ynt");
    is("{{#no}}a{{/no}}{{#nil}}b{{/nil}}{{#none}}c{{/none}}{{#empty}}d{{/empty}}{{#absent}}e{{/absent}}",
       "");
    is("{{^no}}a{{/no}}{{^nil}}b{{/nil}}{{^none}}c{{/none}}{{^empty}}d{{/empty}}{{^absent}}e{{/absent}}",
       "abcde");
    is("{{^yes}}{{#list}}x{{/list}}{{/yes}}ok", "ok");
    is("{{#list}}{{#list}}{{.}}{{/list}} {{/list}}", "ab ab ");
}

static void n1_a_tag_alone_takes_its_line(void **state)
{
    (void)state;
    is("a\n{{#yes}}\nb\n{{/yes}}\nc\n", "a\nb\nc\n");
    is("a\n  {{! x }}  \r\nb", "a\nb");
    is("{{#list}}\n- {{.}}\n{{/list}}", "- a\n- b\n");
    is("a {{#yes}}\nb{{/yes}}\n", "a \nb\n");
    is("{{title}}\n", "Tom & <Jerry> \"x\" 'y'\n");
}

static void n1_what_cannot_be_read_is_refused(void **state)
{
    static const char *const bad[] = {"{{",
                                      "{{a",
                                      "{{{a}}",
                                      "{{}}",
                                      "{{#a}}",
                                      "{{/a}}",
                                      "{{#a}}{{/b}}",
                                      "{{> x}}",
                                      "{{=<% %>=}}",
                                      "{{a b}}",
                                      "{{#a}}{{#b}}{{/a}}{{/b}}"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ol_mustache_check(bad[i], strlen(bad[i]), &err), -1);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        assert_int_equal(render(bad[i], OL_MUSTACHE_TEXT), -1);
    }
    assert_int_equal(ol_mustache_check("}} } {a}", 8, &err), 0);
}

static void n1_growth_has_an_end(void **state)
{
    struct ol_buf text = {0};
    (void)state;
    for (int i = 0; i < 40; i++)
        ol_buf_text(&text, "{{#yes}}");
    for (int i = 0; i < 40; i++)
        ol_buf_text(&text, "{{/yes}}");
    assert_int_equal(render(text.data, OL_MUSTACHE_TEXT), -1);
    ol_buf_reset(&text);
    for (int i = 0; i < 24; i++)
        ol_buf_text(&text, "{{#list}}");
    ol_buf_text(&text, "a longer text ");
    for (int i = 0; i < 24; i++)
        ol_buf_text(&text, "{{/list}}");
    assert_int_equal(render(text.data, OL_MUSTACHE_TEXT), -1);
    assert_int_equal(err.code, OUTLOG_TOO_LARGE);
    ol_buf_clear(&text);
}

static int clear(void **state)
{
    (void)state;
    ol_buf_clear(&out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(n1_names_lead_to_values),
        cmocka_unit_test(n1_only_html_is_escaped),
        cmocka_unit_test(n1_sections),
        cmocka_unit_test(n1_a_tag_alone_takes_its_line),
        cmocka_unit_test(n1_what_cannot_be_read_is_refused),
        cmocka_unit_test(n1_growth_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, clear);
}
