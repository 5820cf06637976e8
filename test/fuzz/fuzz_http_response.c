/* fuzz_http_response.c: responses of a webhook's receiver, over a real connection to http_plain.c.
 *
 * However the bytes are cut into pieces, the result is the same: whether a response came, its
 * status, Retry-After and body. A transfer ends once, no connection stays busy, and the kept part
 * is within its limits. Input: one byte for the length of the pieces, then the response. */
#include "base/clock.h"
#include "net/http_plain.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct result {
    struct ol_connection *connection; /* while it is open */
    int ended;
    enum ol_http_reach reach;
    int status;
    bool is_whole;
    char retry_after[64];
    size_t body_bytes;
    char body[OL_RESPONSE_KEPT];
};

static int listener = -1, epoll = -1;
static struct ol_http_origin origin;
static struct ol_headers headers;
static struct ol_http_client_request request = {.method = "POST",
                                                .headers = &headers,
                                                .body = "{}",
                                                .body_bytes = 2,
                                                .allow_private = true};

static void check(bool is_ok)
{
    if (!is_ok)
        abort();
}

static void listen_once(void)
{
    static char url[64];
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof here;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    epoll = epoll_create1(0);
    check(bind(listener, (struct sockaddr *)&here, bytes) == 0 && listen(listener, 16) == 0 &&
          getsockname(listener, (struct sockaddr *)&here, &bytes) == 0 && epoll >= 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", ntohs(here.sin_port));
    request.url = url;
}

static bool on_connection(void *engine, int fd, struct ol_connection *connection)
{
    struct result *result = engine;
    (void)fd;
    result->connection = connection;
    return true;
}

static void on_end(void *engine, struct ol_http_transfer *t, CURLcode code)
{
    struct result *result = engine;
    ol_http_transfer_end(t, code, false);
    const struct ol_http_response *response = &t->response;
    check(++result->ended == 1);
    check(response->status == 0 || response->status >= 200);
    check(strlen(response->retry_after) < sizeof result->retry_after &&
          !strpbrk(response->retry_after, "\r\n"));
    check(response->body_bytes <= OL_RESPONSE_KEPT);
    check((code == CURLE_OK) == (response->error[0] == '\0'));
    result->reach = response->reach;
    result->status = response->status;
    result->is_whole = code == CURLE_OK;
    result->body_bytes = response->body_bytes;
    memcpy(result->body, response->body, response->body_bytes);
    snprintf(result->retry_after, sizeof result->retry_after, "%s", response->retry_after);
}

static void drive_plain(struct ol_http_plain *plain, struct result *result, int timeout_ms)
{
    struct epoll_event event;
    while (result->connection && epoll_wait(epoll, &event, 1, timeout_ms) == 1)
        ol_http_plain_ready(plain, result->connection, event.events), timeout_ms = 0;
}

static void run_transfer(struct ol_http_transfer *t, const uint8_t *data, size_t bytes,
                         size_t piece, struct result *result)
{
    char sent[4096];
    struct ol_http_plain plain = {.epoll = epoll,
                                  .engine = result,
                                  .on_connection = on_connection,
                                  .on_end = on_end,
                                  .due_us = INT64_MAX};
    struct ol_idle_conns idle = {.max = 1};

    *result = (struct result){0};
    request.deadline_us = ol_clock_boot_us() + 10000000;
    check(ol_http_plain_admits(&origin, &request) && ol_http_plain_prepare(&origin, t, &request));
    ol_http_plain_begin(&plain, &idle, t);
    int peer = accept(listener, NULL, NULL);
    drive_plain(&plain, result, 1000);
    check(recv(peer, sent, sizeof sent, 0) == (ssize_t)t->body.bytes);
    for (size_t at = 0; at < bytes && result->connection; at += piece) {
        size_t now = bytes - at < piece ? bytes - at : piece;
        if (send(peer, data + at, now, MSG_NOSIGNAL) != (ssize_t)now)
            break;
        drive_plain(&plain, result, 0);
    }
    shutdown(peer, SHUT_WR);
    while (!result->ended)
        drive_plain(&plain, result, 1000);
    check(plain.busy_count == 0 && !plain.busy && !t->connection);
    ol_http_plain_close_idle(&plain, &idle);
    check(!result->connection);
    close(peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct result whole, cut;
    if (listener < 0)
        listen_once();
    if (bytes < 2)
        return 0;
    struct ol_http_transfer *t = ol_http_transfer_new(NULL);
    run_transfer(t, data + 1, bytes - 1, bytes, &whole);
    run_transfer(t, data + 1, bytes - 1, 1 + data[0] % 61, &cut);
    ol_http_transfer_free(t);
    check(whole.status == cut.status && whole.reach == cut.reach && whole.is_whole == cut.is_whole);
    check(strcmp(whole.retry_after, cut.retry_after) == 0);
    check(whole.body_bytes == cut.body_bytes && !memcmp(whole.body, cut.body, cut.body_bytes));
    return 0;
}
