/* test_idempotency_key.c: the Idempotency-Key header of a request (I1). */
#include "server/http/idempotency_key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The key that a header gives, in the request's arena; NULL when there is none. */
static const char *read_key(struct ol_request *request, const char *given, int *result)
{
    static struct ol_pair header;
    const char *key = "untouched";
    header = (struct ol_pair){"idempotency-key", given};
    request->headers = &header;
    request->header_count = given ? 1 : 0;
    *result = ol_idempotency_key_read(request, &key);
    return key;
}

static void i1_a_key_is_plain_or_quoted(void **state)
{
    struct ol_request *request = ol_request_new(NULL);
    int result;
    (void)state;
    assert_null(read_key(request, NULL, &result));
    assert_int_equal(result, 0);
    assert_string_equal(read_key(request, "order-1", &result), "order-1");
    assert_int_equal(result, 0);
    assert_string_equal(read_key(request, "\"order-1\"", &result), "order-1");
    assert_string_equal(read_key(request, "\"order-1", &result), "\"order-1");
    assert_string_equal(read_key(request, "a\"b", &result), "a\"b");
    ol_request_free(request);
}

static void i1_a_key_has_1_to_512_bytes(void **state)
{
    static const char *const refused[] = {"", "\"\""};
    struct ol_request *request = ol_request_new(NULL);
    char longest[514];
    int result;
    (void)state;
    memset(longest, 'k', 513);
    longest[512] = '\0';
    assert_string_equal(read_key(request, longest, &result), longest);
    assert_int_equal(result, 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_null(read_key(request, refused[i], &result));
        assert_int_equal(result, -1);
        assert_int_equal(request->status, 400);
    }
    longest[512] = 'k';
    longest[513] = '\0';
    assert_null(read_key(request, longest, &result));
    assert_int_equal(result, -1);
    ol_request_free(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(i1_a_key_is_plain_or_quoted),
        cmocka_unit_test(i1_a_key_has_1_to_512_bytes),
    };
    return cmocka_run_group_tests_name("server/http/idempotency_key", tests, NULL, NULL);
}
