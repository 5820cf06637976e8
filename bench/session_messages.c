/* session_messages.c: many WebSocket clients in one thread, at the lowest possible cost.
 *
 * bench_session_messages hold PORT SOCKETS
 *     Opens the sockets and keeps them open until its standard input ends.
 *
 * bench_session_messages send PORT SOCKETS WINDOW MS
 *     Sends user messages, at most WINDOW per socket without a reply, and counts the replies:
 * frames `accepted`, or echoes.
 *
 * bench_session_messages receive PORT SOCKETS TOKENS TEXT
 *     All sockets join one session and one of them sends TEXT. Counts the tokens until every socket
 *     has TOKENS of them.
 *
 * Each prints one line of JSON. Frames are written and parsed by hand, with a mask of zeros. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAME_BYTES_MAX = 16 * 1024, EVENTS = 512 };

struct client {
    int fd, number;
    long long sent, received; /* received: frames that count */
    size_t bytes;
    char data[FRAME_BYTES_MAX];
};

static struct client *clients;
static int count, poll_fd;
static long long received, errors;
static long run_id;         /* makes request ids of each run different */
static const char *counted; /* a frame counts if it contains this */

static void send_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            bench_die("send: %s", strerror(errno));
        if (sent > 0) {
            data += sent;
            bytes -= (size_t)sent;
        }
    }
}

static void read_head(struct client *client)
{
    while (!memmem(client->data, client->bytes, "\r\n\r\n", 4)) {
        ssize_t got =
            recv(client->fd, client->data + client->bytes, FRAME_BYTES_MAX - client->bytes, 0);
        if (got <= 0)
            bench_die("no handshake for socket %d", client->number);
        client->bytes += (size_t)got;
    }
    if (!memmem(client->data, client->bytes, " 101 ", 5))
        bench_die("refused: %.200s", client->data);
    const char *end = memmem(client->data, client->bytes, "\r\n\r\n", 4);
    size_t head = (size_t)(end - client->data) + 4;
    memmove(client->data, client->data + head, client->bytes -= head);
}

static void open_one(struct client *client, int port, int session)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    char request[400];
    int on = 1;

    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd < 0 || connect(client->fd, (struct sockaddr *)&address, sizeof address) < 0)
        bench_die("connect: %s", strerror(errno));
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int bytes = snprintf(request, sizeof request,
                         "GET /v1/sessions/u-%d:helper:t/socket HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                         "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                         "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
                         "Sec-WebSocket-Version: 13\r\n\r\n",
                         session, port);
    send_all(client->fd, request, (size_t)bytes);
    read_head(client);
    fcntl(client->fd, F_SETFL, O_NONBLOCK);
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, client->fd, &event);
}

static void open_all(int port, bool is_one_session)
{
    clients = calloc((size_t)count, sizeof *clients);
    if (!clients || (poll_fd = epoll_create1(0)) < 0)
        bench_die("out of memory");
    for (int i = 0; i < count; i++) {
        clients[i].number = i;
        open_one(&clients[i], port, is_one_session ? 0 : i);
    }
}

static size_t put_frame(char *out, const char *text, size_t bytes)
{
    size_t head = 2;
    out[0] = (char)0x81;
    if (bytes < 126) {
        out[1] = (char)(0x80 | bytes);
    } else {
        out[1] = (char)(0x80 | 126);
        out[2] = (char)(bytes >> 8);
        out[3] = (char)bytes;
        head = 4;
    }
    memset(out + head, 0, 4);
    memcpy(out + head + 4, text, bytes);
    return head + 4 + bytes;
}

static void send_messages(struct client *client, int times)
{
    char frames[4096], text[256];
    size_t bytes = 0;
    for (int i = 0; i < times; i++) {
        int length =
            snprintf(text, sizeof text,
                     "{\"type\":\"user_message\",\"requestId\":\"r-%ld-%lld\",\"text\":\"%s\"}",
                     run_id, client->sent++,
                     "what a person says in a chat is about as long as this line is, more or less");
        if (bytes + (size_t)length + 10 > sizeof frames) {
            send_all(client->fd, frames, bytes);
            bytes = 0;
        }
        bytes += put_frame(frames + bytes, text, (size_t)length);
    }
    send_all(client->fd, frames, bytes);
}

