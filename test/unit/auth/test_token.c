/* Tokens of the API (X1): the hash that is stored, scopes, and the JSON that never has the hash. */
#include "auth/token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void x1_the_hash_is_sha_256_in_hex(void **state)
{
    char hash[65];
    (void)state;
    ol_token_hash("abc", hash);
    assert_string_equal(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void scopes_have_names(void **state)
{
    (void)state;
    assert_int_equal(ol_token_scope("read"), OL_TOKEN_READ);
    assert_int_equal(ol_token_scope("append"), OL_TOKEN_APPEND);
    assert_int_equal(ol_token_scope("admin"), OL_TOKEN_ADMIN);
    assert_int_equal(ol_token_scope("root"), 0);
    assert_int_equal(ol_token_scope(""), 0);
}

static void assert_json(const struct ol_token *token, const char *secret, const char *expected)
{
    struct ol_buf out = {0};
    ol_token_json(token, secret, &out);
    assert_string_equal(out.data, expected);
    ol_buf_clear(&out);
}

static void x1_only_a_new_token_shows_its_secret(void **state)
{
    const struct ol_token token = {.id = "019a7c3e-0000-7000-8000-000000000001",
                                   .hash = "never shown",
                                   .scope = OL_TOKEN_APPEND,
                                   .has_org = true,
                                   .org_id = "a\"b",
                                   .rate = 2.5,
                                   .created_at = 1000000};
    (void)state;
    assert_json(&token, NULL,
                "{\"id\":\"019a7c3e-0000-7000-8000-000000000001\",\"scope\":\"append\","
                "\"org_id\":\"a\\\"b\",\"rate\":2.5,\"created_at\":\"1970-01-01T00:00:01.000000Z\","
                "\"last_used_at\":null,\"revoked_at\":null}");
    assert_json(&token, "olt_x",
                "{\"id\":\"019a7c3e-0000-7000-8000-000000000001\",\"scope\":\"append\","
                "\"org_id\":\"a\\\"b\",\"rate\":2.5,\"created_at\":\"1970-01-01T00:00:01.000000Z\","
                "\"last_used_at\":null,\"revoked_at\":null,\"token\":\"olt_x\"}");
}

static void no_org_and_no_limit_are_null(void **state)
{
    const struct ol_token token = {.id = "x", .scope = OL_TOKEN_READ};
    (void)state;
    assert_json(
        &token, NULL,
        "{\"id\":\"x\",\"scope\":\"read\",\"org_id\":null,\"rate\":null,\"created_at\":null,"
        "\"last_used_at\":null,\"revoked_at\":null}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(x1_the_hash_is_sha_256_in_hex),
        cmocka_unit_test(scopes_have_names),
        cmocka_unit_test(x1_only_a_new_token_shows_its_secret),
        cmocka_unit_test(no_org_and_no_limit_are_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
