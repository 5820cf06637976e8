/* Standard Webhooks signatures, by their bytes. */
#include "base/base64.h"
#include "net/webhook_signature.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define VECTOR_SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define VECTOR_SIGNATURE "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

static const char vector_id[] = "msg_p5jXN8AQM9LWM0D4loKWxJek";
static const char vector_body[] = "{\"test\": 2432232314}";

static void sign_with(const char *const *secrets, size_t count, struct ol_buf *out)
{
    struct ol_webhook_signature *sign;
    outlog_err err;
    assert_int_equal(ol_webhook_signature_open(secrets, count, &sign, &err), 0);
    assert_int_equal(ol_webhook_signature_add(sign, vector_id, 1614265330, vector_body,
                                              sizeof vector_body - 1, out),
                     0);
    ol_webhook_signature_close(sign);
}

static void d1_signature_matches_the_published_vector(void **state)
{
    const char *secrets[] = {VECTOR_SECRET};
    struct ol_buf out = {0};
    (void)state;
    sign_with(secrets, 1, &out);
    assert_string_equal(out.data, VECTOR_SIGNATURE);
    ol_buf_clear(&out);
}

static void d1_rotation_signs_with_both_secrets(void **state)
{
    const char *secrets[] = {"a-new-raw-secret", VECTOR_SECRET};
    struct ol_buf both = {0}, first = {0};
    (void)state;
    sign_with(secrets, 2, &both);
    sign_with(secrets, 1, &first);
    assert_memory_equal(both.data, first.data, first.bytes);
    assert_string_equal(both.data + first.bytes, " " VECTOR_SIGNATURE);
    ol_buf_clear(&both);
    ol_buf_clear(&first);
}

static void d1_context_is_reused_without_a_trace(void **state)
{
    const char *secrets[] = {VECTOR_SECRET};
    struct ol_webhook_signature *sign;
    struct ol_buf out = {0};
    (void)state;
    assert_int_equal(ol_webhook_signature_open(secrets, 1, &sign, NULL), 0);
    for (int i = 0; i < 3; i++) {
        ol_buf_reset(&out);
        assert_int_equal(ol_webhook_signature_add(sign, "other", 1, "x", 1, &out), 0);
        ol_buf_reset(&out);
        assert_int_equal(ol_webhook_signature_add(sign, vector_id, 1614265330, vector_body,
                                                  sizeof vector_body - 1, &out),
                         0);
        assert_string_equal(out.data, VECTOR_SIGNATURE);
    }
    ol_webhook_signature_close(sign);
    ol_buf_clear(&out);
}

static void d1_empty_body_can_be_signed(void **state)
{
    const char *secrets[] = {"s"};
    struct ol_webhook_signature *sign;
    struct ol_buf out = {0};
    (void)state;
    assert_int_equal(ol_webhook_signature_open(secrets, 1, &sign, NULL), 0);
    assert_int_equal(ol_webhook_signature_add(sign, "i", 1, NULL, 0, &out), 0);
    assert_int_equal(out.bytes, 3 + 44);
    ol_webhook_signature_close(sign);
    ol_buf_clear(&out);
}

static void d1_bad_secret_is_refused_without_showing_it(void **state)
{
    const char *bad[] = {"whsec_!hidden!", "whsec_", ""};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct ol_webhook_signature *sign;
        outlog_err err;
        assert_int_equal(ol_webhook_signature_open(&bad[i], 1, &sign, &err), -1);
        assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
        assert_null(strstr(err.message, "hidden"));
    }
}

static void base64_goes_there_and_back(void **state)
{
    unsigned char data[256], back[256 + 3];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 + 11);
    for (size_t bytes = 0; bytes <= sizeof data; bytes++) {
        struct ol_buf text = {0};
        ol_base64_encode(&text, data, bytes, 0);
        assert_int_equal(text.bytes, (bytes + 2) / 3 * 4);
        assert_int_equal(ol_base64_decode(text.data ? text.data : "", text.bytes, back), bytes);
        assert_memory_equal(back, data, bytes);
        ol_buf_clear(&text);
    }
    assert_int_equal(ol_base64_decode("Zg", 2, back), 1); // padding left out
    assert_int_equal(ol_base64_decode("Zg=a", 4, back), -1);
    assert_int_equal(ol_base64_decode("Z", 1, back), -1);
    assert_int_equal(ol_base64_decode("Zg\n=", 4, back), -1);
}

static void base64_lines_fit_a_mail(void **state)
{
    char data[200];
    struct ol_buf text = {0};
    (void)state;
    memset(data, 'x', sizeof data);
    ol_base64_encode(&text, data, sizeof data, 76);
    size_t line = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        line = text.data[i] == '\n' ? 0 : line + 1;
        assert_true(line <= 77); // 76 and the CR
    }
    assert_memory_equal(text.data + text.bytes - 2, "\r\n", 2);
    ol_buf_clear(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d1_signature_matches_the_published_vector),
        cmocka_unit_test(d1_rotation_signs_with_both_secrets),
        cmocka_unit_test(d1_context_is_reused_without_a_trace),
        cmocka_unit_test(d1_empty_body_can_be_signed),
        cmocka_unit_test(d1_bad_secret_is_refused_without_showing_it),
        cmocka_unit_test(base64_goes_there_and_back),
        cmocka_unit_test(base64_lines_fit_a_mail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
