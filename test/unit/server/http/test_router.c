/* test_router.c: paths, methods and query parameters find their route, or an answer. */
#include "server/http/router.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The tables that the router lists; two of them have routes here. */
const struct ol_route ol_event_routes[] = {
    {.method = "GET", .path = "/v1/events", .name = "list", .query = "after limit"},
    {.method = "POST", .path = "/v1/events", .name = "append"},
    {.method = "GET", .path = "/v1/events/stream", .name = "stream"},
    {.method = "GET", .path = "/v1/events/{id}", .name = "get"},
    {0},
};
const struct ol_route ol_run_routes[] = {
    {.method = "POST", .path = "/v1/runs/{id}/steps/{step}", .name = "step"},
    {0},
};
const struct ol_route ol_trace_routes[] = {{0}}, ol_message_routes[] = {{0}},
                      ol_destination_routes[] = {{0}}, ol_consumer_routes[] = {{0}},
                      ol_token_routes[] = {{0}}, ol_stats_routes[] = {{0}},
                      ol_metrics_routes[] = {{0}}, ol_health_routes[] = {{0}},
                      ol_console_routes[] = {{0}}, ol_openapi_routes[] = {{0}},
                      ol_projection_routes[] = {{0}}, ol_session_routes[] = {{0}},
                      ol_notification_routes[] = {{0}}, ol_sink_routes[] = {{0}};

static struct ol_request *new_request(const char *method, const char *path)
{
    struct ol_request *request = ol_request_new(NULL);
    request->method = method;
    request->path = path;
    return request;
}

static void assert_route(const char *method, const char *path, const char *name, const char *first,
                         const char *second)
{
    struct ol_request *request = new_request(method, path);
    assert_true(ol_router_find(request));
    assert_string_equal(request->route->name, name);
    if (first)
        assert_string_equal(request->args[0], first);
    else
        assert_null(request->args[0]);
    if (second)
        assert_string_equal(request->args[1], second);
    ol_request_free(request);
}

static void a_path_finds_its_route_and_parameters(void **state)
{
    (void)state;
    assert_route("GET", "/v1/events", "list", NULL, NULL);
    assert_route("HEAD", "/v1/events", "list", NULL, NULL);
    assert_route("POST", "/v1/events", "append", NULL, NULL);
    assert_route("GET", "/v1/events/stream", "stream", NULL, NULL);
    assert_route("GET", "/v1/events/17", "get", "17", NULL);
    assert_route("GET", "/v1/events/a%2Fb%20c", "get", "a/b c", NULL);
    assert_route("POST", "/v1/runs/r/steps/s", "step", "r", "s");
}

static void assert_refused(const char *method, const char *path, int status)
{
    struct ol_request *request = new_request(method, path);
    assert_false(ol_router_find(request));
    assert_int_equal(request->status, status);
    ol_request_free(request);
}

static void a_wrong_path_or_method_is_answered(void **state)
{
    (void)state;
    assert_refused("GET", "/v1/event", 404);
    assert_refused("GET", "/v1/events/", 404);
    assert_refused("GET", "/v1/events/1/2", 404);
    assert_refused("POST", "/v1/runs//steps/s", 404);
    assert_refused("GET", "/v1/events/%ff", 400);
    assert_refused("POST", "/v1/runs/r/steps/%zz", 400);

    struct ol_request *request = new_request("DELETE", "/v1/events");
    assert_false(ol_router_find(request));
    assert_int_equal(request->status, 405);
    assert_non_null(strstr(request->extra.data, "allow: GET, POST\r\n"));
    ol_request_free(request);
}

static int check_query(struct ol_pair *params, size_t count)
{
    struct ol_request *request = new_request("GET", "/v1/events");
    assert_true(ol_router_find(request));
    request->params = params;
    request->param_count = count;
    int status = ol_router_check_query(request) ? 0 : request->status;
    ol_request_free(request);
    return status;
}

static void only_known_parameters_are_taken_and_each_once(void **state)
{
    struct ol_pair known[] = {{"limit", "1"}, {"after", "2"}};
    struct ol_pair twice[] = {{"limit", "1"}, {"limit", "2"}};
    struct ol_pair part[] = {{"lim", "1"}}, empty[] = {{"", ""}};
    (void)state;
    assert_int_equal(check_query(NULL, 0), 0);
    assert_int_equal(check_query(known, 2), 0);
    assert_int_equal(check_query(twice, 2), 400);
    assert_int_equal(check_query(part, 1), 400);
    assert_int_equal(check_query(empty, 1), 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_finds_its_route_and_parameters),
        cmocka_unit_test(a_wrong_path_or_method_is_answered),
        cmocka_unit_test(only_known_parameters_are_taken_and_each_once),
    };
    return cmocka_run_group_tests_name("server/http/router", tests, NULL, NULL);
}
