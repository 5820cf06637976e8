/* test_field.c: the limits of texts (E16). */
#include "base/field.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const struct ol_field plain = {.name = "app_id", .kind = OL_FIELD_TEXT, .max_bytes = 4};
static const struct ol_field required = {.name = "event_type",
                                         .kind = OL_FIELD_TEXT,
                                         .max_bytes = 4,
                                         .is_required = true};
static const struct ol_field known = {.name = "actor_type",
                                      .kind = OL_FIELD_TEXT,
                                      .values = "user service_principal system"};

static void assert_refused(const struct ol_field *field, const char *text, const char *pointer,
                           const char *message)
{
    outlog_err err;
    assert_int_equal(ol_field_check_text(field, text, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    assert_string_equal(err.pointer, pointer);
    assert_string_equal(err.message, message);
}

static void e16_a_text_has_1_to_max_bytes(void **state)
{
    outlog_err err;
    (void)state;
    assert_int_equal(ol_field_check_text(&plain, NULL, &err), 0);
    assert_int_equal(ol_field_check_text(&plain, "a", &err), 0);
    assert_int_equal(ol_field_check_text(&plain, "\u00e9\u00e9", &err), 0);
    assert_refused(&plain, "", "/app_id", "app_id must have 1 to 4 bytes, it has 0");
    assert_refused(&plain, "\u00e9\u00e9x", "/app_id", "app_id must have 1 to 4 bytes, it has 5");
    assert_refused(&plain, "\xff", "/app_id", "app_id is not UTF-8");
    assert_refused(&required, NULL, "/event_type", "event_type is required");
}

static void e16_a_text_is_one_of_the_known_values(void **state)
{
    static const char *const wrong[] = {"", "use", "users", "user ", "system user", "service"};
    outlog_err err;
    (void)state;
    assert_int_equal(ol_field_check_text(&known, NULL, &err), 0);
    assert_int_equal(ol_field_check_text(&known, "user", &err), 0);
    assert_int_equal(ol_field_check_text(&known, "service_principal", &err), 0);
    assert_int_equal(ol_field_check_text(&known, "system", &err), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(&known, wrong[i], "/actor_type",
                       "actor_type must be user, service_principal or system");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e16_a_text_has_1_to_max_bytes),
        cmocka_unit_test(e16_a_text_is_one_of_the_known_values),
    };
    return cmocka_run_group_tests_name("field", tests, NULL, NULL);
}
