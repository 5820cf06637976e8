/* test_command.c: a command read from one flat object, as the SQLite functions take it (U1). */
#include "runs/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static int read_call(const char *name, const char *text, struct ol_arena *arena,
                     struct ol_run_call *out, outlog_err *err)
{
    return ol_run_call_read(name, text, strlen(text), arena, out, err);
}

static void u1_a_flat_object_is_split_into_call_and_body(void **state)
{
    struct ol_arena arena = {0};
    struct ol_run_call call;
    outlog_err err;
    (void)state;
    assert_int_equal(read_call("complete_step",
                               "{\"step_id\":\"s-1\",\"output_result\":{\"a\": 1},"
                               "\"actor_type\":\"user\",\"actor_id\":\"u\",\"request_id\":null,"
                               "\"idempotency_key\":\"k\",\"duration_ms\":5}",
                               &arena, &call, &err),
                     0);
    assert_int_equal(call.verb, OL_COMPLETE_STEP);
    assert_string_equal(call.id, "s-1");
    assert_string_equal(call.actor_type, "user");
    assert_string_equal(call.actor_id, "u");
    assert_null(call.request_id);
    assert_string_equal(call.idempotency_key, "k");
    assert_string_equal(call.body, "{\"output_result\":{\"a\": 1},\"duration_ms\":5}");
    assert_int_equal(call.body_bytes, strlen(call.body));
    ol_arena_clear(&arena);
}

static void u5_the_key_of_an_effect_stays_in_its_body(void **state)
{
    struct ol_arena arena = {0};
    struct ol_run_call call;
    outlog_err err;
    (void)state;
    assert_int_equal(read_call("request_effect", "{\"run_id\":\"r\",\"idempotency_key\":\"k\"}",
                               &arena, &call, &err),
                     0);
    assert_null(call.idempotency_key);
    assert_string_equal(call.body, "{\"idempotency_key\":\"k\"}");
    ol_arena_clear(&arena);
}

static void u1_an_ending_takes_its_verb_from_status_or_error(void **state)
{
    static const struct {
        const char *name, *text;
        enum ol_run_verb verb;
    } cases[] = {
        {"end_run", "{}", OL_COMPLETE_RUN},
        {"end_run", "{\"status\":\"COMPLETED\"}", OL_COMPLETE_RUN},
        {"end_run", "{\"status\":\"CANCELLED\"}", OL_CANCEL_RUN},
        {"end_run", "{\"error_code\":\"E\"}", OL_FAIL_RUN},
        {"end_tool", "{\"status\":\"FAILED\"}", OL_FAIL_TOOL},
        {"end_tool", "{\"result\":1}", OL_COMPLETE_TOOL},
    };
    struct ol_arena arena = {0};
    struct ol_run_call call;
    outlog_err err;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(read_call(cases[i].name, cases[i].text, &arena, &call, &err), 0);
        assert_int_equal(call.verb, cases[i].verb);
        assert_null(strstr(call.body, "status"));
    }
    ol_arena_clear(&arena);
}

static void u1_a_wrong_argument_is_refused(void **state)
{
    static const struct {
        const char *name, *text;
        int code;
    } cases[] = {
        {"start_run", "[]", OUTLOG_INVALID_JSON},
        {"start_run", "{", OUTLOG_INVALID_JSON},
        {"begin_run", "{}", OUTLOG_MISUSE},
        {"fail_run", "{\"run_id\":7}", OUTLOG_INVALID_FIELD},
        {"end_run", "{\"status\":\"DONE\"}", OUTLOG_INVALID_FIELD},
        {"end_tool", "{\"status\":\"CANCELLED\"}", OUTLOG_INVALID_FIELD},
    };
    struct ol_arena arena = {0};
    struct ol_run_call call;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        outlog_err err = {0};
        if (read_call(cases[i].name, cases[i].text, &arena, &call, &err) == 0)
            fail_msg("taken: %s %s", cases[i].name, cases[i].text);
        assert_int_equal(err.code, cases[i].code);
    }
    ol_arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u1_a_flat_object_is_split_into_call_and_body),
        cmocka_unit_test(u5_the_key_of_an_effect_stays_in_its_body),
        cmocka_unit_test(u1_an_ending_takes_its_verb_from_status_or_error),
        cmocka_unit_test(u1_a_wrong_argument_is_refused),
    };
    return cmocka_run_group_tests_name("runs/command", tests, NULL, NULL);
}
