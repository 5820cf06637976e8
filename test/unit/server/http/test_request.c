/* test_request.c: how parameters, times and JSON bodies of a request are read. */
#include "base/clock.h"
#include "server/http/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct ol_request *new_request(const char *name, const char *value)
{
    static struct ol_pair param;
    struct ol_request *request = ol_request_new(NULL);
    param = (struct ol_pair){name, value};
    request->params = &param;
    request->param_count = 1;
    return request;
}

/* The number read from "limit", or -1 after a problem with status 400. */
static int64_t read_number(const char *text)
{
    struct ol_request *request = new_request("limit", text);
    int64_t number;
    int result = ol_request_number(request, "limit", 1, 100, 10, &number);
    assert_int_equal(request->status, result < 0 ? 400 : 0);
    ol_request_free(request);
    return result < 0 ? -1 : number;
}

static void a_number_is_whole_and_bounded(void **state)
{
    (void)state;
    assert_int_equal(read_number("7"), 7);
    assert_int_equal(read_number("100000"), 100);
    assert_int_equal(read_number(NULL), 10);
    const char *const bad[] = {"0", "-1", "+1", " 1", "1 ", "1.5", "x", "", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_number(bad[i]), -1);
}

static int64_t read_wait(const char *text)
{
    struct ol_request *request = new_request("wait", text);
    int64_t us;
    int result = ol_request_wait(request, "wait", 60, 5, &us);
    ol_request_free(request);
    return result < 0 ? -1 : us;
}

static void a_wait_is_in_seconds_or_a_duration(void **state)
{
    (void)state;
    assert_int_equal(read_wait("2"), 2000000);
    assert_int_equal(read_wait("0.5"), 500000);
    assert_int_equal(read_wait("200ms"), 200000);
    assert_int_equal(read_wait("1h"), 60000000);
    assert_int_equal(read_wait(NULL), 5000000);
    assert_int_equal(read_wait("soon"), -1);
}

static void a_time_is_a_timestamp_or_a_duration_before_now(void **state)
{
    struct ol_request *request = new_request("since", "1970-01-01T00:00:01Z");
    int64_t time;
    (void)state;
    assert_int_equal(ol_request_time(request, "since", &time), 0);
    assert_int_equal(time, 1000000);
    assert_int_equal(ol_request_time(request, "until", &time), 0);
    assert_int_equal(time, 0);
    request->params[0].value = "1h";
    assert_int_equal(ol_request_time(request, "since", &time), 0);
    assert_in_range(ol_clock_wall_us() - time, 3600 * 1000000ull, 3601 * 1000000ull);
    request->params[0].value = "yesterday";
    assert_int_equal(ol_request_time(request, "since", &time), -1);
    ol_request_free(request);
}

/* The status of reading this body as an object with the keys `name` and `is_on`. */
static int read_body(const char *body)
{
    static const char *const allowed[] = {"name", "is_on", NULL};
    struct ol_request *request = ol_request_new(NULL);
    struct ol_json object;
    const char *name;
    bool is_on;

    ol_buf_text(&request->body, body);
    if (ol_request_object(request, allowed, &object) == 0 &&
        ol_request_text(request, &object, "name", &name) == 0)
        ol_request_flag(request, &object, "is_on", &is_on);
    int status = request->status;
    ol_request_free(request);
    return status;
}

static void a_body_is_an_object_with_known_members(void **state)
{
    (void)state;
    assert_int_equal(read_body(""), 0);
    assert_int_equal(read_body("{\"name\":\"x\",\"is_on\":true}"), 0);
    assert_int_equal(read_body("{\"name\":null}"), 0);
    const char *const bad[] = {"[]", "{", "{\"other\":1}", "{\"name\":1}", "{\"is_on\":\"yes\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_body(bad[i]), 400);
}

static void x2_a_token_of_an_org_reads_no_other(void **state)
{
    struct ol_request *request = ol_request_new(NULL);
    const char *org;
    (void)state;
    assert_int_equal(ol_request_org(request, "b", &org), 0);
    assert_string_equal(org, "b");
    request->who.org_id = "a";
    assert_int_equal(ol_request_org(request, NULL, &org), 0);
    assert_string_equal(org, "a");
    assert_int_equal(ol_request_org(request, "b", &org), -1);
    assert_int_equal(request->status, 403);
    ol_request_free(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_whole_and_bounded),
        cmocka_unit_test(a_wait_is_in_seconds_or_a_duration),
        cmocka_unit_test(a_time_is_a_timestamp_or_a_duration_before_now),
        cmocka_unit_test(a_body_is_an_object_with_known_members),
        cmocka_unit_test(x2_a_token_of_an_org_reads_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
