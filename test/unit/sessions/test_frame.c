/* test_frame.c: the frames of a session's socket, by their bytes. */
#include "sessions/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void assert_frame(struct ol_buf *frame, const char *expected)
{
    assert_false(frame->failed);
    assert_int_equal(frame->bytes, strlen(expected));
    assert_memory_equal(frame->data, expected, frame->bytes);
    ol_buf_clear(frame);
}

static void s2_accepted_names_the_request_and_its_seq(void **state)
{
    struct ol_buf frame = {0};
    (void)state;
    ol_session_frame_accepted("r-\"1\"", 7, &frame);
    assert_frame(&frame, "{\"type\":\"accepted\",\"requestId\":\"r-\\\"1\\\"\",\"seq\":7}");
}

static void s4_a_token_is_text_of_any_kind(void **state)
{
    struct ol_buf frame = {0};
    (void)state;
    ol_session_frame_token("r", "a\n\0b", 4, &frame);
    assert_frame(&frame, "{\"type\":\"token\",\"requestId\":\"r\",\"text\":\"a\\n\\u0000b\"}");
}

static void s4_an_error_may_have_no_request(void **state)
{
    struct ol_buf frame = {0};
    (void)state;
    ol_session_frame_error("invalid_json", NULL, "why", &frame);
    assert_frame(&frame, "{\"type\":\"error\",\"code\":\"invalid_json\",\"requestId\":null,"
                         "\"detail\":\"why\"}");
}

/* S-7: the members of the spec become members of the frame, also when there are none. */
static void s7_an_effect_is_its_type_its_id_and_its_spec(void **state)
{
    struct ol_pending_effect effect = {.effect_id = "0190a7c3-0000-7000-8000-00000000000a",
                                       .effect_type = "update_ui",
                                       .spec = "{\"badge\":3}"};
    struct ol_buf frame = {0};
    (void)state;
    ol_session_frame_effect(&effect, &frame);
    assert_frame(&frame, "{\"type\":\"update_ui\",\"effect_id\":"
                         "\"0190a7c3-0000-7000-8000-00000000000a\",\"badge\":3}");
    effect.spec = "{}";
    ol_session_frame_effect(&effect, &frame);
    assert_frame(&frame, "{\"type\":\"update_ui\",\"effect_id\":"
                         "\"0190a7c3-0000-7000-8000-00000000000a\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(s2_accepted_names_the_request_and_its_seq),
        cmocka_unit_test(s4_a_token_is_text_of_any_kind),
        cmocka_unit_test(s4_an_error_may_have_no_request),
        cmocka_unit_test(s7_an_effect_is_its_type_its_id_and_its_spec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
