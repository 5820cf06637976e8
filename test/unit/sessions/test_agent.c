/* test_agent.c: how an agent's output is parsed. */
#include "sessions/agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BOM "\xef\xbb\xbf"
#define LINE "{\"token\":\"a\"}\n"
#define DELTA "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
#define DONE "data: [DONE]\n\n"

/* The content of an output that is read some bytes at a time; NULL: it is invalid. */
static const char *parse_output(bool is_event_stream, const char *answer, size_t at_a_time)
{
    static char content[64];
    struct ol_agent_stream stream = {.is_event_stream = is_event_stream};
    bool is_good = true;

    for (size_t left = strlen(answer); is_good && left;) {
        size_t bytes = left < at_a_time ? left : at_a_time;
        is_good = ol_agent_stream_feed(&stream, answer, bytes);
        answer += bytes, left -= bytes;
    }
    is_good = is_good && ol_agent_stream_end(&stream);
    snprintf(content, sizeof content, "%s", stream.content.data ? stream.content.data : "");
    ol_agent_stream_clear(&stream);
    return is_good ? content : NULL;
}

static void s4_one_byte_order_mark_before_an_answer_is_no_part_of_it(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 100; bytes++) { // also when it comes in pieces
        assert_string_equal(parse_output(true, BOM DELTA DELTA DONE, bytes), "aa");
        assert_string_equal(parse_output(true, BOM "\n" DELTA DONE, bytes), "a");
        assert_string_equal(parse_output(false, BOM LINE LINE, bytes), "aa");
        assert_string_equal(parse_output(false, BOM "\n" LINE, bytes), "a");
        assert_string_equal(parse_output(false, BOM, bytes), "");
    }
    assert_null(parse_output(false, BOM BOM LINE, 100)); // one, and only before the first line
    assert_null(parse_output(false, LINE BOM LINE, 100));
    assert_string_equal(parse_output(true, DELTA BOM DELTA DONE, 100),
                        "a"); // a field of another name
    assert_string_equal(parse_output(true, BOM BOM DELTA DELTA DONE, 100), "a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(s4_one_byte_order_mark_before_an_answer_is_no_part_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
