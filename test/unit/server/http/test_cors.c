/* test_cors.c: which Host and Origin headers are accepted (X3). */
#include "server/http/cors.h"
#include "stores.h"

/* The status of the check, 0 when the request is allowed. */
static int check_status(struct ol_cors *cors, bool is_dev, const char *host, const char *origin,
                        const char *upgrade)
{
    struct ol_pair headers[3] = {{"host", host}};
    struct ol_request *request = ol_request_new(NULL);
    request->headers = headers;
    request->header_count = 1;
    if (origin)
        headers[request->header_count++] = (struct ol_pair){"origin", origin};
    if (upgrade)
        headers[request->header_count++] = (struct ol_pair){"upgrade", upgrade};
    int status = ol_cors_check(request, cors, is_dev) ? 0 : request->status;
    ol_request_free(request);
    return status;
}

static struct ol_cors *open_cors(struct fixture *fixture, const char *origins)
{
    struct ol_cors *cors;
    outlog_err err;
    OK(ol_store_exec(fixture->conn, OL_Q_SETTING_PUT,
                     OL_PARAMS(ol_value_text("serve.origins"), ol_value_text(origins)), NULL,
                     &err));
    OK(ol_cors_open(&cors, fixture->scratch.url, &err));
    return cors;
}

static void x3_dev_mode_accepts_loopback_hosts_only(void **state)
{
    struct ol_cors *cors = open_cors(*state, "[]");
    assert_int_equal(check_status(cors, true, "localhost", NULL, NULL), 0);
    assert_int_equal(check_status(cors, true, "LOCALHOST:7070", NULL, NULL), 0);
    assert_int_equal(check_status(cors, true, "127.0.0.1:7070", NULL, NULL), 0);
    assert_int_equal(check_status(cors, true, "[::1]:7070", NULL, NULL), 0);
    assert_int_equal(check_status(cors, true, "localhost.evil.example", NULL, NULL), 403);
    assert_int_equal(check_status(cors, true, "127.0.0.10", NULL, NULL), 403);
    assert_int_equal(check_status(cors, false, "outlog.example", NULL, NULL), 0);
    ol_cors_close(cors);
}

static void a_page_of_our_own_origin_may_call_everything(void **state)
{
    struct ol_cors *cors = open_cors(*state, "[]");
    assert_int_equal(check_status(cors, false, "a.example", "https://a.example", NULL), 0);
    assert_int_equal(check_status(cors, false, "a.example:80", "http://A.example:80", NULL), 0);
    assert_int_equal(check_status(cors, false, "a.example", "https://a.example:444", NULL), 403);
    assert_int_equal(check_status(cors, false, "a.example", "https://b.example", NULL), 403);
    assert_int_equal(check_status(cors, false, "a.example", "null", NULL), 403);
    ol_cors_close(cors);
}

static void a_page_of_a_named_origin_may_open_sockets_and_nothing_else(void **state)
{
    const char *ours = "outlog.example", *named = "https://app.example";
    struct fixture *fixture = *state;
    struct ol_cors *cors = open_cors(fixture, "[\"https://app.example\"]");
    outlog_err err;

    assert_int_equal(check_status(cors, false, ours, named, "websocket"), 0);
    assert_int_equal(check_status(cors, false, ours, named, "WebSocket"), 0);
    assert_int_equal(check_status(cors, false, ours, named, NULL), 403);
    assert_int_equal(check_status(cors, false, ours, "http://app.example", "websocket"), 403);
    OK(ol_store_exec(fixture->conn, OL_Q_SETTING_PUT,
                     OL_PARAMS(ol_value_text("serve.origins"), ol_value_text("[]")), NULL, &err));
    ol_cors_refresh(cors, fixture->log);
    assert_int_equal(check_status(cors, false, ours, named, "websocket"), 403);
    ol_cors_close(cors);
}

int main(void)
{
    const struct CMUnitTest suite[] = {
        cmocka_unit_test(x3_dev_mode_accepts_loopback_hosts_only),
        cmocka_unit_test(a_page_of_our_own_origin_may_call_everything),
        cmocka_unit_test(a_page_of_a_named_origin_may_open_sockets_and_nothing_else),
    };
    return run_with_stores("server/http/cors", NULL, 0, suite, COUNT(suite));
}
