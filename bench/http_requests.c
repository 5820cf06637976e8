/* http_requests.c: load for `outlog serve`, from one thread with one epoll.
 *
 * bench_http_requests append PORT CLIENTS MILLISECONDS
 *     One event per request; each client waits for the response before the next request.
 *
 * bench_http_requests read PORT CLIENTS EVENTS
 *     Each client reads pages of 1000 from the beginning.
 *
 * bench_http_requests follow PORT CLIENTS
 *     Idle followers, until standard input ends.
 *
 * Connections are kept alive. Responses are parsed only as far as needed, so that the server is
 * measured, not this program. Any response but success ends the program. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HTTP_CLIENTS_MAX = 4096, HTTP_PAGE = 1000, WARM_UP_MS = 300, TAIL = 200 };

struct client {
    int fd;
    size_t got, whole;   /* bytes of the response: received so far, and in all */
    char tail[TAIL + 1]; /* the last bytes, after zeros */
    int64_t after;
};

static struct client clients[HTTP_CLIENTS_MAX];
static int client_count;
static struct bench_batch
    batch; /* the events of all clients, like those of one writer of bench_append */

static int connect_client(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        bench_die("connect to port %d: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static void send_request(struct client *client, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t sent = send(client->fd, text, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            bench_die("send: %s", strerror(errno));
        text += sent;
        bytes -= (size_t)sent;
    }
}

/* --- requests --- */

static void request_append(struct client *client)
{
    char text[2048], body[1024];
    bench_batch_next(&batch);
    const struct outlog_new_event *event = &batch.events[0];
    int bytes = snprintf(body, sizeof body,
                         "{\"org_id\":\"%s\",\"events\":[{\"aggregate_type\":\"%s\","
                         "\"aggregate_id\":\"%s\",\"event_type\":\"%s\",\"payload\":%s}]}",
                         event->org_id, event->aggregate_type, event->aggregate_id,
                         event->event_type, event->payload);
    bytes =
        snprintf(text, sizeof text,
                 "POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                 "content-length: %d\r\n\r\n%s",
                 bytes, body);
    send_request(client, text, (size_t)bytes);
}

static void request_page(struct client *client)
{
    char text[200];
    int bytes = snprintf(text, sizeof text,
                         "GET /v1/events?after=%lld&limit=%d HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
                         (long long)client->after, HTTP_PAGE);
    send_request(client, text, (size_t)bytes);
}

/* --- responses --- */

/* The length of the response that begins with `text`. Its head arrives in one piece here. */
static size_t whole_bytes(const char *text, size_t bytes, int wanted)
{
    const char *end = memmem(text, bytes, "\r\n\r\n", 4);
    const char *length = strcasestr(text, "\r\ncontent-length:");
    if (!end || !length || length > end || atoi(text + 9) != wanted)
        bench_die("%.800s", text);
    return (size_t)(end + 4 - text) + strtoul(length + 17, NULL, 10);
}

/* Read what has arrived and keep its end; true when the response is complete. */
static bool read_response(struct client *client, int wanted)
{
    static char chunk[1024 * 1024];
    ssize_t got = recv(client->fd, chunk, sizeof chunk - 1, 0);
    if (got <= 0)
        bench_die("recv: %s", got ? strerror(errno) : "closed");
    chunk[got] = '\0';
    if (!client->whole)
        client->whole = whole_bytes(chunk, (size_t)got, wanted);
    client->got += (size_t)got;
    size_t fresh = (size_t)got < TAIL ? (size_t)got : TAIL, old = TAIL - fresh;
    memmove(client->tail, client->tail + fresh, old);
    memcpy(client->tail + old, chunk + got - fresh, fresh);
    return client->got >= client->whole;
}

static int64_t number_after(const struct client *client, const char *name)
{
    const char *at = memmem(client->tail, TAIL, name, strlen(name));
    if (!at)
        bench_die("no %s in the answer", name);
    return strtoll(at + strlen(name), NULL, 10);
}