/* Read from the socket; returns how many frames that count arrived. */
static int read_frames(struct client *client)
{
    int found = 0;
    size_t at = 0;
    ssize_t got =
        recv(client->fd, client->data + client->bytes, FRAME_BYTES_MAX - client->bytes, 0);
    if (got <= 0 && !(got < 0 && errno == EAGAIN))
        bench_die("socket %d was closed", client->number);
    client->bytes += got > 0 ? (size_t)got : 0;
    while (client->bytes - at >= 2) {
        const unsigned char *head = (unsigned char *)client->data + at;
        size_t size = head[1] & 127, skip = 2;
        if (size == 126) {
            if (client->bytes - at < 4)
                break;
            size = (size_t)head[2] << 8 | head[3];
            skip = 4;
        }
        if (client->bytes - at < skip + size)
            break;
        const char *text = client->data + at + skip;
        if (memmem(text, size < 20 ? size : 20, "\"error\"", 7)) {
            if (errors++ == 0)
                fprintf(stderr, "%.*s\n", (int)size, text);
        } else if (memmem(text, size < 40 ? size : 40, counted, strlen(counted))) {
            found++;
        }
        at += skip + size;
    }
    memmove(client->data, client->data + at, client->bytes -= at);
    client->received += found;
    received += found;
    return found;
}

static double send_for(double seconds, int window)
{
    struct epoll_event events[EVENTS];
    double began = bench_now(), now = began;
    for (int i = 0; i < count; i++)
        send_messages(&clients[i], window);
    while ((now = bench_now()) - began < seconds) {
        int ready = epoll_wait(poll_fd, events, EVENTS, 100);
        for (int i = 0; i < ready; i++) {
            int found = read_frames(events[i].data.ptr);
            if (found)
                send_messages(events[i].data.ptr, found);
        }
    }
    return now - began;
}

static double receive_until(long long wanted)
{
    struct epoll_event events[EVENTS];
    double began = 0;
    while (received < wanted) {
        int ready = epoll_wait(poll_fd, events, EVENTS, 30000);
        if (ready <= 0)
            bench_die("received %lld of %lld tokens", received, wanted);
        if (began <= 0)
            began = bench_now();
        for (int i = 0; i < ready; i++)
            read_frames(events[i].data.ptr);
    }
    return bench_now() - began;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        bench_die("usage: bench_session_messages hold|send|receive PORT SOCKETS …");
    int port = bench_number(argv[2], "PORT");
    char frame[512];

    run_id = (long)getpid();
    count = bench_number(argv[3], "SOCKETS");
    if (strcmp(argv[1], "hold") == 0) {
        open_all(port, false);
        printf("{\"open\":%d}\n", count);
        fflush(stdout);
        while (read(0, frame, sizeof frame) > 0)
            ;
    } else if (strcmp(argv[1], "send") == 0 && argc == 6) {
        int window = bench_number(argv[4], "WINDOW"), ms = bench_number(argv[5], "MS");
        open_all(port, false);
        counted = "\"requestId\""; // both the echo and `accepted` contain it
        double seconds = send_for(ms / 1000.0, window);
        printf("{\"per_second\":%.0f,\"errors\":%lld}\n", (double)received / seconds, errors);
    } else if (strcmp(argv[1], "receive") == 0 && argc == 6) {
        int tokens = bench_number(argv[4], "TOKENS");
        open_all(port, true);
        counted = strncmp(argv[5], "fan ", 4) == 0 ? "fan " : "\"token\"";
        send_all(clients[0].fd, frame, put_frame(frame, argv[5], strlen(argv[5])));
        double seconds = receive_until((long long)tokens * count);
        printf("{\"per_second\":%.0f}\n", (double)received / seconds);
    } else {
        bench_die("usage: bench_session_messages hold|send|receive PORT SOCKETS …");
    }
    return 0;
}
