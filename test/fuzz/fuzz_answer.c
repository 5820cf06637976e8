/* fuzz_answer.c: what a webhook's receiver may answer, over a real connection to http_plain.c.
 *
 * However the bytes are cut, the answer is the same: whether one came, its status, Retry-After and
 * body. A transfer ends once, nothing stays busy, and what is kept is within its bounds. Input: a
 * byte that says how long the pieces are, and the answer. */
#include "base/clock.h"
#include "net/http_plain.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct heard {
    struct ol_connection *connection; /* while it lives */
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

static bool assign(void *engine, int fd, struct ol_connection *connection)
{
    struct heard *heard = engine;
    (void)fd;
    heard->connection = connection;
    return true;
}

static void ended(void *engine, struct ol_http_transfer *t, CURLcode code)
{
    struct heard *heard = engine;
    ol_http_transfer_end(t, code, false);
    const struct ol_http_response *answer = &t->answer;
    check(++heard->ended == 1);
    check(answer->status == 0 || answer->status >= 200);
    check(strlen(answer->retry_after) < sizeof heard->retry_after &&
          !strpbrk(answer->retry_after, "\r\n"));
    check(answer->body_bytes <= OL_RESPONSE_KEPT);
    check((code == CURLE_OK) == (answer->error[0] == '\0'));
    heard->reach = answer->reach;
    heard->status = answer->status;
    heard->is_whole = code == CURLE_OK;
    heard->body_bytes = answer->body_bytes;
    memcpy(heard->body, answer->body, answer->body_bytes);
    snprintf(heard->retry_after, sizeof heard->retry_after, "%s", answer->retry_after);
}

static void drive(struct ol_http_plain *direct, struct heard *heard, int timeout_ms)
{
    struct epoll_event event;
    while (heard->connection && epoll_wait(epoll, &event, 1, timeout_ms) == 1)
        ol_http_plain_ready(direct, heard->connection, event.events), timeout_ms = 0;
}

static void answer(struct ol_http_transfer *t, const uint8_t *data, size_t bytes, size_t piece,
                   struct heard *heard)
{
    char asked[4096];
    struct ol_http_plain direct = {.epoll = epoll,
                                   .engine = heard,
                                   .assign = assign,
                                   .ended = ended,
                                   .due_us = INT64_MAX};
    struct ol_idle_conns line = {.most = 1};

    *heard = (struct heard){0};
    request.deadline_us = ol_clock_boot_us() + 10000000;
    check(ol_http_plain_admits(&origin, &request) && ol_http_plain_prepare(&origin, t, &request));
    ol_http_plain_begin(&direct, &line, t);
    int peer = accept(listener, NULL, NULL);
    drive(&direct, heard, 1000);
    check(recv(peer, asked, sizeof asked, 0) == (ssize_t)t->body.bytes);
    for (size_t at = 0; at < bytes && heard->connection; at += piece) {
        size_t now = bytes - at < piece ? bytes - at : piece;
        if (send(peer, data + at, now, MSG_NOSIGNAL) != (ssize_t)now)
            break;
        drive(&direct, heard, 0);
    }
    shutdown(peer, SHUT_WR);
    while (!heard->ended)
        drive(&direct, heard, 1000);
    check(direct.busy_count == 0 && !direct.busy && !t->connection);
    ol_http_plain_hang_up(&direct, &line);
    check(!heard->connection);
    close(peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct heard whole, cut;
    if (listener < 0)
        listen_once();
    if (bytes < 2)
        return 0;
    struct ol_http_transfer *t = ol_http_transfer_new(NULL);
    answer(t, data + 1, bytes - 1, bytes, &whole);
    answer(t, data + 1, bytes - 1, 1 + data[0] % 61, &cut);
    ol_http_transfer_free(t);
    check(whole.status == cut.status && whole.reach == cut.reach && whole.is_whole == cut.is_whole);
    check(strcmp(whole.retry_after, cut.retry_after) == 0);
    check(whole.body_bytes == cut.body_bytes && !memcmp(whole.body, cut.body, cut.body_bytes));
    return 0;
}
