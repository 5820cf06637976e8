/* sender.c: all channels share the thread's HTTP client. The descriptors of the other publishers (a
 * program, stdout, a broker, a plug-in) are in one epoll set, which the client waits for too. */
#include "publish/sender.h"

#include "base/traceparent.h"
#include "net/http_client.h"
#include "publish/mask.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { SENDER_BUSY_POLL_MS = 5, SENDER_EVENTS = 32 };

struct ol_sender_channel {
    struct ol_sender *sender;
    struct ol_sender_channel *next;
    const struct outlog_publisher *publisher;
    struct ol_publisher_own own;
    struct outlog_publisher_host host; /* what the publisher was opened with */
    void *instance;
    struct ol_buf memory; /* a plug-in's texts, masked */
    size_t in_flight;
    bool has_fd;
};

struct ol_sender {
    outlog_publish_done *done;
    void *user;
    struct ol_http_client *http;
    int epoll;
    struct ol_sender_channel *channels;
    size_t in_flight;
    size_t outcomes; /* since the last drive */
    bool is_in_callback;
};

int ol_sender_open(struct ol_sender **out, outlog_publish_done *done, void *user, outlog_err *err)
{
    struct ol_sender *sender = calloc(1, sizeof *sender);
    if (!sender)
        return ol_no_memory(err);
    *sender = (struct ol_sender){.done = done, .user = user, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    if (sender->epoll < 0) {
        ol_fail(err, OUTLOG_NO_MEMORY, "epoll: %s", strerror(errno));
        goto fail;
    }
    if (ol_http_client_open(&sender->http, err) < 0 ||
        ol_http_client_watch(sender->http, sender->epoll, err) < 0)
        goto fail;
    *out = sender;
    return 0;
fail:
    ol_http_client_close(sender->http);
    if (sender->epoll >= 0)
        close(sender->epoll);
    free(sender);
    return -1;
}

void ol_sender_close(struct ol_sender *sender)
{
    if (!sender)
        return;
    for (struct ol_sender_channel *channel = sender->channels, *next; channel; channel = next) {
        next = channel->next;
        ol_sender_channel_close(channel);
    }
    ol_http_client_close(sender->http);
    close(sender->epoll);
    free(sender);
}

/* Our own publishers mask what receivers say. A plug-in may say anything. */
static void mask_texts(struct ol_sender_channel *channel, struct outlog_outcome *outcome)
{
    struct ol_buf *memory = &channel->memory;
    const char *const *secrets = channel->own.settings->masked;
    ol_buf_reset(memory);
    if (outcome->response)
        ol_mask_add(memory, outcome->response, outcome->response_bytes, secrets, OL_RESPONSE_KEPT);
    size_t response_bytes = memory->bytes;
    ol_buf_char(memory, '\0');
    if (outcome->error)
        ol_mask_line(memory, outcome->error, strlen(outcome->error), secrets, OL_ERROR_KEPT);
    outcome->error = memory->failed    ? "out of memory for the error's text"
                     : !outcome->error ? NULL
                                       : memory->data + response_bytes + 1;
    outcome->response = memory->failed || !response_bytes ? NULL : memory->data;
    outcome->response_bytes = outcome->response ? response_bytes : 0;
}

/* Every outcome of every channel arrives here. */
static void on_done(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct ol_sender_channel *channel = user;
    struct ol_sender *sender = channel->sender;
    struct outlog_outcome masked = *outcome;
    assert(channel->in_flight > 0 && sender->in_flight > 0); // one outcome per submit
    channel->in_flight--;
    sender->in_flight--;
    sender->outcomes++;
    if (!channel->host.own)
        mask_texts(channel, &masked);
    sender->is_in_callback = true;
    sender->done(sender->user, tag, &masked);
    sender->is_in_callback = false;
}

static int find_publisher(struct ol_sender_channel *channel, const struct ol_settings *settings,
                          outlog_err *err)
{
    const struct ol_publisher_type *type = settings->publisher_type;
    if (type->load)
        return type->load(settings, &channel->publisher, err);
    if (!(channel->publisher = type->publisher))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/type",
                          "type: %s is not built into this outlog", settings->type);
    channel->host.own = &channel->own;
    return 0;
}

