/* Subjects, topics, streams and routing keys (D4). */
#include "destinations/name_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct ol_arena arena;
static outlog_err err;

static const char *fill(const char *template, const struct outlog_delivery *message,
                        size_t max_bytes)
{
    const char *name = NULL;
    ol_arena_reset(&arena);
    return ol_name_template_fill(template, message, " *>", max_bytes, &arena, &name, &err) < 0
               ? NULL
               : name;
}

static void values_take_the_place_of_fields(void **state)
{
    struct outlog_delivery message = {.event_type = "order.paid",
                                      .org_id = "acme",
                                      .ordering_key = "o-1",
                                      .partition_key = "p"};
    (void)state;
    assert_string_equal(fill("a.{org_id}.{event_type}", &message, 0), "a.acme.order.paid");
    assert_string_equal(fill("{ordering_key}{partition_key}", &message, 0), "o-1p");
    const char *plain = "orders";
    assert_ptr_equal(fill(plain, &message, 0), plain);
}

static void wildcards_and_absent_values_become_underscores(void **state)
{
    struct outlog_delivery message = {.event_type = "a.*.>\n\x7f b", .ordering_key = ""};
    (void)state;
    assert_string_equal(fill("{event_type}", &message, 0), "a._.____b");
    assert_string_equal(fill("x.{org_id}.{ordering_key}.y", &message, 0), "x._._.y");
}

static void names_that_are_too_long_are_refused(void **state)
{
    struct outlog_delivery message = {.event_type = "12345"};
    (void)state;
    assert_string_equal(fill("{event_type}6", &message, 6), "123456");
    assert_null(fill("{event_type}67", &message, 6));
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
}

static void unknown_fields_are_found(void **state)
{
    (void)state;
    assert_null(ol_name_template_unknown_field("plain"));
    assert_null(ol_name_template_unknown_field("{event_type}.{partition_key}"));
    const char *template = "{event_type}.{payload}";
    assert_ptr_equal(ol_name_template_unknown_field(template), strstr(template, "{payload}"));
    assert_non_null(ol_name_template_unknown_field("{event_type"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_take_the_place_of_fields),
        cmocka_unit_test(wildcards_and_absent_values_become_underscores),
        cmocka_unit_test(names_that_are_too_long_are_refused),
        cmocka_unit_test(unknown_fields_are_found),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ol_arena_clear(&arena);
    return failed;
}