static void reset_response(struct client *client)
{
    client->got = client->whole = 0;
}

/* --- measuring --- */

static int watch_all(void)
{
    int poll = epoll_create1(0);
    for (int i = 0; i < client_count; i++) {
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = &clients[i]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, clients[i].fd, &wanted) < 0)
            bench_die("epoll: %s", strerror(errno));
    }
    return poll;
}

static void append_events(int milliseconds)
{
    struct epoll_event ready[256];
    int poll = watch_all(), open = client_count;
    double begun = bench_now() + WARM_UP_MS / 1e3, end = begun + milliseconds / 1e3, now = 0;
    int64_t events = 0;

    bench_batch_init(&batch, 0, 1, 1);
    for (int i = 0; i < client_count; i++)
        request_append(&clients[i]);
    while (open) {
        int count = epoll_wait(poll, ready, 256, 10000);
        if (count <= 0)
            bench_die("nothing came for ten seconds");
        now = bench_now();
        for (int i = 0; i < count; i++) {
            struct client *client = ready[i].data.ptr;
            if (!read_response(client, 201))
                continue;
            reset_response(client);
            events += now >= begun && now < end;
            if (now < end)
                request_append(client);
            else
                open--;
        }
    }
    printf("{\"events\":%lld,\"seconds\":%.3f,\"per_second\":%.1f}\n", (long long)events,
           milliseconds / 1e3, (double)events / (milliseconds / 1e3));
}

static void read_pages(int64_t wanted)
{
    struct epoll_event ready[256];
    int poll = watch_all(), open = client_count;
    int64_t events = 0, bytes = 0;
    double begun = bench_now();

    for (int i = 0; i < client_count; i++)
        request_page(&clients[i]);
    while (open) {
        int count = epoll_wait(poll, ready, 256, 10000);
        if (count <= 0)
            bench_die("nothing came for ten seconds");
        for (int i = 0; i < count; i++) {
            struct client *client = ready[i].data.ptr;
            if (!read_response(client, 200))
                continue;
            bytes += (int64_t)client->whole;
            int64_t next = number_after(client, "\"next_after\":");
            events += next - client->after;
            client->after = next;
            reset_response(client);
            if (next < wanted)
                request_page(client);
            else
                open--;
        }
    }
    double seconds = bench_now() - begun;
    printf("{\"events\":%lld,\"bytes\":%lld,\"seconds\":%.3f,\"per_second\":%.1f}\n",
           (long long)events, (long long)bytes, seconds, (double)events / seconds);
}

static void follow_log(void)
{
    static const char asked[] = "GET /v1/events/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    char text[4096];
    for (int i = 0; i < client_count; i++)
        send_request(&clients[i], asked, sizeof asked - 1);
    for (int i = 0; i < client_count; i++) {
        ssize_t got = recv(clients[i].fd, text, sizeof text - 1, 0);
        if (got < 12 || memcmp(text + 9, "200", 3) != 0)
            bench_die("a follower is not let in");
    }
    printf("{\"followers\":%d}\n", client_count);
    fflush(stdout);
    while (read(0, text, sizeof text) > 0)
        continue;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        bench_die(
            "usage: bench_http_requests append|read|follow PORT CLIENTS [MILLISECONDS|EVENTS]");
    int port = bench_number(argv[2], "PORT");
    client_count = bench_number(argv[3], "CLIENTS");
    if (client_count > HTTP_CLIENTS_MAX)
        bench_die("at most %d clients", HTTP_CLIENTS_MAX);
    for (int i = 0; i < client_count; i++)
        clients[i].fd = connect_client(port);
    if (strcmp(argv[1], "append") == 0 && argc == 5)
        append_events(bench_number(argv[4], "MILLISECONDS"));
    else if (strcmp(argv[1], "read") == 0 && argc == 5)
        read_pages(bench_number(argv[4], "EVENTS"));
    else if (strcmp(argv[1], "follow") == 0)
        follow_log();
    else
        bench_die("append, read or follow, not %s", argv[1]);
    return 0;
}
