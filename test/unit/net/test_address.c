/* The addresses of brokers. */
#include "net/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct ol_address_scheme schemes[] = {{"amqp", 5672, false},
                                                   {"amqps", 5671, true},
                                                   {NULL, 0, false}};
static struct ol_arena arena;
static struct ol_address *list;
static size_t count;
static outlog_err err;

static int parse(const char *url)
{
    ol_arena_reset(&arena);
    return ol_address_parse(url, schemes, &arena, &list, &count, &err);
}

static void address_has_the_defaults_of_its_scheme(void **state)
{
    (void)state;
    assert_int_equal(parse("amqp://mq.example"), 0);
    assert_int_equal(count, 1);
    assert_string_equal(list[0].host, "mq.example");
    assert_int_equal(list[0].port, 5672);
    assert_false(list[0].is_tls);
    assert_null(list[0].user);
    assert_null(list[0].password);
    assert_null(list[0].path);
    assert_int_equal(parse("amqps://mq.example:99/"), 0);
    assert_int_equal(list[0].port, 99);
    assert_true(list[0].is_tls);
    assert_string_equal(list[0].path, "");
}

static void login_and_path_are_decoded(void **state)
{
    (void)state;
    assert_int_equal(parse("amqp://b%40b:p%3Aq%2fr@[::1]:1/v%20host"), 0);
    assert_string_equal(list[0].user, "b@b");
    assert_string_equal(list[0].password, "p:q/r");
    assert_string_equal(list[0].host, "::1");
    assert_int_equal(list[0].port, 1);
    assert_string_equal(list[0].path, "v host");
    assert_int_equal(parse("amqp://token@h"), 0);
    assert_string_equal(list[0].user, "token");
    assert_null(list[0].password);
}

static void several_addresses_are_separated_by_commas(void **state)
{
    (void)state;
    assert_int_equal(parse("amqp://a:1, amqps://b ,amqp://c"), 0);
    assert_int_equal(count, 3);
    assert_string_equal(list[1].host, "b");
    assert_true(list[1].is_tls);
    assert_string_equal(list[2].host, "c");
}

static void e13_wrong_addresses_are_refused_without_showing_them(void **state)
{
    static const char *const wrong[] = {
        "",
        "h:1",
        "http://h",
        "amqp://",
        "amqp://user:hushhush@",
        "amqp://user:hushhush@h:0",
        "amqp://user:hushhush@h:65536",
        "amqp://user:hushhush@h:",
        "amqp://user:hushhush%4@h",
        "amqp://user:hushhush%00@h",
        "amqp://user:hushhush@[::1",
        "amqp://user:hushhush@[::1]x",
        "amqp://user:hushhush@h?x=1",
        "amqp://user:hushhush@h#x",
        "amqp://user:hushhush@a b",
        "amqp://user:hushhush@a\"b",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (parse(wrong[i]) == 0)
            fail_msg("%s was accepted", wrong[i]);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        assert_string_equal(err.pointer, "/url");
        assert_null(strstr(err.message, "hushhush"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_has_the_defaults_of_its_scheme),
        cmocka_unit_test(login_and_path_are_decoded),
        cmocka_unit_test(several_addresses_are_separated_by_commas),
        cmocka_unit_test(e13_wrong_addresses_are_refused_without_showing_them),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ol_arena_clear(&arena);
    return failed;
}
