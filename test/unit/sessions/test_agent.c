/* test_agent.c: how an agent's words are read. */
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

static void ignore(void *user, const char *text, size_t bytes)
{
    (void)user, (void)text, (void)bytes;
}

/* What is made of an answer that comes some bytes at a time; NULL: it cannot be understood. */
static const char *hear(bool is_stream, const char *answer, size_t at_a_time)
{
    static char content[64];
    struct ol_agent_stream ear = {.token = ignore, .is_stream = is_stream};
    bool is_good = true;

    for (size_t left = strlen(answer); is_good && left;) {
        size_t bytes = left < at_a_time ? left : at_a_time;
        is_good = ol_agent_stream_feed(&ear, answer, bytes);
        answer += bytes, left -= bytes;
    }
    is_good = is_good && ol_agent_stream_end(&ear);
    snprintf(content, sizeof content, "%s", ear.content.data ? ear.content.data : "");
    ol_agent_stream_clear(&ear);
    return is_good ? content : NULL;
}

static void s4_one_byte_order_mark_before_an_answer_is_no_part_of_it(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 100; bytes++) { // also where it comes in pieces
        assert_string_equal(hear(true, BOM DELTA DELTA DONE, bytes), "aa");
        assert_string_equal(hear(true, BOM "\n" DELTA DONE, bytes), "a");
        assert_string_equal(hear(false, BOM LINE LINE, bytes), "aa");
        assert_string_equal(hear(false, BOM "\n" LINE, bytes), "a");
        assert_string_equal(hear(false, BOM, bytes), "");
    }
    assert_null(hear(false, BOM BOM LINE, 100)); // one, and only before the first line
    assert_null(hear(false, LINE BOM LINE, 100));
    assert_string_equal(hear(true, DELTA BOM DELTA DONE, 100), "a"); // a field of another name
    assert_string_equal(hear(true, BOM BOM DELTA DELTA DONE, 100), "a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(s4_one_byte_order_mark_before_an_answer_is_no_part_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