int ol_sender_channel_open(struct ol_sender *sender, const struct ol_settings *settings,
                           struct ol_sender_channel **out, outlog_err *err)
{
    struct ol_sender_channel *channel = calloc(1, sizeof *channel);
    if (!channel)
        return ol_no_memory(err);
    channel->sender = sender;
    channel->own = (struct ol_publisher_own){settings, sender->http};
    channel->host = (struct outlog_publisher_host){.destination = settings->name,
                                                   .settings = settings->json,
                                                   .done = on_done,
                                                   .user = channel};
    if (find_publisher(channel, settings, err) < 0)
        goto fail;
    if (channel->publisher->open(&channel->host, &channel->instance, err) < 0)
        goto fail;
    int fd = channel->publisher->fd ? channel->publisher->fd(channel->instance) : -1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = channel};
    channel->has_fd = fd >= 0 && epoll_ctl(sender->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
    channel->next = sender->channels;
    sender->channels = channel;
    *out = channel;
    return 0;
fail:
    ol_err_prefix(err, "destination %s", settings->name);
    free(channel);
    return -1;
}

void ol_sender_channel_close(struct ol_sender_channel *channel)
{
    if (!channel)
        return;
    assert(!channel->sender->is_in_callback);
    struct ol_sender_channel **at = &channel->sender->channels;
    while (*at != channel)
        at = &(*at)->next;
    *at = channel->next;
    if (channel->has_fd)
        epoll_ctl(channel->sender->epoll, EPOLL_CTL_DEL, channel->publisher->fd(channel->instance),
                  NULL);
    channel->publisher->close(channel->instance);
    assert(channel->in_flight == 0); // close() gave every attempt its outcome
    ol_buf_clear(&channel->memory);
    free(channel);
}

void ol_sender_channel_submit(struct ol_sender_channel *channel,
                              const struct outlog_delivery *message, int64_t deadline_us, void *tag)
{
    struct outlog_delivery joined = *message;
    char made[OL_TRACEPARENT_TEXT];
    assert(!channel->sender->is_in_callback); // or a long key would recurse without end
    joined.traceparent =
        ol_traceparent_of(message->traceparent, message->correlation_id, message->event_id, made);
    channel->in_flight++;
    channel->sender->in_flight++;
    channel->publisher->submit(channel->instance, &joined, deadline_us, tag);
}

void ol_sender_channel_abandon(struct ol_sender_channel *channel, void *tag)
{
    assert(!channel->sender->is_in_callback);
    if (channel->publisher->abandon)
        channel->publisher->abandon(channel->instance, tag);
}

size_t ol_sender_drive(struct ol_sender *sender, int timeout_ms)
{
    struct epoll_event events[SENDER_EVENTS];
    bool has_fds = false;

    assert(!sender->is_in_callback);
    for (struct ol_sender_channel *channel = sender->channels; channel; channel = channel->next) {
        has_fds = has_fds || channel->has_fd;
        if (!channel->has_fd && channel->publisher->drive && channel->in_flight > 0 &&
            (timeout_ms < 0 || timeout_ms > SENDER_BUSY_POLL_MS))
            timeout_ms = SENDER_BUSY_POLL_MS;
    }
    if (sender->outcomes) // outcomes that arrived inside submit()
        timeout_ms = 0;
    ol_http_client_drive(sender->http, timeout_ms);
    int ready = has_fds ? epoll_wait(sender->epoll, events, SENDER_EVENTS, 0) : 0;
    for (int i = 0; i < ready; i++) {
        struct ol_sender_channel *channel = events[i].data.ptr;
        if (channel->publisher->drive)
            channel->publisher->drive(channel->instance, 0);
    }
    for (struct ol_sender_channel *channel = sender->channels; channel; channel = channel->next)
        if (!channel->has_fd && channel->publisher->drive && channel->in_flight > 0)
            channel->publisher->drive(channel->instance, 0);
    size_t count = sender->outcomes;
    sender->outcomes = 0;
    return count;
}

void ol_sender_flush(struct ol_sender *sender)
{
    ol_http_client_flush(sender->http);
}

int ol_sender_fd(const struct ol_sender *sender)
{
    return ol_http_client_fd(sender->http);
}

size_t ol_sender_in_flight(const struct ol_sender *sender)
{
    return sender->in_flight;
}

size_t ol_sender_channel_in_flight(const struct ol_sender_channel *channel)
{
    return channel->in_flight;
}

const struct outlog_publisher *ol_sender_channel_publisher(const struct ol_sender_channel *channel)
{
    return channel->publisher;
}
