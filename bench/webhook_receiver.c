/* webhook_receiver.c: accepts webhooks as fast as one thread can, and counts them.
 *
 *     bench_webhook_receiver
 *
 * Prints {"port":N} and answers every POST with 204 until SIGTERM; then it prints how many there
 * were. A POST to a path that begins with /hang gets no response. It parses only what it needs, to
 * leave the CPU to what is measured. */
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_BYTES_MAX = 64 * 1024, EVENTS = 256 };

struct client {
    int fd;
    size_t bytes;
    char data[REQUEST_BYTES_MAX];
};

static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
static volatile sig_atomic_t is_stopped;
static long long accepted, hung;

static void on_signal(int signal)
{
    (void)signal;
    is_stopped = 1;
}

static int listen_on_free_port(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(fd, 1024) < 0 || getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        bench_die("cannot listen");
    *port = ntohs(address.sin_port);
    return fd;
}

/* The bytes of the first request in the buffer; 0: it is not complete yet. */
static size_t request_bytes(const struct client *client)
{
    const char *end = memmem(client->data, client->bytes, "\r\n\r\n", 4);
    if (!end)
        return 0;
    size_t head = (size_t)(end - client->data) + 4, body = 0;
    for (const char *line = client->data; line < end;) {
        if (strncasecmp(line, "content-length:", 15) == 0)
            body = strtoul(line + 15, NULL, 10);
        line = (const char *)memchr(line, '\n', (size_t)(end + 4 - line)) + 1;
    }
    return head + body <= client->bytes ? head + body : 0;
}

/* Answer the requests that have arrived; false when the client has disconnected. */
static bool serve_client(struct client *client)
{
    ssize_t got =
        read(client->fd, client->data + client->bytes, REQUEST_BYTES_MAX - client->bytes - 1);
    if (got <= 0)
        return false;
    client->bytes += (size_t)got;
    client->data[client->bytes] = '\0';
    for (size_t bytes; (bytes = request_bytes(client)) > 0;) {
        if (strncmp(client->data, "POST /hang", 10) == 0)
            hung++;
        else if (write(client->fd, answer, sizeof answer - 1) == sizeof answer - 1)
            accepted++;
        memmove(client->data, client->data + bytes, client->bytes - bytes);
        client->bytes -= bytes;
    }
    return client->bytes < REQUEST_BYTES_MAX - 1;
}

static void accept_client(int listener, int epoll)
{
    struct client *client = calloc(1, sizeof *client);
    if (!client || (client->fd = accept(listener, NULL, NULL)) < 0) {
        free(client);
        return;
    }
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    epoll_ctl(epoll, EPOLL_CTL_ADD, client->fd, &event);
}

int main(void)
{
    struct epoll_event events[EVENTS], listening = {.events = EPOLLIN};
    int port, listener = listen_on_free_port(&port), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &listening);
    printf("{\"port\":%d}\n", port);
    fflush(stdout);
    while (!is_stopped) {
        int ready = epoll_wait(epoll, events, EVENTS, 200);
        for (int i = 0; i < ready; i++) {
            struct client *client = events[i].data.ptr;
            if (!client)
                accept_client(listener, epoll);
            else if (!serve_client(client)) {
                close(client->fd);
                free(client);
            }
        }
    }
    printf("{\"accepted\":%lld,\"hung\":%lld}\n", accepted, hung);
    return 0;
}
